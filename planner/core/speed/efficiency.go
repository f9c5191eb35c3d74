package speed

import "github.com/caravan-sched/caravan/planner/core/model"

// Efficiency is what a sample of a batch is worth beside one of the smallest
// batch that the job uses: (φ + m₀)/(φ + m) with the gradient noise scale φ (Qiao
// et al., Pollux, OSDI 2021, section 3.1). It is 1 where the job's code does not
// tell of its noise, or where its batches are not known.
func (c *Curve) Efficiency(batch float64) float64 {
	if c == nil || !(c.noise > 0) || !(batch > c.base) || !(c.base > 0) {
		return 1
	}
	return (c.noise + c.base) / (c.noise + batch)
}

// Goodput is the speed in a configuration, each sample counting by what it is
// worth.
func (c *Curve) Goodput(at Config) Estimate {
	e := c.At(at)
	if c != nil && c.learned != nil && c.learned.batches && c.learned.unit == model.UnitSamples {
		e.Rate *= c.Efficiency(c.learned.batchAt(at.width()))
	}
	return e
}
