package core

import (
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/core/place"
	"github.com/caravan-sched/caravan/planner/core/preempt"
	"github.com/caravan-sched/caravan/planner/core/queue"
	"github.com/caravan-sched/caravan/planner/core/topo"
)

// Who is placed on GPU 0 of the first node, or on the second one, is told who starts there
// first of those who have reserved a part of it that it uses.
func TestWhoIsPassedByHand(t *testing.T) {
	const h = time.Hour
	of := func(job string, from time.Duration, gpus uint64) booking {
		return booking{from: from, until: from + h, claim: topo.Claim{GPUs: gpus}, job: jobKey{"default", job}}
	}
	with := func(b booking, set func(b *booking)) booking {
		set(&b)
		return b
	}
	drained := func(b *booking) { b.closed, b.kept, b.drained = true, true, true }
	first := []place.Placed{{Node: 0, GPUs: []int8{0}}}
	tests := map[string]struct {
		on     [][]booking
		placed []place.Placed
		want   string
	}{
		"nobody":                    {on: [][]booking{nil}},
		"one":                       {on: [][]booking{{of("H", h, 1)}}, want: "H 1h"},
		"who starts in a moment":    {on: [][]booking{{of("H", 1, 1)}}, want: "H 1ns"},
		"who has it now":            {on: [][]booking{{of("H", 0, 1)}}},
		"who has another GPU":       {on: [][]booking{{of("H", h, 2)}}},
		"who is only expected":      {on: [][]booking{{with(of("H", h, 1), func(b *booking) { b.foreseen = true })}}},
		"no job":                    {on: [][]booking{{with(of("", h, 1), func(b *booking) { b.name = "maintenance" })}}},
		"who has the whole node":    {on: [][]booking{{with(of("H", h, 0), func(b *booking) { b.closed = true })}}, want: "H 1h"},
		"the first":                 {on: [][]booking{{of("H", 3*h, 1), of("K", 2*h, 1), of("L", 4*h, 1)}}, want: "K 2h"},
		"the first in the order":    {on: [][]booking{{of("H", h, 1), of("K", h, 1)}}, want: "H 1h"},
		"of two nodes":              {on: [][]booking{{of("H", 3*h, 1)}, {of("K", 2*h, 2)}}, placed: []place.Placed{first[0], {Node: 1, GPUs: []int8{1}}}, want: "K 2h"},
		"without GPUs":              {on: [][]booking{{of("H", h, 2)}}, placed: []place.Placed{{Node: 0}}, want: "H 1h"},
		"on drained nodes":          {on: [][]booking{{with(of("H", h, 0), drained)}}, want: "H 2h, drained"},
		"drained after another":     {on: [][]booking{{of("K", h, 1), with(of("H", 2*h, 0), drained)}}, want: "H 3h, drained"},
		"drained before another":    {on: [][]booking{{with(of("H", 2*h, 0), drained), of("K", h, 1)}}, want: "H 3h, drained"},
		"the first that is drained": {on: [][]booking{{with(of("H", 2*h, 0), drained), with(of("K", h, 0), drained)}}, want: "H 3h, drained"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			c := &cycle{now: testNow, ahead: &ahead{on: tt.on}}
			if tt.placed == nil {
				tt.placed = first
			}
			b, any := c.borrows(&gang{runs: 30 * time.Minute}, tt.placed)
			got := ""
			if any {
				got = b.For.ID + " " + span(b.Start.Sub(testNow))
				if b.Drained {
					got += ", drained"
				}
				if !b.Until.Equal(testNow.Add(30 * time.Minute)) {
					t.Errorf("until %s", b.Until)
				}
			}
			if got != tt.want {
				t.Errorf("passes %q, want %q", got, tt.want)
			}
		})
	}
}

// A row is shown again when anything of it is another one.
func TestSameRow(t *testing.T) {
	usage := &model.Usage{MemoryMiB: 1}
	row := func(set func(r *topo.Row)) *topo.Row {
		r := topo.Row{GPUs: 3, Free: model.Resources{CPUMHz: 100}, Ports: []uint16{80, 443}, Users: []*model.Usage{nil, usage}, Owner: 1}
		set(&r)
		return &r
	}
	for name, test := range map[string]struct {
		set  func(r *topo.Row)
		want bool
	}{
		"the same":        {func(*topo.Row) {}, true},
		"GPUs":            {func(r *topo.Row) { r.GPUs = 1 }, false},
		"what is free":    {func(r *topo.Row) { r.Free.CPUMHz = 99 }, false},
		"the owner":       {func(r *topo.Row) { r.Owner = 2 }, false},
		"it is closed":    {func(r *topo.Row) { r.Closed = true }, false},
		"a port":          {func(r *topo.Row) { r.Ports = []uint16{80, 8080} }, false},
		"a port less":     {func(r *topo.Row) { r.Ports = r.Ports[:1] }, false},
		"who shares GPUs": {func(r *topo.Row) { r.Users = []*model.Usage{nil, {MemoryMiB: 2}} }, false},
	} {
		if got := sameRow(row(func(*topo.Row) {}), row(test.set)); got != test.want {
			t.Errorf("%s: %t, want %t", name, got, test.want)
		}
	}
}

// A gang is to have started in an hour. It reserves no place for a later time if others give
// way to it before, and keeps nothing if it displaces others at once; but who was promised a
// deadline keeps his nodes.
func TestWhoDisplacesNeedsNoPlace(t *testing.T) {
	stops := Policy{Order: queue.OrderDeadline, Preempt: preempt.Policy{Enabled: true}}
	never := stops
	never.Preempt.Enabled = false
	inOrder := stops
	inOrder.Order = queue.OrderFIFO
	in := func(d time.Duration) queue.Standing { return queue.Standing{Latest: testNow.Add(d)} }
	for name, test := range map[string]struct {
		policy                  Policy
		standing                queue.Standing
		displaces, keepsNothing bool
	}{
		"no promise":                        {policy: stops},
		"too late":                          {policy: stops, standing: in(time.Hour - 1), displaces: true},
		"just in time":                      {policy: stops, standing: in(time.Hour)},
		"nobody gives way":                  {policy: never, standing: in(time.Minute)},
		"an order in which nobody does":     {policy: inOrder, standing: in(time.Minute)},
		"its turn has come":                 {policy: stops, standing: queue.Standing{Passed: true}, keepsNothing: true},
		"its turn has come, with a promise": {policy: stops, standing: queue.Standing{Passed: true, Latest: testNow.Add(9 * time.Hour)}},
	} {
		j := &model.Job{ID: "j"}
		c := &cycle{Prepared: &Prepared{policy: test.policy}, now: testNow,
			stands: &standings{of: map[*model.Job]*agedJob{j: {job: j}}, list: []queue.Standing{test.standing}}}
		if got := c.displacesBefore(j, time.Hour); got != test.displaces {
			t.Errorf("%s: displaces others before: %t, want %t", name, got, test.displaces)
		}
		if got := c.keepsNothing(j); got != test.keepsNothing {
			t.Errorf("%s: keeps nothing: %t, want %t", name, got, test.keepsNothing)
		}
	}
}

// What is kept for a gang is told in the order of the nodes, not in that in which they are
// found: n2 is free when a has ended, and n1 already.
func TestNodesOfAReservationAreInOrder(t *testing.T) {
	s := draw(t, "b1 r1 n1 .\nb1 r1 n2 a")
	describe(t, s, "a 50 0s runs:2h")
	submit(t, s, "H 2x1 runs:3h")
	plan := mustDecide(t, s, easy)
	if got := strings.Join(plan.Decisions[0].Detail.Held, " "); got != "n1 n2" {
		t.Errorf("held: %s, want n1 n2", got)
	}
}

// All GPUs of the only node are held, and at 50 H needs them and all its processors: a job
// without GPUs may use those if it ends before.
func TestWhoNeedsNoGPUPassesInTime(t *testing.T) {
	s := draw(t, "b1 r1 n1 a")
	describe(t, s, "a 50 30m runs:80m")
	takePlaces(s)
	submit(t, s, "H 1x1 runs:3h\nL 1x0 runs:51m\nS 1x0 runs:50m")
	for id, cpu := range map[string]int{"H": 8000, "L": 1000, "S": 1000} {
		jobOf(s, id).Groups[0].Resources.CPUMHz = cpu
	}
	tt := alikeCase{policy: easy}
	if diff := gocmp.Diff([]string{"H ?; L ?; S now, before H"}, tt.look(t, s)); diff != "" {
		t.Errorf("starts (-want +got):\n%s", diff)
	}
}
