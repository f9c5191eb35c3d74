package sim

import (
	"time"
)

// meter counts what happens while it happens.
type meter struct {
	gpus int
	// horizon is when the last job is submitted: T. What is averaged over time is
	// averaged over [0, T].
	horizon float64
	// allocated, busy and the three below are integrals over time, in GPU-seconds.
	allocated, busy                   float64
	fillable, fragmented, indivisible float64
	// parts is what is free of GPUs that are in parts while somebody waits for one.
	parts float64
	// productive is the work done by T, in GPU-seconds at full speed.
	productive float64
	passed     bool

	decisions int
	deciding  time.Duration
	// events counts what the decisions had to take into account: jobs that were
	// submitted, started, resized, stopped or ended, nodes that went or came, GPUs
	// that were divided.
	events int
	// anew is how often one job, of those that save nothing, has begun again at most.
	anew int
}

// pass counts the time up to another one, during which nothing changed.
func (m *meter) pass(r *run, to float64) {
	if span := min(to, m.horizon) - r.now; span > 0 {
		m.allocated += float64(r.allocated) / unit * span
		m.busy += float64(r.busy) / unit * span
		m.parts += float64(r.parts.idle(r.down)) / unit * span
		fillable, fragmented, indivisible := r.ledger.split()
		m.fillable += float64(fillable) * span
		m.fragmented += float64(fragmented) * span
		m.indivisible += float64(indivisible) * span
	}
	if to >= m.horizon && !m.passed {
		m.passed = true
		for i := range r.jobs {
			j := r.jobs[i] // a copy: it is only looked at
			j.advance(m.horizon)
			m.productive += (j.Duration - j.left) * j.Width()
		}
	}
}

func (m *meter) decided(took time.Duration) {
	m.decisions++
	m.deciding += took
}
