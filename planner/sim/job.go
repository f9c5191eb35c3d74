package sim

import (
	"math"

	"github.com/caravan-sched/caravan/planner/sim/trace"
)

// phase is where a job is.
type phase uint8

const (
	// unborn: not submitted yet.
	unborn phase = iota
	waiting
	// holding: some of its members have GPUs and wait for the others.
	holding
	running
	// leaving: told to stop, and saving its state.
	leaving
	done
)

// Piece is GPUs of one node, by their indexes. With Part it is a part of one GPU:
// the slice or the instance of that number, from 1.
type Piece struct {
	Node int
	GPUs []int8
	Part int
}

// job is one job of a run.
type job struct {
	// Job is that of the setup, which nobody changes.
	*trace.Job
	// estimate is how long it is thought to run, in seconds; 0: nobody knows.
	estimate float64
	// unsaved: all that it has done is lost whenever it stops.
	unsaved bool
	phase   phase
	// left is what is still to be done, in seconds at full speed, as of since.
	left, since float64
	// speed is the part of full speed that its placement allows, and begins when
	// it works: first it loads its state.
	speed, begins float64
	// saved is what was left at its last checkpoint.
	saved  float64
	pieces []Piece
	// turn counts how often it was disturbed.
	turn int
	// asked is when it began to wait, the last time.
	asked float64
	// first is when it ran first, and ended when it was done; -1 before.
	first, ended float64
	// again is how long it has waited after it had run.
	again float64
	// apart is how much of the wait before the first start passed while as many
	// GPUs were free, but not where the gang fits; presence is the integral of the
	// number of jobs over its time in the system. Until the first start, and the
	// end, they are what the gauges showed at the submission.
	apart, presence float64
	// booting is how much of that wait passed while nodes booted that were bought
	// for it, and booted when the last of them is there.
	booting, booted float64
	// held are the GPU-seconds that it has had, lost those whose work was lost.
	held, lost float64
	// anew is how often it has lost all that it had done, as it saves nothing.
	anew int
	// lately is the work that it loses just now, in seconds at full speed.
	lately float64
	// began is when it got its GPUs, the last time.
	began float64
	// spanned is since when it has exactly the GPUs that it has.
	spanned float64
	stops   int
	// placed counts the GPUs that it has, and working tells that all its members
	// have theirs.
	placed  int
	working bool
	// each is how many units of each of these it has; see unit.
	each int
}

// has is how much it has in units.
func (j *job) has() int { return j.placed * j.each }

func newJob(t *trace.Job) job {
	return job{Job: t, left: t.Duration, saved: t.Duration, first: -1, ended: -1}
}

// advance brings a running job's progress up to a time.
func (j *job) advance(now float64) {
	if j.phase == running && now > j.since {
		from := max(j.since, j.begins)
		if now > from {
			j.left = max(0, j.left-(now-from)*j.speed)
		}
		j.since = now
	}
}

// finish is when it will be done if nothing disturbs it.
func (j *job) finish() float64 { return max(j.since, j.begins) + j.left/j.speed }

// members is how a job of so many GPUs is cut into members on nodes of so many:
// whole nodes, and one member with the rest.
func members(gpus, perNode int) (whole, rest int) {
	if gpus < perNode {
		return 0, gpus
	}
	return gpus / perNode, gpus % perNode
}

// never stands for a time that does not come.
var never = math.Inf(1)
