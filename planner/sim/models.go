package sim

import "math"

// Speed says how fast a job works where it is: the part of the speed that it
// would have on the best place for its size, over 0, at most 1.
type Speed interface {
	Of(j *JobShape, pieces []Piece) float64
}

// Growth is by how much faster an elastic job is with so many GPUs than with those that it
// asks for, each time on the best place for the size. It is at most has by asked.
type Growth func(class string, asked, has int) float64

// linear is the Growth of jobs that lose nothing.
func linear(_ string, asked, has int) float64 { return float64(has) / float64(asked) }

// JobShape is what a Speed may look at.
type JobShape struct {
	GPUs  int
	Model string
	Class string
}

// Even is the Speed of a cluster where every place is as good as any other.
type Even struct{}

// Of implements Speed.
func (Even) Of(*JobShape, []Piece) float64 { return 1 }

// DefaultInterval is how far apart decisions are at least, in seconds, whatever the
// policy. With 30 s simulations take no less time: most decisions are about one event.
const DefaultInterval = 10.0

// Restart is what it takes to stop a job and to go on with it later, in
// seconds: Base times its GPUs to the power of Growth, both to save its state and
// to load it.
type Restart struct{ Base, Growth float64 }

// DefaultRestart takes 5 s for one GPU, 20 s for 8, and 20 minutes for 4,096.
var DefaultRestart = Restart{Base: 5, Growth: 0.66}

// Seconds is how long one save, or one load, takes.
func (r Restart) Seconds(gpus int) float64 {
	if r.Base <= 0 {
		return 0
	}
	return r.Base * math.Pow(float64(gpus), r.Growth)
}

// Checkpoints says how often jobs save their state while they run.
type Checkpoints struct {
	// Every is the interval in seconds where no failures are modelled.
	Every float64
}

// DefaultCheckpoints are half an hour apart.
var DefaultCheckpoints = Checkpoints{Every: 1800}

// interval is a job's, in seconds: with failures the best one after Young (A
// first order approximation to the optimum checkpoint interval, CACM 17, 1974),
// sqrt(2 × time to save × mean time between failures).
func (c Checkpoints) interval(gpus, nodes int, r Restart, f Failures) float64 {
	if f.PerNodeDay <= 0 || r.Seconds(gpus) <= 0 {
		return c.Every
	}
	between := 86400 / (f.PerNodeDay * float64(max(1, nodes)))
	return math.Sqrt(2 * r.Seconds(gpus) * between)
}

// Failures says how often nodes fail, at random times, and for how long.
type Failures struct {
	// PerNodeDay is how often one node fails in a day. Repair is how long it then
	// is away on average, in seconds (exponentially distributed).
	PerNodeDay, Repair float64
}
