package speed

import "math"

// kriging says how far the truth is from a fit, between and beyond what was
// measured: a Gaussian process over the logarithms (Rasmussen and Williams,
// Gaussian Processes for Machine Learning, 2006, algorithm 2.1). Where much was
// measured, the measurement counts; far from it, the fit does, with an error
// that grows on the way.
type kriging struct {
	points []point
	// variance is that of the truth about the fit.
	variance float64
	lower    [][]float64 // Cholesky factor of the covariance of what was measured
	weights  []float64   // covariance⁻¹ · residuals
}

// reach is the distance at which a measurement tells 1/e as much.
const reach = 2.0

func (k *kriging) covariance(a, b *point) float64 {
	return k.variance * math.Exp(-apartBy(a, b)/reach)
}

// apartBy is how different two configurations are: 1 for each doubling of the
// GPUs, ½ for a doubling of what one GPU has to do in an iteration and for a
// level, 2 for another model of GPU.
func apartBy(a, b *point) float64 {
	d := math.Abs(math.Log2(a.width / b.width))
	d += math.Abs(math.Log2(a.batch/a.width)-math.Log2(b.batch/b.width)) / 2
	if a.width > 1 && b.width > 1 {
		d += math.Abs(float64(a.level)-float64(b.level)) / 2
	}
	if a.model != b.model {
		d += 2
	}
	return d
}

// newKriging takes residuals, measured less fitted, and their standard errors.
func newKriging(points []point, residuals, errs []float64, variance float64) *kriging {
	k := &kriging{points: points, variance: variance}
	n := len(points)
	k.lower = make([][]float64, n)
	for i := range n {
		k.lower[i] = make([]float64, i+1)
		for j := range i + 1 {
			sum := k.covariance(&points[i], &points[j])
			if i == j {
				sum += errs[i] * errs[i]
			}
			for l := range j {
				sum -= k.lower[i][l] * k.lower[j][l]
			}
			if i == j {
				// Errors are above 0, so it is above 0 but for rounding.
				k.lower[i][i] = math.Sqrt(max(sum, 1e-12))
			} else {
				k.lower[i][j] = sum / k.lower[j][j]
			}
		}
	}
	k.weights = k.backward(k.forward(residuals))
	return k
}

func (k *kriging) forward(b []float64) []float64 {
	x := append([]float64(nil), b...)
	for i := range x {
		for j := range i {
			x[i] -= k.lower[i][j] * x[j]
		}
		x[i] /= k.lower[i][i]
	}
	return x
}

func (k *kriging) backward(b []float64) []float64 {
	x := append([]float64(nil), b...)
	for i := len(x) - 1; i >= 0; i-- {
		for j := i + 1; j < len(x); j++ {
			x[i] -= k.lower[j][i] * x[j]
		}
		x[i] /= k.lower[i][i]
	}
	return x
}

// at is how far the truth is from the fit at p, and the variance of that.
func (k *kriging) at(p *point) (shift, variance float64) {
	row := make([]float64, len(k.points))
	for i := range row {
		row[i] = k.covariance(&k.points[i], p)
	}
	v := k.forward(row)
	return dot(row, k.weights), max(k.variance-dot(v, v), 0)
}
