package sim

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/caravan-sched/caravan/planner/sim/trace"
)

// maxQuiet is how long nothing may happen where nodes can be bought, in seconds: by
// then each queue has had the budget of a new month.
const maxQuiet = 62 * 24 * 3600

// watchQuiet notes whether jobs wait for nodes that are not bought, for ever.
func (r *run) watchQuiet(actions int) {
	if r.cloud == nil || actions > 0 || r.allocated > 0 || len(r.cloud.at) > 0 || slices.Contains(r.down[:r.Cluster.homes()], true) || r.unborn() > 0 {
		r.quiet = never
		return
	}
	r.quiet = min(r.quiet, r.now)
	r.stuck = r.now-r.quiet > maxQuiet
}

// watchVain stops a scheduler that leaves everything free although somebody waits: where
// no node is down soon, else after maxQuiet. It stops one, too, that never lets a job end.
func (r *run) watchVain(actions int) error {
	if r.meter.anew > maxAnew {
		j := &r.jobs[slices.IndexFunc(r.jobs, func(j job) bool { return j.anew > maxAnew })]
		return fmt.Errorf("%w: job %s, of %d GPUs for %s, saves nothing and has begun again %d times: who is stopped so often, to give way or by failures, never ends", ErrSetup, j.ID, j.GPUs, lasting(j.Duration).Round(time.Second), maxAnew)
	}
	if r.idle++; actions > 0 || r.allocated > 0 || r.cloud != nil || slices.Contains(r.down, true) {
		r.idle = 0
	}
	if r.vain++; actions > 0 || r.allocated > 0 || r.cloud != nil || r.gauges.present == 0 {
		r.vain, r.empty = 0, r.now
	}
	if (r.idle > maxIdle || r.vain > minIdle && r.now-r.empty > maxQuiet) && r.unborn() == 0 {
		i, why := slices.IndexFunc(r.jobs, func(j job) bool { return j.phase != done }), ""
		if s, ok := r.Scheduler.(explainer); ok {
			i, why = s.Waits(r.now)
			why = ": " + why
		}
		j := &r.jobs[i]
		return fmt.Errorf("%w: everything is free, and %d decisions in a row start nothing; jobs that wait: %d, the first is %s, of %d GPUs%s", ErrWaits, max(r.idle, r.vain), r.open, j.ID, j.GPUs, why)
	}
	return nil
}

// ErrWaits is the error for a job that waits for ever, whatever is free.
var ErrWaits = errors.New("a job waits for ever")

// explainer is a Scheduler that can say who goes first of those who wait, while nothing
// runs, and why he does.
type explainer interface {
	Waits(now float64) (job int, why string)
}

// maxIdle is how many decisions in a row may leave a cluster empty in which
// nothing else is to come, and minIdle how many in maxQuiet.
const maxIdle, minIdle = 1000, 100

// maxAnew is how often a job that saves nothing may begin again.
const maxAnew = 1000

// unfinished are the jobs that wait for ever, and why.
func (r *run) unfinished() (out []Unfinished) {
	for i := range r.jobs {
		if j := &r.jobs[i]; j.phase != done {
			u := Unfinished{Job: j.ID}
			if s, ok := r.Scheduler.(buyer); ok {
				u.Why = s.Why(i)
			}
			out = append(out, u)
		}
	}
	return out
}

// maxTime is how long a simulation may last in virtual time, in seconds: a hundred
// years. Times beyond that are of another unit than was said, or of no cluster.
const maxTime = 100 * 365.25 * 86400

// tooLong is why a simulation is none that anybody wants.
func tooLong(seconds float64) error {
	return fmt.Errorf("%w: it would take %.3g years, at most %.3g are played: are the trace's times in another unit (--time-unit), or is the load too small?", ErrSetup, seconds/(365.25*86400), maxTime/(365.25*86400))
}

// soonest is when the last of some jobs has ended at the soonest, on so many GPUs.
func soonest(jobs []trace.Job, gpus int) float64 {
	end, work := 0.0, 0.0
	for i := range jobs {
		j := job{Job: &jobs[i]}
		end = max(end, j.Submit+j.shortest())
		work += j.Work()
	}
	return max(end, work/float64(gpus))
}

// lasting is a time in seconds as the planner has it, to which twice maxTime is for ever.
func lasting(seconds float64) time.Duration {
	return time.Duration(max(-2*maxTime, min(seconds, 2*maxTime)) * float64(time.Second))
}

// tick is how long the planner lets the time pass at most while somebody waits and nothing
// has happened for a while, in seconds: orders that count service or look at estimates
// change with it. In a long silence they change more slowly: where jobs run for years,
// decisions of every five minutes would be all that is simulated.
func tick(silence float64) float64 {
	if silence <= longSilence {
		return 300
	}
	return silence / 12
}

// longSilence is how long nothing may happen before tick grows, in seconds.
const longSilence = 86400
