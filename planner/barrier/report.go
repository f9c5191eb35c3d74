package barrier

import (
	"fmt"
	"slices"
	"time"

	"github.com/caravan-sched/caravan/driver/gangapi"
)

// report is what a member has told last. It is kept in memory alone: the next
// planner is told again.
type report struct {
	at    time.Time
	state gangapi.MemberState
	// suspended is since when it is suspended; zero while it is not.
	suspended time.Time
	progress  *gangapi.Progress
}

// Report takes what a member tells, and says whether it counts: it does not if
// the allocation has no place (yet). A member that ended by itself and badly
// changes the gang's state; see Next.
func (g *Gang) Report(who Member, req gangapi.ReportRequest, now time.Time) bool {
	if _, ok := g.byAlloc[who.Alloc]; !ok {
		return false
	}
	// A follower's code is not the gang's. Another task that knows the run was
	// told it by the one that has joined, to report in its place.
	at, in := g.inEpoch[who.Alloc]
	if in && g.state.Runs[at].Task != who.Task && g.state.Runs[at].Run != req.Run {
		return true
	}
	if j := g.joins[who.Alloc]; !in && j != nil && j.task != who.Task && j.req.Run != req.Run {
		return true
	}
	r := g.reports[who.Alloc]
	if r == nil {
		r = new(report)
		g.reports[who.Alloc] = r
	}
	r.at, r.state = now, req.State
	switch {
	case req.State != gangapi.MemberSuspended:
		r.suspended = time.Time{}
	case r.suspended.IsZero():
		r.suspended = now
	}
	if req.Progress != nil {
		r.progress = req.Progress
	}
	if !in || !g.running() || g.failure != nil || req.Epoch != g.state.epoch() || g.state.Runs[at].Run != req.Run {
		return true
	}
	if failed(req) {
		g.failure = &failure{alloc: who.Alloc, text: "failed first, " + exitText(*req.Exit), cause: exitCause(*req.Exit)}
	}
	return true
}

// failed says whether the member's code has ended by itself and badly.
func failed(req gangapi.ReportRequest) bool {
	e := req.Exit
	return req.State == gangapi.MemberExited && e != nil && !e.Ordered && (e.Code != 0 || e.Signal != 0 || e.OOM)
}

func exitCause(e gangapi.Exit) string {
	switch {
	case e.OOM:
		return CauseOOM
	case e.Signal != 0:
		return CauseSignal
	}
	return CauseExit
}

func exitText(e gangapi.Exit) string {
	ran := (time.Duration(e.RanMS) * time.Millisecond).Round(time.Second)
	after := ""
	if ran > 0 {
		after = " after " + ran.String()
	}
	switch {
	case e.OOM:
		return "out of memory" + after
	case e.Signal != 0:
		return fmt.Sprintf("by signal %d%s", e.Signal, after)
	}
	return fmt.Sprintf("with exit code %d%s", e.Code, after)
}

// Orders is what the member is told now. It is final if there is no use in
// waiting for another answer.
func (g *Gang) Orders(who Member, req gangapi.ReportRequest) (a gangapi.ReportAnswer, final bool) {
	a.Order = g.orderFor(who, req)
	if m := g.state.Membership; m != nil && g.running() && a.Order == nil && req.Epoch == m.Epoch && req.Generation < m.Generation {
		if _, in := g.inEpoch[who.Alloc]; in {
			a.Membership = m
		}
	}
	// Where another member has failed first, what becomes of the gang is about to
	// be known.
	second := failed(req) && g.failure != nil && g.failure.alloc != who.Alloc && req.Epoch == g.state.epoch()
	return a, a.Order != nil || a.Membership != nil || req.State == gangapi.MemberExited && !second
}

// Ended says why an epoch has ended, where it was the last to end; "" if it was
// not.
func (g *Gang) Ended(epoch string) string {
	if epoch == "" || g.state.End == nil || len(g.state.Past) == 0 || g.state.Past[0] != epoch {
		return ""
	}
	return g.state.End.Reason
}

// orderFor is the order that the member has not carried out yet; nil if there
// is none. A member of an epoch that nobody here remembers is left alone.
//
// A member that has failed after another one did so because of it, as a rule:
// collectives break everywhere. It is told to start anew like the others, and
// only the first one's task ends.
func (g *Gang) orderFor(who Member, req gangapi.ReportRequest) *gangapi.Order {
	if req.State == gangapi.MemberExited && (!failed(req) || g.state.EndedBy == "" || g.state.EndedBy == who.Alloc) {
		return nil
	}
	if slices.Contains(g.state.Past, req.Epoch) {
		end := g.state.End
		if end == nil {
			end = &gangapi.Order{Sequence: g.state.Sequence + 1, Kind: gangapi.OrderRestart, Reason: "the gang has started anew without this member"}
		}
		if req.State == gangapi.MemberStopping && req.Seen >= end.Sequence {
			return nil
		}
		return end
	}
	p := g.state.Pause
	if p == nil || req.Epoch != g.state.epoch() {
		return nil
	}
	suspended := g.suspended() != ""
	if suspended && req.State == gangapi.MemberRunning || !suspended && req.State == gangapi.MemberSuspended {
		if req.Seen < p.Sequence {
			return p
		}
	}
	return nil
}
