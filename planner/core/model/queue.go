package model

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Queue is one queue of the tree. Its path is its place in it: "org/team" is
// below "org".
type Queue struct {
	Path string `json:"path"`
	// Guarantee is what the queue, with all queues below it, has a right to, by
	// resource: "gpu", "gpu/MODEL", "cpu_mhz", "memory_mib".
	Guarantee map[string]int `json:"guarantee,omitempty"`
	// Borrow is how much the queue may use beyond its guarantee while others
	// leave it idle. A resource that is not named has no limit; 0 is none.
	Borrow map[string]int `json:"borrow,omitempty"`
	// PerUser is the most that one user of the queue may use.
	PerUser map[string]int `json:"per_user,omitempty"`
	// Weight is the queue's part beside its siblings; 0 means 1.
	Weight float64 `json:"weight,omitempty"`
	// Priorities are numbers for the names that a job's priority_class may have.
	Priorities map[string]int `json:"priorities,omitempty"`
	// Reclaim says whose borrowed work may be displaced for this queue's
	// guarantee: "siblings" (what anybody has borrowed that this queue or one
	// above it is guaranteed) or "none"; "" means siblings.
	Reclaim string `json:"reclaim,omitempty"`
	// ReclaimFrom limits that to these queues and those below them.
	ReclaimFrom []string `json:"reclaim_from,omitempty"`
	// MinRun is how long the queue's jobs run before they may be displaced, in
	// nanoseconds.
	MinRun time.Duration `json:"min_run_ns,omitempty"`
	// MaxPreemptedPerHour is how many gangs of the queue, with those below it, may
	// give way to others within an hour; 0 is no limit.
	MaxPreemptedPerHour int `json:"max_preempted_per_hour,omitempty"`
	// Default: jobs of a queue that is not listed, nor below one that is, count
	// for this one.
	Default bool `json:"default,omitempty"`
	// Burst is one of the Burst constants, for jobs of the queue and those below it
	// that say nothing; "" is as the queue above says, or the policy.
	Burst string `json:"burst,omitempty"`
	// Budget is the most money that nodes bought for the queue's jobs, and those of
	// queues below it, may cost in a month; 0 is no limit.
	Budget float64 `json:"budget,omitempty"`
	// History is what the queue, with those below it, has used on average, the
	// long past counting less.
	History map[string]float64 `json:"history,omitempty"`
}

// The names of resources in a Queue. A model of GPUs is ResourceModel and its
// name.
const (
	ResourceGPU    = "gpu"
	ResourceModel  = "gpu/"
	ResourceCPU    = "cpu_mhz"
	ResourceMemory = "memory_mib"
)

// The values of Queue.Reclaim.
const (
	ReclaimSiblings = "siblings"
	ReclaimNone     = "none"
)

// The bounds of what a queue may say.
const (
	MaxWeight       = 1e6
	MaxPriority     = 1<<15 - 1
	maxQueueDepth   = 16
	maxPathLength   = 256
	maxHistoryValue = 1 << 62
)

// QueueFault is something wrong with a list of queues.
type QueueFault struct {
	// Queue is its index in the list, Field the property in JSON, with the key in
	// it: `guarantee["gpu"]`.
	Queue int
	Field string
	// Text is the value and what is allowed.
	Text string
}

// CheckQueues reports everything that is wrong with queues, in their order.
func CheckQueues(queues []Queue) []QueueFault {
	var c queueChecker
	c.byPath = make(map[string]int, len(queues))
	for i := range queues {
		c.at = i
		c.one(&queues[i])
	}
	for i := range queues {
		c.at = i
		c.references(&queues[i])
	}
	c.sums(queues)
	slices.SortStableFunc(c.faults, func(a, b QueueFault) int { return a.Queue - b.Queue })
	return c.faults
}

type queueChecker struct {
	at       int
	byPath   map[string]int
	fallback string
	faults   []QueueFault
}

func (c *queueChecker) fault(field, format string, args ...any) {
	c.faults = append(c.faults, QueueFault{c.at, field, fmt.Sprintf(format, args...)})
}

func (c *queueChecker) one(q *Queue) {
	switch _, twice := c.byPath[q.Path]; {
	case !ValidQueuePath(q.Path):
		c.fault("path", `%q: want a path such as "org/team", of letters, digits, ".", "_" and "-", at most %d deep`, q.Path, maxQueueDepth)
	case twice:
		c.fault("path", "%q: another queue before it has this path; want each queue once", q.Path)
	default:
		c.byPath[q.Path] = c.at
	}
	c.quota("guarantee", q.Guarantee)
	c.quota("borrow", q.Borrow)
	c.quota("per_user", q.PerUser)
	if total, given := q.Guarantee[ResourceGPU]; given {
		if models := modelSum(q.Guarantee); models > total {
			c.fault("guarantee", "%d GPUs by model: want at most the %d of %q", models, total, ResourceGPU)
		}
	}
	if !(q.Weight >= 0 && q.Weight <= MaxWeight) { // NaN too
		c.fault("weight", "%g: want more than 0, at most %g", q.Weight, MaxWeight)
	}
	for _, name := range sortedKeys(q.Priorities) {
		if n := q.Priorities[name]; name == "" || n < 0 || n > MaxPriority {
			c.fault(key("priorities", name), "%d: want a name, and 0 to %d", n, MaxPriority)
		}
	}
	switch q.Reclaim {
	case "", ReclaimSiblings, ReclaimNone:
	default:
		c.fault("reclaim", "%q: want %q or %q", q.Reclaim, ReclaimSiblings, ReclaimNone)
	}
	if q.Burst != "" && q.Burst != BurstAllow && q.Burst != BurstNever && q.Burst != BurstOnly {
		c.fault("burst", "%q: want %q, %q or %q", q.Burst, BurstAllow, BurstNever, BurstOnly)
	}
	if !possible(q.Budget) {
		c.fault("budget", "%g: want 0 (no limit) to 3.4e38", q.Budget)
	}
	if q.MaxPreemptedPerHour < 0 || q.MaxPreemptedPerHour > MaxQuantity {
		c.fault("max_preempted_per_hour", "%d: want 0 (no limit) to %d", q.MaxPreemptedPerHour, MaxQuantity)
	}
	if q.MinRun < 0 {
		c.fault("min_run_ns", "%s: want 0s or more", q.MinRun)
	}
	if q.Default {
		if c.fallback != "" {
			c.fault("default", "true: queue %q is the default already; want one", c.fallback)
		}
		c.fallback = q.Path
	}
	for _, name := range sortedKeys(q.History) {
		if n := q.History[name]; !ValidResource(name) || !(n >= 0 && n <= maxHistoryValue) {
			c.fault(key("history", name), "%g: want a resource, and 0 or more", n)
		}
	}
}

func (c *queueChecker) quota(field string, quota map[string]int) {
	for _, name := range sortedKeys(quota) {
		if !ValidResource(name) {
			c.fault(key(field, name), "is no resource: want %q, %q, %q or %q", ResourceGPU, ResourceModel+"MODEL", ResourceCPU, ResourceMemory)
		}
		if n := quota[name]; n < 0 || n > MaxQuantity {
			c.fault(key(field, name), "%d: want 0 to %d", n, MaxQuantity)
		}
	}
}

func (c *queueChecker) references(q *Queue) {
	if q.Reclaim == ReclaimNone && len(q.ReclaimFrom) > 0 {
		c.fault("reclaim_from", "%q: want none, since reclaim is %q", q.ReclaimFrom, ReclaimNone)
	}
	for k, path := range q.ReclaimFrom {
		field := fmt.Sprintf("reclaim_from[%d]", k)
		if _, known := c.byPath[path]; !known {
			c.fault(field, "%q: is none of the queues", path)
		} else if path == q.Path || strings.HasPrefix(path, q.Path+"/") || strings.HasPrefix(q.Path, path+"/") {
			c.fault(field, "%q: want a queue that is neither this one nor above or below it: nobody reclaims from himself", path)
		}
	}
}

// sums compares what queues guarantee with what those below them do.
func (c *queueChecker) sums(queues []Queue) {
	below := map[string]map[string]int{} // by path: what is guaranteed right below
	order := make([]int, 0, len(queues))
	for path, i := range c.byPath {
		if path != "" {
			order = append(order, i)
		}
	}
	slices.SortFunc(order, func(a, b int) int { // the innermost first
		x, y := queues[a].Path, queues[b].Path
		if d := strings.Count(y, "/") - strings.Count(x, "/"); d != 0 {
			return d
		}
		return strings.Compare(x, y)
	})
	for _, i := range order {
		q := &queues[i]
		c.at = i
		own := GuaranteeOf(q)
		for _, name := range sortedKeys(below[q.Path]) {
			sum := below[q.Path][name]
			limit, given := own[name]
			if given && sum > limit {
				c.fault(key("guarantee", name), "%d: the queues below are guaranteed %d together; want at least that", limit, sum)
			}
			if !given || sum > limit {
				own[name] = sum
			}
		}
		parent := c.parent(q.Path)
		if below[parent] == nil {
			below[parent] = map[string]int{}
		}
		for name, n := range own {
			below[parent][name] += n
		}
	}
}

// parent is the nearest queue above that is listed, "" if none is.
func (c *queueChecker) parent(path string) string {
	for {
		at := strings.LastIndexByte(path, '/')
		if at < 0 {
			return ""
		}
		path = path[:at]
		if _, known := c.byPath[path]; known {
			return path
		}
	}
}

// GuaranteeOf is a queue's guarantee, with the sum of what it guarantees by
// model where it does not name all GPUs together.
func GuaranteeOf(q *Queue) map[string]int {
	out := make(map[string]int, len(q.Guarantee)+1)
	for name, n := range q.Guarantee {
		out[name] = n
	}
	if _, given := out[ResourceGPU]; !given {
		if sum := modelSum(q.Guarantee); sum > 0 {
			out[ResourceGPU] = sum
		}
	}
	return out
}

func modelSum(quota map[string]int) int {
	sum := 0
	for name, n := range quota {
		if strings.HasPrefix(name, ResourceModel) {
			sum += n
		}
	}
	return sum
}

// ValidResource reports whether a Queue may name a resource so.
func ValidResource(name string) bool {
	switch name {
	case ResourceGPU, ResourceCPU, ResourceMemory:
		return true
	}
	model, found := strings.CutPrefix(name, ResourceModel)
	return found && model != "" && strings.TrimSpace(model) == model
}

// ValidQueuePath reports whether a queue may have a path.
func ValidQueuePath(path string) bool {
	if len(path) > maxPathLength || strings.Count(path, "/") >= maxQueueDepth {
		return false
	}
	for part := range strings.SplitSeq(path, "/") {
		if part == "" || strings.ContainsFunc(part, func(r rune) bool {
			return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '.' || r == '_' || r == '-')
		}) {
			return false
		}
	}
	return true
}

func key(field, name string) string { return fmt.Sprintf("%s[%q]", field, name) }

func sortedKeys[V any](m map[string]V) []string {
	out := make([]string, 0, len(m))
	for name := range m {
		out = append(out, name)
	}
	slices.Sort(out)
	return out
}

func (s *Snapshot) validateQueues(f *faults) {
	for _, fault := range CheckQueues(s.Queues) {
		f.add("queues[%d] (%s).%s: %s", fault.Queue, s.Queues[fault.Queue].Path, fault.Field, fault.Text)
	}
}
