package supervisor

import (
	"errors"
	"time"

	"github.com/caravan-sched/caravan/driver/exec"
	"github.com/caravan-sched/caravan/driver/gangapi"
	"github.com/caravan-sched/caravan/driver/supervisor/machine"
)

// Version is the version of what supervisor and client say to each other, and
// of the state directory. A supervisor outlives upgrades of the plugin, so a
// client also talks to older ones. Compatible is the oldest client that
// understands a supervisor of this version.
const (
	Version    = 1
	Compatible = 1
)

// The paths of the control socket.
const (
	pathStatus  = "/v1/status"
	pathWait    = "/v1/wait"
	pathEvents  = "/v1/events"
	pathUsage   = "/v1/usage"
	pathStop    = "/v1/stop"
	pathSignal  = "/v1/signal"
	pathSuspend = "/v1/suspend"
	pathResume  = "/v1/resume"
	pathExec    = "/v1/exec"
	pathDestroy = "/v1/destroy"
)

var (
	// ErrNotRunning is returned for what needs the user's code to run: it has
	// not started, or has ended.
	ErrNotRunning = errors.New("the user's code is not running")
	// ErrRunning is returned when a task that is not over is to be destroyed.
	ErrRunning = errors.New("the task is not over")
	// ErrDied is returned when the supervisor has died without a word, or has
	// stopped answering for good. What it ran is got rid of by Destroy.
	ErrDied = errors.New("the task's supervisor has died")
	// ErrNoSupervisor is returned for a directory in which there never was one.
	ErrNoSupervisor = errors.New("no supervisor has been here")
	// ErrExists is returned when a supervisor is to be launched where there is
	// one already.
	ErrExists = errors.New("there is a supervisor already")
	// ErrVersion is returned for a supervisor that is too new for this client.
	ErrVersion = errors.New("the supervisor is of a newer version")
	// ErrBadRequest is returned for what the supervisor cannot read: an unknown
	// signal, a timeout below zero.
	ErrBadRequest = errors.New("bad request")
)

// codes are the errors that go over the socket.
var codes = map[string]error{
	"not-running": ErrNotRunning,
	"running":     ErrRunning,
	"bad-request": ErrBadRequest,
}

// wireError is the body of every answer that is no success.
type wireError struct {
	Code    string `json:"code,omitempty"`
	Message string `json:"message"`
}

// remoteError is a wireError as an error.
type remoteError struct {
	message string
	is      error
}

func (e *remoteError) Error() string { return e.message }
func (e *remoteError) Unwrap() error { return e.is }

// Exit is how a task ended.
type Exit struct {
	// Exit is the user's code's. Where it never ran, Code is 1 for a failure and
	// Signal 15 for a stop.
	exec.Exit
	// Cause is why the task is over, Fault the same as a sentence where it is a
	// failure that is not the user's code's own.
	Cause machine.Cause `json:"cause"`
	Fault string        `json:"fault,omitempty"`
	// Started is set when the user's code ran.
	Started bool      `json:"started"`
	At      time.Time `json:"at"`
}

// Event is something worth telling the user.
type Event struct {
	// Sequence counts from 1 without gaps. Only the newest events are kept.
	Sequence int64     `json:"sequence"`
	At       time.Time `json:"at"`
	// Kind is a stable word for programs, Message a sentence for people.
	Kind    machine.EventKind `json:"kind"`
	Message string            `json:"message"`
	// Details are the numbers in the sentence, by name.
	Details map[string]string `json:"details,omitempty"`
}

// Status is how a task stands.
type Status struct {
	Version int `json:"version"`
	// PID is the supervisor's.
	PID   int           `json:"pid"`
	Run   string        `json:"run"`
	Phase machine.Phase `json:"phase"`
	// Attempt counts from 1 how often the task was at the barrier.
	Attempt int `json:"attempt"`
	// Reason says what is waited for, or why the task is being stopped.
	Reason string `json:"reason,omitempty"`
	// WorkloadPID is the user's process's, 0 where it does not run; StartedAt is
	// when it started last, zero where it never did.
	WorkloadPID int       `json:"workload_pid,omitempty"`
	StartedAt   time.Time `json:"started_at,omitzero"`
	// Epoch and Generation are those of the membership, as far as there is one.
	Epoch      string            `json:"epoch,omitempty"`
	Generation int               `json:"generation,omitempty"`
	Progress   *gangapi.Progress `json:"progress,omitempty"`
	// Exit is set when the task is over.
	Exit *Exit `json:"exit,omitempty"`
	// Events is the Sequence of the newest event.
	Events int64 `json:"events"`
	// Notes are what the operator should know of the supervisor itself, such as
	// a full disk.
	Notes []string `json:"notes,omitempty"`
}

// stopRequest asks for the stop conversation.
type stopRequest struct {
	TimeoutMS int64  `json:"timeout_ms"`
	Signal    string `json:"signal,omitempty"`
}

type signalRequest struct {
	Signal string `json:"signal"`
}

type destroyRequest struct {
	Force bool `json:"force"`
}

// execRequest begins a command inside the user's code; what follows are frames.
type execRequest struct {
	Command []string  `json:"command"`
	Env     []string  `json:"env,omitempty"`
	TTY     bool      `json:"tty,omitempty"`
	Size    exec.Size `json:"size,omitzero"`
}
