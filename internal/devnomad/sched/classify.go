package sched

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/internal/devnomad/state"
)

// What Nomad writes as the description of a stop.
const (
	descNotNeeded   = "alloc not needed due to job update"
	descMigrating   = "alloc is being migrated"
	descUpdating    = "alloc is being updated due to job update"
	descLost        = "alloc is lost since its node is down"
	descReconnected = "alloc not needed due to disconnected client reconnect"
	descRescheduled = "alloc was rescheduled because it failed"
	descTainted     = "alloc not needed as node is tainted"
)

// DescUnknown describes an allocation on a node that is cut off. As a desired
// description it marks one that has come back, until the scheduler saw it.
const DescUnknown = "alloc is unknown since its node is disconnected"

// sets are a group's allocations by what has to happen to them.
type sets struct {
	untainted []*api.Allocation // count as they are
	migrate   []*api.Allocation // told to go
	lost      []*api.Allocation // on a node that is gone
	unknown   []*api.Allocation // newly cut off, may come back
	reconnect []*api.Allocation // came back
	failed    []*api.Allocation // to be replaced now
	later     []*api.Allocation // failed, to be replaced later
	ignored   int
}

// classify sorts a group's allocations. What is over and does not count any
// more is left out.
func (r *run) classify(group string) sets {
	var s sets
	for _, a := range r.st.AllocsOfJob(r.key) {
		if a.TaskGroup == group {
			r.classifyOne(&s, a)
		}
	}
	return s
}

func (r *run) classifyOne(s *sets, a *api.Allocation) {
	reschedule := flag(a.DesiredTransition.Reschedule)
	if a.ServerTerminalStatus() && (!r.batch() || reschedule) {
		return
	}
	if r.batch() && state.Terminal(a) && r.older(a) {
		// A batch member that ended under an older version does not count: the
		// registration of a new version runs it again.
		s.ignored++
		return
	}
	node := r.st.Node(a.NodeID)
	down := node == nil || node.Status == api.NodeStatusDown
	cutOff := node != nil && node.Status == api.NodeStatusDisconnected
	switch {
	case a.ServerTerminalStatus() && flag(a.DesiredTransition.MigrateDisablePlacement):
		s.untainted = append(s.untainted, a)
	case a.ServerTerminalStatus():
		if a.DesiredStatus == api.AllocDesiredStatusStop && ranSuccessfully(a) {
			s.untainted = append(s.untainted, a)
		}
	case a.ClientTerminalStatus():
		r.classifyEnded(s, a)
	case a.ClientStatus == api.AllocClientStatusUnknown && a.FollowupEvalID == r.eval.ID:
		s.lost = append(s.lost, a)
	case a.ClientStatus == api.AllocClientStatusUnknown && (cutOff || down && !replaces(a)):
		s.untainted = append(s.untainted, a)
	case cutOff && (a.ClientStatus == api.AllocClientStatusPending || lostAfter(a) == 0):
		s.lost = append(s.lost, a)
	case cutOff:
		s.unknown = append(s.unknown, a)
	case flag(a.DesiredTransition.Migrate):
		s.migrate = append(s.migrate, a)
	case down && !replaces(a) && a.ClientStatus == api.AllocClientStatusRunning:
		s.unknown = append(s.unknown, a)
	case down:
		s.lost = append(s.lost, a)
	case a.ClientStatus == api.AllocClientStatusRunning && a.DesiredDescription == DescUnknown:
		s.reconnect = append(s.reconnect, a)
		s.untainted = append(s.untainted, a)
	default:
		s.untainted = append(s.untainted, a)
	}
}

// classifyEnded is about allocations that ended by themselves.
func (r *run) classifyEnded(s *sets, a *api.Allocation) {
	if a.NextAllocation != "" {
		return
	}
	if a.ClientStatus != api.AllocClientStatusFailed {
		if r.batch() {
			s.untainted = append(s.untainted, a)
		}
		return
	}
	if flag(a.DesiredTransition.ForceReschedule) {
		s.failed = append(s.failed, a)
		return
	}
	when, ok := RescheduleAt(a)
	if d := r.deployment; d != nil && a.DeploymentID == d.ID && state.DeploymentActive(d) && !flag(a.DesiredTransition.Reschedule) {
		ok = false
	}
	switch {
	case !ok:
		s.untainted = append(s.untainted, a)
	case a.FollowupEvalID == r.eval.ID || !when.After(r.now):
		s.failed = append(s.failed, a)
	default:
		s.untainted = append(s.untainted, a)
		if a.FollowupEvalID == "" {
			s.later = append(s.later, a)
		}
	}
}

// Reschedules says whether members of an allocation's group are replaced at all
// when they fail.
func Reschedules(a *api.Allocation) bool {
	p := reschedulePolicy(a)
	return p != nil && (deref(p.Attempts) > 0 || deref(p.Unlimited))
}

// RescheduleAt is when a failed allocation may be replaced, if ever.
func RescheduleAt(a *api.Allocation) (time.Time, bool) {
	if !Reschedules(a) {
		return time.Time{}, false
	}
	p := reschedulePolicy(a)
	var failed time.Time
	for _, t := range a.TaskStates {
		if t.FinishedAt.After(failed) {
			failed = t.FinishedAt
		}
	}
	if failed.IsZero() {
		failed = time.Unix(0, a.ModifyTime)
	}
	tries := 0
	if a.RescheduleTracker != nil {
		for _, e := range a.RescheduleTracker.Events {
			if deref(p.Unlimited) || failed.Sub(time.Unix(0, e.RescheduleTime)) < deref(p.Interval) {
				tries++
			}
		}
	}
	if !deref(p.Unlimited) && tries >= deref(p.Attempts) {
		return time.Time{}, false
	}
	return failed.Add(rescheduleDelay(p, tries)), true
}

func rescheduleDelay(p *api.ReschedulePolicy, tries int) time.Duration {
	delay, prev := deref(p.Delay), time.Duration(0)
	limit := deref(p.MaxDelay)
	for range tries {
		switch deref(p.DelayFunction) {
		case "exponential":
			delay *= 2
		case "fibonacci":
			delay, prev = delay+prev, delay
		}
		if limit > 0 && delay > limit {
			return limit
		}
	}
	return delay
}

func reschedulePolicy(a *api.Allocation) *api.ReschedulePolicy {
	if tg := groupOf(a); tg != nil {
		return tg.ReschedulePolicy
	}
	return nil
}

func groupOf(a *api.Allocation) *api.TaskGroup {
	if a.Job == nil {
		return nil
	}
	return lookupGroup(a.Job, a.TaskGroup)
}

// lostAfter is how long a cut-off allocation may come back; 0 is not at all.
func lostAfter(a *api.Allocation) time.Duration {
	if tg := groupOf(a); tg != nil && tg.Disconnect != nil {
		return deref(tg.Disconnect.LostAfter)
	}
	return 0
}

// endsOnClient is when a client that is cut off has certainly ended an
// allocation, by its stop_on_client_after and the longest kill_timeout; zero
// if it does not.
func endsOnClient(a *api.Allocation, lost time.Time) time.Time {
	tg := groupOf(a)
	if tg == nil {
		return time.Time{}
	}
	after := deref(tg.StopAfterClientDisconnect)
	if tg.Disconnect != nil && tg.Disconnect.StopOnClientAfter != nil {
		after = *tg.Disconnect.StopOnClientAfter
	}
	if after == 0 {
		return time.Time{}
	}
	kill := defaultKillTimeout
	for _, t := range tg.Tasks {
		kill = max(kill, deref(t.KillTimeout))
	}
	return lost.Add(after + kill)
}

// defaultKillTimeout is Nomad's.
const defaultKillTimeout = 5 * time.Second

// replaces says whether a cut-off allocation is replaced at once.
func replaces(a *api.Allocation) bool {
	if tg := groupOf(a); tg != nil && tg.Disconnect != nil && tg.Disconnect.Replace != nil {
		return *tg.Disconnect.Replace
	}
	return true
}

func (r *run) older(a *api.Allocation) bool {
	return *a.Job.Version < *r.job.Version || *a.Job.CreateIndex < *r.job.CreateIndex
}

func ranSuccessfully(a *api.Allocation) bool {
	for _, t := range a.TaskStates {
		if t.State != "dead" || t.Failed {
			return false
		}
	}
	return len(a.TaskStates) > 0
}

func flag(b *bool) bool { return b != nil && *b }

// allocName is how Nomad names the members of a group.
func allocName(job, group string, index int) string {
	return fmt.Sprintf("%s.%s[%d]", job, group, index)
}

// allocIndex reads the index back, -1 if there is none.
func allocIndex(name string) int {
	i := strings.LastIndexByte(name, '[')
	if i < 0 || !strings.HasSuffix(name, "]") {
		return -1
	}
	n, err := strconv.Atoi(name[i+1 : len(name)-1])
	if err != nil {
		return -1
	}
	return n
}

// byIndex sorts by index, then age.
func byIndex(as []*api.Allocation) {
	slices.SortStableFunc(as, func(a, b *api.Allocation) int {
		return cmp.Or(cmp.Compare(allocIndex(a.Name), allocIndex(b.Name)), cmp.Compare(a.CreateIndex, b.CreateIndex))
	})
}
