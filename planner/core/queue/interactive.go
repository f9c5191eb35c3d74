package queue

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/caravan-sched/caravan/planner/core/model"
)

// Interactive says which jobs somebody sits in front of: small ones that are to
// start at once on a busy cluster, whatever the order is (Xiao et al., Gandiva,
// OSDI'18, section 1: what somebody waits for is worth little when it comes late).
// They are decided on before others of their priority, and displace the cheapest
// of those that may be displaced, the growth of elastic gangs first. What they are
// given is bounded: many GPUs, or many hours, are nobody's interactive work.
type Interactive struct {
	// Classes are values of a job's priority_class, and Queues queues, with those
	// below them, whose jobs are interactive. Without either no job is.
	Classes []string `json:"classes,omitempty"`
	Queues  []string `json:"queues,omitempty"`
	// MaxGPUs is how many a job may ask for; 0 means 1.
	MaxGPUs int `json:"max_gpus,omitempty"`
	// MaxRun is for how long others may not displace it by their place in the
	// order; 0 means DefaultInteractiveRun.
	MaxRun time.Duration `json:"max_run_ns,omitempty"`
	// Reserve is how many GPUs are kept for interactive jobs, those that they use
	// included, and ReserveShare which part of the healthy ones instead, up to 1; both
	// 0 is none. Lend: others may use them who can be preempted, and give them back
	// whatever the priorities.
	Reserve      int     `json:"reserve,omitempty"`
	ReserveShare float64 `json:"reserve_share,omitempty"`
	Lend         bool    `json:"lend,omitempty"`
}

// Reserves reports whether GPUs are kept for interactive jobs.
func (i *Interactive) Reserves() bool { return i.Any() && (i.Reserve > 0 || i.ReserveShare > 0) }

// Kept is how many of so many healthy GPUs are kept for interactive jobs.
func (i *Interactive) Kept(healthy int) int {
	if i.ReserveShare > 0 {
		return int(math.Ceil(i.ReserveShare * float64(healthy)))
	}
	return i.Reserve
}

// The defaults of Interactive, and the most that it may say.
const (
	DefaultInteractiveGPUs = 1
	DefaultInteractiveRun  = 8 * time.Hour
	MaxInteractiveGPUs     = 64
	MaxInteractiveRun      = 30 * 24 * time.Hour
	MaxInteractiveReserve  = 1 << 20
)

// Validate reports every fault.
func (i Interactive) Validate() error {
	var faults []error
	for k, name := range i.Classes {
		if strings.TrimSpace(name) == "" {
			faults = append(faults, fmt.Errorf("%w: interactive.classes[%d] %q: want a name that caravan_priority may have", ErrPolicy, k, name))
		}
	}
	for k, path := range i.Queues {
		if !model.ValidQueuePath(path) {
			faults = append(faults, fmt.Errorf("%w: interactive.queues[%d] %q: want the path of a queue", ErrPolicy, k, path))
		}
	}
	if i.MaxGPUs < 0 || i.MaxGPUs > MaxInteractiveGPUs {
		faults = append(faults, fmt.Errorf("%w: interactive.max_gpus %d: want 0 to %d", ErrPolicy, i.MaxGPUs, MaxInteractiveGPUs))
	}
	if i.MaxRun < 0 || i.MaxRun > MaxInteractiveRun {
		faults = append(faults, fmt.Errorf("%w: interactive.max_run %s: want 0 to %s", ErrPolicy, i.MaxRun, MaxInteractiveRun))
	}
	if i.Reserve < 0 || i.Reserve > MaxInteractiveReserve {
		faults = append(faults, fmt.Errorf("%w: interactive.reserve %d: want 0 to %d GPUs", ErrPolicy, i.Reserve, MaxInteractiveReserve))
	}
	if !(i.ReserveShare >= 0 && i.ReserveShare <= 1) { // NaN too
		faults = append(faults, fmt.Errorf("%w: interactive.reserve_share %g: want 0 to 1", ErrPolicy, i.ReserveShare))
	}
	return errors.Join(faults...)
}

// WithDefaults is i with its zeros filled in.
func (i Interactive) WithDefaults() Interactive {
	i.MaxGPUs = cmp.Or(i.MaxGPUs, DefaultInteractiveGPUs)
	i.MaxRun = cmp.Or(i.MaxRun, DefaultInteractiveRun)
	return i
}

// Any reports whether a job can be interactive at all.
func (i *Interactive) Any() bool { return len(i.Classes)+len(i.Queues) > 0 }

// Is reports whether a job is.
func (i *Interactive) Is(j *model.Job) bool {
	if !i.Any() || !slices.Contains(i.Classes, j.PriorityClass) && !slices.ContainsFunc(i.Queues, func(path string) bool {
		return j.Queue == path || strings.HasPrefix(j.Queue, path+"/")
	}) {
		return false
	}
	gpus := 0
	for k := range j.Groups {
		g := &j.Groups[k]
		for d := range g.Devices {
			gpus += max(g.Count, g.Max) * g.Devices[d].Count
		}
	}
	return gpus <= cmp.Or(i.MaxGPUs, DefaultInteractiveGPUs)
}

// Protects reports whether a job that runs is interactive still.
func (i *Interactive) Protects(j *model.Job, now time.Time) bool {
	return i.Is(j) && (j.Started.IsZero() || now.Sub(j.Started) < cmp.Or(i.MaxRun, DefaultInteractiveRun))
}

// First is negative if a goes before b because it is interactive.
func (i *Interactive) First(a, b *model.Job) int {
	if !i.Any() {
		return 0
	}
	return Before(i.Is(a), i.Is(b))
}
