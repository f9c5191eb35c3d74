package apply_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/caravan-sched/caravan/planner/apply"
	"github.com/caravan-sched/caravan/planner/record"
)

// TestHandEditedPins are set right before anything moves; a hand that does it
// again and again is not fought with a version each time.
func TestHandEditedPins(t *testing.T) {
	f := newFake(t, 3)
	f.submit(gatedJob("train", "service", "job", 2, 8))
	e := apply.NewExecutor(f.client, f, options())
	placed(t, f, run(t, f, e, "running", phase("train", record.PhaseRunning)), "train", 2)
	edit := func() {
		cur := f.jobs["train"]
		for _, c := range cur.TaskGroups[0].Constraints {
			if c.LTarget == "${node.unique.id}" {
				c.RTarget = "^(" + f.nodes[0] + "|" + f.nodes[1] + "|" + f.nodes[2] + ")"
			}
		}
		f.submit(cur)
	}
	edit()
	before := f.writes
	e.Execute(t.Context(), f.view(), nil)
	if f.writes != before+2 {
		t.Fatalf("writes %v, want the record and the job", f.log[before:])
	}
	pins := func() string {
		for _, c := range f.jobs["train"].TaskGroups[0].Constraints {
			if c.LTarget == "${node.unique.id}" {
				return c.RTarget
			}
		}
		return ""
	}
	if strings.Contains(pins(), f.nodes[2][:4]) {
		t.Errorf("pins are %s", pins())
	}
	rec := f.records["default/train"]
	if rec.Phase != record.PhaseRunning || !strings.Contains(rec.History[0].Text, "changed in Nomad itself") {
		t.Errorf("phase %s, history %v", rec.Phase, rec.History)
	}
	edit()
	before = f.writes
	for range 3 {
		e.Execute(t.Context(), f.view(), nil)
		f.tick()
	}
	if f.writes != before {
		t.Errorf("fought at once: %v", f.log[before:])
	}
	f.now = f.now.Add(20 * time.Second)
	e.Execute(t.Context(), f.view(), nil)
	if strings.Contains(pins(), f.nodes[2][:4]) {
		t.Errorf("pins are %s", pins())
	}
	placed(t, f, f.view(), "train", 2)
	// A node that joins makes prefixes longer; that alone changes nothing.
	before = f.writes
	f.nodes = append(f.nodes, f.nodes[0]+"-twin")
	slices.Sort(f.nodes)
	for range 3 {
		apply.NewExecutor(f.client, f, options()).Execute(t.Context(), f.view(), nil)
	}
	if f.writes > before+2 {
		t.Errorf("a new node makes %v", f.log[before:])
	}
}

// TestStray allocations, in no member's place, are stopped.
func TestStray(t *testing.T) {
	f := newFake(t, 3)
	f.submit(gatedJob("train", "service", "job", 2, 8))
	e := apply.NewExecutor(f.client, f, options())
	v := run(t, f, e, "running", phase("train", record.PhaseRunning))
	m := placed(t, f, v, "train", 2)
	stray := *m.Members[0].Alloc
	stray.ID, stray.NodeID = "stray", f.nodes[2]
	f.allocs = append(f.allocs, &stray)
	e.Execute(t.Context(), f.view(), nil)
	if stray.DesiredStatus != "stop" {
		t.Error("the stray runs on")
	}
	f.tick()
	placed(t, f, f.view(), "train", 2)
}
