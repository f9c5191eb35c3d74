package trace

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// Quantiles of many values are within the error that is said of them, whatever the
// values are; those of few are exact.
func TestQuantiles(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for name, draw := range map[string]func() float64{
		"lognormal": func() float64 { return min(lognormal(rng, 3600, 3), maxSeconds) },
		"all alike": func() float64 { return 60 },
		"extremes":  func() float64 { return []float64{leastSketched, maxSeconds}[rng.IntN(2)] },
	} {
		var q quantiles
		var all []float64
		for _, n := range []int{1, 1000, exactly, exactly + 1, exactly + 5000} {
			for len(all) < n {
				x := draw()
				all = append(all, x)
				q.add(x)
			}
			slices.Sort(all)
			for _, part := range []float64{0, 0.5, 0.99, 1} {
				want := quantile(all, part)
				if got := q.at(part); !(math.Abs(got-want) <= q.wrong()*want*(1+1e-9)) {
					t.Errorf("%s: %g of %d values: %g: want %g, within %g of it", name, part, n, got, want, q.wrong())
				}
			}
			if (q.wrong() != 0) != (n > exactly) {
				t.Errorf("%s: error %g of %d values", name, q.wrong(), n)
			}
		}
	}
}
