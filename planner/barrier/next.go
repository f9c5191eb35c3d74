package barrier

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/caravan-sched/caravan/driver/gangapi"
	"github.com/caravan-sched/caravan/driver/rendezvous"
	"github.com/caravan-sched/caravan/planner/gangspec"
	"github.com/caravan-sched/caravan/planner/observe"
)

// Next is the state that follows from what is known now; nil if nothing does.
// It counts once it is stored and handed to Commit. due is when there may be
// another answer even if nothing happens; zero if never.
func (g *Gang) Next(now time.Time) (next *State, due time.Time) {
	switch {
	case g.plan == nil || g.failed() != "":
		return nil, time.Time{}
	case !g.running():
		return g.start(now), time.Time{}
	case g.failure != nil:
		return g.afterFailure(now), time.Time{}
	}
	return g.follow(now)
}

// start is the common start of all members, once all wait.
func (g *Gang) start(now time.Time) *State {
	if done := g.completed(); done != "" && g.current {
		return g.fail(now, done)
	}
	if g.suspended() != "" || !g.complete(now) {
		return nil
	}
	next := g.base()
	next.Epochs++
	allocs := make([]string, len(g.plan.Members))
	for i := range g.plan.Members {
		allocs[i] = g.plan.Members[i].Alloc
	}
	members, runs := g.members(allocs, "")
	g.install(next, epochName(next.Epochs, g.key, members, runs), 1, members, runs)
	next.Running = true
	next.StartAt = now.Add(startLead(len(members)))
	next.note(now, fmt.Sprintf("epoch %s: %s", next.Membership.Epoch, startText(members)))
	return next
}

func startText(members []rendezvous.Member) string {
	if len(members) == 1 {
		return "1 member starts, on " + members[0].NodeName
	}
	return fmt.Sprintf("%d members start together, rank 0 is on %s", len(members), members[0].NodeName)
}

// install puts a membership into a state.
func (g *Gang) install(next *State, epoch string, generation int, members []rendezvous.Member, runs []Run) {
	next.Membership = &rendezvous.Membership{
		Epoch: epoch, Generation: generation,
		Namespace: g.key.Namespace, Job: g.key.Job, Gang: g.key.Group,
		Members: members, MasterAddr: members[0].Address, MasterPort: runs[0].Port,
		Min: min(g.plan.Min, len(members)), Max: max(g.plan.Max, len(members)),
	}
	if !g.plan.Elastic() {
		next.Membership.Min, next.Membership.Max = len(members), len(members)
	}
	next.Runs = runs
}

// failure is a member's that ended by itself and badly.
type failure struct {
	alloc string
	// text goes on from the member's name: "failed first, with exit code 1".
	text  string
	cause string
}

// who names a member of the epoch in force by its ranks and its node.
func (g *Gang) who(alloc string) string {
	at, ok := g.inEpoch[alloc]
	if !ok {
		return "allocation " + short(alloc)
	}
	first := 0
	for _, m := range g.state.Membership.Members[:at] {
		first += m.Processes
	}
	m := g.state.Membership.Members[at]
	ranks := fmt.Sprintf("rank %d", first)
	if m.Processes > 1 {
		ranks = fmt.Sprintf("ranks %d to %d", first, first+m.Processes-1)
	}
	return fmt.Sprintf("%s (member %d of group %q) on %s", ranks, m.Index, m.Group, m.NodeName)
}

// afterFailure is what becomes of the others when a member has failed.
func (g *Gang) afterFailure(now time.Time) *State {
	return caused(g.without(now, g.failure.alloc, g.who(g.failure.alloc)+" "+g.failure.text), g.failure.cause)
}

// without goes on after a member was lost to the epoch, as the job says.
func (g *Gang) without(now time.Time, alloc, what string) *State {
	switch g.plan.OnFailure {
	case gangspec.FailureFail:
		return endedBy(g.fail(now, what), alloc)
	case gangspec.FailureContinue:
		rest := g.epochAllocs(func(a string) bool { return a != alloc })
		lacking := g.lacking(rest)
		if lacking == "" && g.plan.Elastic() {
			return g.regroup(now, rest, what)
		}
		if lacking != "" {
			what += "; " + lacking
		}
	}
	return endedBy(g.restart(now, what), alloc)
}

// lacking says that too few members would be left of the gang, or of one of its
// groups; "" if enough would.
func (g *Gang) lacking(rest []string) string {
	if len(rest) < max(g.plan.Min, 1) {
		return fmt.Sprintf("%d are left, and %d must be", len(rest), g.plan.Min)
	}
	left, had := map[string]int{}, map[string]int{}
	for _, alloc := range rest {
		left[g.plan.Members[g.byAlloc[alloc]].Group]++
	}
	for _, m := range g.state.Membership.Members {
		had[m.Group]++
	}
	for _, group := range slices.Sorted(maps.Keys(had)) {
		if n := left[group]; n < had[group] && n < g.plan.Least[group] {
			return fmt.Sprintf("%d are left of group %q, and %d must be", n, group, g.plan.Least[group])
		}
	}
	return ""
}

// endedBy makes the order that ended the epoch one that a member's end is the
// reason of: the others cannot make a checkpoint without it.
func endedBy(next *State, alloc string) *State {
	end := *next.End
	end.Urgent = true
	next.End, next.EndedBy = &end, alloc
	return next
}

// fail ends the gang for good.
func (g *Gang) fail(now time.Time, why string) *State {
	next := g.base()
	next.leave()
	next.Failed = why
	next.End, next.EndedBy = next.order(gangapi.OrderFail, why), ""
	next.note(now, why+"; the gang fails")
	return next
}

// completed says who has completed, so that the gang cannot start anew as a
// whole; "" if nobody has.
func (g *Gang) completed() string {
	for i := range g.plan.Members {
		if p := &g.plan.Members[i]; p.ended() {
			return p.name() + " has completed, so the gang cannot start anew as a whole"
		}
	}
	return ""
}

// restart sends all members back to the barrier.
func (g *Gang) restart(now time.Time, why string) *State {
	if done := g.completed(); done != "" {
		return g.fail(now, why+"; "+done)
	}
	next := g.base()
	next.leave()
	next.End, next.EndedBy = next.order(gangapi.OrderRestart, why), ""
	next.note(now, why+"; the gang goes back to the barrier")
	return next
}

// regroup is the epoch in force with other members.
func (g *Gang) regroup(now time.Time, allocs []string, why string) *State {
	next := g.base()
	m := g.state.Membership
	members, runs := g.members(allocs, m.Members[0].Alloc)
	g.install(next, m.Epoch, m.Generation+1, members, runs)
	if next.Membership.Members[0].Alloc == m.Members[0].Alloc {
		next.Membership.MasterAddr, next.Membership.MasterPort = m.MasterAddr, m.MasterPort
	}
	next.note(now, fmt.Sprintf("%s; generation %d has %d members", why, next.Membership.Generation, len(members)))
	return next
}

// epochAllocs are the allocations of the epoch in force that are planned still
// and that match, in the order of ranks.
func (g *Gang) epochAllocs(match func(string) bool) []string {
	var out []string
	for _, m := range g.state.Membership.Members {
		if _, planned := g.byAlloc[m.Alloc]; planned && match(m.Alloc) {
			out = append(out, m.Alloc)
		}
	}
	return out
}

// follow looks for members of a running gang that came or went.
func (g *Gang) follow(now time.Time) (*State, time.Time) {
	if alloc := g.startedAgain(now); alloc != "" {
		return caused(g.without(now, alloc, g.who(alloc)+" has started again"), CauseStartedAgain), time.Time{}
	}
	planned, before := len(g.plan.Members), len(g.state.Membership.Members)
	gone := before - len(g.epochAllocs(func(string) bool { return true }))
	size := fmt.Sprintf("the gang changes from %d to %d members", before, planned)
	if gone > 0 && planned < before {
		if !g.plan.Elastic() {
			return g.restart(now, size), time.Time{}
		}
		return g.regroup(now, g.epochAllocs(func(string) bool { return true }), size), time.Time{}
	}
	if next := g.lost(now); next != nil {
		return next, time.Time{}
	}
	return g.grow(now, size)
}

// startedAgain finds a member of the epoch whose task was started anew: it
// waits at the barrier with another run, and nobody has told how it ended.
func (g *Gang) startedAgain(now time.Time) string {
	for _, m := range g.state.Membership.Members {
		if g.joins[m.Alloc] != nil && !g.stays(m.Alloc) && g.waits(m.Alloc, now) {
			return m.Alloc
		}
	}
	return ""
}

// lost goes on without members that are lost to the cluster, where the gang may.
// Elsewhere the planner takes the gang back, and that is the end of it.
func (g *Gang) lost(now time.Time) *State {
	if g.plan.OnFailure != gangspec.FailureContinue || !g.plan.Elastic() {
		return nil
	}
	away := ""
	rest := g.epochAllocs(func(alloc string) bool {
		p := &g.plan.Members[g.byAlloc[alloc]]
		if p.State == observe.AllocPlaced || p.ended() {
			return true
		}
		away = fmt.Sprintf("%s is %s", g.who(alloc), p.State)
		return false
	})
	if away == "" || g.lacking(rest) != "" {
		return nil
	}
	return caused(g.regroup(now, rest, away), CauseLost)
}

// grow lets new members in: those of a gang that became larger, those that
// replace others, and those that come back to a gang that went on.
func (g *Gang) grow(now time.Time, size string) (*State, time.Time) {
	var fresh, absent []string
	var first time.Time
	replaced := false
	for i := range g.plan.Members {
		p := &g.plan.Members[i]
		if _, in := g.inEpoch[p.Alloc]; in && p.Alloc != "" || p.ended() {
			continue
		}
		if p.Alloc == "" || p.State != observe.AllocPlaced || !g.waits(p.Alloc, now) {
			absent = append(absent, p.name())
			continue
		}
		fresh = append(fresh, p.Alloc)
		if since := g.joins[p.Alloc].since; first.IsZero() || since.Before(first) {
			first = since
		}
	}
	if len(fresh) == 0 {
		return nil, time.Time{}
	}
	stay := g.epochAllocs(func(string) bool { return true })
	replaced = len(stay) < len(g.state.Membership.Members)
	if len(absent) > 0 {
		if !g.plan.Elastic() || replaced && g.plan.OnFailure != gangspec.FailureContinue {
			return nil, time.Time{} // all come back together, or nobody is disturbed
		}
		if end := first.Add(growWait); now.Before(end) {
			return nil, end
		}
	}
	switch {
	case replaced && (g.plan.OnFailure != gangspec.FailureContinue || !g.plan.Elastic()):
		return g.restart(now, "a member was replaced by "+g.plan.Members[g.byAlloc[fresh[0]]].name()), time.Time{}
	case !g.plan.Elastic():
		return g.restart(now, size), time.Time{}
	}
	return g.regroup(now, slices.Concat(stay, fresh), joinedText(len(fresh))), time.Time{}
}

// Suspend stops or continues every process of the gang; reason says who wants
// that and why. It is nil if there is nothing to do.
func (g *Gang) Suspend(on bool, reason string, now time.Time) *State {
	if on == (g.suspended() != "") {
		return nil
	}
	next := g.base()
	kind := gangapi.OrderResume
	next.Suspended, next.SuspendedAt = "", time.Time{}
	if on {
		kind, next.Suspended, next.SuspendedAt = gangapi.OrderSuspend, reason, now
	}
	next.Pause = next.order(kind, reason)
	next.note(now, fmt.Sprintf("%s: %s", kind, reason))
	return next
}

func joinedText(n int) string {
	if n == 1 {
		return "1 member has joined"
	}
	return fmt.Sprintf("%d members have joined", n)
}
