package core

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/caravan-sched/caravan/planner/core/model"
)

// goingJob is a job that leaves room to another one: all of it, or some members of
// gangs that run on, or of a job whose members or groups run by themselves.
type goingJob struct {
	job        jobKey
	all        bool
	gives, end int
}

// whenGone says what is to have happened before a gang has the room that is made for
// it: "a, b have stopped and c has given it 1 member".
func (c *cycle) whenGone(m *made) string {
	done := "stopped"
	if m.saves > 0 {
		done = "moved away"
	}
	var whole, rest []string
	for _, o := range c.goingJobs(m) {
		switch {
		case o.all:
			whole = append(whole, c.leaverName(o.job))
		case o.end > 0:
			rest = append(rest, fmt.Sprintf("%s of %s %s %s", plural(o.end, "member"), jobName(o.job), has(o.end), done))
		}
		if !o.all && o.gives > 0 {
			rest = append(rest, fmt.Sprintf("%s has given it %s", jobName(o.job), plural(o.gives, "member")))
		}
	}
	if len(whole) > 0 {
		rest = slices.Insert(rest, 0, fmt.Sprintf("%s %s %s", nameList(whole), has(len(whole)), done))
	}
	if more := len(rest) - maxNames; more > 1 {
		rest = append(rest[:maxNames], fmt.Sprintf("%d more jobs have left room", more))
	}
	return strings.Join(rest, " and ")
}

// leaverName names who leaves, and says until when he may take where that is known.
func (c *cycle) leaverName(k jobKey) string {
	until := time.Time{}
	for _, a := range c.jobAllocs(k) {
		if a.Until.After(until) {
			until = a.Until
		}
	}
	if until.IsZero() {
		return jobName(k)
	}
	return purgedName(k, until, c.now)
}

func has(n int) string {
	if n == 1 {
		return "has"
	}
	return "have"
}

// goingJobs are those who leave, those first that this plan stops.
func (c *cycle) goingJobs(m *made) (list []goingJob) {
	y := c.yield
	of := func(k jobKey) *goingJob {
		at := slices.IndexFunc(list, func(o goingJob) bool { return o.job == k })
		if at < 0 {
			at, list = len(list), append(list, goingJob{job: k})
		}
		return &list[at]
	}
	for _, parts := range y.byGang(slices.Concat(m.now, m.later)) {
		last := &y.gangs[parts[len(parts)-1]]
		o, n := of(keyOf(last.job)), 0
		for _, v := range parts {
			n += len(y.gangs[v].members)
		}
		if last.whole {
			o.end += n
			o.all = o.all || gangOf(last.job) == model.GangJob || o.end >= len(last.job.Members)
		} else {
			o.gives += n
		}
	}
	for _, k := range m.going {
		j, o, n := c.jobs[k], of(k), 0
		left := map[int32]bool{}
		for _, l := range y.leaving {
			if l.job == k {
				n, left[l.hold.Node] = n+1, true
			}
		}
		stays := j != nil && j.State == model.StateRunning && slices.ContainsFunc(j.Members, func(m model.Member) bool {
			node, there := c.tree.Find(m.Node)
			return there && !m.Ended && !left[node]
		})
		switch {
		case !stays:
			o.all = true
		case gangOf(j) == model.GangNone || gangOf(j) == model.GangGroup && !elastic(j):
			o.end += n
		default:
			o.gives += n
		}
	}
	return list
}

// elastic reports whether a job's gangs may shrink.
func elastic(j *model.Job) bool {
	return slices.ContainsFunc(j.Groups, func(g model.TaskGroup) bool { return g.Max > 0 })
}
