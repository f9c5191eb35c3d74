package core

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/core/queue"
)

// An order may say how large elastic gangs should be. A gang grows no further than
// that; what it has beyond is for whoever waits, and for gangs that are to be
// larger if they gain more by it than it loses. What is within its count is taken
// from it for the order's sake only where gangs may be preempted.

// rightful is how many members of a group are not surplus.
func (c *cycle) rightful(j *model.Job, g *model.TaskGroup) int {
	if target := c.targetMembers(j); target > 0 && target < g.Count && c.policy.Preempt.GivesWay(j) {
		return target
	}
	return g.Count
}

// withinTarget leaves to a gang that runs and lacks members as many as the order
// would have it get; false if that is none.
func (c *cycle) withinTarget(j *model.Job, gangs []gang) bool {
	target := c.targetMembers(j)
	if target == 0 || len(gangs) != 1 || gangs[0].grown == 0 || len(gangs[0].groups) != 1 {
		return true
	}
	g := &gangs[0]
	if g.grown+g.members <= target {
		return true
	}
	each := g.gpus / g.members
	n := max(0, target-g.grown)
	g.indexes[0] = g.indexes[0][:n]
	g.members, g.gpus = n, n*each
	return n > 0
}

// targetReason says why a gang gets none of the members that it lacks.
func (c *cycle) targetReason(j *model.Job, has int) string {
	return fmt.Sprintf("runs with %d of %d members, and gets no more for now: the order would have it run with %d (%s)",
		has, j.Groups[0].Count, c.targetMembers(j), cmp.Or(c.standing(j).Why, "it gives no reason"))
}

// donor is a gang that has more members than the order would have it have.
type donor struct {
	*grower
	// floor is down to how many members it may shrink.
	floor int
}

// retarget lets gangs shrink that are larger than the order would have them be,
// as far as other gangs that lack idle nodes gain more by that than it costs.
func (c *cycle) retarget(growers []*grower, policy queue.Elastic) []model.Resize {
	if c.stands == nil {
		return nil
	}
	donors := c.donors(policy)
	var out []model.Resize
	for _, taker := range growers {
		wants := min(taker.most, c.targetMembers(taker.job)) - len(taker.members) - len(taker.placed)
		for i := 0; i < len(donors) && wants > 0; i++ {
			d := donors[i]
			if d.gpus != taker.gpus || keyOf(d.job) == keyOf(taker.job) {
				continue
			}
			n := min(wants, len(d.members)-d.floor)
			r, worth := c.handOver(d, taker, n, policy)
			if !worth {
				continue
			}
			out = append(out, r)
			donors = slices.Delete(donors, i, i+1)
			wants -= n
			i--
		}
	}
	return out
}

// donors are the gangs that may shrink to what the order would have them be, the
// lower priority first, and the younger of equals.
func (c *cycle) donors(policy queue.Elastic) []donor {
	var out []donor
	for _, j := range c.jobsOf(someElastic) {
		target := c.targetMembers(j)
		if target == 0 || !c.settled(j, policy) {
			continue
		}
		floor := max(target, 1)
		if !c.policy.Preempt.GivesWay(j) {
			floor = max(floor, j.Groups[0].Count)
		}
		if g := c.wholeGang(j, &j.Groups[0]); g != nil && len(g.members) > floor {
			out = append(out, donor{g, floor})
		}
	}
	slices.SortFunc(out, func(a, b donor) int {
		return cmp.Or(cmp.Compare(a.priority, b.priority), b.job.Submitted.Compare(a.job.Submitted), strings.Compare(a.job.Namespace, b.job.Namespace), strings.Compare(a.job.ID, b.job.ID))
	})
	return out
}

// handOver weighs what a gang gains by some members of another one against what
// that loses, in the time that both still run, and what the changes cost.
func (c *cycle) handOver(d donor, taker *grower, n int, policy queue.Elastic) (model.Resize, bool) {
	gives, _ := c.left(d.job)
	takes, _ := c.left(taker.job)
	seconds := min(gives, takes).Seconds()
	had, has := len(d.members), len(taker.members)+len(taker.placed)
	slower, faster := c.ratio(d.job, had, had-n, d.gpus), c.ratio(taker.job, has, has+n, taker.gpus)
	loss := int64(seconds * (1 - slower) * float64(had*d.gpus))
	gain := int64(seconds * (faster - 1) * float64(has*taker.gpus))
	cost := c.resizeCost(d.grower, (had-n)*d.gpus).Plus(c.resizeCost(taker, (has+n)*taker.gpus))
	order := slices.Clone(d.members)
	for i := range order {
		order[i].Index = c.indexOf(d.job, &order[i])
	}
	slices.SortFunc(order, func(a, b model.Member) int { return cmp.Compare(b.Index, a.Index) })
	r := model.Resize{
		Namespace: d.job.Namespace, Job: d.job.ID, Action: model.ActionShrink, Group: d.group.Name, From: had, To: had - n,
		Members: order[:n], Gain: slower, Benefit: gain - loss, Cost: cost,
	}
	r.Reason = fmt.Sprintf("shrinks from %d to %d members, since the order would have it run with %d (%s) and %s with more: that gains %s within %s by them, this loses %s, and the changes cost %s",
		had, had-n, c.targetMembers(d.job), c.standing(d.job).Why, jobName(keyOf(taker.job)), gpuTime(gain), time.Duration(seconds*float64(time.Second)).Round(time.Second), gpuTime(loss), gpuTime(cost.Total()))
	return r, faster >= 1+policy.MinGain && gain-loss > cost.Total()
}

// ratio is how many times as fast a gang works with another number of members.
func (c *cycle) ratio(j *model.Job, from, to, gpus int) float64 {
	curve := c.speedOf(j)
	return curve.Goodput(curve.Sized(to, to*gpus)).Rate / curve.Goodput(curve.Sized(from, from*gpus)).Rate
}
