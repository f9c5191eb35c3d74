package supervisor

import (
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caravan-sched/caravan/driver/container"
	"github.com/caravan-sched/caravan/driver/exec"
	"github.com/caravan-sched/caravan/driver/supervisor/machine"
)

// Role is a task's part in its gang.
type Role = machine.Role

// The roles.
const (
	RoleRank   = machine.Rank
	RoleFollow = machine.Follow
	RoleNone   = machine.None
)

// Start is everything that a supervisor has to know. Durations are in
// nanoseconds in its JSON form.
type Start struct {
	// Run is a random name of this start of the task; Launch chooses it.
	Run  string `json:"run,omitempty"`
	Task Task   `json:"task"`
	// Workload is the user's code; an empty ID becomes Run. The environment of
	// the rendezvous is put behind its Env and wins over it.
	Workload exec.Spec `json:"workload"`
	// Container is set for a task with an image; the workload is then its
	// runtime's client.
	Container *container.Spec `json:"container,omitempty"`

	Role       Role       `json:"role"`
	Barrier    Barrier    `json:"barrier,omitzero"`
	Files      Files      `json:"files,omitzero"`
	Checkpoint Checkpoint `json:"checkpoint,omitzero"`
	Stop       Stop       `json:"stop,omitzero"`
	Fence      Fence      `json:"fence,omitzero"`
	// Preflight is nil where the node is not looked at.
	Preflight *Preflight `json:"preflight,omitempty"`
	// ResizeSignal is sent to the user's code when its gang has another
	// membership; "" is none.
	ResizeSignal string `json:"resize_signal,omitempty"`
}

// Task says which task it is.
type Task struct {
	Namespace string `json:"namespace"`
	Job       string `json:"job"`
	// Group is the task group's name in Nomad.
	Group string `json:"group"`
	Alloc string `json:"alloc"`
	Task  string `json:"task"`
	// Node is the Nomad node's ID.
	Node     string `json:"node"`
	NodeName string `json:"node_name,omitempty"`
}

// TLS is how a server is recognised and how it recognises us; "" is the
// system's default.
type TLS struct {
	CAFile     string `json:"ca_file,omitempty"`
	CertFile   string `json:"cert_file,omitempty"`
	KeyFile    string `json:"key_file,omitempty"`
	ServerName string `json:"server_name,omitempty"`
}

// Barrier is how the task joins its gang. It is not used with RoleNone.
type Barrier struct {
	// Planners are base URLs, tried in turn.
	Planners []string `json:"planners,omitempty"`
	TLS      TLS      `json:"tls,omitzero"`
	// IdentityFile holds the task's workload identity; it is read again for each
	// request, because Nomad renews it.
	IdentityFile string `json:"identity_file,omitempty"`
	// JoinTimeout is how long to wait for the gang, more than 0.
	JoinTimeout time.Duration `json:"join_timeout,omitempty"`
	// Address is the IP address by which the other members reach this one. Port
	// is for the rendezvous should it become rank 0; 0 is a free one.
	Address string `json:"address,omitempty"`
	Port    int    `json:"port,omitempty"`
	// GPUs are the UUIDs that the task was granted.
	GPUs []string `json:"gpus,omitempty"`
	// Processes is how many ranks the member has; 0 is one for each GPU.
	Processes int `json:"processes,omitempty"`
}

// Files says where the files for the user's code go.
type Files struct {
	// Dir is the directory for them, made if it is not there.
	Dir string `json:"dir,omitempty"`
	// SeenAs is the directory's path as the user's code sees it; "" is Dir.
	SeenAs string `json:"seen_as,omitempty"`
	// Interface is the network interface that the members reach each other by;
	// "" leaves it to NCCL.
	Interface string `json:"interface,omitempty"`
}

// Checkpoint is how the user's code makes checkpoints.
type Checkpoint struct {
	// Signal asks for one; "" is that none can be asked for.
	Signal string `json:"signal,omitempty"`
	// Grace is how long a stop waits for it.
	Grace time.Duration `json:"grace,omitempty"`
	// Paths are absolute paths and patterns whose newest complete entry is the
	// newest checkpoint.
	Paths []string `json:"paths,omitempty"`
}

// Stop is how the user's code is stopped when it is not Nomad that asks.
type Stop struct {
	// Signal asks it to end; "" is SIGTERM.
	Signal string `json:"signal,omitempty"`
	// KillAfter is when it is killed, counted from the beginning of the stop; 0
	// is 10 s, after the grace of a checkpoint where one is asked for.
	KillAfter time.Duration `json:"kill_after,omitempty"`
}

// Fence is the watch on Nomad's servers. It is not used with RoleNone.
type Fence struct {
	// Socket is the local agent's socket for the task (Nomad's Task API), and
	// TokenFile the workload identity to use there. Nomad is the base URL of the
	// agent, for where there is no socket. With neither the planner is the only
	// witness.
	Socket    string `json:"socket,omitempty"`
	TokenFile string `json:"token_file,omitempty"`
	Nomad     string `json:"nomad,omitempty"`
	TLS       TLS    `json:"tls,omitzero"`
	// After is how long the user's code may run on cut off; 0 is for ever.
	After time.Duration `json:"after,omitempty"`
}

// Preflight is the check of the node before the barrier.
type Preflight struct {
	// GPUSource is where the health of the granted GPUs is read: "nvml",
	// "mock:MACHINE" or "file:PATH"; "" is not at all. GPUSeed and GPUFaults are
	// for simulated GPUs, as in the device plugin.
	GPUSource string `json:"gpu_source,omitempty"`
	GPUSeed   string `json:"gpu_seed,omitempty"`
	GPUFaults string `json:"gpu_faults,omitempty"`
	// Command is run as the workload would be; "" is none.
	Command string   `json:"command,omitempty"`
	Args    []string `json:"args,omitempty"`
	// Timeout is for each of the two checks, more than 0.
	Timeout time.Duration `json:"timeout"`
}

// Fault is one value of a Start that cannot be used.
type Fault struct {
	// Key is the value's place in the JSON form.
	Key, Value string
	// Allowed says what could stand there.
	Allowed string
}

// StartError holds every fault of a Start.
type StartError struct {
	Faults []Fault
}

// Error lists the faults.
func (e *StartError) Error() string {
	texts := make([]string, len(e.Faults))
	for i, f := range e.Faults {
		texts[i] = fmt.Sprintf("%s = %q: %s", f.Key, f.Value, f.Allowed)
	}
	return "check task: " + strings.Join(texts, "; ")
}

type startCheck struct{ faults []Fault }

func (c *startCheck) that(ok bool, key string, value any, allowed string) {
	if !ok {
		c.faults = append(c.faults, Fault{Key: key, Value: fmt.Sprint(value), Allowed: allowed})
	}
}

// Validate returns a *StartError with every fault, nil if the task can be
// supervised. The workload itself is for exec.Check.
func (s Start) Validate() error {
	c := &startCheck{}
	for _, f := range []struct{ key, value string }{
		{"task.namespace", s.Task.Namespace}, {"task.job", s.Task.Job}, {"task.group", s.Task.Group},
		{"task.alloc", s.Task.Alloc}, {"task.task", s.Task.Task}, {"task.node", s.Task.Node},
	} {
		c.that(f.value != "", f.key, f.value, "must not be empty")
	}
	for _, f := range []struct{ key, value string }{
		{"checkpoint.signal", s.Checkpoint.Signal}, {"stop.signal", s.Stop.Signal}, {"resize_signal", s.ResizeSignal},
	} {
		_, err := parseSignal(f.value)
		c.that(f.value == "" || err == nil, f.key, f.value, `a signal's name, as "SIGUSR1"`)
	}
	for _, f := range []struct {
		key   string
		value time.Duration
	}{{"checkpoint.grace", s.Checkpoint.Grace}, {"stop.kill_after", s.Stop.KillAfter}, {"fence.after", s.Fence.After}} {
		c.that(f.value >= 0, f.key, f.value, "0 or more")
	}
	for _, p := range s.Checkpoint.Paths {
		c.that(filepath.IsAbs(p), "checkpoint.paths", p, "absolute paths")
	}
	c.that(s.Files.Dir == "" || filepath.IsAbs(s.Files.Dir), "files.dir", s.Files.Dir, "an absolute path")
	c.that(s.Fence.Nomad == "" || isBaseURL(s.Fence.Nomad), "fence.nomad", s.Fence.Nomad, "an http or https URL")
	if p := s.Preflight; p != nil {
		c.that(p.Timeout > 0, "preflight.timeout", p.Timeout, "more than 0")
	}
	switch s.Role {
	case RoleRank, RoleFollow:
		c.barrier(s)
	default:
		c.that(s.Role == RoleNone, "role", s.Role, "rank, follow or none")
	}
	if len(c.faults) == 0 {
		return nil
	}
	return &StartError{Faults: c.faults}
}

func (c *startCheck) barrier(s Start) {
	b := s.Barrier
	c.that(len(b.Planners) > 0, "barrier.planners", "", "at least one address")
	for _, p := range b.Planners {
		c.that(isBaseURL(p), "barrier.planners", p, "http or https URLs")
	}
	c.that(filepath.IsAbs(b.IdentityFile), "barrier.identity_file", b.IdentityFile, "an absolute path")
	c.that(b.JoinTimeout > 0, "barrier.join_timeout", b.JoinTimeout, "more than 0")
	_, err := netip.ParseAddr(b.Address)
	c.that(err == nil, "barrier.address", b.Address, "an IP address")
	c.that(b.Port >= 0 && b.Port <= 65535, "barrier.port", b.Port, "0 to 65535")
	c.that(b.Processes >= 0, "barrier.processes", b.Processes, "0 or more")
	c.that(s.Files.Dir != "", "files.dir", "", "must not be empty for a member of a gang")
}

func isBaseURL(s string) bool {
	u, err := url.Parse(s)
	return err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Host != ""
}

var errSignal = errors.New("unknown signal")

// parseSignal reads a signal's name, with or without SIG, in any case.
func parseSignal(name string) (unix.Signal, error) {
	up := strings.ToUpper(name)
	if !strings.HasPrefix(up, "SIG") {
		up = "SIG" + up
	}
	if sig := unix.SignalNum(up); sig != 0 {
		return sig, nil
	}
	return 0, fmt.Errorf("%w %q", errSignal, name)
}

// killAfter is when the user's code is killed in a stop that Nomad did not ask
// for.
func (s Start) killAfter() time.Duration {
	if s.Stop.KillAfter > 0 {
		return s.Stop.KillAfter
	}
	if s.Checkpoint.Signal == "" {
		return machine.EndWithin
	}
	return s.Checkpoint.Grace + machine.EndWithin
}
