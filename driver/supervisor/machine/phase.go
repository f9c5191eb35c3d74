// Package machine decides what a task's supervisor does: what happened goes in,
// what is to be done comes out. It has no clock and does no I/O; the time is
// told with each event, as the time since the supervisor began.
package machine

// Phase is where a task stands.
type Phase string

// The phases. A task that is restarted with its gang goes from stopping back to
// the first one.
const (
	// Preflight: the node is looked at.
	Preflight Phase = "preflight"
	// Joining: no planner has answered yet.
	Joining Phase = "joining"
	// Waiting: the planner knows of the member; others are missing.
	Waiting Phase = "waiting"
	// Starting: the gang is complete, or the task belongs to none; the user's
	// code is about to start.
	Starting Phase = "starting"
	// Running and Suspended: the user's code has started.
	Running   Phase = "running"
	Suspended Phase = "suspended"
	// Settling: the user's code has ended by itself. What it left behind is got
	// rid of, and if it failed, the planner is asked whether another member had
	// failed first.
	Settling Phase = "settling"
	// Stopping: the user's code is asked to end, or killed.
	Stopping Phase = "stopping"
	// Exited: the task is over.
	Exited Phase = "exited"
)

// Role is a task's part in its gang.
type Role string

// The roles.
const (
	// Rank: the task counts as its member, and waits at the barrier.
	Rank Role = "rank"
	// Follow: the task starts with the gang and does not count.
	Follow Role = "follow"
	// None: the task starts at once.
	None Role = "none"
)

// Cause is why a task is over.
type Cause string

// The causes.
const (
	// CauseExited: the user's code ended by itself.
	CauseExited Cause = "exited"
	// CauseStopped: somebody asked the supervisor to stop the task.
	CauseStopped Cause = "stopped"
	// CauseOrdered: the planner ordered it to fail.
	CauseOrdered Cause = "ordered"
	// CauseTimeout: the gang was not complete in time.
	CauseTimeout Cause = "join-timeout"
	// CauseRefused: the planner does not let it start.
	CauseRefused Cause = "refused"
	// CausePreflight: the node is not fit.
	CausePreflight Cause = "preflight"
	// CauseDevices: the GPUs are not those that were planned.
	CauseDevices Cause = "devices"
	// CauseStart: the user's code could not be started.
	CauseStart Cause = "start-failed"
	// CauseStuck: what the user's code left could not be killed, so that it could
	// not be started again.
	CauseStuck Cause = "stuck"
	// CauseFenced: the node was cut off from Nomad's servers.
	CauseFenced Cause = "fenced"
)
