package exec

import (
	"fmt"
	"os"
	osexec "os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"
)

// children are those that this package started and waits for. The kernel keeps
// one set of children for the whole process, so this is one set, too: who reaps
// orphans must know which are none.
var children = registry{pids: map[int]struct{}{}}

type registry struct {
	mu   sync.Mutex
	pids map[int]struct{}
}

// start starts a command as a known child.
func (r *registry) start(cmd *osexec.Cmd) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := cmd.Start(); err != nil {
		return err
	}
	r.pids[cmd.Process.Pid] = struct{}{}
	return nil
}

// wait waits for a known child. Its error is only about waiting.
func (r *registry) wait(cmd *osexec.Cmd) (syscall.WaitStatus, error) {
	err := cmd.Wait()
	r.mu.Lock()
	delete(r.pids, cmd.Process.Pid)
	r.mu.Unlock()
	if cmd.ProcessState == nil {
		return 0, err
	}
	status, _ := cmd.ProcessState.Sys().(syscall.WaitStatus)
	return status, nil
}

// becomeSubreaper makes orphans of workloads children of this process.
func becomeSubreaper() error {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("become a subreaper: %w", err)
	}
	return nil
}

// adopted reports whether a process is a child of this one that this one did not
// start: an orphan of a workload.
func adopted(p process) bool {
	children.mu.Lock()
	defer children.mu.Unlock()
	return children.stranger(p)
}

// stranger is adopted with the lock held. What others in this process start
// stays in its session, while all that workloads start is in sessions of their
// own.
func (r *registry) stranger(p process) bool {
	if _, known := r.pids[p.PID]; known || p.PPID != os.Getpid() {
		return false
	}
	own, err := unix.Getsid(0)
	return err == nil && p.Session != own
}

// reapOrphans reaps the adopted children that have ended. The kernel's list may
// leave some out while others go, so it is read until none goes.
func (h host) reapOrphans() {
	fs, err := procfs.NewFS(h.proc)
	if err != nil {
		return
	}
	for reaped := true; reaped; {
		reaped = false
		for _, pid := range h.childPIDs(fs) {
			p, err := fs.Proc(pid)
			if err != nil {
				continue
			}
			stat, err := p.Stat()
			if err == nil && stat.State == "Z" && children.reap(process{ProcStat: stat}) {
				reaped = true
			}
		}
	}
}

// reap reaps an adopted child. No child is started meanwhile that could take
// its place.
func (r *registry) reap(p process) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.stranger(p) {
		return false
	}
	pid, err := unix.Wait4(p.PID, nil, unix.WNOHANG, nil)
	return err == nil && pid == p.PID
}

// childPIDs are this process's children. The kernel lists them by the thread
// that they belong to; orphans go to the main one.
func (h host) childPIDs(fs procfs.FS) []int {
	self := strconv.Itoa(os.Getpid())
	data, err := os.ReadFile(h.proc + "/" + self + "/task/" + self + "/children")
	if err == nil {
		var pids []int
		for _, field := range strings.Fields(string(data)) {
			if pid, err := strconv.Atoi(field); err == nil {
				pids = append(pids, pid)
			}
		}
		return pids
	}
	// The list is an option of the kernel's build.
	procs, err := fs.AllProcs()
	if err != nil {
		return nil
	}
	var pids []int
	for _, p := range procs {
		if stat, err := p.Stat(); err == nil && stat.PPID == os.Getpid() {
			pids = append(pids, p.PID)
		}
	}
	return pids
}
