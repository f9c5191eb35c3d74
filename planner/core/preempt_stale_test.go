package core

import (
	"slices"
	"testing"

	"github.com/caravan-sched/caravan/planner/core/model"
)

// TestPreemptedDevicesAreHeldUntilTheyAreFree: what a gang has given up is
// reported free node by node. Nobody gets a part of it meanwhile, not even the one
// that it is for, and a device that its node does not list any more is not
// counted on.
func TestPreemptedDevicesAreHeldUntilTheyAreFree(t *testing.T) {
	s := draw(t, `b1 r1 n1 aaaa|aaaa
	              b1 r1 n2 aaaa|aaaa`)
	describe(t, s, `a 50 1h`)
	submit(t, s, `M 2x8 require:rack priority:80
	              N 1x1 priority:40`)
	plan, err := Decide(s, preempting)
	if err != nil {
		t.Fatal(err)
	}
	if got := gaveWay(plan); !slices.Equal(got, []string{"a to M"}) {
		t.Fatalf("%v gave way", got)
	}
	half := stopping(s, plan)
	half.Allocs = slices.DeleteFunc(half.Allocs, func(a model.Alloc) bool { return a.Node == "n1" })
	if plan, err = Decide(half, preempting); err != nil {
		t.Fatal(err)
	}
	for _, d := range plan.Decisions {
		if d.Action != model.ActionWait {
			t.Errorf("%s: %s: %s", d.Job, d.Action, d.Reason)
		}
	}
	if len(plan.Preemptions) > 0 {
		t.Errorf("%v gave way, too", gaveWay(plan))
	}
	if d := decisionOn(plan, "M"); d.Detail.Code != codePreempting || !slices.Equal(d.Detail.Held, []string{"n1", "n2"}) {
		t.Errorf("M: %+v", d)
	}

	// One GPU does not come back.
	end := stopped(half)
	end.Nodes = slices.Clone(end.Nodes)
	end.Nodes[1].GPUs = slices.Clone(end.Nodes[1].GPUs)
	end.Nodes[1].GPUs[7].Unhealthy = "not reset"
	if plan, err = Decide(end, preempting); err != nil {
		t.Fatal(err)
	}
	if d := decisionOn(plan, "M"); d.Action != model.ActionWait {
		t.Errorf("M: %s: %s", d.Action, d.Reason)
	}
	checkPlan(t, end, plan)
}
