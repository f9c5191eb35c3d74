package sim

// Act is what a scheduler does with a job.
type Act uint8

const (
	// Start gives a waiting job all its GPUs.
	Start Act = iota
	// Hold gives some of a job's members GPUs; they wait there for the others.
	Hold
	// Stop saves a running job's state, if it saves any, and takes its GPUs; it waits
	// again.
	Stop
	// Drop takes the GPUs of members that wait for others.
	Drop
	// Resize gives an elastic job other GPUs; those in both places stay.
	Resize
	// Divide gives an idle GPU other MIG instances, or makes it whole: Pieces names
	// it, Profiles are those that it is to have. It is of no job.
	Divide
)

// Action is one of a scheduler's.
type Action struct {
	Act Act
	// Job is the job's number.
	Job int
	// Pieces are the GPUs that it gets: with Hold those that come, with Resize
	// all that it has from then on.
	Pieces []Piece
	// Profiles are for Divide.
	Profiles []string
	// Reason is why, for the log of events.
	Reason string
}

// Ask is what a scheduler knows of a job.
type Ask struct {
	Job int
	ID  string
	// Submitted and Deadline are seconds from the start; 0 is no deadline.
	Submitted, Deadline float64
	// Estimate is how long it is thought to run, in seconds; 0 is unknown.
	Estimate float64
	// Unsaved: nothing that it has done outlasts a stop.
	Unsaved bool
	GPUs    int
	// Min and Max bound an elastic job.
	Min, Max int
	Queue    string
	Class    string
	// Interactive: somebody waits for its start, and has said so.
	Interactive bool
	Model       string
	// Share is what part of its one GPU it needs, 0: all; Profile the MIG instance
	// that it asks for.
	Share   float64
	Profile string
	// Models are those that it may run on; nil: all.
	Models []string
}

// Scheduler decides. It is told of everything that happens; what it wants is
// checked and done at once.
type Scheduler interface {
	// Submit tells of a job that waits from now on.
	Submit(now float64, ask Ask) error
	// Finish tells that a running job is done and its GPUs are free.
	Finish(now float64, job int) error
	// Left tells that a stopped job has left its GPUs, and waits again.
	Left(now float64, job int) error
	// Fail tells that a node is down, or up again. What ran on it waits again.
	Fail(now float64, node int, down bool, victims []int) error
	// Decide says what is to be done now, and when to ask again though nothing has
	// happened; 0 is never.
	Decide(now float64) (actions []Action, again float64, err error)
}
