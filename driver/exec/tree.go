package exec

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"syscall"

	"github.com/prometheus/procfs"
)

// process is one process at one moment. Its start time tells it from a later
// one with the same PID.
type process struct {
	procfs.ProcStat
}

// snapshot reads all processes of the host. Those that end meanwhile are left
// out.
func (h host) snapshot() (map[int]process, error) {
	fs, err := procfs.NewFS(h.proc)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", h.proc, err)
	}
	procs, err := fs.AllProcs()
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	all := make(map[int]process, len(procs))
	for _, p := range procs {
		stat, err := p.Stat()
		if err != nil {
			continue
		}
		all[stat.PID] = process{ProcStat: stat}
	}
	return all, nil
}

// readMark reads the workload that a process says it belongs to.
func (h host) readMark(pid int) string {
	fs, err := procfs.NewFS(h.proc)
	if err != nil {
		return ""
	}
	p, err := fs.Proc(pid)
	if err != nil {
		return ""
	}
	// The environment of kernel threads and of other users cannot be read: not
	// ours.
	env, err := p.Environ()
	if err != nil {
		return ""
	}
	mark := ""
	for _, entry := range env {
		if value, ok := cutMark(entry); ok {
			mark = value
		}
	}
	return mark
}

func cutMark(entry string) (string, bool) {
	const prefix = Mark + "="
	if len(entry) < len(prefix) || entry[:len(prefix)] != prefix {
		return "", false
	}
	return entry[len(prefix):], true
}

// tree finds the processes of one workload.
type tree struct {
	host   host
	id     string
	groups *cgroups
	// roots were started by this process for the workload; their descendants
	// belong to it.
	roots map[int]uint64
	// seen are start times of all that ever belonged, by PID: what belonged once
	// belongs until it ends, whatever it does to its parentage and environment.
	seen map[int]uint64
	// since is the start time of the first root: whatever was there before it
	// does not belong. 0 is unknown.
	since uint64
	// adopted includes orphans without any mark that came to this process.
	adopted bool
}

// find lists the living processes of the workload, by PID. The caller, and what
// it descends from, never belong. Reading all marks is dear; where cgroups hold
// the workload, marks are only needed to be sure.
func (t *tree) find(marks bool) (map[int]process, error) {
	all, err := t.host.snapshot()
	if err != nil {
		return nil, err
	}
	// After the snapshot: a PID that was used again since is in the list for a
	// process with another start time, which then gets no signal.
	held := t.groups.pids()
	mine := map[int]process{}
	for pid, p := range all {
		if t.belongs(p, held) || marks && t.marked(p) {
			mine[pid] = p
		}
	}
	addDescendants(all, mine)
	for _, pid := range ancestors(all, os.Getpid()) {
		delete(mine, pid)
	}
	t.seen = map[int]uint64{}
	for pid, p := range mine {
		t.seen[pid] = p.Starttime
		if p.dead() {
			delete(mine, pid)
		}
	}
	return mine, nil
}

// belongs tells by what is known already.
func (t *tree) belongs(p process, held []int) bool {
	if start, ok := t.roots[p.PID]; ok && start == p.Starttime {
		return true
	}
	if start, ok := t.seen[p.PID]; ok && start == p.Starttime {
		return true
	}
	_, ok := slices.BinarySearch(held, p.PID)
	return ok
}

// marked tells by the environment of a process, and of orphans that have none
// by whose orphans they are.
func (t *tree) marked(p process) bool {
	if p.kernel() || p.dead() || p.Starttime < t.since {
		return false
	}
	mark := t.host.readMark(p.PID)
	if mark == "" {
		return t.adopted && adopted(p)
	}
	return mark == t.id
}

// addDescendants adds the children of what belongs, and theirs.
func addDescendants(all, mine map[int]process) {
	children := map[int][]int{}
	for pid, p := range all {
		children[p.PPID] = append(children[p.PPID], pid)
	}
	queue := make([]int, 0, len(mine))
	for pid := range mine {
		queue = append(queue, pid)
	}
	for len(queue) > 0 {
		pid := queue[len(queue)-1]
		queue = queue[:len(queue)-1]
		for _, child := range children[pid] {
			if _, known := mine[child]; !known {
				mine[child] = all[child]
				queue = append(queue, child)
			}
		}
	}
}

// ancestors are a process and those it descends from.
func ancestors(all map[int]process, pid int) []int {
	var line []int
	for pid > 0 && !slices.Contains(line, pid) {
		line = append(line, pid)
		pid = all[pid].PPID
	}
	return line
}

// dead reports whether a process has ended and only waits to be reaped.
func (p process) dead() bool { return p.State == "Z" || p.State == "X" }

// stopped reports whether a process stands still.
func (p process) stopped() bool { return p.State == "T" || p.State == "t" }

// kernelThread is the kernel's PF_KTHREAD.
const kernelThread = 0x00200000

func (p process) kernel() bool { return p.Flags&kernelThread != 0 }

// signalProcess sends a signal to a process, but not to a later one with its
// PID: its handle is opened first and its start time looked at after. It is no
// error if the process is gone.
func (h host) signalProcess(p process, sig syscall.Signal) error {
	handle, err := os.FindProcess(p.PID)
	if err != nil {
		return ignoreMissing(err)
	}
	defer func() { _ = handle.Release() }()
	fs, err := procfs.NewFS(h.proc)
	if err != nil {
		return err
	}
	now, err := fs.Proc(p.PID)
	if err != nil {
		return ignoreMissing(err)
	}
	if stat, err := now.Stat(); err != nil || stat.Starttime != p.Starttime {
		return nil // gone
	}
	if err := handle.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return ignoreMissing(fmt.Errorf("signal process %d: %w", p.PID, err))
	}
	return nil
}
