package share

import (
	"errors"
	"slices"
)

// Errors of linear programs.
var (
	// ErrUnbounded is the error for a program whose objective has no maximum.
	ErrUnbounded = errors.New("linear program has no maximum")
	// ErrProgram is the error for a program that is not solved: one of
	// uneven rows, or with a negative bound.
	ErrProgram = errors.New("invalid linear program")
	// ErrTooLong is the error for a program that took more steps than it may.
	ErrTooLong = errors.New("linear program takes too many steps")
)

// Solution is a maximum of a linear program.
type Solution struct {
	// Value is the objective's, X the variables' and Dual the rows' shadow
	// prices: by how much Value grows for each unit that a row's bound grows.
	Value float64
	X     []float64
	Dual  []float64
}

// zero is below what a coefficient counts as nothing. Programs are expected to
// have coefficients around 1.
const zero = 1e-9

// dictionary says the basic variables and the objective in terms of the others:
// basic[i] = bound[i] − Σ cell[i][j]·other[j], objective = value + Σ promise[j]·other[j].
// Variables are numbered: the program's own from 0, the rows' slacks from first.
type dictionary struct {
	first   int
	cells   [][]float64
	bound   []float64
	promise []float64
	value   float64
	basic   []int
	other   []int
}

// newDictionary is the program of finding x ≥ 0 with rows·x ≤ bounds for which
// objective·x is largest, at x = 0. Bounds must not be negative, so that it can
// start there: that is all that sharing GPUs needs.
func newDictionary(objective []float64, rows [][]float64, bounds []float64) (*dictionary, error) {
	n := len(objective)
	if len(rows) != len(bounds) {
		return nil, ErrProgram
	}
	d := &dictionary{first: n, cells: make([][]float64, len(rows)), bound: append([]float64(nil), bounds...), promise: append([]float64(nil), objective...)}
	for i, row := range rows {
		if len(row) != n || !(bounds[i] >= 0) {
			return nil, ErrProgram
		}
		d.cells[i] = append([]float64(nil), row...)
		d.basic = append(d.basic, n+i)
	}
	for j := range n {
		d.other = append(d.other, j)
	}
	return d, nil
}

// maximize goes from corner to corner up to the objective's maximum. It is the
// simplex method on a dense dictionary (Dantzig), which takes the column with the
// greatest promise, and the first that has any (Bland, New Finite Pivoting Rules
// for the Simplex Method, 1977) whenever a step has brought nothing, so that it
// never goes round in circles.
func (d *dictionary) maximize() error {
	stalled := false
	for range 50 * (len(d.basic) + len(d.other) + 10) {
		column := d.enter(stalled)
		if column < 0 {
			return nil
		}
		row := d.leave(column)
		if row < 0 {
			return ErrUnbounded
		}
		before := d.value
		d.pivot(row, column)
		stalled = d.value <= before+zero
	}
	return ErrTooLong
}

// enter is the column that is to become basic, -1 at the maximum.
func (d *dictionary) enter(first bool) int {
	best := -1
	for j, p := range d.promise {
		switch {
		case p <= zero:
		case best < 0:
			best = j
		case first && d.other[j] < d.other[best], !first && p > d.promise[best]:
			best = j
		}
	}
	return best
}

// leave is the row whose variable reaches 0 first as a column's grows, of equals
// the one with the lowest number; -1 if none does.
func (d *dictionary) leave(column int) int {
	best, least := -1, 0.0
	for i, row := range d.cells {
		if row[column] <= zero {
			continue
		}
		ratio := d.bound[i] / row[column]
		if best < 0 || ratio < least-zero || ratio < least+zero && d.basic[i] < d.basic[best] {
			best, least = i, ratio
		}
	}
	return best
}

// pivot makes a column's variable basic and a row's one of the others.
func (d *dictionary) pivot(row, column int) {
	r := d.cells[row]
	by := 1 / r[column]
	for j := range r {
		r[j] *= by
	}
	r[column] = by
	d.bound[row] *= by
	for i, other := range d.cells {
		factor := other[column]
		if i == row || factor == 0 {
			continue
		}
		other[column] = 0
		for j, v := range r {
			other[j] -= factor * v
		}
		d.bound[i] = max(0, d.bound[i]-factor*d.bound[row])
	}
	factor := d.promise[column]
	d.promise[column] = 0
	for j, v := range r {
		d.promise[j] -= factor * v
	}
	d.value += factor * d.bound[row]
	d.basic[row], d.other[column] = d.other[column], d.basic[row]
}

// solution reads the first n variables and the rows' prices.
func (d *dictionary) solution(n int) Solution {
	s := Solution{Value: d.value, X: make([]float64, n), Dual: make([]float64, len(d.basic))}
	for i, variable := range d.basic {
		if variable < n {
			s.X[variable] = d.bound[i]
		}
	}
	for j, variable := range d.other {
		if row := variable - d.first; row >= 0 && row < len(s.Dual) {
			s.Dual[row] = max(0, -d.promise[j])
		}
	}
	return s
}

// fix makes what a variable is now its least value, which is not to be given up
// any more.
func (d *dictionary) fix(variable int) {
	for i, basic := range d.basic {
		if basic == variable {
			d.bound[i] = 0
		}
	}
}

// extend adds a variable that takes 1 of each of some rows, as the only one that
// the objective wants, and returns its number.
func (d *dictionary) extend(rows []int) int {
	variable := max(slices.Max(d.other), slices.Max(d.basic)) + 1
	takes := make([]float64, len(d.basic))
	wanted := make(map[int]bool, len(rows))
	for _, row := range rows {
		wanted[d.first+row] = true
	}
	for i, basic := range d.basic {
		if wanted[basic] {
			takes[i]++
		}
	}
	for j, other := range d.other {
		if wanted[other] {
			for i, row := range d.cells {
				takes[i] += row[j]
			}
		}
	}
	for i := range d.cells {
		d.cells[i] = append(d.cells[i], takes[i])
	}
	clear(d.promise)
	d.other, d.promise, d.value = append(d.other, variable), append(d.promise, 1), 0
	return variable
}
