package queue

import (
	"fmt"
	"math"
	"time"

	"github.com/caravan-sched/caravan/planner/core/model"
)

// Shortest job first: of what waits, that which ends soonest. It makes the
// average wait the least there can be as long as durations are known (Smith,
// Various optimizers for single-stage production, Naval Research Logistics
// Quarterly 3, 1956). Where authors do not say how long their jobs run, the runs
// of jobs like them do: in a large GPU cluster most work comes back, and
// predictions from it come close to knowing (Weng et al., MLaaS in the Wild,
// NSDI'22, section 5.2). Who says nothing and is like nobody comes last; who says
// too little gains by it once, and is found out by its run time.

// Duration is how long a job runs, as far as it is known: as its author says,
// else as others like it did.
func Duration(j *model.Job) time.Duration {
	if j.Duration > 0 {
		return j.Duration
	}
	return j.Estimate
}

// EstimateOf is what is thought of a job's run time once it has run for a while.
func EstimateOf(j *model.Job, ran time.Duration) Estimate {
	e := Estimate{Total: Duration(j)}
	e.Known, e.Left = e.Total > 0, max(0, e.Total-ran)
	if j.Duration <= 0 {
		e.Spread, e.Runs = j.EstimateSpread, j.EstimateRuns
	}
	return e
}

// Remaining is the best guess at what remains: one that has run for longer than
// it was to take is taken to run as long again, since nothing else is known. It
// is false if nothing is.
func (e *Entry) Remaining() (time.Duration, bool) {
	switch {
	case !e.Left.Known:
		return 0, false
	case e.Left.Left == 0:
		return e.Ran, true
	}
	return e.Left.Left, true
}

// String says it, and how sure it is.
func (e Estimate) String() string {
	switch total := e.Total.Round(time.Second); {
	case !e.Known:
		return "run time unknown"
	case e.Runs == 0:
		return fmt.Sprintf("said to run for %s", total)
	case e.Runs == 1:
		return fmt.Sprintf("predicted to run for %s, as the one like it did", total)
	default:
		return fmt.Sprintf("predicted to run for %s (± %s, the median of %d like it)", total, e.Spread.Round(time.Second), e.Runs)
	}
}

// sjf is the Discipline.
type sjf struct{}

func newSJF(Policy) Discipline { return sjf{} }

// Stand implements Discipline.
func (sjf) Stand(s Situation) []Standing {
	out := make([]Standing, len(s.Jobs))
	for i := range s.Jobs {
		e := &s.Jobs[i]
		left, known := e.Remaining()
		out[i] = Standing{Key: left.Seconds(), Why: e.Left.String()}
		switch {
		case !known:
			out[i].Key = math.Inf(1)
			out[i].Why += ", so it comes after all that are known: set caravan_duration"
		case e.Left.Left == 0:
			out[i].Why += fmt.Sprintf(", but has for %s already and is taken to run as long again", e.Ran.Round(time.Second))
		case e.Ran > 0:
			out[i].Why += fmt.Sprintf(", of which %s are left", left.Round(time.Second))
		}
	}
	return out
}
