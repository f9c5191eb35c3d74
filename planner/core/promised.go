package core

import (
	"slices"
	"strings"
	"time"

	"github.com/caravan-sched/caravan/planner/core/model"
)

// promiseTime is for how long a job goes first after others have given way to it.
const promiseTime = 15 * time.Minute

// promisedFirst puts those first to whom others have given way and who have no
// place yet. Else a gang ahead of them, for which nobody gives way, would move
// to the nodes that have become free, and they would displace others again.
func (c *cycle) promisedFirst(list []*model.Job) []*model.Job {
	if !c.displaces() && !c.anySurplus() {
		return list
	}
	given := c.givenWay()
	if len(given) == 0 {
		return list
	}
	promised := map[*model.Job][]string{}
	for by, names := range given {
		if j := c.jobs[by]; j != nil {
			if groups := c.promisedGroups(j, names); len(groups) > 0 {
				promised[j] = groups
			}
		}
	}
	if len(promised) == 0 {
		return list
	}
	passes := false
	c.early = map[jobKey][]string{}
	for _, j := range list {
		switch groups := promised[j]; {
		case len(groups) == 0:
			passes = true
		case passes:
			c.early[keyOf(j)] = groups
		}
	}
	if c.lasts {
		c.scratch.inLine = firstOf(c.scratch.inLine, func(w *waiter) bool { return promised[w.Job] != nil })
	} else {
		c.scratch.line = firstOf(c.scratch.line, func(p placeInLine) bool { return promised[p.of.job] != nil })
	}
	return firstOf(list, func(j *model.Job) bool { return promised[j] != nil })
}

// firstOf is a list with some of it first.
func firstOf[T any](list []T, first func(T) bool) []T {
	out, rest := make([]T, 0, len(list)), make([]T, 0, len(list))
	for _, x := range list {
		if first(x) {
			out = append(out, x)
		} else {
			rest = append(rest, x)
		}
	}
	return append(out, rest...)
}

// givenWay are the groups of jobs for which others have given way of late and have
// not started again.
func (c *cycle) givenWay() map[jobKey][]string {
	given := map[jobKey][]string{}
	for _, j := range c.jobsOf(someGave) {
		for _, gave := range j.Preempted {
			if by := (jobKey{gave.Namespace, gave.By}); !gave.At.Before(j.Started) && c.now.Sub(gave.At) < promiseTime {
				given[by] = append(given[by], gave.ByGroup)
			}
		}
	}
	return given
}

// promisedGroups are those groups of a job for which others have given way and that
// have no place yet.
func (c *cycle) promisedGroups(j *model.Job, given []string) (groups []string) {
	if len(given) == 0 {
		return nil
	}
	gangs := c.gangs(j)
	for i := range gangs {
		// A job that is one gang, or a record without a group, is about all of it.
		name := gangs[i].groups[0].Name
		if gangOf(j) == model.GangJob || slices.Contains(given, "") || slices.Contains(given, name) {
			groups = append(groups, name)
		}
	}
	slices.Sort(groups)
	return slices.Compact(groups)
}

// outOfTurn reports whether a gang is looked at before its turn, only because others
// have given way to another gang of its job. It displaces nobody then: those whom
// its job has passed may be ahead of it for the same room.
func (c *cycle) outOfTurn(j *model.Job, g *gang) bool {
	groups, early := c.early[keyOf(j)]
	return early && !slices.Contains(groups, g.groups[0].Name)
}

// outOfTurnReason says so.
func (c *cycle) outOfTurnReason(j *model.Job, g *gang) string {
	if !c.outOfTurn(j, g) {
		return ""
	}
	return "; nobody gives way to it before its turn, since the job goes first only with what others leave to " + strings.Join(c.early[keyOf(j)], ", ")
}

// groupFor names the group that room is made for, "" where a job is one gang.
func groupFor(j *model.Job, g *gang) string {
	if gangOf(j) == model.GangJob {
		return ""
	}
	return g.groups[0].Name
}
