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

// Members of an elastic gang beyond its count are surplus: it has them because
// nobody else had a use for their GPUs. Whoever waits and fits by taking them
// gets them, whatever the priorities, and also where nobody is preempted
// otherwise. Against the limits of a queue they do not count before all who wait
// have had their turn.

// surplusOf counts a group's members in force beyond its count.
func surplusOf(j *model.Job, g *model.TaskGroup) int {
	if g.Max == 0 || len(j.Members) <= g.Count {
		return 0
	}
	n := 0
	for i := range j.Members {
		if m := &j.Members[i]; m.Group == g.Name && !m.Ended {
			n++
		}
	}
	return max(0, n-g.Count)
}

// surplusMembers are a job's members beyond the counts of its groups: those with
// the highest indexes, which leave first.
func (p *Prepared) surplusMembers(j *model.Job) []model.Member {
	if !holdsMembers(j) {
		return nil
	}
	var out []model.Member
	for i := range j.Groups {
		n := surplusOf(j, &j.Groups[i])
		if n == 0 {
			continue
		}
		of := slices.DeleteFunc(slices.Clone(j.Members), func(m model.Member) bool { return m.Group != j.Groups[i].Name || m.Ended })
		for k := range of {
			of[k].Index = p.indexOf(j, &of[k])
		}
		slices.SortFunc(of, func(a, b model.Member) int {
			return cmp.Or(cmp.Compare(b.Index, a.Index), strings.Compare(b.Node, a.Node))
		})
		out = append(out, of[:n]...)
	}
	return out
}

// indexOf is the index that Nomad has given the member of a gang: which of them is
// on which node is for Nomad to say, and it stops the highest first.
func (p *Prepared) indexOf(j *model.Job, m *model.Member) int {
	at, ok := p.tree.Find(m.Node)
	if !ok {
		return m.Index
	}
	for _, a := range p.allocsOn[at] {
		if a.Job == j.ID && a.Namespace == j.Namespace && a.Group == m.Group && !a.Stopping && !a.Lost {
			return a.Index
		}
	}
	return m.Index
}

// anySurplus reports whether some gang has members beyond its count, or some are
// being given back.
func (c *cycle) anySurplus() bool {
	if c.surplus == nil {
		any := false
		for _, j := range c.jobsOf(someElastic) {
			any = any || slices.ContainsFunc(j.Groups, func(g model.TaskGroup) bool {
				return holdsMembers(j) && (surplusOf(j, &g) > 0 || g.Max > 0 && inForce(j, g.Name) > c.rightful(j, &g))
			})
		}
		for _, j := range c.jobsOf(someGave) {
			any = any || slices.ContainsFunc(j.Preempted, func(gave model.Preempted) bool {
				return gave.Returned && !gave.At.Before(j.Started) && c.now.Sub(gave.At) < promiseTime
			})
		}
		c.surplus = &any
	}
	return *c.surplus
}

// surplusAmount is what a job's surplus members use.
func (p *Prepared) surplusAmount(j *model.Job) queue.Vector {
	var out queue.Vector
	for _, m := range p.surplusMembers(j) {
		node, ok := p.tree.Find(m.Node)
		if !ok {
			continue
		}
		if out == nil {
			out = p.accounts.tree.Amount(0, 0, 0)
		}
		h := p.memberHolder(node, jobMember{j, &m})
		out.Add(p.amountOn(node, h.gpus, h.resources))
	}
	return out
}

// lastResize is when a job's gangs got another size last; zero if never since
// they started.
func lastResize(j *model.Job) time.Time {
	if n := len(j.Resized); n > 0 && !j.Resized[n-1].Before(j.Started) {
		return j.Resized[n-1]
	}
	return time.Time{}
}

// surplusIn counts those of the members that a gang can do without, in the order
// in which they leave, that are beyond its count.
func (c *cycle) surplusIn(v *yielder, spare []model.Member) int {
	if len(spare) == 0 {
		return 0
	}
	at := slices.IndexFunc(v.job.Groups, func(g model.TaskGroup) bool { return g.Name == spare[0].Group })
	g := &v.job.Groups[at]
	return min(len(spare), max(0, len(v.members)-c.rightful(v.job, g)))
}

// mayTake reports whether a gang may take another's room, or a part of it.
func (c *cycle) mayTake(j *model.Job, g *gang, v *yielder) bool {
	if v.surplus {
		key := keyOf(v.job)
		return key != keyOf(j) && v.job.KeepSize == "" && !c.givenTo[key]
	}
	if c.asked != nil && c.asked.looking {
		key := keyOf(v.job)
		return key != keyOf(j) && v.job.Preempt != model.PreemptNever && !c.givenTo[key]
	}
	return c.policy.Preempt.Enabled && g.grown == 0 && c.mayDisplace(j, v.job)
}

// price is what a stop counts for when victims are compared: what is surplus
// goes before all that is anybody's right.
func (v *yielder) price() int64 {
	if v.surplus {
		return int64(max(1, v.gpus))
	}
	return v.cost.Total()
}

// returned reports whether all of some parts are surplus.
func (y *yield) returned(parts []int) bool {
	return !slices.ContainsFunc(parts, func(v int) bool { return !y.gangs[v].surplus })
}

// counted is how many of some victims count for the limits.
func (y *yield) counted(victims, of []int) int {
	n := 0
	for _, v := range victims {
		if !y.gangs[of[v]].surplus {
			n++
		}
	}
	return n
}

// returnedReason says that members are given back.
func (c *cycle) returnedReason(p *model.Preemption) string {
	j := c.jobs[jobKey{p.Namespace, p.Job}]
	has := 0
	for i := range j.Members {
		if j.Members[i].Group == p.Members[0].Group {
			has++
		}
	}
	if target := c.targetMembers(j); has-len(p.Members) < j.Groups[0].Count && target > 0 {
		return fmt.Sprintf("gives %s to %s, which waits for room: the order would have it run with %d (%s); it runs on with %d; %s are lost",
			plural(len(p.Members), "member"), jobName(jobKey{p.For.Namespace, p.For.ID}), target, c.standing(j).Why, has-len(p.Members), costText(p.Cost, "its checkpoint"))
	}
	return fmt.Sprintf("gives %s back to %s, which waits for room: beyond its count it had them while nobody else needed them; it runs on with %d; %s are lost",
		plural(len(p.Members), "member"), jobName(jobKey{p.For.Namespace, p.For.ID}), has-len(p.Members), costText(p.Cost, "its checkpoint"))
}

// mayStop counts a gang that stops, if its storage takes its checkpoint now.
func (c *cycle) mayStop(parts []int) bool {
	y, gpus := c.yield, 0
	for _, v := range parts {
		gpus += y.gangs[v].gpus
	}
	j := y.gangs[parts[0]].job
	if !y.loads.Allow(y.policy, j, gpus) {
		return false
	}
	y.loads.Add(j, gpus)
	y.perHour--
	c.noteRates(j)
	return true
}
