package core

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/core/queue"
)

// anyPolicy draws a policy of any order.
func anyPolicy(t *rapid.T) Policy {
	p := Policy{Order: rapid.SampledFrom(queue.Orders()).Draw(t, "order"), Strict: rapid.IntRange(0, 4).Draw(t, "strict") == 0}
	p.Preempt.Enabled, p.Preempt.SavedOnly = rapid.Bool().Draw(t, "preempt"), rapid.Bool().Draw(t, "saved only")
	p.Backfill.Mode = rapid.SampledFrom(queue.BackfillModes[:]).Draw(t, "backfill")
	p.Backfill.Reclaim = rapid.Bool().Draw(t, "reclaim")
	if rapid.IntRange(0, 3).Draw(t, "default duration") == 0 {
		p.Backfill.DefaultDuration = time.Hour
	}
	return p
}

// anyRest draws everything of a snapshot that is not nodes, jobs or allocations.
func anyRest(t *rapid.T, s *model.Snapshot) *model.Snapshot {
	out := *s
	out.Nodes, out.Jobs, out.Allocs = nil, nil, nil
	switch rapid.IntRange(0, 6).Draw(t, "rest") {
	case 0:
		out.Queues = nil
	case 1:
		out.Queues = nil
		anyQueues(t, &out)
	case 2:
		out.Queues = slices.Clone(s.Queues)
		for i := range out.Queues {
			out.Queues[i].History = map[string]float64{"gpu": float64(rapid.IntRange(0, 9).Draw(t, "history"))}
		}
	case 3:
		out.Levels = []string{"block", "rack", "pod"}
	case 4:
		out.Reservations = nil
		anyReservations(t, &out)
	case 5:
		out.History.Demands = []float64{float64(rapid.IntRange(0, 9).Draw(t, "demand")), 3}
	case 6:
		out.Regions = []model.Region{{Name: "eu", Carbon: float64(rapid.IntRange(0, 9).Draw(t, "carbon"))}}
	}
	return &out
}

// anyTurns draws what jobs go through beside being placed: others of another
// queue or rank, some that stop, and some that give way.
func anyTurns(t *rapid.T, s *model.Snapshot, ch *Change) {
	for _, j := range s.Jobs {
		if rapid.IntRange(0, 2).Draw(t, "turns") > 0 || slices.Contains(ch.DropJobs, JobRef{j.Namespace, j.ID}) ||
			slices.ContainsFunc(ch.PutJobs, func(o model.Job) bool { return o.ID == j.ID }) {
			continue
		}
		switch rapid.IntRange(0, 4).Draw(t, "turn") {
		case 0:
			j.Queue = rapid.SampledFrom([]string{"", "a", "a/u", "b/x", "else", "else/deeper"}).Draw(t, "to")
		case 1:
			j.Priority = rapid.IntRange(0, 5).Draw(t, "priority") * 10
		case 2:
			j.Preempt = rapid.SampledFrom([]string{"", model.PreemptNever, model.PreemptAlways}).Draw(t, "mode")
		case 3:
			if len(j.Members) > 0 {
				j.State = model.StateStopping
			}
		case 4:
			by := s.Jobs[rapid.IntRange(0, len(s.Jobs)-1).Draw(t, "by")]
			j.Preempted = append(slices.Clone(j.Preempted), model.Preempted{At: s.Now.Add(-time.Minute), Namespace: by.Namespace, By: by.ID, Group: j.Groups[0].Name})
		}
		ch.PutJobs = append(ch.PutJobs, j)
	}
	for _, a := range s.Allocs {
		if rapid.IntRange(0, 5).Draw(t, "alloc ends") == 0 && !slices.Contains(ch.DropAllocs, a.ID) && !slices.ContainsFunc(ch.PutAllocs, func(o model.Alloc) bool { return o.ID == a.ID }) {
			ch.DropAllocs = append(ch.DropAllocs, a.ID)
		}
	}
}

// A prepared cluster that is kept up to date decides as a fresh one does,
// whatever changes: nodes, jobs, allocations, queues, levels, the policy. It
// leaves nothing behind in the plans either, byte for byte.
func TestApplyAnything(t *testing.T) {
	orders := map[string]int{}
	rapid.Check(t, func(t *rapid.T) {
		draw := rapid.SampledFrom([]func(*rapid.T) *model.Snapshot{anySnapshot, anyContest}).Draw(t, "cluster")
		s, policy := draw(t), anyPolicy(t)
		if rapid.Bool().Draw(t, "queues") {
			anyQueues(t, s)
		}
		p, err := Prepare(s, policy)
		if err != nil {
			t.Fatal(err)
		}
		for round := range 4 {
			orders[policy.Order]++
			kept, fresh := encoded(t, p.Decide(s.Now)), encoded(t, mustDecide(t, s, policy))
			if diff := cmp.Diff(fresh, kept); diff != "" {
				t.Fatalf("round %d: plans (-fresh +kept):\n%s", round, diff)
			}
			ch := anyChange(t, s, mustDecide(t, s, policy), round)
			anyTurns(t, s, &ch)
			if rapid.IntRange(0, 2).Draw(t, "has rest") == 0 {
				ch.Rest = anyRest(t, s)
			}
			if rapid.IntRange(0, 2).Draw(t, "has policy") == 0 {
				policy = anyPolicy(t)
				ch.Policy = &policy
			}
			if err := p.Apply(ch); err != nil {
				t.Fatalf("round %d: %v", round, err)
			}
			now := s.Now.Add(time.Duration(rapid.IntRange(0, 90).Draw(t, "minutes")) * time.Minute)
			s = ch.apply(s)
			s.Now = now
		}
	})
	t.Log(slices.Sorted(maps.Keys(orders)))
}

// Who has given way and is gone promises nothing to anybody any more.
func TestApplyForgetsWhoGaveWay(t *testing.T) {
	s := draw(t, "b1 r1 n1 ##")
	submit(t, s, "first 1x2")
	submit(t, s, "second 1x2")
	gone := model.Job{ID: "gone", State: model.StateQueued, Hold: "held", Groups: []model.TaskGroup{{Name: "g", Count: 1}}}
	gone.Preempted = []model.Preempted{{At: s.Now.Add(-time.Minute), By: "second"}}
	s.Jobs = append(s.Jobs, gone)
	p, err := Prepare(s, preempting)
	if err != nil {
		t.Fatal(err)
	}
	order := func() (out []string) {
		for _, d := range p.Decide(s.Now).Decisions {
			out = append(out, d.Job)
		}
		return out
	}
	if diff := cmp.Diff([]string{"second", "gone", "first"}, order()); diff != "" {
		t.Fatalf("order (-want +got):\n%s", diff)
	}
	if err := p.Apply(Change{DropJobs: []JobRef{{"", "gone"}}}); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"first", "second"}, order()); diff != "" {
		t.Errorf("order (-want +got):\n%s", diff)
	}
}

func encoded(t *rapid.T, plan *model.Plan) string {
	out, err := json.MarshalIndent(plan, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

func TestApplyRefusesRest(t *testing.T) {
	tests := map[string]struct {
		change Change
		want   error
	}{
		"a policy that cannot be": {Change{Policy: &Policy{Order: "alphabetical"}}, queue.ErrPolicy},
		"queues that cannot be":   {Change{Rest: &model.Snapshot{Queues: []model.Queue{{Path: "a b"}}}}, model.ErrSnapshot},
		"levels that nodes have":  {Change{Rest: &model.Snapshot{Levels: []string{"block"}}}, model.ErrSnapshot},
		"a node that a job is on": {Change{DropNodes: []string{"n2"}}, model.ErrSnapshot},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			s := draw(t, `b1 r1 n1 a...
			              b1 r1 n2 ....`)
			submit(t, s, "M 1x4")
			s.Jobs = append(s.Jobs, model.Job{ID: "runs", State: model.StateRunning, Groups: []model.TaskGroup{{Name: "g", Count: 1}}, Members: []model.Member{{Group: "g", Node: "n2"}}})
			p, err := Prepare(s, Policy{})
			if err != nil {
				t.Fatal(err)
			}
			before := p.Decide(s.Now)
			tt.change.PutJobs = append(tt.change.PutJobs, model.Job{ID: "extra", State: model.StateQueued, Groups: []model.TaskGroup{{Name: "g", Count: 1}}})
			if err := p.Apply(tt.change); !errors.Is(err, tt.want) {
				t.Fatalf("Apply: %v, want %v", err, tt.want)
			}
			if diff := cmp.Diff(before, p.Decide(s.Now)); diff != "" {
				t.Errorf("plan after a refused change (-before +after):\n%s", diff)
			}
		})
	}
}

// Every order is decided by when it is put in force at run time, and what runs
// stays where it is.
func TestPolicyAtRunTime(t *testing.T) {
	for _, order := range queue.Orders() {
		t.Run(order, func(t *testing.T) {
			s := flat(4)
			for i := range 6 {
				s.Jobs = append(s.Jobs, flatJob(fmt.Sprint("j", i), fmt.Sprint("q", i%2), testNow.Add(time.Duration(i)*time.Second)))
			}
			p, err := Prepare(s, Policy{})
			if err != nil {
				t.Fatal(err)
			}
			p.Decide(s.Now)
			if err := p.Apply(Change{Policy: &Policy{Order: order}}); err != nil {
				t.Fatal(err)
			}
			want, err := Decide(s, Policy{Order: order})
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, p.Decide(s.Now)); diff != "" {
				t.Errorf("plan (-fresh +kept):\n%s", diff)
			}
		})
	}
}

// Where a job's allocation has ended, its next member may be, in spite of
// distinct_hosts.
func TestApplyForgetsAllocations(t *testing.T) {
	s := draw(t, `b1 r1 n1 .
	              b1 r1 n2 .`)
	j := model.Job{ID: "j", Type: "batch", State: model.StateRunning, Gang: model.GangNone, Constraints: []model.Constraint{{Operand: "distinct_hosts"}}}
	j.Groups = []model.TaskGroup{{Name: "g", Count: 1, Devices: []model.DeviceAsk{{Name: "gpu", Count: 1}}}}
	s.Jobs = []model.Job{j}
	s.Allocs = []model.Alloc{{ID: "a1", Job: "j", Group: "g", Node: "n1"}, {ID: "a2", Job: "j", Group: "g", Node: "n2"}}
	p, err := Prepare(s, Policy{})
	if err != nil {
		t.Fatal(err)
	}
	if d := p.Decide(s.Now).Decisions[0]; d.Action != model.ActionWait {
		t.Fatalf("%s: %s; want it to wait for a host of its own", d.Action, d.Reason)
	}
	if err := p.Apply(Change{DropAllocs: []string{"a2"}}); err != nil {
		t.Fatal(err)
	}
	d := p.Decide(s.Now).Decisions[0]
	if len(d.Members) != 1 || d.Members[0].Node != "n2" {
		t.Errorf("%s: %s; want it on n2", d.Action, d.Reason)
	}
}
