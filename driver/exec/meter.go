package exec

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/procfs"
)

// Meter measures what somebody else started, as a container runtime starts
// containers: a process, all others in its PID namespace, and its cgroups. Its
// methods may be called concurrently.
type Meter struct {
	host   host
	root   process
	groups *cgroups

	mu   sync.Mutex
	last measured
}

// NewMeter returns a meter for a process, by its PID on the host;
// ErrNotRunning if it is not there.
func NewMeter(pid int) (*Meter, error) {
	h, err := here()
	if err != nil {
		return nil, fmt.Errorf("measure process %d: %w", pid, err)
	}
	return h.newMeter(pid)
}

func (h host) newMeter(pid int) (*Meter, error) {
	root, err := h.processOf(pid)
	if err != nil {
		return nil, fmt.Errorf("measure process %d: %w", pid, err)
	}
	return &Meter{host: h, root: root, groups: h.cgroupsOf(pid)}, nil
}

// processOf reads one process; ErrNotRunning if it has ended.
func (h host) processOf(pid int) (process, error) {
	fs, err := procfs.NewFS(h.proc)
	if err != nil {
		return process{}, err
	}
	p, err := fs.Proc(pid)
	if err != nil {
		return process{}, ErrNotRunning
	}
	stat, err := p.Stat()
	if found := (process{stat}); err == nil && !found.dead() {
		return found, nil
	}
	return process{}, ErrNotRunning
}

// cgroupsOf are the cgroups of a process, as far as this process is not in them
// itself: those hold others as well, or everything.
func (h host) cgroupsOf(pid int) *cgroups {
	g := &cgroups{host: h, v1: map[string]string{}}
	theirs, ours := h.memberships(pid), h.memberships(os.Getpid())
	for _, c := range slices.Sorted(maps.Keys(theirs)) {
		path := theirs[c]
		if path == ours[c] || path == "/" || strings.HasPrefix(path, "/..") {
			continue
		}
		switch dir := ""; {
		case c == "" && h.unified != "":
			if dir = filepath.Join(h.unified, path); exists(dir) {
				g.unified = dir
			}
		case c != "" && h.v1[c] != "":
			if dir = filepath.Join(h.v1[c], path); exists(dir) {
				g.v1[c] = dir
			}
		}
	}
	return g
}

// memberships are a process's cgroups by controller, "" for cgroup2's.
func (h host) memberships(pid int) map[string]string {
	out := map[string]string{}
	data, err := os.ReadFile(filepath.Join(h.proc, strconv.Itoa(pid), "cgroup"))
	if err != nil {
		return out
	}
	for line := range strings.Lines(string(data)) {
		// ID:CONTROLLER,...:PATH (cgroups(7))
		parts := strings.SplitN(strings.TrimSuffix(line, "\n"), ":", 3)
		if len(parts) != 3 {
			continue
		}
		for _, c := range strings.Split(parts[1], ",") {
			out[c] = parts[2]
		}
	}
	return out
}

// Usage measures; ErrNotRunning once the process has ended. CPU percents are
// since the last call.
func (m *Meter) Usage() (Usage, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if now, err := m.host.processOf(m.root.PID); err != nil || now.Starttime != m.root.Starttime {
		return Usage{}, fmt.Errorf("measure process %d: %w", m.root.PID, ErrNotRunning)
	}
	all, err := m.host.snapshot()
	if err != nil {
		return Usage{}, fmt.Errorf("measure process %d: %w", m.root.PID, err)
	}
	mine := map[int]process{m.root.PID: all[m.root.PID]}
	if space := m.host.pidNamespace(m.root.PID); space != "" && space != m.host.pidNamespace(os.Getpid()) {
		// What a runtime puts in later does not descend from the first process.
		for pid, p := range all {
			if m.host.pidNamespace(pid) == space {
				mine[pid] = p
			}
		}
	}
	addDescendants(all, mine)
	maps.DeleteFunc(mine, func(_ int, p process) bool { return p.PID == 0 || p.dead() })
	u, now := m.host.measure(mine, m.groups, m.last)
	m.last = now
	return u, nil
}

// pidNamespace names a process's PID namespace, "" if it cannot be read.
func (h host) pidNamespace(pid int) string {
	name, err := os.Readlink(filepath.Join(h.proc, strconv.Itoa(pid), "ns/pid"))
	if err != nil {
		return ""
	}
	return name
}

// measure adds up processes and counters; before is the measurement before.
func (h host) measure(procs map[int]process, groups *cgroups, before measured) (Usage, measured) {
	now := measured{at: time.Now(), processes: map[processKey]cpuTime{}}
	elapsed := now.at.Sub(before.at)
	u := Usage{Time: now.at, Processes: map[int]Sample{}}
	for pid, p := range procs {
		key := processKey{pid, p.Starttime}
		now.processes[key] = p.cpuTime()
		s := p.sample(h)
		s.setCPU(before.processes[key], now.processes[key], elapsed)
		u.Processes[pid] = s
	}
	c := groups.count()
	u.Total = c.memory
	if u.Total.UsageBytes == nil {
		u.Total.addMemory(u.Processes)
	}
	now.total = c.cpu.since(groups.base.cpu)
	if now.total.total == nil {
		now.total = sumCPU(now.processes)
	}
	u.Total.setCPU(before.total, now.total, elapsed)
	u.Total.ThrottledPeriods = minus(c.throttledPeriods, groups.base.throttledPeriods)
	u.Total.ThrottledTime = minus(c.throttledTime, groups.base.throttledTime)
	return u, now
}
