package speed

import (
	"fmt"
	"math"
	"strconv"

	"github.com/caravan-sched/caravan/planner/core/model"
)

// Limit is a bound on a job's speed that more GPUs do not move.
type Limit struct {
	// GPUs is from how many on more of them do nothing; members, if they have no
	// GPUs. 0 is no limit.
	GPUs int
	// Rate is the most that the job does.
	Rate float64
	// Why is half a sentence, with numbers.
	Why string
}

const (
	// flatRise is by how much a job must get faster with more GPUs, at least,
	// for these to count as used, and flatGrowth how many times as many that are.
	flatRise, flatGrowth = 0.05, 1.4
	// flatCount is how many measurements of both sizes it takes to say so.
	flatCount = 3
	// stalled is the part of a step that reading or preparing takes from which on
	// it counts as what the job waits for.
	stalled = 0.95
)

// Limit says what bounds the speed. Input is read, prepared and worked with at
// the same time, and the slowest of the three sets the pace (Mohan et al.,
// Analyzing and Mitigating Data Stalls in DNN Training, VLDB 2021, section 3).
// Where the job's code does not tell how long each takes, a speed that did not
// rise with the GPUs shows it.
func (c *Curve) Limit() Limit {
	if c == nil || c.learned == nil {
		return Limit{}
	}
	out := c.flat
	if told := c.told; told.GPUs > 0 && (out.GPUs == 0 || told.Rate < out.Rate) {
		out = told
	}
	return out
}

// findFlat finds the smallest size that a larger one, no further apart, was measured
// to be no faster than, if none is.
func (c *Curve) findFlat() Limit {
	var out Limit
	for i := range c.samples {
		for k := range c.samples {
			a, b := &c.samples[i], &c.samples[k]
			from, to := configOf(a), configOf(b)
			if a.Model != b.Model || to.Level > from.Level || to.width() < flatGrowth*from.width() || a.Count < flatCount || b.Count < flatCount {
				continue
			}
			rise := math.Log(b.Rate / a.Rate)
			wrong := math.Hypot(standardError(a), standardError(b))
			if rise+1.64*wrong > math.Log(1+flatRise) || out.GPUs > 0 && from.width() >= float64(out.GPUs) || c.faster(b) {
				continue
			}
			out = Limit{GPUs: int(from.width()), Rate: max(a.Rate, b.Rate),
				Why: fmt.Sprintf("%s are no faster than %d (%s and %s %s)", gpus(to), int(from.width()), short(b.Rate), short(a.Rate), c.per())}
		}
	}
	return out
}

// faster: something as wide or wider was measured to be faster than that.
func (c *Curve) faster(than *model.SpeedSample) bool {
	for i := range c.samples {
		s := &c.samples[i]
		if s.Model == than.Model && configOf(s).width() >= configOf(than).width() && s.Rate > than.Rate*(1+flatRise) {
			return true
		}
	}
	return false
}

// findTold finds what reading and preparing allow, as the job's code has told.
func (c *Curve) findTold() Limit {
	var out Limit
	for i, phase := range phases {
		p := &c.paces[i]
		last := p.last
		if last == nil || p.power > 0.1 || phase.of(last) < stalled*longest(last) {
			continue
		}
		width, rate := configOf(last).width(), p.rate
		if out.GPUs == 0 || rate < out.Rate {
			out = Limit{GPUs: int(width), Rate: rate, Why: fmt.Sprintf("%s its input allows %s %s, and a step of %s waits for it: %s s of it, and %s s of work",
				phase.name, short(rate), c.per(), gpus(configOf(last)), short(phase.of(last)), short(last.ComputeS))}
		}
	}
	return out
}

// phase is a part of a step that is no computing.
type phase struct {
	name string
	of   func(*model.SpeedSample) float64
	// power is how its speed grows with the members until two sizes are known.
	power float64
}

// Storage is shared by all members, and CPUs are each one's own.
var phases = [...]phase{
	{"reading", func(s *model.SpeedSample) float64 { return s.FetchS }, 0},
	{"preparing", func(s *model.SpeedSample) float64 { return s.PrepareS }, 1},
}

func longest(s *model.SpeedSample) float64 { return max(s.FetchS, s.PrepareS, s.ComputeS) }

// pace is how fast a part goes at the widest size of which it is known, by which
// power of the width it grows, and that sample; nil if nothing is known.
type pace struct {
	rate, power float64
	last        *model.SpeedSample
}

// at is the pace with another width.
func (p *pace) at(width float64) float64 {
	return p.rate * math.Pow(width/configOf(p.last).width(), p.power)
}

func (c *Curve) paceOf(ph phase) pace {
	var last, before *model.SpeedSample
	for i := range c.samples {
		s := &c.samples[i]
		if !(ph.of(s) > 0) {
			continue
		}
		switch w := configOf(s).width(); {
		case last == nil || w > configOf(last).width():
			last, before = s, last
		case w < configOf(last).width() && (before == nil || w > configOf(before).width()):
			before = s
		}
	}
	if last == nil {
		return pace{}
	}
	rate, power := c.phaseRate(ph, last), ph.power
	if before != nil {
		power = math.Log(rate/c.phaseRate(ph, before)) / math.Log(configOf(last).width()/configOf(before).width())
		power = min(max(power, 0), 1)
	} else if ph.of(last) < stalled*longest(last) {
		power = 1 // it is not what the job waits for, so it is not known to be used up
	}
	return pace{rate, power, last}
}

// phaseRate is the job's speed if it were bounded by that part alone.
func (c *Curve) phaseRate(ph phase, s *model.SpeedSample) float64 {
	return s.Rate * longest(s) / ph.of(s)
}

// superlinear is by how much a speed may be beyond the best one measured, or in
// proportion to the GPUs beyond that: a fit to few points may say anything.
const superlinear = 2

// bound is the most that a speed may be: what reading and preparing allow beyond
// the sizes measured, and what is plausible at any size.
func (c *Curve) bound(width float64) float64 {
	most := 0.0
	for i := range c.samples {
		s := &c.samples[i]
		most = max(most, superlinear*s.Rate*max(1, width/configOf(s).width()))
	}
	for i := range c.paces {
		if p := &c.paces[i]; p.last != nil && width > configOf(p.last).width() {
			most = min(most, p.at(width))
		}
	}
	if c.flat.GPUs > 0 && width > float64(c.flat.GPUs) {
		most = min(most, c.flat.Rate)
	}
	return most
}

// stalledRate is what fewer GPUs do of a job that waits for its input: what reading
// and preparing allow them, if they compute as fast as that; 0 where that is not
// known.
func (c *Curve) stalledRate(width float64) float64 {
	if c.told.GPUs == 0 || width >= float64(c.told.GPUs) {
		return 0
	}
	most := math.Inf(1)
	for i := range c.paces {
		p := &c.paces[i]
		if p.last == nil {
			continue
		}
		if !(p.last.ComputeS > 0) {
			return 0
		}
		most = min(most, p.at(width), p.last.Rate*longest(p.last)/p.last.ComputeS*width/configOf(p.last).width())
	}
	return most
}

func gpus(c Config) string {
	if c.GPUs > 0 {
		return count(c.GPUs, "GPU")
	}
	return count(c.Members, "member")
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return strconv.Itoa(n) + " " + what + "s"
}

// short is a number as people read it: three digits that count.
func short(x float64) string {
	if x >= 1000 {
		return strconv.FormatFloat(math.Round(x), 'f', 0, 64)
	}
	return strconv.FormatFloat(x, 'g', 3, 64)
}

// per is what the rates are counted in.
func (c *Curve) per() string {
	if u := c.Unit(); u != "" {
		return u + "/s"
	}
	return "times the unit declared"
}
