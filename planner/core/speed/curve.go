// Package speed says how fast a job works by how many GPUs it has, of which
// model, and how near to each other: from what was measured, from what its
// author declares, and from models that are fitted to both. Each prediction says
// how sure it is.
package speed

import (
	"cmp"
	"math"
	"slices"

	"github.com/caravan-sched/caravan/planner/core/model"
)

// Config is a size and a place that a job may have.
type Config struct {
	Members int
	// GPUs is how many all members have together; 0 is one for each member.
	GPUs int
	// Model is the GPUs' model; "" is any.
	Model string
	Level Level
}

// width is by what speeds are compared: GPUs, or members that have none.
func (c Config) width() float64 { return float64(max(c.GPUs, c.Members, 1)) }

// Estimate is a predicted speed.
type Estimate struct {
	// Rate is work per second, in the curve's unit. A curve that nothing was
	// measured for has multiples of what one member does.
	Rate float64
	// Error is the standard error of the rate's logarithm, so a relative error: of
	// such predictions, 68 of 100 come within Rate·e^±Error.
	Error float64
	// Seen is how many measurements there are of this very configuration.
	Seen int
}

// Low and High bound what the rate is with 95 % probability.
func (e Estimate) Low() float64  { return e.Rate * math.Exp(-2*e.Error) }
func (e Estimate) High() float64 { return e.Rate * math.Exp(2*e.Error) }

// What is assumed of the errors, all relative.
const (
	// unknownError is that of a speed nothing is known of.
	unknownError = 1.0
	// declaredError is how far a declared speed is from the true one.
	declaredError = 0.2
	// sampleError is that of a single measurement whose spread is not known.
	sampleError = 0.1
	// driftError is what a doubling of the GPUs, or one level, adds to the error.
	driftError = 0.15
)

// Curve is what is known of one job's speed. It is never changed. A nil Curve is
// that of a job nothing is known of: each GPU is taken to add as much as the
// first, with an error that says so.
type Curve struct {
	unit     string
	declared []model.SpeedPoint  // ascending
	samples  []model.SpeedSample // by members, GPUs, model, level
}

// New makes the curve of what is known; nil for nothing.
func New(s *model.Speed) *Curve {
	if s == nil || len(s.Declared) == 0 && len(s.Samples) == 0 {
		return nil
	}
	c := &Curve{unit: s.Unit, declared: slices.Clone(s.Declared), samples: slices.Clone(s.Samples)}
	slices.SortStableFunc(c.declared, func(a, b model.SpeedPoint) int { return cmp.Compare(a.Members, b.Members) })
	slices.SortStableFunc(c.samples, func(a, b model.SpeedSample) int {
		return cmp.Or(cmp.Compare(a.Members, b.Members), cmp.Compare(a.GPUs, b.GPUs), cmp.Compare(a.Model, b.Model), cmp.Compare(a.Level, b.Level))
	})
	return c
}

// Unit is what the rates count: model.UnitSamples, model.UnitSteps, or "" for
// multiples of one member's speed.
func (c *Curve) Unit() string {
	if c == nil || len(c.samples) == 0 {
		return ""
	}
	return c.unit
}

// Known says whether anything is known.
func (c *Curve) Known() bool { return c != nil }

// At predicts the speed in a configuration.
func (c *Curve) At(at Config) Estimate {
	if c == nil {
		return Estimate{Rate: at.width(), Error: unknownError}
	}
	var best *model.SpeedSample
	far := math.Inf(1)
	for i := range c.samples {
		if d := distance(configOf(&c.samples[i]), at); d < far {
			best, far = &c.samples[i], d
		}
	}
	shape, wrong := c.shape(at)
	if best == nil {
		return Estimate{Rate: shape, Error: wrong}
	}
	if far == 0 {
		return Estimate{Rate: best.Rate, Error: standardError(best), Seen: best.Count}
	}
	from, _ := c.shape(configOf(best))
	return Estimate{Rate: best.Rate * shape / from, Error: math.Hypot(standardError(best), far*driftError)}
}

// shape is the declared speed, or the one that grows with the GPUs.
func (c *Curve) shape(at Config) (rate, wrong float64) {
	if len(c.declared) == 0 {
		return at.width(), unknownError
	}
	return interpolate(c.declared, float64(at.Members)), declaredError
}

// interpolate is the declared speed at so many members: between two points along
// a power of the members; before the first and beyond the last one along the
// line through the origin and the power of the last two, at most linear.
func interpolate(points []model.SpeedPoint, members float64) float64 {
	first, last := points[0], points[len(points)-1]
	if members <= float64(first.Members) {
		return first.Rate * members / float64(first.Members)
	}
	for i := 1; i < len(points); i++ {
		if members <= float64(points[i].Members) {
			return power(points[i-1], points[i], members)
		}
	}
	if len(points) == 1 {
		return last.Rate
	}
	return min(power(points[len(points)-2], last, members), last.Rate*members/float64(last.Members))
}

func power(a, b model.SpeedPoint, members float64) float64 {
	exponent := math.Log(b.Rate/a.Rate) / math.Log(float64(b.Members)/float64(a.Members))
	return b.Rate * math.Pow(members/float64(b.Members), exponent)
}

func configOf(s *model.SpeedSample) Config {
	return Config{Members: s.Members, GPUs: s.GPUs, Model: s.Model, Level: ParseLevel(s.Level)}
}

// distance is how different two configurations are: 1 for each doubling of the
// GPUs, ½ for a level, 2 for another model of GPU.
func distance(a, b Config) float64 {
	d := math.Abs(math.Log2(a.width() / b.width()))
	d += math.Abs(float64(a.Level)-float64(b.Level)) / 2
	if a.Model != b.Model && a.Model != "" && b.Model != "" {
		d += 2
	}
	return d
}

// standardError is that of a sample's median, which varies 1.25 times as much as
// a mean does.
func standardError(s *model.SpeedSample) float64 {
	spread := s.Spread
	if spread <= 0 || s.Count < 3 {
		spread = max(spread, sampleError)
	}
	return max(1.2533*spread/math.Sqrt(float64(max(s.Count, 1))), 0.005)
}
