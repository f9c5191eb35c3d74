package speed

import (
	"math"
	"slices"

	"github.com/caravan-sched/caravan/planner/core/model"
)

// What is assumed of errors, all relative, before anything is measured.
const (
	// priorPower is how speed grows with GPUs as long as one size is known only,
	// and priorError how much that may be wrong for a doubling.
	priorPower = 0.85
	priorError = 0.3
	// modelDrift is what a doubling adds where one model of GPU was measured and
	// the other was not.
	modelDrift = 0.15
	// declaredError is how far a declared speed may be from the true one.
	declaredError = 0.2
	// formError is how far the true speed is from what a fit says between the
	// sizes measured, before that is known better, and formSeen how many
	// configurations that is worth.
	formError = 0.08
	formSeen  = 2.0
	// sampleError is that of a single measurement as long as their spread is not
	// known, and sampleSeen how many measurements that is worth.
	sampleError = 0.07
	sampleSeen  = 3.0
	// leastError is how close a speed is known at best: it varies with the
	// weather, not only with chance.
	leastError = 0.005
)

// learned is what measurements say: the fit, and how far the truth is from it.
type learned struct {
	points []point
	models []string
	fit    *fitted
	krige  *kriging
	// batches says whether samples tell how much work an iteration is.
	batches           bool
	unit              string
	narrowest, widest float64
	// farthest is the widest level that members of it were measured apart.
	farthest Level
}

// learn makes the fit; nil where nothing was measured.
func learn(samples []model.SpeedSample, unit string, declared []declaredPoint, relative []model.ModelSpeed) *learned {
	l := &learned{unit: unit, batches: len(samples) > 0, narrowest: math.Inf(1)}
	for i := range samples {
		l.batches = l.batches && samples[i].Batch > 0
	}
	for i := range samples {
		s := &samples[i]
		at := slices.Index(l.models, s.Model)
		if at < 0 {
			at = len(l.models)
			l.models = append(l.models, s.Model)
		}
		p := point{width: configOf(s).width(), level: ParseLevel(s.Level), model: at, batch: 1, err: standardError(s)}
		if l.batches {
			p.batch = s.Batch
		}
		p.log = math.Log(l.work(p.batch) / s.Rate)
		l.points = append(l.points, p)
		if p.width > 1 {
			l.farthest = max(l.farthest, p.level)
		}
		l.narrowest, l.widest = min(l.narrowest, p.width), max(l.widest, p.width)
	}
	if len(l.points) == 0 {
		return nil
	}
	l.shape(declared, relative)
	l.spread()
	return l
}

// work is how much of what is counted is done in an iteration.
func (l *learned) work(batch float64) float64 {
	if l.unit == model.UnitSteps {
		return 1
	}
	return batch
}

// shape chooses the fit: the form whose loss is lower, each parameter counting
// 2 (Akaike, A New Look at the Statistical Model Identification, 1974).
func (l *learned) shape(declared []declaredPoint, relative []model.ModelSpeed) {
	var tiers []Level
	for i := range l.points {
		if p := &l.points[i]; p.width > 1 && !slices.Contains(tiers, p.level) {
			tiers = append(tiers, p.level)
		}
	}
	slices.Sort(tiers)
	all := make([]point, 0, len(l.points)+len(declared)+2)
	for _, p := range l.points {
		// A form is no closer to the truth than this, however much was measured.
		p.err = math.Hypot(p.err, formError/2)
		all = append(all, p)
	}
	all = append(all, l.expected(declared)...)
	for _, form := range []form{optimus(tiers), pollux(tiers), ring(tiers)} {
		f := form.fitModels(all, l.factors(relative))
		if f != nil && (l.fit == nil || f.loss+2*float64(f.terms) < l.fit.loss+2*float64(l.fit.terms)) {
			l.fit = f
		}
	}
}

// factors are how much faster than the first model the others compute, as it is
// said beforehand.
func (l *learned) factors(relative []model.ModelSpeed) []float64 {
	out := make([]float64, len(l.models))
	for i, name := range l.models {
		out[i] = beside(relative, name, l.models[0])
	}
	return out
}

// fitModels fits the model of GPU that most points are of, finds how fast the
// others are beside it, and then fits all together and finds that again.
func (f form) fitModels(points []point, factor []float64) *fitted {
	own := make([][]point, len(factor))
	most := 0
	for i := range points {
		m := points[i].model
		if own[m] = append(own[m], points[i]); len(own[m]) > len(own[most]) {
			most = m
		}
	}
	if len(factor) < 2 {
		return f.fit(points, factor)
	}
	best := f.fit(own[most], factor)
	if best == nil {
		return nil
	}
	best.loss = math.Inf(1)
	for range 3 {
		factor = slices.Clone(factor)
		for m := range factor {
			if m != most {
				factor[m] = best.factorOf(own[m], m)
			}
		}
		next := f.fit(points, factor)
		if next == nil || next.loss >= best.loss {
			return best
		}
		best = next
	}
	return best
}

// factorOf is the speed of a model beside the others that its points suit best
// (golden section over a factor of 30 either way).
func (f *fitted) factorOf(own []point, m int) float64 {
	trial := *f
	loss := func(x float64) float64 {
		trial.factor = slices.Clone(f.factor)
		trial.factor[m] = math.Exp(x)
		return trial.robust(own)
	}
	const golden = 0.6180339887498949
	low, high := -math.Log(30), math.Log(30)
	a, b := high-golden*(high-low), low+golden*(high-low)
	la, lb := loss(a), loss(b)
	for range 32 {
		if la <= lb {
			high, b, lb = b, a, la
			a = high - golden*(high-low)
			la = loss(a)
		} else {
			low, a, la = a, b, lb
			b = low + golden*(high-low)
			lb = loss(b)
		}
	}
	return math.Exp((low + high) / 2)
}

// declaredPoint is a point of the declared curve, by GPUs.
type declaredPoint struct{ width, rate float64 }

// expected are points that nobody measured, which count for little: the declared
// curve, or what is expected at twice and at half the sizes that were measured.
func (l *learned) expected(declared []declaredPoint) []point {
	near := func(width float64) *point {
		best := &l.points[0]
		for i := range l.points {
			if math.Abs(math.Log(l.points[i].width/width)) < math.Abs(math.Log(best.width/width)) {
				best = &l.points[i]
			}
		}
		return best
	}
	guess := func(width, growth, err float64) point {
		p := *near(width)
		batch := l.batchAt(width)
		// The rate is that of the nearest times the growth.
		p.log += math.Log(l.work(batch)/l.work(p.batch)) - growth
		p.width, p.batch, p.err = width, batch, err
		return p
	}
	var out []point
	if len(declared) > 0 {
		for _, d := range declared {
			from := near(d.width)
			out = append(out, guess(d.width, math.Log(d.rate/interpolate(declared, from.width)), declaredError))
		}
		return out
	}
	// Each size measured makes them count for less.
	wrong := priorError * float64(len(l.sizes()))
	out = append(out, guess(2*l.widest, priorPower*math.Ln2, wrong))
	if l.narrowest > 1 {
		out = append(out, guess(l.narrowest/2, -priorPower*math.Ln2, wrong))
	}
	return out
}

// batchAt is the work of an iteration that so many GPUs are expected to do: as
// measured, between two sizes along a power, and beyond them along the same one,
// if it lies between a constant batch and a constant one for each GPU. From one
// size alone it is taken to be constant, as it is where only the number of
// members changes.
func (l *learned) batchAt(width float64) float64 {
	if !l.batches {
		return 1
	}
	sizes := l.sizes()
	first, last := sizes[0], sizes[len(sizes)-1]
	if len(sizes) == 1 {
		return first.rate
	}
	a, b := sizes[len(sizes)-2], last
	for i := 1; i < len(sizes); i++ {
		if width <= sizes[i].width {
			a, b = sizes[i-1], sizes[i]
			break
		}
	}
	power := math.Log(b.rate/a.rate) / math.Log(b.width/a.width)
	if width < first.width || width > last.width {
		power = min(max(power, 0), 1)
	}
	near := b
	if width < first.width {
		near = a
	}
	return near.rate * math.Pow(width/near.width, power)
}

// sizes are the batches that were measured most at each size, ascending.
func (l *learned) sizes() []declaredPoint {
	var out []declaredPoint
	for i := range l.points {
		p := &l.points[i]
		at := slices.IndexFunc(out, func(d declaredPoint) bool { return d.width == p.width })
		if at < 0 {
			out = append(out, declaredPoint{p.width, p.batch})
		}
	}
	slices.SortFunc(out, func(a, b declaredPoint) int { return int(math.Copysign(1, a.width-b.width)) })
	return out
}

// spread finds how far the truth is from the fit.
func (l *learned) spread() {
	residuals := make([]float64, len(l.points))
	errs := make([]float64, len(l.points))
	far := make([]float64, len(l.points))
	for i := range l.points {
		p := &l.points[i]
		all, _, _ := l.fit.seconds(p)
		residuals[i], errs[i] = p.log-math.Log(all), p.err
		far[i] = math.Abs(residuals[i])
	}
	slices.Sort(far)
	usual := max(1.4826*far[len(far)/2], formError/2)
	sum, n := formSeen*formError*formError, formSeen
	for i := range residuals {
		// One that is far from what it and all others allow is wrong itself, unless
		// it is known well.
		r, most := math.Abs(residuals[i]), 3*math.Hypot(usual, errs[i])
		if errs[i] > 4*leastError && r > most {
			errs[i] = r
		}
		r = min(r, most)
		sum += max(r*r-errs[i]*errs[i], 0)
		n++
	}
	n = max(n-float64(l.fit.terms), formSeen)
	l.krige = newKriging(l.points, residuals, errs, sum/n)
}

// beyondOwn is how many doublings a point is beyond the sizes that were measured of
// its own model of GPU, or one level, where only other models were.
func (l *learned) beyondOwn(p *point) float64 {
	if len(l.models) < 2 {
		return 0
	}
	narrowest, widest, farthest := math.Inf(1), 0.0, Island
	for i := range l.points {
		if q := &l.points[i]; q.model == p.model {
			narrowest, widest, farthest = min(narrowest, q.width), max(widest, q.width), max(farthest, q.level)
		}
	}
	out := max(math.Log2(p.width/widest), math.Log2(narrowest/p.width), 0)
	if p.width > 1 && p.level > farthest {
		out++
	}
	return out
}

// drift is the relative error that a doubling beyond the sizes measured adds: the
// less, the more sizes were measured that far apart.
func (l *learned) drift(p *point) float64 {
	var sizes []float64
	for i := range l.points {
		q := &l.points[i]
		if (p.width <= 1 || q.level >= min(p.level, l.farthest)) && !slices.Contains(sizes, q.width) {
			sizes = append(sizes, q.width)
		}
	}
	return priorError / math.Sqrt(float64(min(max(len(sizes), 1), 4)))
}

// at predicts an iteration's seconds, as a logarithm with its standard error.
func (l *learned) at(p *point) (log, wrong float64) {
	all, _, _ := l.fit.seconds(p)
	shift, variance := l.krige.at(p)
	beyond := max(math.Log2(p.width/l.widest), math.Log2(l.narrowest/p.width), 0)
	near := math.Inf(1)
	for i := range l.points {
		near = min(near, apartBy(&l.points[i], p))
	}
	// What is nowhere near is as if it were beyond.
	drift := l.drift(p) * max(beyond, near-2)
	step := 0.0
	if p.width > 1 && p.level > l.farthest {
		step = priorError
	}
	other := modelDrift * l.beyondOwn(p)
	return math.Log(all) + shift, math.Sqrt(variance + drift*drift + step*step + other*other + leastError*leastError)
}
