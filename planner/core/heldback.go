package core

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/core/preempt"
)

// A gang may go before others that run and yet not displace them: they have not run
// for long enough, have given way too often, are never to be preempted, or too many
// have given way within the hour. It is told which of these it is, if room could be
// made for it otherwise.

// waiving is what is not minded for that.
type waiving int

const (
	waiveNothing waiving = iota
	// waiveLimits: how long somebody has run, and how often anybody gave way.
	waiveLimits
	// waiveAll: also that somebody never gives way, or not to this job.
	waiveAll
)

// maxHeldBack is for how many gangs it is looked in one plan.
const maxHeldBack = 16

// heldBack is what a gang has been told, of which rank it was.
type heldBack struct {
	rank rank
	text string
}

// beyondLimits reports whether too many would give way within the hour with some
// victims, and notes what is against it.
func (c *cycle) beyondLimits(victims, of []int) bool {
	y := c.yield
	switch n := y.counted(victims, of); {
	case n > y.perHour:
		y.over = fmt.Sprintf("; room could be made for it, but %s would have to give way, and only %d more may within the hour (preempt.max_per_hour = %d): raise that, or wait",
			plural(n, "gang"), max(0, y.perHour), y.policy.MaxPerHour)
	case !c.withinRates(victims, of):
		y.over = "; room could be made for it, but more gangs would have to give way than their queue's max_preempted_per_hour still allows: raise that, or wait"
	default:
		return false
	}
	return true
}

// noteHeldBack notes why those do not give way whom a gang goes before, for which no
// room could be made.
func (c *cycle) noteHeldBack(j *model.Job, g *gang) {
	y := c.yield
	over := y.over
	y.over = ""
	if c.terse || !c.policy.Preempt.Enabled || g.grown > 0 || g.heldBack != "" {
		return
	}
	if g.heldBack = over; over == "" && y.told < maxHeldBack && c.anyHeldBack(j) {
		y.told++
		state := c.views[viewNow].State
		for y.waive = waiveLimits; y.waive <= waiveAll && g.heldBack == ""; y.waive++ {
			mark := state.Mark()
			if m, ok := c.displace(j, g); ok {
				g.heldBack = c.heldBackBy(j, &m)
			}
			state.Revert(mark)
		}
		y.waive = waiveNothing
	}
	if key, plain := keyOfGang(g); plain && g.heldBack != "" {
		if y.heldBack == nil {
			y.heldBack = map[possibleKey]heldBack{}
		}
		y.heldBack[key] = heldBack{c.rankOf(j), g.heldBack}
	}
}

// anyHeldBack reports whether anybody whom a job goes before does not give way.
func (c *cycle) anyHeldBack(j *model.Job) bool {
	y := c.yield
	y.waive = waiveLimits
	defer func() { y.waive = waiveNothing }()
	var last *model.Job
	for i := range y.gangs {
		victim := y.gangs[i].job
		if victim == last || y.gangs[i].surplus {
			continue
		}
		last = victim
		if policy, may := c.goesBefore(j, victim); may && (c.spent(victim) || policy.Exempts(j, victim, c.now) || c.queueGrants(victim) > c.now.Sub(victim.Started)) {
			return true
		}
	}
	return false
}

// queueGrants is for how long a job that runs may run, as its queue says.
func (c *cycle) queueGrants(victim *model.Job) time.Duration {
	if !c.limited() || victim.Started.IsZero() {
		return 0
	}
	return c.accounts.tree.MinRun(c.accounts.tree.HomeOf(victim))
}

// The seconds for which somebody counts as held back who is so until others have been
// told to stop less often, or for as long as he runs.
const (
	heldForADay = int64(24 * time.Hour / time.Second)
	heldForGood = 30 * heldForADay
)

// untilFree is in how many seconds a gang may be stopped for a job, so that those are
// named first for whom it need not wait long.
func (c *cycle) untilFree(j *model.Job, v *yielder) int64 {
	policy, _ := c.goesBefore(j, v.job)
	switch free := c.freeFrom(policy, v.job); {
	case v.surplus:
	case policy.Stays(j, v.job):
		return heldForGood
	case c.spent(v.job) || preempt.TimesGiven(v.job) >= policy.MaxPerJob:
		return heldForADay
	case free.After(c.now):
		return 1 + int64(free.Sub(c.now)/time.Second)
	}
	return 1
}

// freeFrom is when a job has run for as long as it may whoever waits; zero if that
// is not known.
func (c *cycle) freeFrom(policy preempt.Policy, victim *model.Job) time.Time {
	if victim.Started.IsZero() {
		return time.Time{}
	}
	return victim.Started.Add(max(policy.MinRunTime, c.queueGrants(victim)))
}

// heldBackBy says what holds those back who would make room.
func (c *cycle) heldBackBy(j *model.Job, m *made) string {
	var all, parts []string
	names := map[string][]string{} // by what is said of them
	gangs := slices.Clone(m.now)
	slices.SortFunc(gangs, func(a, b int) int {
		return strings.Compare(jobName(keyOf(c.yield.gangs[a].job)), jobName(keyOf(c.yield.gangs[b].job)))
	})
	for _, v := range gangs {
		victim := c.yield.gangs[v].job
		name := jobName(keyOf(victim))
		if c.yield.gangs[v].surplus || slices.Contains(all, name) {
			continue
		}
		all = append(all, name)
		policy, _ := c.goesBefore(j, victim)
		if why := c.holdsBack(policy, j, victim); why != "" {
			if names[why] == nil {
				parts = append(parts, why)
			}
			names[why] = append(names[why], name)
		}
	}
	if len(parts) == 0 {
		return ""
	}
	var told []string
	for _, why := range parts[:min(len(parts), maxNames)] {
		told = append(told, nameList(names[why])+": "+why)
	}
	if more := len(parts) - maxNames; more > 0 {
		told = append(told, fmt.Sprintf("%d more are held back too", more))
	}
	return fmt.Sprintf("; it goes before %s, but not all may be stopped for it now (%s)", nameList(all), strings.Join(told, "; "))
}

// holdsBack says what keeps a job from giving way, and what would help; "" if nothing
// does.
func (c *cycle) holdsBack(policy preempt.Policy, j, victim *model.Job) string {
	least, by, free := policy.MinRunTime, "preempt.min_run_time", c.freeFrom(policy, victim)
	if queue := c.queueGrants(victim); queue > least {
		least, by = queue, "min_run of its queue"
	}
	path, most := "", 0
	if c.yield.rates != nil {
		path, most = c.yield.rates.Spent(c.accounts.tree.HomeOf(victim))
	}
	switch {
	case victim.Preempt == model.PreemptNever:
		return "never to be preempted (caravan_preempt); stop it yourself if this job matters more"
	case policy.SavedOnly && !victim.SavesWork():
		return "has told of no checkpoint, so a stop would lose all that it has done (preempt.unsaved = false); have it save its work (caravan_checkpoint), or stop it yourself"
	case policy.Stays(j, victim):
		return "has displaced this job before, and nothing goes back and forth; stop it yourself if this job matters more"
	case free.After(c.now):
		return fmt.Sprintf("runs for %s at least (%s), until %s", span(least), by, clockBy(free, c.now))
	case preempt.TimesGiven(victim) >= policy.MaxPerJob:
		return fmt.Sprintf("has given way %d times, and may %d (preempt.max_per_job); raise that, or stop it yourself", preempt.TimesGiven(victim), policy.MaxPerJob)
	case path != "":
		return fmt.Sprintf("of queue %s %d have given way within the hour, all that its max_preempted_per_hour allows; raise that, or wait", path, most)
	}
	return ""
}

// heldBackReason is what a gang that waits for room is told of it.
func (c *cycle) heldBackReason(j *model.Job, g *gang, w *wait) string {
	if c.yield == nil || c.terse || w.detail.Code == codePreempting || w.never() || !w.forRoom {
		return ""
	}
	if g.heldBack != "" {
		return g.heldBack
	}
	if key, plain := keyOfGang(g); plain {
		if told, ok := c.yield.heldBack[key]; ok && told.rank == c.rankOf(j) {
			return told.text
		}
	}
	return ""
}
