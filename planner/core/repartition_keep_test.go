package core

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/caravan-sched/caravan/planner/core/mig"
	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/core/preempt"
	"github.com/caravan-sched/caravan/planner/core/queue"
)

// runOn has jobs run on GPUs that are held, one per line: the ID, for how long it says
// that it runs from now on ("-": it does not say), and what it holds.
func runOn(t testing.TB, s *model.Snapshot, text string) {
	t.Helper()
	for line := range strings.Lines(text) {
		fields := strings.Fields(line)
		if len(fields) == 0 {
			continue
		}
		j := model.Job{ID: fields[0], Type: "batch", State: model.StateRunning, Gang: model.GangJob, Submitted: testNow.Add(-time.Hour), Started: testNow,
			Groups: []model.TaskGroup{{Name: "g", Count: 1, Devices: []model.DeviceAsk{{Name: "nvidia/gpu", Count: len(fields) - 2}}}}}
		if fields[1] != "-" {
			j.Duration = duration(t, fields[1])
		}
		for i := range s.Allocs {
			if a := &s.Allocs[i]; slices.Contains(fields[2:], a.GPUs[0]) {
				a.Job = j.ID
			}
		}
		s.Jobs = append(s.Jobs, j)
	}
}

var keptWords = regexp.MustCompile(`for it ((?:GPU \S+ of \w+,? ?)+)(?:is|are) kept to be`)

// gpuNames are the GPUs that a text tells of.
func gpuNames(text string) (names []string) {
	for _, m := range regexp.MustCompile(`GPU (\S+) of`).FindAllStringSubmatch(text, -1) {
		names = append(names, m[1])
	}
	return names
}

// fates tells what a plan does for each job that waits: "m on n1.0" has it, "m divides
// n1.0" has it divided or made whole now, "m keeps n1.0 for 1h" has it once it is idle.
func fates(s *model.Snapshot, plan *model.Plan) (out []string) {
	for _, d := range plan.Decisions {
		text := d.Job
		for _, m := range d.Members {
			text += " on " + strings.Join(m.GPUs, ",")
		}
		for _, p := range plan.Repartitions {
			if p.For.ID == d.Job {
				text += " divides " + p.GPU
			}
		}
		if kept := keptWords.FindString(d.Reason); kept != "" {
			text += fmt.Sprintf(" keeps %s for %s", strings.Join(gpuNames(kept), ","), span(d.Detail.Start.Sub(s.Now)))
		}
		if text == d.Job {
			text += " waits"
		}
		out = append(out, text)
	}
	return out
}

// TestInstancesInTurn: who waits for instances has a GPU in its turn, and who waits for
// whole GPUs one that is divided.
func TestInstancesInTurn(t *testing.T) {
	easy, conservative := Policy{Order: queue.OrderBackfill}, Policy{Order: queue.OrderBackfill}
	conservative.Backfill.Mode = queue.BackfillConservative
	fifo := Policy{Order: queue.OrderFIFO}
	told := func(gpu string, state model.DivisionState, ago time.Duration) func(*model.Snapshot) {
		return func(s *model.Snapshot) {
			s.Nodes[0].Divisions = []model.Division{{GPU: gpu, State: state, At: testNow.Add(-ago)}}
		}
	}
	tests := map[string]struct {
		cluster, runs, jobs string
		// says is how long jobs that wait say that they run.
		says   map[string]time.Duration
		set    func(*model.Snapshot)
		policy Policy
		want   []string
		// said is in the reason of the job named.
		said map[string]string
	}{
		"an idle GPU is its own in its turn": {
			cluster: `n1 .`, jobs: "m 1x1g.10gb\nw 1x1", policy: fifo, want: []string{"m divides n1.0", "w waits"},
			said: map[string]string{
				"m": "GPU n1.0 of n1 is divided for it",
				"w": "not beside the nodes kept for m, ahead in the queue; for m GPU n1.0 of n1 is divided now",
			},
		},
		"also where nothing is kept":           {cluster: `n1 .`, jobs: "m 1x1g.10gb\nw 1x1", policy: Policy{Order: queue.OrderBestEffort}, want: []string{"m divides n1.0", "w waits"}},
		"who stands before it has it":          {cluster: `n1 .`, jobs: "w 1x1\nm 1x1g.10gb", policy: fifo, want: []string{"w on n1.0", "m waits"}},
		"alike share a GPU":                    {cluster: `n1 . .`, jobs: "a 1x3g.40gb\nb 1x3g.40gb\nw 1x1", policy: fifo, want: []string{"a divides n1.0", "b waits", "w on n1.1"}},
		"members by themselves share it":       {cluster: `n1 . .`, jobs: "a 7x1g.10gb\nw 1x1", policy: fifo, want: []string{"a divides n1.0", "w on n1.1"}},
		"and have more where one is too few":   {cluster: `n1 . . .`, jobs: "a 3x3g.40gb\nw 1x1", policy: fifo, want: []string{"a divides n1.0 divides n1.1", "w on n1.2"}},
		"so do other shapes that fit":          {cluster: `n1 . .`, jobs: "a 1x3g.40gb\nb 1x2g.20gb\nw 1x1", policy: fifo, want: []string{"a divides n1.0", "b waits", "w on n1.1"}},
		"instances of a gang are nobody's too": {cluster: `n1 1g.10gb .`, jobs: "a 2x1g.10gb gang\nb 1x1g.10gb\nw 1x1", policy: fifo, want: []string{"a divides n1.1", "b waits", "w waits"}},
		"none for a profile that there is not": {cluster: `n1 .`, jobs: "m 1x9g.90gb\nw 1x1", policy: fifo, want: []string{"m waits", "w on n1.0"}},
		"none for who never fits":              {cluster: `n1 .`, jobs: "m 8x1g.10gb gang\nw 1x1", policy: fifo, want: []string{"m waits", "w on n1.0"}},
		"none where the plugin divides none":   {cluster: `-n1 .`, jobs: "m 1x1g.10gb\nw 1x1", policy: fifo, want: []string{"m waits", "w on n1.0"}},
		"none beyond the queue's limit": {
			cluster: `n1 .`, jobs: "m 1x1g.10gb\nw 1x1", policy: fifo, want: []string{"m waits", "w on n1.0"},
			set: func(s *model.Snapshot) {
				s.Queues = []model.Queue{{Path: "a", Borrow: gpusOf(0)}, {Path: "b", Guarantee: gpusOf(1)}}
				inQueues(s, map[string]string{"m": "a", "w": "b"})
			},
		},
		"none that has been made whole just now": {cluster: `n1 .`, jobs: "m 1x1g.10gb\nw 1x1", set: told("n1.0", model.DivisionDone, 9*time.Minute), policy: fifo, want: []string{"m waits", "w on n1.0"}},
		"none of which the driver refuses it":    {cluster: `n1 .`, jobs: "m 1x1g.10gb\nw 1x1", set: told("n1.0", model.DivisionRefused, 9*time.Minute), policy: easy, want: []string{"m waits", "w on n1.0"}},
		"what is being divided suffices": {cluster: `n1 . .`, jobs: "m 1x1g.10gb\nw 1x1", policy: fifo, want: []string{"m waits", "w on n1.1"}, set: func(s *model.Snapshot) {
			s.Nodes[0].Divisions = []model.Division{toldOf("n1.0", model.DivisionPending, "1g.10gb")}
		}},

		"the GPU that is idle first is kept": {
			cluster: `n1 # #`, runs: "x 2h n1.0\ny 1h n1.1", jobs: "m 1x1g.10gb\nw 1x1", says: map[string]time.Duration{"m": 4 * time.Hour}, policy: conservative,
			want: []string{"m keeps n1.1 for 1h", "w waits"},
			said: map[string]string{
				"m": "for it GPU n1.1 of n1 is kept to be divided once idle, about 04:04 UTC; starts about 04:04 UTC in node n1 when y (est. 1h, by its author) has ended",
				"w": "starts about 05:04 UTC in node n1 when x (est. 2h, by its author) has ended",
			},
		},
		"by the first alone, with one reservation": {
			cluster: `n1 # #`, runs: "x 2h n1.0\ny 1h n1.1", jobs: "a 1x7g.80gb\nb 1x7g.80gb", policy: easy, want: []string{"a keeps n1.1 for 1h", "b waits"},
		},
		"those alike share what is kept": {
			cluster: `n1 # #`, runs: "x 2h n1.0\ny 1h n1.1", jobs: "a 1x3g.40gb\nb 1x3g.40gb\nc 1x3g.40gb", policy: conservative,
			want: []string{"a keeps n1.1 for 1h", "b keeps n1.1 for 1h", "c keeps n1.0 for 2h"},
		},
		"who shares it needs no reservation": {
			cluster: `n1 # #`, runs: "x 2h n1.0\ny 1h n1.1", jobs: "a 1x3g.40gb\nb 1x3g.40gb\nc 1x3g.40gb", policy: easy, want: []string{"a keeps n1.1 for 1h", "b keeps n1.1 for 1h", "c waits"},
		},
		"who ends in time goes before it": {
			cluster: `n1 . #`, runs: "x 2h n1.1", jobs: "m 8x1g.10gb gang\nlong 1x1\nshort 1x1", says: map[string]time.Duration{"long": 3 * time.Hour, "short": time.Hour}, policy: easy,
			want: []string{"m keeps n1.0,n1.1 for 2h", "long waits", "short on n1.0"},
			said: map[string]string{"short": "it is expected to have ended at 04:04 UTC, before m starts there at 05:04 UTC"},
		},
		"what is idle is kept until there are enough": {
			cluster: `n1 . #`, jobs: "m 8x1g.10gb gang\nw 1x1", policy: fifo, want: []string{"m waits", "w waits"},
			said: map[string]string{"m": "GPU n1.0 of n1 is kept until there are enough", "w": "kept for m, ahead in the queue"},
		},
		"not where nothing is": {cluster: `n1 . #`, jobs: "m 8x1g.10gb gang\nw 1x1", policy: Policy{Order: queue.OrderBestEffort}, want: []string{"m waits", "w on n1.0"}},
		"an instance that comes soon is waited for": {
			cluster: `n1 # 1g.10gb#`, runs: "x 1h n1.0\ny 65m n1.1/0", jobs: "m 1x1g.10gb", policy: easy, want: []string{"m waits"},
		},
		"one that comes late is not": {
			cluster: `n1 # 1g.10gb#`, runs: "x 1h n1.0\ny 9h n1.1/0", jobs: "m 1x1g.10gb", policy: easy, want: []string{"m keeps n1.0 for 1h"},
		},
		"what was made whole is divided again later": {
			cluster: `n1 .`, jobs: "m 1x1g.10gb\nw 1x1", says: map[string]time.Duration{"w": 2 * time.Minute}, set: told("n1.0", model.DivisionDone, 7*time.Minute), policy: easy, want: []string{"m keeps n1.0 for 3m", "w on n1.0"},
			said: map[string]string{"m": "when GPU n1.0 of n1 may be divided again"},
		},
		"nobody is stopped for it": {
			cluster: `n1 #`, runs: "x 9h n1.0", jobs: "m 1x1g.10gb", policy: Policy{Order: queue.OrderCaravan, Preempt: preempt.Policy{Enabled: true}}, want: []string{"m waits"},
			set: func(s *model.Snapshot) { s.Jobs[0].Priority, s.Jobs[1].Priority = 90, 10 },
		},

		"a divided GPU is made whole in its turn": {
			cluster: `n1 1g.10gb #`, jobs: "w 1x1\nm 1x1g.10gb", policy: fifo, want: []string{"w divides n1.0", "m waits"},
			said: map[string]string{"w": "GPU n1.0 of n1 is made whole for it", "m": "for w GPU n1.0 of n1 is divided now"},
		},
		"not before those who have their turn": {cluster: `n1 1g.10gb #`, jobs: "m 1x1g.10gb\nw 1x1", policy: fifo, want: []string{"m on n1.0/0", "w waits"}},
		"one that is divided is kept to be made whole": {
			cluster: `n1 1g.10gb+1g.10gb#`, runs: "x 1h n1.0/1", jobs: "w 1x1\nlong 1x1g.10gb\nshort 1x1g.10gb", says: map[string]time.Duration{"long": 2 * time.Hour, "short": time.Hour / 2}, policy: easy,
			want: []string{"w keeps n1.0 for 1h", "long waits", "short on n1.0/0"},
			said: map[string]string{"w": "for it GPU n1.0 of n1 is kept to be made whole once idle, about 04:04 UTC"},
		},
		"its idle instances are kept": {
			cluster: `n1 1g.10gb+1g.10gb#`, jobs: "w 1x1\nm 1x1g.10gb", policy: fifo, want: []string{"w waits", "m waits"},
			said: map[string]string{"w": "those that are to be whole are kept until there are enough", "m": "kept for w, ahead in the queue"},
		},
		"beside one that is whole": {
			cluster: "n1 1g.10gb# #\nn2 1g.10gb# 1g.10gb#", runs: "x 1h n1.0/0\ny 2h n1.1\nz 1h n2.0/0 n2.1/0", jobs: "w 1x2", policy: easy, want: []string{"w keeps n2.0,n2.1 for 1h"},
		},
		"a gang in one node": {
			cluster: "n1 1g.10gb# .\nn2 1g.10gb .", jobs: "w 2x1 gang node", policy: fifo, want: []string{"w divides n2.0"},
			set: func(s *model.Snapshot) {
				s.Jobs[0].Topology = model.Topology{Mode: model.TopologyRequire, Level: model.LevelNode}
			},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			s := drawMIG(t, tt.cluster)
			askMIG(t, s, tt.jobs)
			for i := range s.Jobs {
				s.Jobs[i].Duration = tt.says[s.Jobs[i].ID]
			}
			runOn(t, s, tt.runs)
			if tt.set != nil {
				tt.set(s)
			}
			plan := mustDecide(t, s, tt.policy)
			if diff := cmp.Diff(tt.want, fates(s, plan)); diff != "" {
				t.Errorf("fates (-want +got):\n%s", diff)
			}
			if len(plan.Preemptions) > 0 {
				t.Errorf("somebody is stopped: %+v", plan.Preemptions)
			}
			for _, d := range plan.Decisions {
				if !strings.Contains(d.Reason, tt.said[d.Job]) {
					t.Errorf("%s is told %q, want %q", d.Job, d.Reason, tt.said[d.Job])
				}
				if keptWords.MatchString(d.Reason) && d.Detail.Code != codeDividing {
					t.Errorf("%s has the code %s, and is told %q", d.Job, d.Detail.Code, d.Reason)
				}
			}
			checkPlan(t, s, plan)
			for _, fault := range slices.Concat(divisionFaults(s, plan), toldFaults(s, plan), keptFaults(s, plan)) {
				t.Error(fault)
			}
		})
	}
}

// keptFaults checks that no GPU is kept for more than fits on it, or is kept and in use
// otherwise at once, as far as that can be told of jobs with one member.
func keptFaults(s *model.Snapshot, plan *model.Plan) (faults []string) {
	geometry, _ := mig.Of(testGPU)
	type use struct {
		at, until time.Time
		parts     []string // none: all of it
		jobs      []string
	}
	uses := map[string][]*use{}
	for _, p := range plan.Repartitions {
		uses[p.GPU] = append(uses[p.GPU], &use{at: s.Now, until: s.Now.Add(10 * time.Minute), jobs: []string{p.For.ID}})
	}
	for _, d := range plan.Decisions {
		j := &s.Jobs[slices.IndexFunc(s.Jobs, func(j model.Job) bool { return j.ID == d.Job })]
		if j.Groups[0].Count > 1 {
			continue
		}
		_, profile, divided := strings.Cut(j.Groups[0].Devices[0].Name, mig.Mark)
		for _, gpu := range gpuNames(keptWords.FindString(d.Reason)) {
			next := &use{at: d.Detail.Start, until: d.Detail.Start.Add(max(j.Duration, 10*time.Minute)), jobs: []string{d.Job}}
			if j.Duration == 0 {
				next.until = s.Now.Add(eternity)
			}
			if divided {
				next.parts = []string{profile}
			}
			for _, u := range uses[gpu] {
				if divided && u.at.Equal(next.at) && len(u.parts) > 0 {
					next.parts, next.jobs = append(next.parts, u.parts...), append(next.jobs, u.jobs...)
				} else if u.at.Before(next.until) && next.at.Before(u.until) {
					faults = append(faults, fmt.Sprintf("GPU %s is kept for %v from %v and for %v from %v", gpu, u.jobs, u.at, next.jobs, next.at))
				}
			}
			if !geometry.Fits(next.parts) {
				faults = append(faults, fmt.Sprintf("GPU %s is kept for %v, %v, at once", gpu, next.jobs, next.parts))
			}
			uses[gpu] = append(slices.DeleteFunc(uses[gpu], func(u *use) bool { return divided && u.at.Equal(next.at) }), next)
		}
	}
	return faults
}
