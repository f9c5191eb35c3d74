package exec

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/caravan-sched/caravan/driver/ulimit"
)

// childName is the zeroth argument by which a binary that was run once more
// knows that it is to become a workload.
const childName = "caravan-exec-child"

// The descriptors that a child finds.
const (
	// configFD is where its configuration comes from.
	configFD = 3
	// faultFD is closed when the command runs; before, it takes what went wrong.
	faultFD = 4
	// reportFD takes an intermediate process's reports on the command.
	reportFD = 5
	// firstNamespaceFD is the first of the namespaces to join.
	firstNamespaceFD = 6
)

// childConfig is what a child does before it becomes the command.
type childConfig struct {
	Path string   `json:"path"`
	Args []string `json:"args"`
	Env  []string `json:"env"`
	Dir  string   `json:"dir"`

	User        *identity `json:"user,omitempty"`
	Rlimits     []rlimit  `json:"rlimits,omitempty"`
	CPUs        []int     `json:"cpus,omitempty"`
	OOMScoreAdj int       `json:"oom_score_adj,omitempty"`

	// OwnMounts says that the child is in a mount namespace made for it.
	OwnMounts        bool    `json:"own_mounts,omitempty"`
	MountProc        bool    `json:"mount_proc,omitempty"`
	Mounts           []Mount `json:"mounts,omitempty"`
	NetworkNamespace string  `json:"network_namespace,omitempty"`

	// Join are kinds of namespaces (CLONE_NEW…) whose descriptors the child got,
	// in order, from firstNamespaceFD on.
	Join []int `json:"join,omitempty"`
	// Between makes the child an intermediate process that starts the command
	// as a child of its own: the init of a new PID namespace, or one that has
	// joined an existing one, in which only children can be.
	Between bool `json:"between,omitempty"`
	// TTY says that standard input is the command's terminal.
	TTY bool `json:"tty,omitempty"`
}

// childFault is why a child could not become the command.
type childFault struct {
	// Field is that of the Spec which is at fault, empty where none is.
	Field string `json:"field,omitempty"`
	Step  string `json:"step"`
	Text  string `json:"text"`
	Errno int    `json:"errno,omitempty"`
}

func (f childFault) Error() string { return f.Step + ": " + f.Text }

func (f childFault) Unwrap() error {
	if f.Errno == 0 {
		return nil
	}
	return syscall.Errno(f.Errno)
}

// Main does the steps of a start that have to be done inside the new process.
// It returns at once when the binary was run for anything else, and never
// otherwise. Call it before anything else in main and TestMain.
func Main() {
	if len(os.Args) != 1 || os.Args[0] != childName {
		return
	}
	// Namespaces, credentials and the CPU mask are the thread's.
	runtime.LockOSThread()
	os.Exit(runChild())
}

func runChild() int {
	config := os.NewFile(configFD, "config")
	faults := os.NewFile(faultFD, "faults")
	unix.CloseOnExec(configFD)
	unix.CloseOnExec(faultFD)
	decoder := json.NewDecoder(config)
	var c childConfig
	if err := decoder.Decode(&c); err != nil {
		return 125 // who started this is gone
	}
	var err error
	if c.Between {
		var code int
		if code, err = c.between(decoder, faults); err == nil {
			return code
		}
	} else {
		err = c.become()
	}
	fault := childFault{Step: "start", Text: err.Error()}
	_ = errors.As(err, &fault)
	_ = json.NewEncoder(faults).Encode(fault)
	return 125
}

// step names what failed, and the field of the Spec that asked for it.
func step(field, name string, err error) error {
	if err == nil {
		return nil
	}
	fault := childFault{Field: field, Step: name, Text: plainError(err)}
	var errno syscall.Errno
	if errors.As(err, &errno) {
		fault.Errno = int(errno)
	}
	return fault
}

// become turns the process into the command; it returns only on failure.
func (c *childConfig) become() error {
	if c.OOMScoreAdj != 0 {
		value := strconv.Itoa(c.OOMScoreAdj)
		if err := step("limits.oom_score_adj", "set oom_score_adj "+value, os.WriteFile("/proc/self/oom_score_adj", []byte(value), 0o644)); err != nil {
			return err
		}
	}
	if err := c.enter(); err != nil {
		return err
	}
	if len(c.CPUs) > 0 {
		var set unix.CPUSet
		for _, cpu := range c.CPUs {
			set.Set(cpu)
		}
		if err := step("cpu_set", "run on CPUs "+FormatCPUs(c.CPUs), unix.SchedSetaffinity(0, &set)); err != nil {
			return err
		}
	}
	// Signals that the agent ignores would be ignored by the command, too.
	catchSignals()
	for _, l := range c.Rlimits {
		limit := syscall.Rlimit{Cur: l.Soft, Max: l.Hard}
		name := fmt.Sprintf("set ulimit %s to %s:%s", l.Name, ulimit.Text(l.Soft), ulimit.Text(l.Hard))
		if err := step("ulimits."+l.Name, name, setrlimit(l.Resource, &limit)); err != nil {
			return err
		}
	}
	if err := c.User.assume(); err != nil {
		return err
	}
	if err := step("dir", "change to directory "+c.Dir, unix.Chdir(c.Dir)); err != nil {
		return err
	}
	// Whatever else came along. Older kernels cannot; nothing of ours is missed.
	unix.CloseOnExec(reportFD)
	_ = unix.CloseRange(configFD, 1<<31-1, unix.CLOSE_RANGE_CLOEXEC)
	return step("command", "run "+c.Path, syscall.Exec(c.Path, c.Args, c.Env))
}

// catchSignals lets no signal do anything to this process. A command that it
// becomes or starts finds all of them at their default.
func catchSignals() { signal.Notify(make(chan os.Signal, 1)) }

// setrlimit goes through the standard library, which otherwise puts the limit of
// open files back to what it was when the process began.
func setrlimit(resource int, limit *syscall.Rlimit) error {
	return syscall.Setrlimit(resource, limit)
}

// assume takes on a user's credentials.
func (id *identity) assume() error {
	if id == nil {
		return nil
	}
	if os.Geteuid() == 0 {
		if err := step("groups", "set groups", syscall.Setgroups(id.Groups)); err != nil {
			return err
		}
	}
	if err := step("user", "set gid "+strconv.Itoa(id.GID), syscall.Setresgid(id.GID, id.GID, id.GID)); err != nil {
		return err
	}
	return step("user", "set uid "+strconv.Itoa(id.UID), syscall.Setresuid(id.UID, id.UID, id.UID))
}
