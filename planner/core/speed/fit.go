package speed

import (
	"math"
	"slices"
)

// point is one configuration as the fits see it.
type point struct {
	// width is how many GPUs (members, if they have none) share the work.
	width float64
	level Level
	// model is the number of the GPU model in the frame.
	model int
	// batch is the work in one iteration; 1 where it is not known, and then an
	// iteration is whatever is counted.
	batch float64
	// log is the logarithm of an iteration's seconds, and err its standard error.
	log, err float64
}

// form is a family of models of an iteration's time: both parts are linear in
// parameters that are not negative, and are joined by a power, if at all.
type form struct {
	name string
	// powers are the exponents that part from sum to maximum; one is a sum.
	powers []float64
	// grad and sync are the values of the parameters' columns for a point.
	grad, sync func(p *point) []float64
}

// fitted is a form with its parameters.
type fitted struct {
	form       form
	grad, sync []float64
	power      float64
	// factor is how much faster than the first a model of GPU computes.
	factor []float64
	// loss is the robust sum of squares, and terms how many parameters are not 0.
	loss  float64
	terms int
}

// optimus is Peng et al., Optimus, EuroSys 2018, section 3.2: with synchronous
// training, f(p, w) = (θ0·M/w + θ1 + θ2·w/p + θ3·w + θ4·p)⁻¹ for w workers and p
// parameter servers. Where the workers are the servers, p = w, that is
// θ0·M/w + θ1 + θ3·w. Each level that the members are further apart may cost
// more, by itself and by the number of them.
func optimus(tiers []Level) form {
	return form{name: "Optimus", powers: []float64{1}, sync: func(*point) []float64 { return nil },
		grad: func(p *point) []float64 {
			row := []float64{p.batch / p.width, 1, p.width}
			for _, tier := range tiers[min(1, len(tiers)):] {
				row = append(row, apart(p, tier), apart(p, tier)*p.width)
			}
			return row
		}}
}

// pollux is Qiao et al., Pollux, OSDI 2021, section 3.2: T_iter =
// (T_grad^γ + T_sync^γ)^(1/γ) with T_grad = α + β·m, m the batch of one GPU, and
// T_sync = 0 for one GPU, else α' + β'·(K−2), with an α' and a β' of their own for
// GPUs in one node and in several. Here each level has its own, and none costs
// less than a nearer one.
func pollux(tiers []Level) form {
	return overlapped("Pollux", tiers, func(width float64) float64 { return width - 2 })
}

// ring is Pollux's with what the gradients take in a ring all-reduce, where each
// of K sends (K−1)/K of them twice (Patarasuk and Yuan, Bandwidth Optimal
// All-Reduce Algorithms, 2009): it grows with K, but only so far.
func ring(tiers []Level) form {
	return overlapped("ring", tiers, func(width float64) float64 { return 1 - 2/width })
}

func overlapped(name string, tiers []Level, more func(width float64) float64) form {
	return form{name: name, powers: []float64{1, 1.5, 2, 3, 5, 10},
		grad: func(p *point) []float64 { return []float64{1, p.batch / p.width} },
		sync: func(p *point) []float64 {
			var row []float64
			for _, tier := range tiers {
				row = append(row, apart(p, tier), apart(p, tier)*max(more(p.width), 0))
			}
			return row
		}}
}

// apart is 1 if members of the point are that far apart, else 0.
func apart(p *point, tier Level) float64 {
	if p.width > 1 && p.level >= tier {
		return 1
	}
	return 0
}

// seconds is the time of an iteration, with the parts that make it up.
func (f *fitted) seconds(p *point) (all, grad, sync float64) {
	grad = dot(f.form.grad(p), f.grad) / f.factor[p.model]
	sync = dot(f.form.sync(p), f.sync)
	return join(grad, sync, f.power), grad, sync
}

// join is (a^power + b^power)^(1/power), without overflow.
func join(a, b, power float64) float64 {
	most := max(a, b)
	if power == 1 || most <= 0 {
		return a + b
	}
	return most * math.Pow(math.Pow(a/most, power)+math.Pow(b/most, power), 1/power)
}

// How fits are made.
const (
	// huber is from how many standard errors on a point counts for less (Huber,
	// Robust Estimation of a Location Parameter, 1964).
	huber = 1.345
	// rounds bound the steps for each power.
	rounds = 6
)

// fit finds the parameters that come closest to the points in relative terms.
// Given the power, it takes Gauss-Newton steps, each one a least-squares problem
// without negative parameters; far points count less (iteratively reweighted).
// The start is the best sum, which is such a problem itself.
func (f form) fit(points []point, factor []float64) *fitted {
	best := f.begin(points, factor)
	if best == nil {
		return nil
	}
	current := *best
	for _, power := range f.powers {
		current.power = power
		current.loss = current.robust(points)
		for range rounds {
			next := current.step(points)
			if !(next.loss < current.loss*(1-1e-4)) {
				break
			}
			current = *next
		}
		if current.loss < best.loss*(1-1e-3) {
			kept := current
			best = &kept
		}
	}
	best.count()
	return best
}

// begin fits the sum of the parts.
func (f form) begin(points []point, factor []float64) *fitted {
	if len(points) == 0 {
		return nil
	}
	n, m := len(f.grad(&points[0])), len(f.sync(&points[0]))
	out := &fitted{form: f, grad: make([]float64, n), sync: make([]float64, m), power: 1, factor: factor, loss: math.Inf(1)}
	for range rounds {
		next := out.step(points)
		if !(next.loss < out.loss*(1-1e-6)) {
			break
		}
		out = next
	}
	if math.IsInf(out.loss, 1) {
		return nil
	}
	return out
}

// step is the next fit: the model as a line about the parameters as they are,
// solved for parameters that are not negative. Half of it, a quarter and so on
// are tried until the loss falls.
func (f *fitted) step(points []point) *fitted {
	n, m := len(f.grad), len(f.sync)
	columns := make([][]float64, n+m)
	for j := range columns {
		columns[j] = make([]float64, len(points))
	}
	right := make([]float64, len(points))
	for i := range points {
		f.line(&points[i], columns, right, i)
	}
	x := nnls(columns, right)
	next := *f
	for part := 1.0; part > 0.05; part /= 2 {
		next.grad, next.sync = mix(f.grad, x[:n], part), mix(f.sync, x[n:], part)
		if next.loss = next.robust(points); next.loss < f.loss {
			break
		}
	}
	return &next
}

// line writes the row of one point: the derivatives of its seconds by each
// parameter, over the seconds that were measured and the error.
func (f *fitted) line(p *point, columns [][]float64, right []float64, i int) {
	measured := math.Exp(p.log)
	now, grad, sync := f.seconds(p)
	weight := 1 / (measured * p.err)
	byGrad, bySync, constant := 1.0, 1.0, 0.0
	if now > 0 {
		if r := math.Abs(math.Log(now)-p.log) / p.err; r > huber {
			weight *= math.Sqrt(huber / r)
		}
		if f.power != 1 {
			byGrad, bySync = math.Pow(grad/now, f.power-1), math.Pow(sync/now, f.power-1)
			constant = now - grad*byGrad - sync*bySync
		}
		// The residual is that of the logarithm, which is not the same far out.
		weight *= measured / math.Sqrt(measured*now)
	}
	byGrad /= f.factor[p.model]
	for j, x := range f.form.grad(p) {
		columns[j][i] = x * byGrad * weight
	}
	for j, x := range f.form.sync(p) {
		columns[len(f.grad)+j][i] = x * bySync * weight
	}
	right[i] = (measured - constant) * weight
}

func mix(from, to []float64, part float64) []float64 {
	out := make([]float64, len(from))
	for j := range out {
		out[j] = from[j] + part*(to[j]-from[j])
	}
	return out
}

// robust is the loss: squares near, and straight lines from huber errors on.
func (f *fitted) robust(points []point) float64 {
	sum := 0.0
	for i := range points {
		p := &points[i]
		all, _, _ := f.seconds(p)
		if !(all > 0) {
			return math.Inf(1)
		}
		r := math.Abs(math.Log(all)-p.log) / p.err
		if r > huber {
			r = math.Sqrt(2*huber*r - huber*huber)
		}
		sum += r * r
	}
	return sum
}

func (f *fitted) count() {
	positive := func(x float64) bool { return x > 0 }
	f.terms = 0
	for _, x := range slices.Concat(f.grad, f.sync) {
		if positive(x) {
			f.terms++
		}
	}
	if len(f.form.powers) > 1 {
		f.terms++
	}
}
