package core

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/core/preempt"
	"github.com/caravan-sched/caravan/planner/core/queue"
)

// TestStartsShort: an elastic gang that does not fit starts with as many members as
// do, down to its caravan_min.
func TestStartsShort(t *testing.T) {
	const half = "b1 r1 n1 ..\nb1 r1 n2 ..\nb1 r2 n3 ##\nb2 r3 n4 ..\n"
	tests := map[string]struct {
		cluster, jobs string
		policy        Policy
		queues        []model.Queue
		change        func(*model.Snapshot)
		// want are the nodes of e, and code and text what is said of it.
		want []string
		code string
		text string
		// others are the nodes of the other jobs.
		others []string
	}{
		"with as many as fit": {cluster: half, jobs: "e 4x2 min:2", want: []string{"n1", "n2", "n4"}, code: codePlaced,
			text: "starts with 3 of its 4 members for now, since all 4 do not fit and it may run with 2 (caravan_min); the others follow when there is room: placed 3 of 4 members with 6 GPUs"},
		"with all where they fit":                {cluster: half, jobs: "e 3x2 min:1", want: []string{"n1", "n2", "n4"}, code: codePlaced, text: "placed 3 members"},
		"with no fewer than it says":             {cluster: half, jobs: "e 5x2 min:4", code: codeTooLarge},
		"not if it does not say so":              {cluster: half, jobs: "e 4x2", code: codeNoCapacity},
		"not where gangs keep their counts":      {cluster: half, jobs: "e 4x2 min:2", policy: Policy{Elastic: queue.Elastic{Disabled: true}}, code: codeNoCapacity},
		"though the cluster is too small for it": {cluster: half, jobs: "e 9x2 min:1", want: []string{"n1", "n2", "n4"}, code: codePlaced, text: "starts with 3 of its 9 members"},
		"inside the domain that it requires":     {cluster: half, jobs: "e 4x2 min:1 require:rack", want: []string{"n1", "n2"}, code: codePlaced, text: "in rack b1/r1"},
		"not on parts of larger nodes":           {cluster: "b1 r1 n1 ....\nb1 r1 n2 ..\n", jobs: "e 4x2 min:1", want: []string{"n2"}, code: codePlaced},
		"not if members take parts of nodes":     {cluster: "b1 r1 n1 ....\nb1 r1 n2 ....\n", jobs: "e 5x2 min:1", code: codeTooLarge},
		"not on what is kept for who is ahead":   {cluster: half, jobs: "x 4x2\ne 4x2 min:1", code: codeNoCapacity},
		"beside who came first and has his place": {cluster: half, jobs: "x 1x2\ne 4x2 min:1", want: []string{"n1", "n2"}, code: codePlaced,
			others: []string{"n4"}},
		"with as many as its queue may have": {cluster: half, jobs: "e 3x2 min:1", queues: []model.Queue{{Path: "default", Default: true, Guarantee: map[string]int{"gpu": 4}, Borrow: map[string]int{"gpu": 0}}},
			want: []string{"n1", "n2"}, code: codePlaced},
		"with all where others give way": {cluster: "b1 r1 n1 aa\nb1 r1 n2 ..\n", jobs: "e 2x2 min:1 priority:80", policy: Policy{Preempt: preempt.Policy{Enabled: true}}, code: codePreempting},
		"and with fewer where they do not": {cluster: "b1 r1 n1 aa\nb1 r1 n2 ..\n", jobs: "e 2x2 min:1", policy: Policy{Preempt: preempt.Policy{Enabled: true}},
			want: []string{"n2"}, code: codePlaced},
		"of several groups the one that may": {cluster: half, jobs: "e 4x2+1x0 min:2", want: []string{"n1", "n2", "n4"}, code: codePlaced},
		"the others of several groups whole": {cluster: half, jobs: "e 2x2+3x2 min:1", code: codeTooLarge},
		"not a group that may not":           {cluster: half, jobs: "e 2x2+2x2 min:1", want: []string{"n1", "n2", "n4"}, code: codePlaced},
		"not while it runs longer than there is time": {cluster: half, jobs: "x 4x2 runs:1h\ne 2x2 min:1 runs:20m", policy: conservative, change: func(s *model.Snapshot) {
			s.Jobs = append(s.Jobs, model.Job{ID: "r", Type: "batch", State: model.StateRunning, Gang: model.GangJob, Started: s.Now, Duration: 30 * time.Minute, Groups: []model.TaskGroup{{Name: "g0", Count: 1}}})
			s.Allocs[0].Job, s.Allocs[1].Job = "r", "r"
			s.Nodes[0].Unschedulable, s.Nodes[1].Unschedulable = "draining", "draining"
			s.Jobs[0].Groups[0].Count = 2
		}, code: codeNoCapacity},
		"while it ends in time nevertheless": {cluster: half, jobs: "x 4x2 runs:1h\ne 2x2 min:1 runs:10m", policy: conservative, change: func(s *model.Snapshot) {
			s.Jobs = append(s.Jobs, model.Job{ID: "r", Type: "batch", State: model.StateRunning, Gang: model.GangJob, Started: s.Now, Duration: 30 * time.Minute, Groups: []model.TaskGroup{{Name: "g0", Count: 1}}})
			s.Allocs[0].Job, s.Allocs[1].Job = "r", "r"
			s.Nodes[0].Unschedulable, s.Nodes[1].Unschedulable = "draining", "draining"
			s.Jobs[0].Groups[0].Count = 2
		}, want: []string{"n4"}, code: codePlaced},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			s := draw(t, tt.cluster)
			submit(t, s, tt.jobs)
			s.Queues = tt.queues
			if tt.change != nil {
				tt.change(s)
			}
			plan := mustDecide(t, s, tt.policy)
			checkPlan(t, s, plan)
			var e model.Decision
			var others []string
			for _, d := range plan.Decisions {
				if d.Job == "e" {
					e = d
				} else {
					others = append(others, nodesOf(d)...)
				}
			}
			got := slices.DeleteFunc(nodesOf(e), func(node string) bool { return node == "" })
			slices.Sort(got)
			if diff := cmp.Diff(tt.want, slices.Compact(got)); diff != "" || e.Detail.Code != tt.code || !strings.Contains(e.Reason, tt.text) {
				t.Errorf("%s: %s\nnodes (-want +got):\n%s", e.Detail.Code, e.Reason, diff)
			}
			if diff := cmp.Diff(tt.others, others); diff != "" {
				t.Errorf("others (-want +got):\n%s", diff)
			}
		})
	}
}

// A gang starts short only if it does not fit whole and nobody makes room for it,
// then with as many members as would fit of one that is not elastic, and never
// below its least; and what others get does not depend on the order of the input.
func TestStartsShortAsLargeAsCanBe(t *testing.T) {
	starts := 0
	rapid.Check(t, func(t *rapid.T) {
		s := anyElastic(t)
		s.Jobs = slices.DeleteFunc(s.Jobs, func(j model.Job) bool { return j.State == model.StateQueued })
		e := model.Job{ID: "e", Type: "batch", State: model.StateQueued, Gang: model.GangJob, Submitted: testNow.Add(-time.Hour)}
		e.Topology = rapid.SampledFrom([]model.Topology{{}, {Mode: "require", Level: "rack"}, {Mode: "prefer", Level: "block"}}).Draw(t, "topology")
		count := rapid.IntRange(2, 8).Draw(t, "count")
		least := rapid.IntRange(1, count).Draw(t, "least")
		e.Groups = []model.TaskGroup{{Name: "g0", Count: count, Min: least, Max: count, Devices: []model.DeviceAsk{{Name: "nvidia/gpu", Count: 2}}}}
		s.Jobs = append(s.Jobs, e)
		at := len(s.Jobs) - 1
		decide := func(n int, elastic bool) model.Decision {
			with := *s
			with.Jobs = slices.Clone(s.Jobs)
			with.Jobs[at].Groups = slices.Clone(e.Groups)
			if with.Jobs[at].Groups[0].Count = n; !elastic {
				with.Jobs[at].Groups[0].Min, with.Jobs[at].Groups[0].Max = 0, 0
			}
			plan, err := Decide(&with, Policy{})
			if err != nil {
				t.Fatal(err)
			}
			if faults := planFaults(&with, plan); len(faults) > 0 {
				t.Fatal(strings.Join(faults, "; "))
			}
			for _, d := range plan.Decisions {
				if d.Job == "e" {
					return d
				}
			}
			t.Fatal("no decision")
			return model.Decision{}
		}
		want := 0
		if whole := decide(count, false); whole.Detail.Code != codePreempting {
			for n := count; n >= least && want == 0; n-- {
				want = len(decide(n, false).Members)
			}
		}
		d := decide(count, true)
		if got := len(d.Members); got != want {
			t.Fatalf("starts with %d members, want %d of %d to %d: %s", got, want, least, count, d.Reason)
		}
		if want > 0 && want < count {
			starts++
			if !strings.Contains(d.Reason, fmt.Sprintf("starts with %d of its %d members", want, count)) {
				t.Fatalf("it does not say so: %s", d.Reason)
			}
		}
	})
	if starts == 0 {
		t.Error("no gang started short")
	}
}

// A gang that started short grows by what fits, as often as gangs get another
// size, until it is whole.
func TestStartedShortGrows(t *testing.T) {
	s := draw(t, "b1 r1 n1 ..\nb1 r1 n2 #.\nb1 r1 n3 #.\nb1 r1 n4 #.\n")
	submit(t, s, "e 4x2 min:1")
	var got []string
	for step := range 5 {
		plan := mustDecide(t, s, Policy{})
		checkPlan(t, s, plan)
		for _, d := range plan.Decisions {
			j := &s.Jobs[0]
			got = append(got, fmt.Sprintf("%d: %s", step, strings.Join(nodesOf(d), ",")))
			if len(d.Members) > 0 && j.State == model.StateRunning {
				j.Resized = append(j.Resized, s.Now)
			} else if len(d.Members) > 0 {
				j.State, j.Started = model.StateRunning, s.Now
			}
			j.Members = append(j.Members, d.Members...)
		}
		switch step {
		case 0, 1, 2: // one more node is idle
			s.Allocs = s.Allocs[1:]
		}
		s.Now = s.Now.Add(6 * time.Minute)
	}
	// At 12 minutes n3 is idle, too, but it grew 6 minutes ago; at 18 all that it
	// lacks fits.
	if diff := cmp.Diff([]string{"0: n1", "1: n2", "2: ", "3: n3,n4"}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
