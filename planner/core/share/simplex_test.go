package share

import (
	"errors"
	"math"
	"testing"

	"pgregory.net/rapid"
)

// maximize solves a program.
func maximize(objective []float64, rows [][]float64, bounds []float64) (Solution, error) {
	d, err := newDictionary(objective, rows, bounds)
	if err == nil {
		err = d.maximize()
	}
	if err != nil {
		return Solution{}, err
	}
	return d.solution(len(objective)), nil
}

func TestMaximize(t *testing.T) {
	tests := map[string]struct {
		objective []float64
		rows      [][]float64
		bounds    []float64
		value     float64
		x, dual   []float64
	}{
		// Hillier and Lieberman, Introduction to Operations Research: the Wyndor
		// Glass Company. 3·2 + 5·6 = 36; the second plant's hour is worth 3/2, the
		// third's 1: 12·1.5 + 18·1 = 36.
		"Wyndor": {[]float64{3, 5}, [][]float64{{1, 0}, {0, 2}, {3, 2}}, []float64{4, 12, 18}, 36, []float64{2, 6}, []float64{0, 1.5, 1}},
		// Beale, Cycling in the dual simplex algorithm, 1955: the rule of the
		// greatest promise alone goes round in a circle of six steps.
		"Beale":           {[]float64{0.75, -20, 0.5, -6}, [][]float64{{0.25, -8, -1, 9}, {0.5, -12, -0.5, 3}, {0, 0, 1, 0}}, []float64{0, 0, 1}, 1.25, []float64{1, 0, 1, 0}, []float64{0, 1.5, 1.25}},
		"nothing to gain": {[]float64{-1}, [][]float64{{1}}, []float64{3}, 0, []float64{0}, []float64{0}},
		"no variables":    {nil, [][]float64{{}}, []float64{1}, 0, nil, []float64{0}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := maximize(tt.objective, tt.rows, tt.bounds)
			if err != nil {
				t.Fatal(err)
			}
			if math.Abs(got.Value-tt.value) > 1e-9 || !near(got.X, tt.x) || !near(got.Dual, tt.dual) {
				t.Errorf("got %+v, want %g at %v, duals %v", got, tt.value, tt.x, tt.dual)
			}
		})
	}
}

func near(a, b []float64) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if math.Abs(a[i]-b[i]) > 1e-7 {
			return false
		}
	}
	return true
}

func TestMaximizeRefuses(t *testing.T) {
	tests := map[string]struct {
		objective []float64
		rows      [][]float64
		bounds    []float64
		want      error
	}{
		"unbounded":      {[]float64{1, 1}, [][]float64{{1, -1}}, []float64{1}, ErrUnbounded},
		"negative bound": {[]float64{1}, [][]float64{{1}}, []float64{-1}, ErrProgram},
		"NaN":            {[]float64{1}, [][]float64{{1}}, []float64{math.NaN()}, ErrProgram},
		"uneven":         {[]float64{1}, [][]float64{{1, 2}}, []float64{1}, ErrProgram},
		"missing bound":  {[]float64{1}, [][]float64{{1}}, nil, ErrProgram},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if _, err := maximize(tt.objective, tt.rows, tt.bounds); !errors.Is(err, tt.want) {
				t.Errorf("got %v, want %v", err, tt.want)
			}
		})
	}
}

// corner solves rows·x = bounds for a square choice of rows; false if they do
// not meet in one point.
func corner(rows [][]float64, bounds []float64) ([]float64, bool) {
	n := len(rows)
	a := make([][]float64, n)
	for i := range a {
		a[i] = append(append([]float64(nil), rows[i]...), bounds[i])
	}
	for k := range n {
		best := k
		for i := k + 1; i < n; i++ {
			if math.Abs(a[i][k]) > math.Abs(a[best][k]) {
				best = i
			}
		}
		if math.Abs(a[best][k]) < 1e-9 {
			return nil, false
		}
		a[k], a[best] = a[best], a[k]
		for i := range n {
			if i == k {
				continue
			}
			f := a[i][k] / a[k][k]
			for j := k; j <= n; j++ {
				a[i][j] -= f * a[k][j]
			}
		}
	}
	x := make([]float64, n)
	for i := range x {
		x[i] = a[i][n] / a[i][i]
	}
	return x, true
}

// bestCorner tries all corners of a program: its maximum, where it has one, is at
// one of them.
func bestCorner(objective []float64, rows [][]float64, bounds []float64) float64 {
	n := len(objective)
	all, limits := append([][]float64(nil), rows...), append([]float64(nil), bounds...)
	for j := range n {
		row := make([]float64, n)
		row[j] = -1
		all, limits = append(all, row), append(limits, 0)
	}
	best := math.Inf(-1)
	chosen := make([]int, 0, n)
	var try func(from int)
	try = func(from int) {
		if len(chosen) == n {
			var r [][]float64
			var b []float64
			for _, i := range chosen {
				r, b = append(r, all[i]), append(b, limits[i])
			}
			x, ok := corner(r, b)
			if !ok {
				return
			}
			value := 0.0
			for i := range all {
				sum := 0.0
				for j := range x {
					sum += all[i][j] * x[j]
				}
				if sum > limits[i]+1e-7 {
					return
				}
			}
			for j := range x {
				value += objective[j] * x[j]
			}
			best = max(best, value)
			return
		}
		for i := from; i < len(all); i++ {
			chosen = append(chosen, i)
			try(i + 1)
			chosen = chosen[:len(chosen)-1]
		}
	}
	try(0)
	return best
}

// The maximum is that of all corners; the point keeps the rows; and the shadow
// prices prove that no other is better.
func TestMaximizeAgainstAllCorners(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n, m := rapid.IntRange(1, 4).Draw(t, "variables"), rapid.IntRange(1, 4).Draw(t, "rows")
		number := func(low, high int, name string) float64 { return float64(rapid.IntRange(low, high).Draw(t, name)) }
		objective := make([]float64, n)
		box := make([]float64, n)
		for j := range objective {
			objective[j], box[j] = number(-3, 5, "objective"), 1
		}
		rows, bounds := [][]float64{box}, []float64{number(0, 9, "box")} // so that there is a maximum
		for range m {
			row := make([]float64, n)
			for j := range row {
				row[j] = number(-3, 5, "cell")
			}
			rows, bounds = append(rows, row), append(bounds, number(0, 6, "bound"))
		}
		got, err := maximize(objective, rows, bounds)
		if err != nil {
			t.Fatal(err)
		}
		if want := bestCorner(objective, rows, bounds); math.Abs(got.Value-want) > 1e-6 {
			t.Errorf("got %g, the best corner is %g", got.Value, want)
		}
		worth := 0.0
		for i, row := range rows {
			sum := 0.0
			for j := range row {
				sum += row[j] * got.X[j]
			}
			if sum > bounds[i]+1e-7 {
				t.Errorf("row %d: %g > %g", i, sum, bounds[i])
			}
			worth += bounds[i] * got.Dual[i]
		}
		if math.Abs(worth-got.Value) > 1e-6 {
			t.Errorf("the prices make %g, the value is %g", worth, got.Value)
		}
		for j := range objective {
			price := 0.0
			for i := range rows {
				price += rows[i][j] * got.Dual[i]
			}
			if price < objective[j]-1e-6 || got.X[j] < 0 {
				t.Errorf("variable %d is worth %g and costs %g", j, objective[j], price)
			}
		}
	})
}
