package bound

import (
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// By hand, on one GPU: b of 4 s comes at 0, a of 10 s with it, c of 1 s at 5.
func TestPlayByHand(t *testing.T) {
	p := Problem{GPUs: 1, Jobs: []Job{{0, 10, 1, true}, {0, 4, 1, true}, {5, 1, 1, true}}}
	for name, c := range map[string]struct {
		r    rule
		want []float64
	}{
		"by age": {rule{}, []float64{10, 14, 10}},
		// a has 10 s to go from the first, and b when it has waited for 6: then they take turns.
		"what takes longest": {rule{left: 1}, []float64{14, 14, 10}},
		// The bound is 5: a would take longer whatever is done, and waits for all others.
		"the lost last": {rule{left: 1, lost: 1, wait: math.Inf(1)}, []float64{15, 4, 1}},
	} {
		got := p.play(c.r, 5)
		for i := range got {
			// Urgencies are compared 20 times a second.
			if math.Abs(got[i]-c.want[i]) > 0.2 {
				t.Errorf("%s: %v, want %v", name, got, c.want)
				break
			}
		}
	}
}

// Two of three may take 5 s at most if a is late; nobody may take longer than 14.
func TestFoundKeepsConditions(t *testing.T) {
	p := Problem{GPUs: 1, Part: 2.0 / 3, Jobs: []Job{{0, 10, 1, true}, {0, 4, 1, true}, {5, 1, 1, true}}}
	if got := p.Found(4, 12); math.Abs(got-4) > 1e-9 {
		t.Errorf("without conditions %g, want 4", got)
	}
	p.Counted.Parts = []Limit{{1, 14.01}}
	if got := p.Found(4, 12); math.Abs(got-10) > 1e-9 {
		t.Errorf("with nobody over 14 s %g, want 10", got)
	}
	p.Counted.Parts = []Limit{{1, 9}}
	if got := p.Found(4, 12); got != 12 {
		t.Errorf("with a condition that nothing keeps %g, want the 12 that was known", got)
	}
}

// Nothing that is found is below the bounds, no job is done sooner than it can be, and
// never more GPUs are in use than there are.
func TestFoundIsNoLessThanLeast(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := instance(t, 6)
		if !slices.ContainsFunc(p.Jobs, func(j Job) bool { return j.Counted }) {
			p.Jobs[0].Counted = true
		}
		if rapid.Bool().Draw(t, "limit") {
			p.Counted.Parts = []Limit{{1, float64(rapid.IntRange(3, 20).Draw(t, "within"))}}
		}
		const most = 100
		if least, found := p.Least(0.5, most), p.Found(0.5, most); found < least-1e-9 {
			t.Errorf("found %g, and none is below %g: %+v", found, least, p)
		}
		for _, r := range rules() {
			took := p.play(r, 1)
			work, last := 0.0, 0.0
			for i, j := range p.Jobs {
				if took[i] < j.Shortest-1e-9 {
					t.Errorf("%+v: job %d took %g of %g s", r, i, took[i], j.Shortest)
				}
				work += j.work()
				last = max(last, j.Release+took[i])
			}
			if work > p.GPUs*last*(1+1e-9) {
				t.Errorf("%+v: %g GPU-seconds of work in %g s on %g GPUs", r, work, last, p.GPUs)
			}
		}
	})
}
