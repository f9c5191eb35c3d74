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

// unknownError is that of a speed nothing is known of.
const unknownError = 1.0

// Curve is what is known of one job's speed. It is never changed. A nil Curve is
// that of a job nothing is known of: each GPU is taken to add as much as the
// first, with an error that says so.
type Curve struct {
	declared []declaredPoint // ascending
	samples  []model.SpeedSample
	learned  *learned // nil: nothing was measured
	relative []model.ModelSpeed
	// noise is the gradient noise scale and base the smallest batch, in samples;
	// 0 is unknown.
	noise, base float64
	// each is how many GPUs a member has.
	each float64
	// flat is the limit that speeds have shown, and told the one that the job's code
	// tells; paces are those of the phases.
	flat, told Limit
	paces      [len(phases)]pace
}

// New makes the curve of what is known; nil for nothing. Relative is how fast
// models of GPU are beside each other, as far as somebody has said; what is
// measured counts for more. Samples that cannot be are left out.
func New(s *model.Speed, relative []model.ModelSpeed) *Curve {
	if s == nil {
		return nil
	}
	c := &Curve{relative: relative, each: 1}
	for i := range s.Samples {
		if m := s.Samples[i]; m.Rate > 0 && !math.IsInf(m.Rate, 0) && m.Count > 0 {
			c.samples = append(c.samples, m)
		}
	}
	slices.SortStableFunc(c.samples, func(a, b model.SpeedSample) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.GPUs, b.GPUs), cmp.Compare(a.Members, b.Members),
			cmp.Compare(a.Model, b.Model), cmp.Compare(a.Level, b.Level), cmp.Compare(a.Batch, b.Batch), cmp.Compare(a.Rate, b.Rate))
	})
	if len(c.samples) > 0 {
		c.each = configOf(&c.samples[0]).width() / float64(max(c.samples[0].Members, 1))
	}
	for _, p := range s.Declared {
		if p.Members > 0 && p.Rate > 0 {
			c.declared = append(c.declared, declaredPoint{float64(p.Members) * c.each, p.Rate})
		}
	}
	slices.SortStableFunc(c.declared, func(a, b declaredPoint) int { return cmp.Compare(a.width, b.width) })
	if len(c.samples) == 0 && len(c.declared) == 0 {
		return nil
	}
	c.noise, c.base = s.NoiseScale, s.BaseBatch
	if c.base <= 0 {
		for i := range c.samples {
			if b := c.samples[i].Batch; b > 0 && (c.base <= 0 || b < c.base) {
				c.base = b
			}
		}
	}
	c.learned = learn(c.samples, s.Unit, c.declared, relative)
	if c.learned != nil {
		for i, ph := range phases {
			c.paces[i] = c.paceOf(ph)
		}
		c.flat, c.told = c.findFlat(), c.findTold()
	}
	return c
}

// Unit is what the rates count: model.UnitSamples, model.UnitSteps, or "" for
// multiples of a declared speed.
func (c *Curve) Unit() string {
	if c == nil || c.learned == nil {
		return ""
	}
	return c.learned.unit
}

// Known says whether anything is known.
func (c *Curve) Known() bool { return c != nil }

// At predicts the speed in a configuration.
func (c *Curve) At(at Config) Estimate {
	switch {
	case c == nil:
		return Estimate{Rate: at.width(), Error: unknownError}
	case c.learned == nil:
		return c.declaredAt(at)
	}
	l := c.learned
	p := point{width: at.width(), level: at.Level, batch: l.batchAt(at.width())}
	faster := 1.0
	if p.model = slices.Index(l.models, at.Model); p.model < 0 {
		p.model = 0
		faster = beside(c.relative, at.Model, l.models[0])
	}
	log, wrong := l.at(&p)
	if at.Model != "" && at.Model != l.models[p.model] {
		wrong = math.Hypot(wrong, modelError)
	}
	seen, rate := c.seen(at), l.work(p.batch)*math.Exp(-log)
	if seen == 0 {
		rate = max(rate, c.stalledRate(p.width))
	}
	return Estimate{Rate: min(rate, c.bound(p.width)) * faster, Error: wrong, Seen: seen}
}

// beside is how much faster a model is than another, as it was said; 1 if it was
// not.
func beside(relative []model.ModelSpeed, name, other string) float64 {
	var a, b float64
	for _, m := range relative {
		if m.Name == name {
			a = m.Speed
		}
		if m.Name == other {
			b = m.Speed
		}
	}
	if a > 0 && b > 0 {
		return a / b
	}
	return 1
}

// Sized is the configuration that a gang of that size is expected to have: the
// model of GPU that it was measured on most, and the level that it had at the
// nearest size.
func (c *Curve) Sized(members, gpus int) Config {
	out := Config{Members: members, GPUs: gpus}
	if c == nil || len(c.samples) == 0 {
		return out
	}
	out.Model = c.samples[0].Model
	near, size := math.Inf(1), 0
	for i := range c.samples {
		at := configOf(&c.samples[i])
		if far := math.Abs(math.Log(at.width() / out.width())); far < near {
			near, size, out.Level = far, at.Members, at.Level
		}
	}
	switch {
	case members <= 1:
		out.Level = min(out.Level, Node)
	case size == 1 && c.each >= wholeNode:
		out.Level = max(out.Level, Rack)
	}
	return out
}

// wholeNode is how many GPUs of a member are taken to be all that a node has, so
// that the next member is on another one.
const wholeNode = 4

// Explored is the largest size, in members, of which something is known; 0 for
// none.
func (c *Curve) Explored() int {
	if c == nil {
		return 0
	}
	most := 0
	for i := range c.samples {
		most = max(most, c.samples[i].Members)
	}
	if n := len(c.declared); n > 0 {
		most = max(most, int(math.Round(c.declared[n-1].width/c.each)))
	}
	return most
}

// modelError is how far the speed of a model of GPU is from what was said of it
// or, where nothing was, from that of the others.
const modelError = 0.3

// declaredAt is the speed that was declared.
func (c *Curve) declaredAt(at Config) Estimate {
	width := float64(max(at.Members, 1))
	first, last := c.declared[0].width, c.declared[len(c.declared)-1].width
	beyond := max(math.Log2(width/last), math.Log2(first/width), 0)
	rate := interpolate(c.declared, width)
	for i, m := range c.relative {
		if m.Name == at.Model && i > 0 {
			rate *= beside(c.relative, m.Name, c.relative[0].Name)
		}
	}
	return Estimate{Rate: rate, Error: math.Hypot(declaredError, beyond*priorError)}
}

func (c *Curve) seen(at Config) int {
	n := 0
	for i := range c.samples {
		s := &c.samples[i]
		if own := configOf(s); own.width() == at.width() && own.Model == at.Model && own.Level == at.Level {
			n += s.Count
		}
	}
	return n
}

// interpolate is the declared speed of so many: between two points along a power
// of the width; before the first along a line, and beyond the last one along the
// power of the last two, at most linear.
func interpolate(points []declaredPoint, width float64) float64 {
	first, last := points[0], points[len(points)-1]
	if width <= first.width {
		return first.rate * width / first.width
	}
	for i := 1; i < len(points); i++ {
		if width <= points[i].width {
			return along(points[i-1], points[i], width)
		}
	}
	if len(points) == 1 {
		return last.rate * math.Pow(width/last.width, priorPower)
	}
	return min(along(points[len(points)-2], last, width), last.rate*width/last.width)
}

func along(a, b declaredPoint, width float64) float64 {
	power := math.Log(b.rate/a.rate) / math.Log(b.width/a.width)
	return b.rate * math.Pow(width/b.width, power)
}

func configOf(s *model.SpeedSample) Config {
	return Config{Members: s.Members, GPUs: s.GPUs, Model: s.Model, Level: ParseLevel(s.Level)}
}

// standardError is that of a sample's median, which varies 1.25 times as much as
// a mean does.
func standardError(s *model.SpeedSample) float64 {
	n := float64(min(s.Count, Window))
	variance, seen := sampleSeen*sampleError*sampleError, sampleSeen
	if s.Count > 2 && s.Spread >= 0 {
		// Of two or less the spread says nothing.
		variance, seen = variance+n*s.Spread*s.Spread, seen+n
	}
	return max(1.2533*math.Sqrt(variance/seen/n), leastError)
}
