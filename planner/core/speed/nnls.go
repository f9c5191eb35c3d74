package speed

import "math"

// nnls minimises ‖A·x − b‖ over x ≥ 0. It is the active-set method of Lawson and
// Hanson (Solving Least Squares Problems, 1974, chapter 23). a holds the columns
// of A, each as long as b. A column that depends on those already in use stays
// at 0, so the result is one of the minima where there are several. Numbers that
// are not finite are the caller's fault and give zeros.
func nnls(a [][]float64, b []float64) []float64 {
	s := newActiveSet(a, b)
	// Each round lets one variable in; the bound is Lawson and Hanson's, and is
	// only reached where rounding makes the method go in circles.
	for range 3 * (len(a) + 1) {
		j := s.steepest()
		if j < 0 {
			break
		}
		s.enter(j)
	}
	for j := range s.x {
		s.x[j] /= s.norm[j]
	}
	return s.x
}

// activeSet is the state of the method. Columns are scaled to length 1, so that
// one tolerance serves all.
type activeSet struct {
	a       [][]float64
	b, x    []float64
	norm    []float64
	passive []int     // the variables that may be above 0
	zero    []bool    // columns without a direction
	barred  []bool    // columns that depend on those in use
	residue []float64 // b − A·x
	scale   float64
}

func newActiveSet(a [][]float64, b []float64) *activeSet {
	s := &activeSet{b: b, x: make([]float64, len(a)), norm: make([]float64, len(a)), zero: make([]bool, len(a)), barred: make([]bool, len(a)), scale: length(b)}
	for j, column := range a {
		s.norm[j] = length(column)
		if !(s.norm[j] > 0) || math.IsInf(s.norm[j], 0) {
			s.norm[j], s.zero[j] = 1, true
		}
		unit := make([]float64, len(column))
		for i := range column {
			unit[i] = column[i] / s.norm[j]
		}
		s.a = append(s.a, unit)
	}
	s.residue = append([]float64(nil), b...)
	return s
}

// tolerance is below what a slope counts as 0, as a part of ‖b‖.
const tolerance = 1e-11

// steepest is the variable whose growth lowers the sum most; -1 if none does.
func (s *activeSet) steepest() int {
	best, at := tolerance*s.scale, -1
	for j := range s.a {
		if s.zero[j] || s.barred[j] || s.has(j) {
			continue
		}
		if slope := dot(s.a[j], s.residue); slope > best {
			best, at = slope, j
		}
	}
	return at
}

func (s *activeSet) has(j int) bool {
	for _, p := range s.passive {
		if p == j {
			return true
		}
	}
	return false
}

// enter lets variable j in and moves to the minimum of what is in, letting go
// what would fall below 0.
func (s *activeSet) enter(j int) {
	s.passive = append(s.passive, j)
	z, ok := s.solve()
	if last := len(s.passive) - 1; !ok || z[last] <= 0 {
		// It depends on the others, or only seems to help by rounding.
		s.passive = s.passive[:last]
		s.barred[j] = true
		return
	}
	for {
		step, stuck := 1.0, -1
		for k, p := range s.passive {
			if z[k] <= 0 {
				if part := s.x[p] / (s.x[p] - z[k]); part < step || stuck < 0 {
					step, stuck = min(part, step), k
				}
			}
		}
		if stuck < 0 {
			break
		}
		kept := s.passive[:0]
		for k, p := range s.passive {
			s.x[p] += step * (z[k] - s.x[p])
			if k == stuck || s.x[p] <= 0 {
				s.x[p] = 0
			} else {
				kept = append(kept, p)
			}
		}
		s.passive = kept
		if z, ok = s.solve(); !ok {
			break
		}
	}
	for k, p := range s.passive {
		s.x[p] = max(z[k], 0)
	}
	s.settle()
}

// settle brings the residue up to date. What depended on the variables in use
// may not do so any more.
func (s *activeSet) settle() {
	clear(s.barred)
	copy(s.residue, s.b)
	for _, p := range s.passive {
		for i := range s.residue {
			s.residue[i] -= s.x[p] * s.a[p][i]
		}
	}
}

// solve is the least-squares solution of the passive columns, by Gram-Schmidt
// orthogonalisation done twice; false if they depend on each other.
func (s *activeSet) solve() ([]float64, bool) {
	n := len(s.passive)
	q := make([][]float64, n)
	r := make([][]float64, n) // r[k][l]: column l along q[k]
	z := make([]float64, n)
	for l, p := range s.passive {
		v := append([]float64(nil), s.a[p]...)
		r[l] = make([]float64, n)
		for range 2 {
			for k := range l {
				along := dot(q[k], v)
				r[k][l] += along
				for i := range v {
					v[i] -= along * q[k][i]
				}
			}
		}
		r[l][l] = length(v)
		if r[l][l] < 1e-10 {
			return z, false
		}
		for i := range v {
			v[i] /= r[l][l]
		}
		q[l] = v
	}
	rest := append([]float64(nil), s.b...)
	for k := range n {
		z[k] = dot(q[k], rest)
		for i := range rest {
			rest[i] -= z[k] * q[k][i]
		}
	}
	for k := n - 1; k >= 0; k-- {
		for l := k + 1; l < n; l++ {
			z[k] -= r[k][l] * z[l]
		}
		z[k] /= r[k][k]
	}
	return z, true
}

func dot(a, b []float64) float64 {
	sum := 0.0
	for i := range a {
		sum += a[i] * b[i]
	}
	return sum
}

func length(a []float64) float64 { return math.Sqrt(dot(a, a)) }
