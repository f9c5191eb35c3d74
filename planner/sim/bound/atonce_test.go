package bound

import (
	"math/bits"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func TestAtOnceByHand(t *testing.T) {
	three := []Job{{0, 100, 1, true}, {0, 100, 1, true}, {0, 100, 1, true}}
	for name, c := range map[string]struct {
		jobs []Job
		part float64
		want int
	}{
		"all of three":                   {three, 1, 3},
		"two of three":                   {three, 2.0 / 3, 2},
		"the others may wait":            {append([]Job{{0, 100, 1, false}, {0, 100, 2, true}}, three[:2]...), 1, 2},
		"who has ended by then":          {[]Job{{0, 60, 1, true}, {0, 61, 1, true}, {0, 62, 1, true}}, 1, 2},
		"one after the other":            {[]Job{{0, 100, 1, true}, {40, 100, 1, true}, {80, 100, 1, true}}, 1, 1},
		"the one that is long is late":   {[]Job{{0, 1000, 1, true}, {0, 70, 1, true}, {200, 100, 1, true}, {400, 100, 1, true}}, 0.75, 1},
		"nobody":                         {nil, 0.95, 0},
		"all end before they have to be": {[]Job{{0, 10, 1, true}, {0, 10, 1, true}}, 1, 0},
	} {
		p := Problem{GPUs: 8, Jobs: c.jobs, Part: c.part}
		if got := p.AtOnce(60); got != c.want {
			t.Errorf("%s: %d GPUs at once, want %d", name, got, c.want)
		}
	}
}

// Whoever is late, the others need so many GPUs at once, and by the best choice no more.
func TestAtOnceIsTheLeast(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := Problem{GPUs: 8, Part: rapid.SampledFrom([]float64{0.5, 0.7, 0.95, 1}).Draw(t, "part")}
		for range rapid.IntRange(1, 6).Draw(t, "jobs") {
			p.Jobs = append(p.Jobs, Job{float64(rapid.IntRange(0, 12).Draw(t, "release")), float64(rapid.IntRange(1, 9).Draw(t, "shortest")), 1, true})
		}
		within := float64(rapid.IntRange(0, 3).Draw(t, "within"))
		n := len(p.Jobs)
		least := n
		for in := range 1 << n {
			if n-bits.OnesCount(uint(in)) > late(p.Part, n) {
				continue
			}
			most := 0
			for at := range 24 {
				here := 0
				for i, j := range p.Jobs {
					if in&(1<<i) != 0 && j.Release+within <= float64(at) && float64(at) < j.Release+j.Shortest {
						here++
					}
				}
				most = max(most, here)
			}
			least = min(least, most)
		}
		if got := p.AtOnce(within); got != least {
			t.Errorf("%d GPUs at once, want %d: %+v", got, least, p)
		}
	})
}

// By hand, on two GPUs: s comes at 5 and is to start then, so a of both GPUs, which runs for
// 10 s and comes first, starts only after it.
func TestPlannedByHand(t *testing.T) {
	p := Problem{GPUs: 2, Jobs: []Job{{0, 10, 2, true}, {1, 4, 1, true}, {5, 3, 1, true}}}
	if diff := cmp.Diff([]float64{8, 1, 5}, p.Planned(func(i int) bool { return i == 2 })); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]float64{0, 10, 10}, p.Planned(func(int) bool { return false })); diff != "" {
		t.Errorf("by age alone (-want +got):\n%s", diff)
	}
}

// Nobody starts before he comes, no more GPUs are in use than there are, and who is to be
// soon waits for nobody else but his like.
func TestPlannedIsASchedule(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := instance(t, 7)
		soon := func(i int) bool { return p.Jobs[i].Width == 1 }
		starts := p.Planned(soon)
		alone := Problem{GPUs: p.GPUs}
		var was []float64
		for i, j := range p.Jobs {
			if soon(i) {
				alone.Jobs, was = append(alone.Jobs, j), append(was, starts[i])
			}
			if starts[i] < j.Release {
				t.Errorf("job %d starts at %g and comes at %g", i, starts[i], j.Release)
			}
			used := 0.0
			for k, other := range p.Jobs {
				if starts[k] <= starts[i] && starts[i] < starts[k]+other.Shortest {
					used += other.Width
				}
			}
			if used > p.GPUs {
				t.Errorf("%g of %g GPUs are in use at %g", used, p.GPUs, starts[i])
			}
		}
		if diff := cmp.Diff(was, alone.Planned(func(int) bool { return true })); len(was) > 0 && diff != "" {
			t.Errorf("with others (-) and without (+):\n%s", diff)
		}
	})
}
