package preempt

import (
	"math/bits"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/caravan-sched/caravan/planner/core/topo"
)

// cluster is nodes with eight GPUs each, in racks of a few.
type cluster struct {
	state   *topo.State
	victims []Victim
	places  []Place
	// count members with size GPUs each are wanted.
	count, size int
}

func (c *cluster) fits(p Place) bool {
	n := 0
	for node := p.Lo; node < p.Hi; node++ {
		if r := c.state.Row(node); r.Owner == 0 && !r.Closed {
			n += bits.OnesCount64(r.GPUs) / c.size
		}
	}
	return n >= c.count
}

func (c *cluster) problem() Problem {
	return Problem{State: c.state, Victims: c.victims, Places: c.places, Fits: c.fits, GPUs: c.count * c.size}
}

// chooser is what random clusters are drawn with.
type chooser func(label string, lo, hi int) int

// anyCluster draws a full cluster, with some chains and something that nobody
// gives up.
func anyCluster(pick chooser) *cluster {
	nodes, rack := pick("nodes", 1, 6), pick("rack", 1, 3)
	c := &cluster{state: topo.NewState(nodes), count: pick("count", 1, 4), size: []int{1, 2, 4, 8}[pick("size", 0, 3)]}
	free := make([]uint64, nodes)
	for i := range free {
		free[i] = 0xff
		if pick("held", 0, 3) == 0 {
			free[i] &^= 1 << pick("gpu", 0, 7)
		}
	}
	for range pick("victims", 0, 9) {
		v := Victim{Cost: int64(pick("cost", 0, 9)), After: -1}
		for range pick("members", 1, 3) {
			node, gpus := pick("node", 0, nodes-1), []int{1, 2, 4, 8}[pick("gpus", 0, 3)]
			claim := topo.Claim{}
			for range gpus {
				if free[node] != 0 {
					lowest := free[node] & -free[node]
					free[node] &^= lowest
					claim.GPUs |= lowest
				}
			}
			if claim.GPUs != 0 {
				v.Holds = append(v.Holds, Hold{int32(node), claim})
			}
		}
		if n := len(c.victims); n > 0 && pick("chain", 0, 3) == 0 {
			v.After = n - 1
		}
		if len(v.Holds) > 0 {
			c.victims = append(c.victims, v)
		}
	}
	for i := range free {
		c.state.Set(int32(i), topo.Row{GPUs: free[i]})
	}
	for lo := 0; lo < nodes; lo += rack {
		c.places = append(c.places, Place{ID: len(c.places), Lo: int32(lo), Hi: int32(min(lo+rack, nodes))})
	}
	return c
}

// brute tries every set of victims.
func (c *cluster) brute() (cost int64, ok bool) {
	cost = -1
	for set := range 1 << len(c.victims) {
		sum, whole := int64(0), true
		mark := c.state.Mark()
		for i, v := range c.victims {
			if set&(1<<i) == 0 {
				continue
			}
			whole = whole && (v.After < 0 || set&(1<<v.After) != 0)
			sum += v.Cost
			for _, h := range v.Holds {
				c.state.Give(h.Node, h.Claim)
			}
		}
		if whole && (cost < 0 || sum < cost) && slices.ContainsFunc(c.places, c.fits) {
			cost = sum
		}
		c.state.Revert(mark)
	}
	return cost, cost >= 0
}

func (c *cluster) starving() bool { return !slices.ContainsFunc(c.places, c.fits) }

// Passing places over changes neither what is found nor what it takes to find it.
func TestPassingPlacesOverChangesNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := anyCluster(func(label string, lo, hi int) int { return rapid.IntRange(lo, hi).Draw(t, label) })
		if !c.starving() {
			t.Skip("it fits as it is")
		}
		p := c.problem()
		p.Budget = rapid.IntRange(1, 60).Draw(t, "budget")
		quick, slow := newSearch(p), newSearch(p)
		quick.run(quick.passes)
		slow.run(func(Place) bool { return false })
		if diff := cmp.Diff(slow.best, quick.best); diff != "" || quick.budget != slow.budget {
			t.Fatalf("budget left %d, without passing %d; best (-without +with):\n%s", quick.budget, slow.budget, diff)
		}
	})
}

func TestSolveFindsTheCheapest(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := anyCluster(func(label string, lo, hi int) int { return rapid.IntRange(lo, hi).Draw(t, label) })
		if !c.starving() {
			t.Skip("it fits as it is")
		}
		before := rowsOf(c.state)
		got, ok := Solve(c.problem())
		want, any := c.brute()
		if ok != any || ok && (got.Cost != want || !got.Proved) {
			t.Fatalf("cost %d, %t, proved %t; brute force has %d, %t", got.Cost, ok, got.Proved, want, any)
		}
		if diff := cmp.Diff(before, rowsOf(c.state)); diff != "" {
			t.Fatalf("the state has changed (-before +after):\n%s", diff)
		}
		if !ok {
			return
		}
		c.checkNeeded(t, got)
	})
}

func rowsOf(s *topo.State) []topo.Row {
	out := make([]topo.Row, s.Len())
	for i := range out {
		out[i] = *s.Row(int32(i))
	}
	return out
}

// checkNeeded checks that the gang fits, and would not if anyone stayed.
func (c *cluster) checkNeeded(t *rapid.T, got Solution) {
	fits := func(victims []int) bool {
		mark := c.state.Mark()
		defer c.state.Revert(mark)
		for _, v := range victims {
			for _, h := range c.victims[v].Holds {
				c.state.Give(h.Node, h.Claim)
			}
		}
		return c.fits(got.Place)
	}
	if !fits(got.Victims) {
		t.Fatalf("it does not fit without %v", got.Victims)
	}
	for i, v := range got.Victims {
		if slices.ContainsFunc(got.Victims, func(o int) bool { return c.victims[o].After == v }) {
			continue
		}
		if fits(slices.Delete(slices.Clone(got.Victims), i, i+1)) {
			t.Fatalf("%d of %v is not needed", v, got.Victims)
		}
	}
}

// TestSolveWithinABudget reports how much worse the answer is when there is no
// time to prove it.
func TestSolveWithinABudget(t *testing.T) {
	for _, budget := range []int{8, 30, 100} {
		r := rand.New(rand.NewPCG(1, 2))
		tries, worse, missed, extra := 0, 0, 0, 0.0
		for tries < 3000 {
			c := anyCluster(func(_ string, lo, hi int) int { return lo + r.IntN(hi-lo+1) })
			want, any := c.brute()
			if !any || !c.starving() {
				continue
			}
			tries++
			p := c.problem()
			p.Budget = budget
			got, ok := Solve(p)
			switch {
			case !ok:
				missed++
			case got.Cost > want:
				worse++
				extra += float64(got.Cost-want) / float64(max(1, want))
			}
		}
		t.Logf("with %d questions: %d of %d dearer than the best, by %.0f %% on average; %d not found", budget, worse, tries, 100*extra/float64(max(1, worse)), missed)
		if budget >= 100 && (worse*50 > tries || missed > 0) {
			t.Errorf("with %d questions %d of %d are dearer than the best and %d not found", budget, worse, tries, missed)
		}
	}
}

func TestSolve(t *testing.T) {
	claim := func(mask uint64) topo.Claim { return topo.Claim{GPUs: mask} }
	tests := map[string]struct {
		free    []uint64
		victims []Victim
		want    Solution
		wantNot bool
		max     int
	}{
		"one dear or two cheap": {
			free: []uint64{0, 0, 0},
			victims: []Victim{
				{Holds: []Hold{{0, claim(0xff)}}, Cost: 50, After: -1},
				{Holds: []Hold{{1, claim(0x0f)}}, Cost: 20, After: -1},
				{Holds: []Hold{{1, claim(0xf0)}}, Cost: 20, After: -1},
			},
			want: Solution{Victims: []int{1, 2}, Place: Place{1, 1, 2}, Cost: 40, Proved: true},
		},
		"no more than one may": {
			free: []uint64{0, 0, 0}, max: 1,
			victims: []Victim{
				{Holds: []Hold{{0, claim(0xff)}}, Cost: 50, After: -1},
				{Holds: []Hold{{1, claim(0x0f)}}, Cost: 20, After: -1},
				{Holds: []Hold{{1, claim(0xf0)}}, Cost: 20, After: -1},
			},
			want: Solution{Victims: []int{0}, Place: Place{0, 0, 1}, Cost: 50, Proved: true},
		},
		"cheap ones on scattered nodes are of no use": {
			free: []uint64{0x7f, 0x0f, 0},
			victims: []Victim{
				{Holds: []Hold{{1, claim(0x10)}}, Cost: 1, After: -1},
				{Holds: []Hold{{2, claim(0x01)}}, Cost: 1, After: -1},
				{Holds: []Hold{{0, claim(0x80)}}, Cost: 9, After: -1},
			},
			want: Solution{Victims: []int{2}, Place: Place{0, 0, 1}, Cost: 9, Proved: true},
		},
		"the last members go first": {
			free: []uint64{0, 0, 0},
			victims: []Victim{
				{Holds: []Hold{{1, claim(0xff)}}, Cost: 5, After: -1},
				{Holds: []Hold{{0, claim(0xff)}}, Cost: 5, After: 0},
				{Holds: []Hold{{2, claim(0xff)}}, Cost: 7, After: -1},
			},
			want: Solution{Victims: []int{0}, Place: Place{1, 1, 2}, Cost: 5, Proved: true},
		},
		"nobody holds enough": {
			free:    []uint64{0, 0, 0},
			victims: []Victim{{Holds: []Hold{{1, claim(0x7f)}}, Cost: 5, After: -1}},
			wantNot: true,
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			c := &cluster{state: topo.NewState(len(tt.free)), count: 1, size: 8, victims: tt.victims}
			for i, free := range tt.free {
				c.state.Set(int32(i), topo.Row{GPUs: free})
				c.places = append(c.places, Place{i, int32(i), int32(i + 1)})
			}
			p := c.problem()
			p.MaxVictims = tt.max
			got, ok := Solve(p)
			if ok == tt.wantNot {
				t.Fatalf("found: %t", ok)
			}
			if diff := cmp.Diff(tt.want, got); ok && diff != "" {
				t.Errorf("solution (-want +got):\n%s", diff)
			}
		})
	}
}

// Who counts finds what who asks finds, and takes as long, however soon it has to
// end.
func TestCountingFindsTheSame(t *testing.T) {
	found, proved := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		c := anyCluster(func(label string, lo, hi int) int { return rapid.IntRange(lo, hi).Draw(t, label) })
		if rapid.Bool().Draw(t, "no chains") {
			for i := range c.victims {
				c.victims[i].After = -1
			}
		}
		p := c.problem()
		p.Budget = rapid.SampledFrom([]int{0, 0, 3, 10, 30}).Draw(t, "budget")
		p.MaxVictims = rapid.IntRange(0, 3).Draw(t, "most")
		want, wantOK := Solve(p)
		p.Members = c.count
		p.Count = func(_ int32, r *topo.Row) int { return bits.OnesCount64(r.GPUs) / c.size }
		p.Room = func(place Place) (n int) {
			for node := place.Lo; node < place.Hi; node++ {
				n += p.Count(node, c.state.Row(node))
			}
			return n
		}
		before := rowsOf(c.state)
		got, ok := Solve(p)
		if diff := cmp.Diff(want, got); diff != "" || ok != wantOK {
			t.Fatalf("counting finds another choice (-asked +counted), %t and %t:\n%s", wantOK, ok, diff)
		}
		if diff := cmp.Diff(before, rowsOf(c.state)); diff != "" {
			t.Fatalf("the state is another one:\n%s", diff)
		}
		if ok {
			found++
		}
		if got.Proved {
			proved++
		}
	})
	if found == 0 || proved == 0 {
		t.Errorf("%d found, %d proved: want some of each", found, proved)
	}
}
