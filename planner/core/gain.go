package core

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/core/queue"
	"github.com/caravan-sched/caravan/planner/core/speed"
)

// gain is what a larger gang is expected to gain by its size.
type gain struct {
	// factor is how many times as fast it works.
	factor float64
	// left is how long it may still run at its present speed, and basis why.
	left  time.Duration
	basis string
	// benefit is what the gain is worth in that time, in GPU-seconds.
	benefit int64
	cost    model.Cost
	known   bool
}

// asFast is which part of the best speed is good enough: members that add less
// are better left to others.
const asFast = 0.99

// worth says with how many of its new members a gang is best off, 0 if with
// none: with as few as make it about as fast as it can be, if that is faster by
// enough and repays the change of its size in the time that it may still run.
func (c *cycle) worth(g *grower, policy queue.Elastic) (int, gain) {
	curve := c.speedOf(g.job)
	before := curve.Goodput(c.configOf(g, 0)).Rate
	rates := make([]float64, len(g.placed)+1)
	for n := range rates {
		rates[n] = curve.Goodput(c.configOf(g, n)).Rate
	}
	best := slices.Max(rates)
	n := slices.IndexFunc(rates, func(r float64) bool { return r >= best*asFast })
	out := gain{factor: rates[n] / before, known: curve.Known()}
	out.left, out.basis = c.left(g.job)
	had, has := g.gpus*len(g.members), g.gpus*(len(g.members)+n)
	out.benefit = int64(out.left.Seconds() * (out.factor - 1) * float64(had))
	out.cost = c.resizeCost(g, has)
	if n == 0 || out.factor < 1+policy.MinGain || out.benefit <= out.cost.Total() {
		return 0, out
	}
	return n, out
}

// resizeCost is what the change of its size costs a gang that has so many GPUs
// then: for a while none of them works, and if its members start anew, their work
// since the last checkpoint is lost.
func (c *cycle) resizeCost(g *grower, gpus int) model.Cost {
	cost := model.Cost{Restart: int64(gpus) * int64(c.policy.Preempt.WithDefaults().RestartTime/time.Second)}
	if g.job.ResizeRestarts && g.job.Preempt != model.PreemptAlways {
		lost, _ := c.unsaved(&yielder{job: g.job, members: g.members})
		cost.Lost = int64(g.gpus*len(g.members)) * int64(lost/time.Second)
	}
	return cost
}

// left is how long a job may still run: by what is said or known of it, else as
// long again as it has run, which for run times with a heavy tail is what is to
// be expected (Harchol-Balter, Downey, Exploiting Process Lifetime Distributions
// for Dynamic Load Balancing, 1997).
func (c *cycle) left(j *model.Job) (time.Duration, string) {
	started := j.Started
	if started.IsZero() {
		started = j.Submitted
	}
	if started.IsZero() {
		return 0, "it has only just started"
	}
	ran := max(0, c.now.Sub(started))
	total, basis := j.Duration, "by its caravan_duration"
	if total <= 0 {
		total, basis = j.Estimate, "by what others like it have run"
	}
	if total > ran {
		return total - ran, basis
	}
	return ran, "as long again as it has run"
}

// configOf is a gang with its first n new members, as its speed depends on it.
func (c *cycle) configOf(g *grower, n int) speed.Config {
	lo, hi := int32(-1), int32(-1)
	var models []string
	add := func(node int32) {
		if lo < 0 || node < lo {
			lo = node
		}
		hi = max(hi, node)
		if gpus := c.tree.Nodes[node].Model.GPUs; len(gpus) > 0 {
			models = append(models, gpus[0].Model)
		}
	}
	for _, m := range g.members {
		if node, ok := c.tree.Find(m.Node); ok {
			add(node)
		}
	}
	for i := range g.placed[:n] {
		add(g.placed[i].Node)
	}
	slices.Sort(models)
	return speed.Config{
		Members: len(g.members) + n, GPUs: g.gpus * (len(g.members) + n),
		Model: strings.Join(slices.Compact(models), "+"), Level: c.speedLevel(lo, hi),
	}
}

// speedLevel is the tightest level that all nodes between two share.
func (c *cycle) speedLevel(lo, hi int32) speed.Level {
	if lo == hi {
		if lo >= 0 && len(c.tree.Nodes[lo].Shape.Islands) == 1 {
			return speed.Island
		}
		return speed.Node
	}
	d := c.domainAround(lo, hi)
	if d == 0 {
		return speed.Wider
	}
	return speed.ParseLevel(c.tree.Levels[c.tree.Domains[d].Level])
}

// growReason says why a gang grows.
func (c *cycle) growReason(g *grower, r *model.Resize) string {
	var names []string
	for _, m := range r.Members {
		names = append(names, nodeName(c.nodes[m.Node]))
	}
	basis := "as if each GPU added as much as the first, since its speed is not known"
	if g.gain.known {
		basis = "by what is known of its speed"
	}
	return fmt.Sprintf("grows from %d to %d members beyond its count of %d, onto nodes that lie idle: %s; it works %.2g times as fast (%s), which in the %s that it may still run (%s) is worth %s; the change costs %s; it gives them back as soon as somebody waits for them",
		r.From, r.To, g.group.Count, nameList(names), g.gain.factor, basis, g.gain.left.Round(time.Second), g.gain.basis, gpuTime(g.gain.benefit), gpuTime(g.gain.cost.Total()))
}

// shrinkReason says why a gang shrinks that nobody waits for.
func shrinkReason(r *model.Resize, why string) string {
	return fmt.Sprintf("shrinks from %d to %d members: %s; what it had beyond its count is given back, and it runs on with the others", r.From, r.To, cmp.Or(why, "its queue uses more than it may"))
}
