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
		e := &s.Jobs[i]
		turn, longer := e.turnOf(t.Quantum)
		switch {
		case !e.Running:
			out[i] = Standing{Key: -e.Rest.Seconds(), Why: "its turn comes round: it waits since " + minute(s.Now.Add(-e.Rest))}
		case e.Turn >= turn:
			out[i] = Standing{Class: 1, Why: fmt.Sprintf("its turn of %s is over", turn)}
		default:
			out[i] = Standing{Why: fmt.Sprintf("it has its turn until it has run %s%s", turn, longer)}
		}
	}
	return out
}

// turnOf is how long a job may run at least before its turn is over, and if that is longer
// than for others, why. A job that saves nothing has lost all that it did in the turns before:
// in one no longer than they it would come no nearer to its end. So each is as long as all
// before it together, and it ends after few of them, however long it runs. A service has no end.
func (e *Entry) turnOf(least time.Duration) (turn time.Duration, longer string) {
	before := e.Ran - e.Turn
	if e.Job.SavesWork() || e.Job.Type == "service" || before <= least {
		return least, ""
	}
	return before, ", as long as it has in all its turns before, since it saves nothing of what it does"
}
