package speed

import (
	"math"
	"testing"

	"pgregory.net/rapid"
)

func TestNNLS(t *testing.T) {
	tests := map[string]struct {
		columns [][]float64
		b, want []float64
	}{
		"the unbounded minimum is allowed": {[][]float64{{1, 0}, {0, 1}}, []float64{3, 4}, []float64{3, 4}},
		"below 0 is cut off":               {[][]float64{{1, 0}, {0, 1}}, []float64{3, -4}, []float64{3, 0}},
		"nothing helps":                    {[][]float64{{1, 1}}, []float64{-1, -1}, []float64{0}},
		// Unbounded: x = (3, -1), since 3 - 1 = 2 and 3·1 - 2·1 = 1. With y ≥ 0 it
		// is y = 0, and x minimises (x-2)² + (x-1)², so 1.5.
		"one is held at 0":  {[][]float64{{1, 1}, {1, 2}}, []float64{2, 1}, []float64{1.5, 0}},
		"a column of zeros": {[][]float64{{0, 0}, {2, 0}}, []float64{1, 1}, []float64{0, 0.5}},
		"a column twice":    {[][]float64{{1, 1}, {1, 1}}, []float64{2, 2}, []float64{2, 0}},
		"no columns":        {nil, []float64{1}, []float64{}},
		"no rows":           {[][]float64{{}, {}}, nil, []float64{0, 0}},
		"scales far apart":  {[][]float64{{1e9, 0}, {0, 1e-9}}, []float64{2, 3}, []float64{2e-9, 3e9}},
		"two of three": {[][]float64{{1, 2, 3}, {-1, 0, 1}, {4, 5, 6}}, []float64{1, 2, 3},
			[]float64{1, 0, 0}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got := nnls(test.columns, test.b)
			if len(got) != len(test.want) {
				t.Fatalf("x = %v, want %v", got, test.want)
			}
			for j := range got {
				if math.Abs(got[j]-test.want[j]) > 1e-9*max(1e-9, test.want[j]) {
					t.Errorf("x = %v, want %v", got, test.want)
				}
			}
		})
	}
}

// drawSystem draws columns and a right side, at times with columns that depend
// on each other or are far apart in scale.
func drawSystem(t *rapid.T, most int) ([][]float64, []float64) {
	n := rapid.IntRange(1, most).Draw(t, "columns")
	m := rapid.IntRange(1, 8).Draw(t, "rows")
	value := rapid.Custom(func(t *rapid.T) float64 { return float64(rapid.IntRange(-50, 50).Draw(t, "value")) / 10 })
	a := make([][]float64, n)
	for j := range a {
		a[j] = rapid.SliceOfN(value, m, m).Draw(t, "column")
		scale := math.Pow(10, float64(rapid.IntRange(-4, 4).Draw(t, "scale")))
		if j > 0 && rapid.IntRange(0, 4).Draw(t, "depends") == 0 {
			copy(a[j], a[j-1])
		}
		for i := range a[j] {
			a[j][i] *= scale
		}
	}
	return a, rapid.SliceOfN(value, m, m).Draw(t, "b")
}

func residue(a [][]float64, x, b []float64) []float64 {
	r := append([]float64(nil), b...)
	for j := range a {
		for i := range r {
			r[i] -= x[j] * a[j][i]
		}
	}
	return r
}

// TestNNLSConditions checks the Karush-Kuhn-Tucker conditions, which hold at a
// minimum and only there: x ≥ 0, no slope above 0, and none below where x > 0.
func TestNNLSConditions(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := drawSystem(t, 8)
		x := nnls(a, b)
		r := residue(a, x, b)
		for j := range a {
			if x[j] < 0 || math.IsNaN(x[j]) {
				t.Fatalf("x = %v", x)
			}
			slope, most := dot(a[j], r), 1e-7*length(a[j])*(length(b)+1e-300)
			if slope > most || x[j] > 0 && slope < -most {
				t.Fatalf("x = %v: slope of %d is %g, want at most %g", x, j, slope, most)
			}
		}
	})
}

// TestNNLSBestSubset compares with all the subsets of the columns.
func TestNNLSBestSubset(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := drawSystem(t, 5)
		got := length(residue(a, nnls(a, b), b))
		best := length(b)
		for set := range 1 << len(a) {
			s := newActiveSet(a, b)
			for j := range a {
				if set>>j&1 == 1 {
					s.passive = append(s.passive, j)
				}
			}
			z, ok := s.solve()
			if !ok {
				continue
			}
			x := make([]float64, len(a))
			legal := true
			for k, p := range s.passive {
				x[p] = z[k] / s.norm[p]
				legal = legal && z[k] >= 0
			}
			if legal {
				best = min(best, length(residue(a, x, b)))
			}
		}
		if got > best+1e-7*length(b) {
			t.Fatalf("‖Ax-b‖ = %g, want %g", got, best)
		}
	})
}
