package exec

import (
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"github.com/containerd/cgroups/v3/cgroup1"
	v1 "github.com/containerd/cgroups/v3/cgroup1/stats"
	"github.com/containerd/cgroups/v3/cgroup2"
	"github.com/prometheus/procfs"
	"google.golang.org/protobuf/proto"
)

// cpuTime is CPU time used so far. nil is not measured.
type cpuTime struct {
	user, system, total *time.Duration
}

// counters are what a workload's cgroups count.
type counters struct {
	cpu              cpuTime
	throttledPeriods *uint64
	throttledTime    *time.Duration
	memory           Sample
	oomKills         uint64
}

// measured is what a measurement needs of the one before.
type measured struct {
	at        time.Time
	total     cpuTime
	processes map[processKey]cpuTime
}

// processKey is a process; its start time tells it from later ones.
type processKey struct {
	pid   int
	start uint64
}

// Usage measures the workload. CPU percents are since the last call.
func (w *Workload) Usage() (Usage, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	procs, err := w.tree.find(len(w.groups.dirs()) == 0)
	if err != nil {
		return Usage{}, fmt.Errorf("measure workload: %w", err)
	}
	u, now := w.host.measure(procs, w.groups, w.last)
	w.last = now
	return u, nil
}

// minus is a counter less what it was; nil if it is not measured, 0 if it was
// set back.
func minus[N uint64 | time.Duration](now, before *N) *N {
	if now == nil {
		return nil
	}
	n := *now
	if before != nil {
		n -= min(n, *before)
	}
	return &n
}

func (c cpuTime) since(base cpuTime) cpuTime {
	return cpuTime{user: minus(c.user, base.user), system: minus(c.system, base.system), total: minus(c.total, base.total)}
}

// setCPU sets what a sample says about CPU time.
func (s *Sample) setCPU(before, now cpuTime, elapsed time.Duration) {
	s.CPUTime = now.total
	s.CPUUserPercent = percent(before.user, now.user, elapsed)
	s.CPUSystemPercent = percent(before.system, now.system, elapsed)
	s.CPUPercent = percent(before.total, now.total, elapsed)
}

// percent is CPU time used per time passed; nil without two measurements.
// Without cgroups the time of processes that ended is lost, so there may be
// less than before.
func percent(before, now *time.Duration, elapsed time.Duration) *float64 {
	if before == nil || now == nil || elapsed <= 0 {
		return nil
	}
	p := 100 * float64(max(0, *now-*before)) / float64(elapsed)
	return &p
}

// userHertz is the unit of times in /proc, fixed at 100 for Linux on everything
// that GPUs are in.
const userHertz = 100

func ticks(n uint) time.Duration { return time.Duration(n) * time.Second / userHertz }

func (p process) cpuTime() cpuTime {
	user, system := ticks(p.UTime), ticks(p.STime)
	total := user + system
	return cpuTime{&user, &system, &total}
}

// sumCPU adds up what processes used.
func sumCPU(processes map[processKey]cpuTime) cpuTime {
	var user, system, total time.Duration
	for _, c := range processes {
		user, system, total = user+*c.user, system+*c.system, total+*c.total
	}
	return cpuTime{&user, &system, &total}
}

// sample is one process's memory.
func (p process) sample(h host) Sample {
	rss := uint64(max(0, p.ResidentMemory()))
	s := Sample{RSSBytes: &rss}
	fs, err := procfs.NewFS(h.proc)
	if err != nil {
		return s
	}
	handle, err := fs.Proc(p.PID)
	if err != nil {
		return s
	}
	if status, err := handle.NewStatus(); err == nil {
		s.SwapBytes = &status.VmSwap
	}
	return s
}

// addMemory adds up what processes use, for a workload without a memory cgroup.
// What they share counts for each of them.
func (s *Sample) addMemory(processes map[int]Sample) {
	var rss uint64
	var swap *uint64
	for _, p := range processes {
		if p.RSSBytes != nil {
			rss += *p.RSSBytes
		}
		if p.SwapBytes != nil {
			if swap == nil {
				swap = new(uint64)
			}
			*swap += *p.SwapBytes
		}
	}
	s.RSSBytes, s.SwapBytes = &rss, swap
}

// count reads what the cgroups count, as far as they do.
func (g *cgroups) count() counters {
	var c counters
	g.countV1(&c)
	g.countUnified(&c)
	return c
}

func (g *cgroups) countUnified(c *counters) {
	if g.unified == "" {
		return
	}
	group, err := filepath.Rel(g.host.unified, g.unified)
	if err != nil {
		return
	}
	manager, err := cgroup2.Load("/"+group, cgroup2.WithMountpoint(g.host.unified))
	if err != nil {
		return
	}
	controllers := unifiedControllers(g.unified)
	if exists(filepath.Join(g.unified, "cpu.stat")) && c.cpu.total == nil {
		if m, err := manager.StatFiltered(cgroup2.StatCPU); err == nil {
			c.cpu = cpuTime{micros(m.CPU.UserUsec), micros(m.CPU.SystemUsec), micros(m.CPU.UsageUsec)}
			if slices.Contains(controllers, "cpu") {
				c.throttledPeriods, c.throttledTime = &m.CPU.NrThrottled, micros(m.CPU.ThrottledUsec)
			}
		}
	}
	if !slices.Contains(controllers, "memory") {
		return
	}
	m, err := manager.StatFiltered(cgroup2.StatMemory | cgroup2.StatMemoryEvents)
	if err != nil {
		return
	}
	c.oomKills = m.MemoryEvents.GetOomKill()
	c.memory = Sample{
		RSSBytes: &m.Memory.Anon, CacheBytes: &m.Memory.File, SwapBytes: &m.Memory.SwapUsage,
		KernelBytes: proto.Uint64(m.Memory.KernelStack + m.Memory.Slab), UsageBytes: &m.Memory.Usage,
	}
	if exists(filepath.Join(g.unified, "memory.peak")) {
		c.memory.MaxUsageBytes = &m.Memory.MaxUsage
	}
}

func micros(n uint64) *time.Duration {
	d := time.Duration(n) * time.Microsecond
	return &d
}

// v1Stat reads one v1 controller.
func (g *cgroups) v1Stat(name string, stat func(parent, group string, m *v1.Metrics) error) (*v1.Metrics, bool) {
	root, dir := g.host.v1[name], g.v1[name]
	group, err := filepath.Rel(root, dir)
	if dir == "" || err != nil {
		return nil, false
	}
	m := v1.Metrics{CPU: &v1.CPUStat{Usage: &v1.CPUUsage{}, Throttling: &v1.Throttle{}}}
	return &m, stat(filepath.Dir(root), group, &m) == nil
}

func (g *cgroups) countV1(c *counters) {
	if m, ok := g.v1Stat("cpuacct", func(parent, group string, m *v1.Metrics) error {
		return cgroup1.NewCpuacct(parent).Stat(group, m)
	}); ok {
		user, system, total := time.Duration(m.CPU.Usage.User), time.Duration(m.CPU.Usage.Kernel), time.Duration(m.CPU.Usage.Total)
		c.cpu = cpuTime{&user, &system, &total}
	}
	if m, ok := g.v1Stat("cpu", func(parent, group string, m *v1.Metrics) error {
		return cgroup1.NewCpu(parent).Stat(group, m)
	}); ok {
		throttled := time.Duration(m.CPU.Throttling.ThrottledTime)
		c.throttledPeriods, c.throttledTime = &m.CPU.Throttling.ThrottledPeriods, &throttled
	}
	m, ok := g.v1Stat("memory", func(parent, group string, m *v1.Metrics) error {
		return cgroup1.NewMemory(parent, cgroup1.OptionalSwap()).Stat(group, m)
	})
	if !ok {
		return
	}
	c.oomKills = m.MemoryOomControl.GetOomKill()
	c.memory = Sample{
		RSSBytes: &m.Memory.TotalRSS, CacheBytes: &m.Memory.TotalCache,
		KernelBytes: &m.Memory.Kernel.Usage, UsageBytes: &m.Memory.Usage.Usage, MaxUsageBytes: &m.Memory.Usage.Max,
	}
	if exists(filepath.Join(g.v1["memory"], "memory.memsw.usage_in_bytes")) {
		c.memory.SwapBytes = proto.Uint64(m.Memory.Swap.Usage - min(m.Memory.Swap.Usage, m.Memory.Usage.Usage))
	}
}
