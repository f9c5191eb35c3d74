package queue

import (
	"errors"
	"fmt"
	"time"
)

// Time slices: jobs take turns. Who has run for a quantum gives way to one that
// waits for its GPUs, whole gangs for whole gangs, and waits in turn; who has
// waited longest goes first, so that it is a round robin. A job that nobody waits
// behind runs on (Xiao et al., Gandiva, OSDI'18, section 3.1: suspend and
// resume). There a job stops within seconds of where it is; here it makes a
// checkpoint and starts anew, which a quantum has to be worth.

// Timeslice are the parameters of OrderTimeslice.
type Timeslice struct {
	// Quantum is how long a turn is at least; 0 means DefaultQuantum.
	Quantum time.Duration `json:"quantum_ns,omitempty"`
}

// The bounds of a quantum, and the one where none is named: an hour is sixty
// times what a restart is reckoned to take.
const (
	MinQuantum     = time.Minute
	MaxQuantum     = 30 * 24 * time.Hour
	DefaultQuantum = time.Hour
)

// Validate reports every fault.
func (t Timeslice) Validate() error {
	if t.Quantum != 0 && (t.Quantum < MinQuantum || t.Quantum > MaxQuantum) {
		return errors.Join(fmt.Errorf("%w: timeslice.quantum %s: want %s to %s", ErrPolicy, t.Quantum, MinQuantum, MaxQuantum))
	}
	return nil
}

// WithDefaults is t with its zeros filled in.
func (t Timeslice) WithDefaults() Timeslice {
	if t.Quantum == 0 {
		t.Quantum = DefaultQuantum
	}
	return t
}

// timeslice is the Discipline.
type timeslice struct{ Timeslice }

func newTimeslice(p Policy) Discipline { return timeslice{p.Timeslice.WithDefaults()} }

// Stand implements Discipline.
func (t timeslice) Stand(s Situation) []Standing {
	out := make([]Standing, len(s.Jobs))
	for i := range s.Jobs {
		switch e := &s.Jobs[i]; {
		case !e.Running:
			out[i] = Standing{Key: -e.Rest.Seconds(), Why: "its turn comes round: it waits since " + minute(s.Now.Add(-e.Rest))}
		case e.Turn >= t.Quantum:
			out[i] = Standing{Class: 1, Why: fmt.Sprintf("its turn of %s is over", t.Quantum)}
		default:
			out[i] = Standing{Why: fmt.Sprintf("it has its turn until it has run %s", t.Quantum)}
		}
	}
	return out
}
