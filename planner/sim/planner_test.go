package sim

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/caravan-sched/caravan/planner/core"
	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/core/queue"
	"github.com/caravan-sched/caravan/planner/sim/trace"
)

// What the planner's record does for a job that is put back into the first queue
// and for one that gave way, the simulator does too: the past is forgotten when it
// is placed, and its rest begins when it stopped.
func TestForgetsAndRests(t *testing.T) {
	p := planned(t, small(t), core.Policy{Order: "las"}).(*planner)
	if err := p.Submit(0, Ask{ID: "a", GPUs: 2}); err != nil {
		t.Fatal(err)
	}
	members := []model.Member{{Group: "rest", Node: p.cluster.Nodes[0].ID, GPUs: []string{p.cluster.Nodes[0].GPUs[0].UUID, p.cluster.Nodes[0].GPUs[1].UUID}}}
	d := model.Decision{Job: "00000000", Action: model.ActionAdmit, Members: members}
	p.admit(10, &d)
	if err := p.Left(70, 0); err != nil {
		t.Fatal(err)
	}
	d.Forgets = true
	p.admit(600, &d)
	type service struct {
		Had, Forgotten       float64
		Ran, ForgottenRan    time.Duration
		Accounted, Submitted time.Time
	}
	j := p.jobs[0]
	want := service{Had: 120, Forgotten: 120, Ran: time.Minute, ForgottenRan: time.Minute, Accounted: clock(70), Submitted: clock(0)}
	if diff := cmp.Diff(want, service{j.AttainedGPUs, j.ForgottenGPUs, j.Ran, j.ForgottenRan, j.Accounted, j.Submitted}); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// Whose place a job was let into is known as long as it runs there.
func TestKnowsWhoWasLetIn(t *testing.T) {
	p := planned(t, small(t), core.Policy{Order: queue.OrderCaravan}).(*planner)
	if err := p.Submit(0, Ask{ID: "a", GPUs: 1}); err != nil {
		t.Fatal(err)
	}
	b := &model.Backfill{For: model.JobName{ID: "b"}, Drained: true}
	p.admit(10, &model.Decision{Job: "00000000", Action: model.ActionAdmit, Backfill: b,
		Members: []model.Member{{Group: "rest", Node: p.cluster.Nodes[0].ID, GPUs: []string{p.cluster.Nodes[0].GPUs[0].UUID}}}})
	if got := p.jobs[0].Backfilled; got != b {
		t.Errorf("while it runs: %v, want %v", got, b)
	}
	if err := p.Left(70, 0); err != nil {
		t.Fatal(err)
	}
	if got := p.jobs[0].Backfilled; got != nil {
		t.Errorf("when it has left: %v, want none", got)
	}
}

// A job of one GPU that somebody waits for starts at once on what is kept: it is
// known by its class, or, where the trace has none, by what it runs.
func TestKeepsForInteractiveJobs(t *testing.T) {
	jobs := []trace.Job{
		{ID: "long", Submit: 0, Duration: 9000, GPUs: 4}, {ID: "next", Submit: 0, Duration: 9000, GPUs: 4},
		{ID: "quick", Submit: 100, Duration: 50, GPUs: 1}, {ID: "slow", Submit: 100, Duration: 5000, GPUs: 1},
		{ID: "shell", Submit: 200, Duration: 5000, GPUs: 1, Class: "interactive"},
	}
	first := func(policy core.Policy) []float64 {
		_, out := story(t, Setup{Cluster: small(t), Jobs: jobs, Scheduler: planned(t, small(t), policy)})
		var at []float64
		for _, id := range []string{"quick", "slow", "shell"} {
			for i := range out.jobs {
				if out.jobs[i].ID == id {
					at = append(at, out.jobs[i].first)
				}
			}
		}
		return at
	}
	kept, err := PolicyOf("caravan+reserve")
	if err != nil {
		t.Fatal(err)
	}
	if all, err := PolicyOf("caravan+reserve=12.5"); err != nil || all.Interactive.ReserveShare != 0.125 || len(all.Interactive.Classes) != 1 {
		t.Errorf("with an eighth kept %+v, %v", all.Interactive, err)
	}
	for _, bad := range []string{"caravan+reserve=0", "caravan+reserve=101", "caravan+reserve=x", "caravan+reserve="} {
		if _, err := PolicyOf(bad); err == nil {
			t.Errorf("%s is a policy", bad)
		}
	}
	kept.Interactive.ReserveShare = 0.125 // one of eight GPUs, so that only one of the long ones runs
	if diff := cmp.Diff([]float64{100, 100, 200}, first(kept)); diff != "" {
		t.Errorf("with a GPU kept (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]float64{9000, 9000, 9000}, first(core.Policy{Order: queue.OrderCaravan})); diff != "" {
		t.Errorf("without (-want +got):\n%s", diff)
	}
}

// Bounds that are no multiple of a node are kept: as many whole nodes as are within them.
func TestBoundsBetweenNodes(t *testing.T) {
	c := small(t)
	s := planned(t, c, core.Policy{}).(*planner)
	for _, test := range []struct{ gpus, min, max, wantMin, wantMax int }{{8, 4, 8, 1, 2}, {8, 5, 11, 2, 2}, {8, 1, 15, 1, 3}, {8, 8, 16, 2, 4}, {4, 3, 7, 1, 1}} {
		got := s.groups(Ask{GPUs: test.gpus, Min: test.min, Max: test.max})
		if len(got) != 1 || got[0].Min != test.wantMin || got[0].Max != test.wantMax {
			t.Errorf("%d GPUs of %d to %d on nodes of 4: %+v: want %d to %d nodes", test.gpus, test.min, test.max, got, test.wantMin, test.wantMax)
		}
	}
	// All policies keep to them where there is too little room.
	jobs := []trace.Job{{ID: "a", Duration: 100, GPUs: 2}, {ID: "b", Submit: 1, Duration: 50, GPUs: 8, Min: 5, Max: 8}, {ID: "c", Submit: 300, Duration: 1, GPUs: 1}}
	for _, order := range queue.Orders() {
		_, out := story(t, Setup{Cluster: c, Jobs: jobs, Scheduler: planned(t, c, core.Policy{Order: order})})
		if got := len(out.Done()); got != len(jobs) {
			t.Errorf("%s: %d jobs have ended: want %d", order, got, len(jobs))
		}
	}
}
