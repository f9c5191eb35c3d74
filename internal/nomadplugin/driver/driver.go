// Package driver is Nomad's contract for task drivers: the interface that a
// driver provides, Serve, and the host's side.
package driver

import (
	"context"
	"errors"
	"io"
	"time"

	"github.com/caravan-sched/caravan/internal/nomadplugin/attr"
	"github.com/caravan-sched/caravan/internal/nomadplugin/base"
	"github.com/caravan-sched/caravan/internal/nomadplugin/hclspec"
)

// ErrTaskNotFound says that the driver does not know the task. Client returns
// errors that wrap it; Nomad cannot tell it from others across processes, so
// that Stop, Destroy and Wait of an unknown task are only noise in its log.
var ErrTaskNotFound = errors.New("task not found for given id")

// Recoverable marks an error from StartTask or Stats after which Nomad may try
// again on this node, under the group's restart policy.
type Recoverable struct{ Err error }

// Error implements error.
func (r *Recoverable) Error() string { return r.Err.Error() }

// Unwrap gives the reason.
func (r *Recoverable) Unwrap() error { return r.Err }

// Plugin is a task driver. Methods may be called at the same time. A task's ID
// is unique in the cluster.
type Plugin interface {
	base.Plugin

	TaskConfigSchema() *hclspec.Spec
	Capabilities() Capabilities

	// Fingerprint calls send with the driver's health, at once and whenever it
	// changes, until ctx ends.
	Fingerprint(ctx context.Context, send func(Fingerprint) error) error

	// Start must return at once: Nomad can neither stop nor find a task while
	// it is being started.
	Start(ctx context.Context, task TaskConfig) (Handle, *Network, error)
	// Recover takes over a task that an earlier process started. Nomad destroys
	// the task after an error.
	Recover(ctx context.Context, handle Handle) error
	// Wait returns when the task has ended, also when it ended before. It may
	// be called several times.
	Wait(ctx context.Context, id string) (Exit, error)
	// Stop signals the task, waits for the timeout, and kills it. The signal
	// "" is the driver's own choice.
	Stop(ctx context.Context, id string, timeout time.Duration, signal string) error
	// Destroy forgets an ended task; with force it kills a running one first.
	Destroy(ctx context.Context, id string, force bool) error
	Inspect(ctx context.Context, id string) (Status, error)
	// Stats calls send with the task's usage, at once and then every interval,
	// until ctx or the task ends.
	Stats(ctx context.Context, id string, interval time.Duration, send func(Usage) error) error
	// Events calls send with events of all tasks, for their owners, until ctx
	// ends.
	Events(ctx context.Context, send func(Event) error) error

	// Signal is called only if Capabilities.Signals.
	Signal(ctx context.Context, id, signal string) error
	// Exec runs a command beside the task and returns its output; called only
	// if Capabilities.Exec. A timeout of 0 is none.
	Exec(ctx context.Context, id string, command []string, timeout time.Duration) (ExecResult, error)
	// ExecStream is Exec with a terminal or pipes; called only if
	// Capabilities.Exec.
	ExecStream(ctx context.Context, id string, opts ExecOptions) (Exit, error)
}

// Initer is a driver that has something to do once it is configured.
type Initer interface {
	Init(ctx context.Context) error
}

// Shutdowner is a driver that wants to know when its process is about to be
// ended. Nomad does not promise to call it.
type Shutdowner interface {
	Shutdown(ctx context.Context) error
}

// NetworkManager is a driver that makes allocations' networks itself; called
// only if Capabilities.CreatesNetwork.
type NetworkManager interface {
	// CreateNetwork returns the network, and false if it was there already.
	CreateNetwork(ctx context.Context, allocID, hostname string) (NetworkIsolation, bool, error)
	DestroyNetwork(ctx context.Context, allocID string, network NetworkIsolation) error
}

// Capabilities say what a driver can do.
type Capabilities struct {
	Signals, Exec bool
	FSIsolation   FSIsolation
	NetworkModes  []NetworkMode
	// CreatesNetwork needs a NetworkManager.
	CreatesNetwork bool
	// NoMounts says that the driver cannot mount volumes.
	NoMounts bool
	// NoLogCollection keeps the client from collecting the tasks' output.
	NoLogCollection bool
	// DynamicUsers lets the client give a task a user that the system does not
	// know.
	DynamicUsers bool
}

// FSIsolation is what a task sees of the host's files.
type FSIsolation string

// The isolations of files. "" is FSNone.
const (
	FSNone   FSIsolation = "none"
	FSChroot FSIsolation = "chroot"
	FSImage  FSIsolation = "image"
	FSUnveil FSIsolation = "unveil"
)

// NetworkMode is whose network a task uses.
type NetworkMode string

// The modes of networks. "" is NetworkHost.
const (
	NetworkHost  NetworkMode = "host"
	NetworkGroup NetworkMode = "group"
	NetworkTask  NetworkMode = "task"
	NetworkNone  NetworkMode = "none"
)

// Health is a driver's.
type Health string

// The healths: undetected means that what the driver needs is not installed.
const (
	Undetected Health = "undetected"
	Unhealthy  Health = "unhealthy"
	Healthy    Health = "healthy"
)

// Fingerprint is what the node learns about its driver.
type Fingerprint struct {
	// Attributes become the node's.
	Attributes  map[string]attr.Value
	Health      Health
	Description string
}

// Exit is how a task or command ended.
type Exit struct {
	Code, Signal int
	OOMKilled    bool
	// Err is set when the driver lost sight of it.
	Err error
}

// ExecResult is what a command did.
type ExecResult struct {
	Stdout, Stderr []byte
	Exit           Exit
}

// ExecOptions are what a streamed command is connected to.
type ExecOptions struct {
	Command []string
	TTY     bool
	// Stdin ends when the user's does. Stdout and Stderr go to the user.
	Stdin          io.Reader
	Stdout, Stderr io.Writer
	// Resize has the terminal's size, first and after changes. It is closed
	// when no more will come.
	Resize <-chan TerminalSize
}

// TerminalSize is in characters.
type TerminalSize struct{ Width, Height int }

// Status is what a driver knows about a task.
type Status struct {
	ID, Name string
	State    State
	// Started and Completed are zero if it did not.
	Started, Completed time.Time
	Exit               Exit
	// Attributes are the driver's own.
	Attributes map[string]string
	Network    *Network
}

// State is a task's.
type State string

// The states of a task.
const (
	StateUnknown State = "unknown"
	StateRunning State = "running"
	StateExited  State = "exited"
)

// Event is shown among a task's events.
type Event struct {
	TaskID, AllocID, TaskName string
	Time                      time.Time
	Message                   string
	Annotations               map[string]string
}
