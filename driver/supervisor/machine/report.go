package machine

import (
	"fmt"
	"time"

	"github.com/caravan-sched/caravan/driver/gangapi"
	"github.com/caravan-sched/caravan/driver/rendezvous"
)

// reports is the state of what is told to the planner.
type reports struct {
	serial   int64
	seen     int64
	failures int
	silent   bool
	unwanted bool
	sentAt   time.Duration
	pause    time.Duration
	state    gangapi.MemberState
	exit     *gangapi.Exit
	// next is the membership that is being written down.
	next *rendezvous.Membership
}

// tells says whether the task reports: a follower's reports would be taken for
// its member's.
func (m *Machine) tells() bool { return m.cfg.Role == Rank }

// report tells something new.
func (m *Machine) report(state gangapi.MemberState, exit *gangapi.Exit) {
	if !m.tells() {
		return
	}
	m.reports.state, m.reports.exit = state, exit
	m.reports.pause = 0
	m.send(false)
}

// reportAgain asks for the next order.
func (m *Machine) reportAgain() {
	if m.tells() && m.code != codeNone {
		m.send(false)
	}
}

func (m *Machine) send(final bool) {
	r := &m.reports
	r.serial++
	r.sentAt = m.now
	a := Report{
		Serial: r.serial, Failures: r.failures, Pause: r.pause, State: r.state, Seen: r.seen, Exit: r.exit,
		Soon: r.exit != nil, Final: final,
	}
	if m.membership != nil {
		a.Epoch, a.Generation = m.membership.Epoch, m.membership.Generation
	}
	r.pause = 0
	m.do(a)
}

func (m *Machine) onReport(in ReportAnswered) {
	if in.Serial != m.reports.serial || m.code == codeNone && m.phase != Settling {
		return
	}
	if in.Err != nil {
		m.reportFailed(in.Err)
		return
	}
	m.reports.failures = 0
	if m.reports.silent {
		m.reports.silent = false
		m.tell(EventProblem, "the planner answers again")
	}
	if in.Answer.Attached {
		m.attached(in.At)
	}
	if m.phase == Settling {
		m.settleBy(in.Answer)
		return
	}
	news := m.takeAnswer(in.Answer)
	if m.updating || m.phase != Running && m.phase != Suspended && m.phase != Stopping {
		return // the next report comes when the files are written, or never
	}
	if !news && m.now-m.reports.sentAt < calmly {
		m.reports.pause = max(m.reports.pause, calmly)
	}
	if m.reports.serial == in.Serial {
		m.reportAgain()
	}
}

func (m *Machine) reportFailed(err error) {
	m.reports.failures++
	if m.reports.failures == silence && m.code == codeUp && m.membership != nil {
		m.reports.silent = true
		m.tell(EventProblem, "the planner gives no answer that can be used: "+short(err.Error())+"; the user's code runs on")
	}
	m.send(false)
}

// takeAnswer takes in one answer; it reports whether there was something in it.
func (m *Machine) takeAnswer(a gangapi.ReportAnswer) bool {
	if a.Gone {
		if !m.reports.unwanted {
			m.reports.unwanted = true
			m.tell(EventUnwanted, "this allocation is not wanted any more; Nomad will stop it"+orNothing(": ", a.Reason))
		}
		return false
	}
	news := m.resize(a.Membership)
	if a.Order != nil && a.Order.Sequence > m.reports.seen {
		m.obey(*a.Order)
		news = true
	}
	return news
}

// resize begins to write another membership of the epoch down.
func (m *Machine) resize(to *rendezvous.Membership) bool {
	if to == nil || m.membership == nil || m.updating || m.phase != Running && m.phase != Suspended {
		return false
	}
	if m.mine(*to) != nil || to.Epoch != m.membership.Epoch || to.Generation <= m.membership.Generation {
		return false
	}
	m.updating, m.reports.next = true, to
	m.do(Update{Membership: to, Signal: m.cfg.ResizeSignal})
	return true
}

func (m *Machine) obey(o gangapi.Order) {
	if m.phase == Stopping {
		return
	}
	m.reports.seen = o.Sequence
	switch o.Kind {
	case gangapi.OrderRestart, gangapi.OrderFail:
		m.order(o)
	case gangapi.OrderSuspend:
		m.suspend(o.Reason)
	case gangapi.OrderResume:
		m.resume(o.Reason)
	case gangapi.OrderCheckpoint:
		if m.cfg.CheckpointSignal == "" {
			m.tell(EventProblem, "the planner wants a checkpoint, but the task has no checkpoint signal"+orNothing(": ", o.Reason))
			return
		}
		m.tell(EventOrder, "asking for a checkpoint"+orNothing(": ", o.Reason))
		m.ask()
	}
}

// order stops the user's code, and restarts or fails the task.
func (m *Machine) order(o gangapi.Order) {
	reason := short(o.Reason)
	within := m.cfg.KillAfter
	if o.Urgent {
		// The others' code hangs in a collective; no checkpoint is waited for.
		within = min(within, EndWithin)
	}
	s := stop{
		killAt: m.now + within, signal: m.cfg.StopSignal, abrupt: o.Urgent,
		reason: reason, rejoin: o.Kind == gangapi.OrderRestart, cause: CauseOrdered,
	}
	word := "restart"
	if !s.rejoin {
		word = "end"
		s.fault = "the planner ended the gang: " + orElse(reason, "it gave no reason")
	}
	m.tell(EventOrder, fmt.Sprintf("the gang is to %s: %s", word, orElse(reason, "no reason was given")))
	m.beginStop(s)
}

// settleBy is the planner's word on a failure.
func (m *Machine) settleBy(a gangapi.ReportAnswer) {
	s := &m.settle
	s.heard = true
	if s.done {
		return
	}
	s.done = true
	if o := a.Order; o != nil && o.Sequence > m.reports.seen && !a.Gone {
		m.reports.seen = o.Sequence
		switch o.Kind {
		case gangapi.OrderRestart:
			s.rejoin = true
			m.tell(EventOrder, "the gang is to restart: "+orElse(short(o.Reason), "no reason was given"))
		case gangapi.OrderFail:
			s.cause, s.fault = CauseOrdered, "the planner ended the gang: "+orElse(short(o.Reason), "it gave no reason")
		}
	}
	m.settled()
}
