package share

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// inAnyOrder tries whether rigid tasks all end in time if they are fitted one after the
// other, each as early as can be, in some order. If that is possible at all, it is so.
func inAnyOrder(p *profile, tasks []Task) bool {
	for i := range tasks {
		t := &tasks[i]
		r, _ := p.fit(t, t.Min, t.Max, 0, t.Deadline)
		if r.never() {
			return false // nor later, with less free
		}
		beside := p.clone()
		beside.take(t, r)
		if inAnyOrder(beside, slices.Delete(slices.Clone(tasks), i, i+1)) {
			return true
		}
	}
	return len(tasks) == 0
}

// TestFewAreRefusedInVain: up to 8 rigid tasks come one after the other beside up to 3
// that run. Of those refused, few could be admitted, as trying all orders shows;
// docs/policies.md says how few.
func TestFewAreRefusedInVain(t *testing.T) {
	asked, refused, vain := 0, 0, 0
	for seed := range uint64(1000) {
		rng := rand.New(rand.NewPCG(seed, 3))
		gpus := 2 + rng.IntN(7)
		var running, kept []Task
		free := gpus
		for range rng.IntN(4) {
			if n := 1 + rng.IntN(3); n <= free {
				free -= n
				running = append(running, Task{Firm: true, Members: 1, GPUs: n, Work: float64(1 + rng.IntN(8))})
			}
		}
		beside := newProfile(gpus, len(running))
		for i := range running {
			beside.hold(&running[i])
		}
		for range 8 {
			next := Task{Min: 1, Max: 1, GPUs: 1 + rng.IntN(min(gpus, 4)), Work: float64(1 + rng.IntN(8))}
			next.Deadline = next.Work + float64(rng.IntN(17))
			asked++
			all := append(slices.Clip(kept), next)
			got := Fill(gpus, nil, slices.Concat(all, running), 0)[:len(all)]
			switch {
			case !slices.ContainsFunc(got, func(v Verdict) bool { return !v.Admitted }):
				all[len(kept)].Kept = true
				kept = all
			case inAnyOrder(beside, all):
				vain++
				fallthrough
			default:
				refused++
			}
		}
	}
	t.Logf("of %d asked %d are refused, %d of them in vain", asked, refused, vain)
	if refused < 1000 || vain*100 > 6*refused {
		t.Errorf("of %d refused %d are so in vain; want at most 6 %% of 1000 or more", refused, vain)
	}
}
