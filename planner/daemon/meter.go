package daemon

import (
	"math"
	"slices"
	"time"

	"github.com/caravan-sched/caravan/planner/barrier"
	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/core/speed"
)

// How a gang's speed is measured.
const (
	// settle is how long a gang has its size and its place before it is measured:
	// the first steps are slower than the rest.
	settle = time.Minute
	// stretch is how long one measurement takes at least.
	stretch = 30 * time.Second
)

// meter measures the speed of one gang.
type meter struct {
	// place tells one placement from another; its size and level are in config.
	place  string
	config speed.Config
	// from is when the measurement begins, and base what members had told by then.
	from time.Time
	base map[string]told
}

// told is how far a member was at a time of its own clock.
type told struct {
	at   time.Time
	step int64
}

// newMeter waits until the gang has settled.
func newMeter(place string, config speed.Config, now time.Time) *meter {
	return &meter{place: place, config: config, from: now.Add(settle)}
}

// restart begins the measurement anew.
func (m *meter) restart(now time.Time) { m.from, m.base = now, nil }

// measure takes in what the gang's members have told, by allocation, and gives a
// measurement where one is complete. Gangs that do not work, in whole or in part,
// are not measured.
func (m *meter) measure(allocs []string, works map[string]barrier.Work, now time.Time) (speed.Measured, bool) {
	var none speed.Measured
	for _, alloc := range allocs {
		if w := works[alloc]; w.Progress != nil && !w.Running {
			m.restart(now)
			return none, false
		}
	}
	switch {
	case now.Before(m.from):
		return none, false
	case m.base == nil:
		m.base = map[string]told{}
		for _, alloc := range allocs {
			if w := works[alloc]; w.Progress != nil {
				t := told{at: w.Progress.At, step: -1}
				if w.Step != nil {
					t.step = *w.Step
				}
				m.base[alloc] = t
			}
		}
		m.from = now
		return none, false
	case now.Sub(m.from) < stretch:
		return none, false
	}
	out, ok := m.result(allocs, works)
	m.restart(now)
	// The end of this one is the beginning of the next.
	m.measure(allocs, works, now)
	return out, ok
}

// result is what the members have done since the measurement began.
func (m *meter) result(allocs []string, works map[string]barrier.Work) (speed.Measured, bool) {
	out := speed.Measured{SpeedSample: model.SpeedSample{Members: m.config.Members, GPUs: m.config.GPUs, Model: m.config.Model, Level: m.config.Level.String()}}
	var steps, throughputs, batches, noises, fetch, prepare, compute []float64
	for _, alloc := range allocs {
		p := works[alloc].Progress
		base, known := m.base[alloc]
		if p == nil || !known || !p.At.After(base.at) {
			continue // it has told nothing since
		}
		if took := p.At.Sub(base.at); works[alloc].Step != nil && base.step >= 0 && took >= stretch/2 {
			if done := *works[alloc].Step - base.step; done > 0 {
				steps = append(steps, float64(done)/took.Seconds())
			}
		}
		for _, q := range []struct {
			into *[]float64
			told *float64
		}{{&throughputs, p.Throughput}, {&batches, p.Batch}, {&noises, p.NoiseScale}, {&fetch, p.FetchS}, {&prepare, p.PrepareS}, {&compute, p.ComputeS}} {
			if q.told != nil && *q.told > 0 {
				*q.into = append(*q.into, *q.told)
			}
		}
	}
	out.Batch, out.NoiseScale = median(batches), median(noises)
	out.FetchS, out.PrepareS, out.ComputeS = median(fetch), median(prepare), median(compute)
	switch rate := median(steps); {
	case len(throughputs) == 1 || len(throughputs) > 1 && len(throughputs) == len(allocs):
		out.Unit = model.UnitSamples
		for _, x := range throughputs {
			out.Rate += x
		}
		if out.Batch == 0 && rate > 0 {
			out.Batch = out.Rate / rate
		}
	case len(throughputs) > 1:
		return out, false // some have told theirs and some have not yet
	case rate > 0:
		out.Unit, out.Rate = model.UnitSteps, rate
	default:
		return out, false
	}
	return out, !math.IsInf(out.Rate, 0)
}

// median is the middle of what is there, 0 of nothing.
func median(x []float64) float64 {
	if len(x) == 0 {
		return 0
	}
	x = slices.Sorted(slices.Values(x))
	return (x[(len(x)-1)/2] + x[len(x)/2]) / 2
}
