package render

import (
	"bytes"
	"errors"
	"flag"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/core/recording"
	"github.com/caravan-sched/caravan/planner/httpapi"
)

var update = flag.Bool("update", false, "write the expected files again")

type view func(io.Writer, Style) error

func views() map[string]view {
	status := httpapi.Status{
		Version: "0.1.0", Leader: true, Policy: "fifo", Nomad: httpapi.Nomad{Address: "http://127.0.0.1:4646", OK: true},
		Predictions: "half of the last 20 predictions were off by 12% or less",
		ViewTaken:   now, Decided: now.Add(-2 * time.Second),
		Counts:   httpapi.Counts{Nodes: 4, GPUs: 32, FreeGPUs: 10, UnhealthyGPUs: 1, Queued: 2, Running: 2},
		Warnings: []httpapi.Warning{{Subject: "batch jobs", Text: "Nomad's own preemption is on; turn it off"}},
	}
	down := httpapi.Status{
		Version: "0.1.0", LeaderAddress: "http://10.0.0.2:4656", ObserveOnly: true, Policy: "fifo",
		Nomad: httpapi.Nomad{Address: "http://127.0.0.1:4646", Error: "connection refused", Since: now.Add(-time.Minute)},
	}
	plan := httpapi.PlanResult{Managed: true, Decision: model.Decision{Action: model.ActionAdmit, Reason: "both members fit in rack r1", Detail: running.Detail}, Placement: slices.Clone(running.Placement[:1])}
	plan.Placement[0].State = "none"
	yields := plan
	yields.Decision.Action = model.ActionWait
	yields.Preemptions = []model.Preemption{{Namespace: "default", Job: "nightly", Action: model.ActionPreempt, Members: make([]model.Member, 2), For: model.JobName{ID: "x"}, Cost: model.Cost{Lost: 720, Restart: 480}, Reason: "gives way to x"}}
	yields.Effects = []httpapi.Effect{{Namespace: "research", Job: "sweep", Now: model.ActionAdmit, Then: model.ActionWait, Reason: "x is ahead"}}
	links := pairNode()
	links.Links = nil
	return map[string]view{
		"queue":        func(w io.Writer, s Style) error { return Queue(w, s, jobs[1:3]) },
		"queue-empty":  func(w io.Writer, s Style) error { return Queue(w, s, nil) },
		"jobs":         func(w io.Writer, s Style) error { return Jobs(w, s, jobs) },
		"jobs-empty":   func(w io.Writer, s Style) error { return Jobs(w, s, nil) },
		"status":       func(w io.Writer, s Style) error { return Status(w, s, status) },
		"status-down":  func(w io.Writer, s Style) error { return Status(w, s, down) },
		"explain-wait": func(w io.Writer, s Style) error { return Explain(w, s, waiting) },
		"explain-held": func(w io.Writer, s Style) error {
			s.Nodes = map[string]string{"5f7d0c4e-0000-4000-8000-000000000001": "gpu-7"}
			held := []string{"5f7d0c4e-0000-4000-8000-000000000001", "5f7d0c4e-0000-4000-8000-000000000002"}
			return Explain(w, s, httpapi.Explain{Job: httpapi.Job{ID: "x", State: model.StateQueued}, Action: model.ActionWait, Detail: model.Detail{Held: held}})
		},
		"explain-gangs": func(w io.Writer, s Style) error {
			return Explain(w, s, httpapi.Explain{Job: httpapi.Job{ID: "x", State: model.StateRunning}, Gangs: gangStatuses})
		},
		"explain-run": func(w io.Writer, s Style) error { return Explain(w, s, running) },
		"explain-fault": func(w io.Writer, s Style) error {
			return Explain(w, s, httpapi.Explain{Job: httpapi.Job{ID: "x", State: model.StateQueued}, Faults: []string{"job: caravan_gang = \"jbo\": allowed is job, group or none"}})
		},
		"plan-others": func(w io.Writer, s Style) error { return Plan(w, s, "x", Planned{PlanResult: yields}) },
		"differences": func(w io.Writer, s Style) error {
			return Differences(w, s, []recording.Difference{{Namespace: "default", Job: "a", What: "action", Then: "wait", Now: "admit"}, {Job: "b", What: "order"}}, true, nil)
		},
		"plan-admit": func(w io.Writer, s Style) error { return Plan(w, s, "train-gang", Planned{PlanResult: plan}) },
		"plan-fault": func(w io.Writer, s Style) error {
			return Plan(w, s, "x", Planned{PlanResult: httpapi.PlanResult{Managed: true, Faults: []string{"bad"}}, Refused: []string{"Job ID contains a space"}, Warnings: []string{"caravan_gang: no effect"}})
		},
		"plan-left": func(w io.Writer, s Style) error {
			return Plan(w, s, "x", Planned{PlanResult: httpapi.PlanResult{Why: "it asks for no managed device"}})
		},
		"topology":      func(w io.Writer, s Style) error { return Topology(w, s, tree) },
		"topology-none": func(w io.Writer, s Style) error { return Topology(w, s, httpapi.Topology{}) },
		"node":          func(w io.Writer, s Style) error { return Node(w, s, pairNode()) },
		"node-no-links": func(w io.Writer, s Style) error { return Node(w, s, links) },
		"node-no-gpus": func(w io.Writer, s Style) error {
			return Node(w, s, httpapi.NodeTopology{ID: "1", Name: "cpu-1", Unschedulable: "down"})
		},
		"released": func(w io.Writer, s Style) error {
			return Released(w, s, httpapi.ReleaseResult{Jobs: []httpapi.Released{{Namespace: "default", Job: "a", Done: true}, {Namespace: "ns", Job: "b", Note: "Nomad answered 500"}}})
		},
		"decisions": func(w io.Writer, s Style) error {
			return Decisions(w, s, []model.Decision{
				{Job: "train-gang", Action: model.ActionAdmit, Reason: "fits in rack r1", Members: []model.Member{running.Placement[0].Member}},
				{Namespace: "research", Job: "big", Action: model.ActionWait, Reason: "needs 4 whole nodes; 1 is free", Detail: waiting.Detail},
			})
		},
		"resizes": func(w io.Writer, s Style) error {
			return Resizes(w, s, []model.Resize{{Namespace: "research", Job: "sweep", Action: model.ActionGrow, From: 2, To: 4, Reason: "grows from 2 to 4 members"}})
		},
		"decisions-none": func(w io.Writer, s Style) error { return Decisions(w, s, nil) },
		"released-none":  func(w io.Writer, s Style) error { return Released(w, s, httpapi.ReleaseResult{}) },
	}
}

func TestGolden(t *testing.T) {
	for name, write := range views() {
		t.Run(name, func(t *testing.T) {
			var buf bytes.Buffer
			if err := write(&buf, Style{Now: now}); err != nil {
				t.Fatal(err)
			}
			file := filepath.Join("testdata", name+".txt")
			if *update {
				if err := os.WriteFile(file, buf.Bytes(), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), buf.String()); diff != "" {
				t.Errorf("text differs (-want +got; -update writes it again):\n%s", diff)
			}
		})
	}
}

// Colour must change nothing but colours, and be absent unless asked for.
func TestColorOnlyAdds(t *testing.T) {
	stripped := strings.NewReplacer("\x1b[0m", "", "\x1b[1m", "", "\x1b[31m", "", "\x1b[32m", "", "\x1b[33m", "")
	colored := 0
	for name, write := range views() {
		var plain, painted bytes.Buffer
		if err := errors.Join(write(&plain, Style{Now: now}), write(&painted, Style{Now: now, Color: true})); err != nil {
			t.Fatal(err)
		}
		if strings.Contains(plain.String(), "\x1b") {
			t.Errorf("%s: escape sequences without colour", name)
		}
		if painted.String() != plain.String() {
			colored++
		}
		if diff := cmp.Diff(plain.String(), stripped.Replace(painted.String())); diff != "" {
			t.Errorf("%s: colour changes the text:\n%s", name, diff)
		}
	}
	if colored == 0 {
		t.Error("nothing is coloured")
	}
}

func TestLongShowsWholeUUIDs(t *testing.T) {
	var buf bytes.Buffer
	if err := Explain(&buf, Style{Now: now, Long: true}, running); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(buf.String(), uuids("a0", 3, 4)[0]) {
		t.Errorf("no whole UUID in\n%s", buf.String())
	}
}

type broken struct{}

func (broken) Write([]byte) (int, error) { return 0, errors.New("pipe is closed") }

func TestWriteErrorsAreReturned(t *testing.T) {
	for name, write := range views() {
		if err := write(broken{}, Style{Now: now}); err == nil {
			t.Errorf("%s: the write error is lost", name)
		}
	}
}

func TestSpan(t *testing.T) {
	for d, want := range map[time.Duration]string{
		-time.Second: "0s", 0: "0s", 1499 * time.Millisecond: "1s", 59 * time.Second: "59s", 61 * time.Second: "1m1s",
		3599500 * time.Millisecond: "1h0m", 25*time.Hour + 59*time.Minute: "1d1h",
	} {
		if got := span(d); got != want {
			t.Errorf("span(%s) = %q, want %q", d, got, want)
		}
	}
}
