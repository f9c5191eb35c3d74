package core

import (
	"testing"

	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/core/preempt"
	"github.com/caravan-sched/caravan/planner/core/queue"
	"github.com/caravan-sched/caravan/planner/core/topo"
)

// b is stopping, then a is too, of which one GPU is promised; then c takes a free one.
func TestWhatThoseLeaveWhoAreLeaving(t *testing.T) {
	s := draw(t, "b1 r1 n1 aa..\nb1 r1 n2 bb..\nb1 r1 n3 ....")
	describe(t, s, "a 50 30m\nb 50 30m")
	takePlaces(s)
	b := jobOf(s, "b")
	b.State = model.StateStopping
	submit(t, s, "K 9x2\nL 1x3")
	p, err := Prepare(s, Policy{Order: queue.OrderCaravan, Preempt: preempt.Policy{Enabled: true}})
	if err != nil {
		t.Fatal(err)
	}
	p.build(topo.New(p.snapshot()), func(func(*model.Alloc) bool) {})
	c := newCycle(p, s.Now)
	defer c.revert()
	c.yield = c.newYield()
	check := func(when string, want2, want3 int) {
		t.Helper()
		for id, want := range map[string]int{"K": want2, "L": want3} {
			g := &c.gangs(c.jobs[jobKey{id: id}])[0]
			c.prepare(c.jobs[jobKey{id: id}], g)
			if got := c.roomLeft(g.unit.Parts[0].Request); got != want {
				t.Errorf("%s there is room for %d members of %s, want %d", when, got, id, want)
			}
		}
	}
	check("when b has left", 5, 2)
	c.yield.keepFrom(0, 1, nil)
	c.yield.leaving = append(c.yield.leaving, leaver{hold: preempt.Hold{Node: 0, Claim: topo.Claim{GPUs: 3}}})
	check("when a has left, too", 5, 3)
	c.views[viewNow].State.Take(2, topo.Claim{GPUs: 7})
	c.epoch++
	check("beside c", 3, 2)
}
