package machine

import (
	"fmt"
	"time"

	"github.com/caravan-sched/caravan/driver/gangapi"
)

func (m *Machine) onLaunched(in Launched) {
	if m.code != codeLaunching {
		return
	}
	if in.Err != nil {
		m.code = codeNone
		if m.phase == Stopping {
			m.conclude()
			return
		}
		m.finish(CauseStart, "the user's code could not be started: "+in.Err.Error())
		return
	}
	m.code, m.startedAt, m.everRan = codeUp, m.now, true
	m.tell(EventStarted, fmt.Sprintf("the user's code has started with PID %d", in.PID), "pid", fmt.Sprint(in.PID))
	if m.phase == Stopping {
		m.converse()
		return
	}
	m.phase = Running
	m.report(gangapi.MemberRunning, nil)
}

// settle is what becomes of a task whose code has ended by itself.
type settle struct {
	// until is how long the planner may take to say something; done is set when
	// it is decided.
	until time.Duration
	done  bool
	// rejoin, or the end with a cause and a fault.
	rejoin  bool
	cause   Cause
	fault   string
	clearBy time.Duration
	// heard is set when the planner knows of the exit.
	heard bool
}

func (m *Machine) onEnded(in Ended) {
	if m.code != codeUp {
		return
	}
	m.code, m.ended, m.hasEnded, m.endedAt = codeClearing, in, true, m.now
	m.settle.clearBy = m.now + giveUpAfter + killEvery
	m.do(Clear{})
	m.tell(EventEnded, endedText(in, m.now-m.startedAt), "code", fmt.Sprint(in.Code), "signal", fmt.Sprint(in.Signal))
	if m.phase == Stopping {
		m.stop.stage = stageClear
		return
	}
	m.phase = Settling
	m.settle.cause = CauseExited
	if !in.failed() || !m.tells() || m.membership == nil {
		m.settle.done = true
		m.do(StopReports{})
		return
	}
	m.settle.until = m.now + settleFor
	m.report(gangapi.MemberExited, m.exitReport())
}

func (e Ended) failed() bool { return e.Code != 0 || e.Signal != 0 || e.OOM }

// exitReport tells how the user's code ended, if it did.
func (m *Machine) exitReport() *gangapi.Exit {
	e := &gangapi.Exit{Ordered: m.phase == Stopping}
	if m.hasEnded {
		e.Code, e.Signal, e.OOM = m.ended.Code, m.ended.Signal, m.ended.OOM
		e.RanMS = (m.endedAt - m.startedAt).Milliseconds()
	}
	return e
}

func (m *Machine) onCleared(in Cleared) {
	if m.code != codeClearing {
		return
	}
	m.code = codeNone
	if in.Err != nil {
		m.stuck("processes that the user's code left could not be killed: " + short(in.Err.Error()))
	}
	m.settled()
}

func (m *Machine) clearTimedOut() {
	m.onCleared(Cleared{Err: fmt.Errorf("no end after %s", giveUpAfter)})
}

// stuck ends a task that cannot be started again, because the user's code would
// run twice.
func (m *Machine) stuck(fault string) {
	m.tell(EventProblem, fault)
	if m.phase == Stopping && m.stop.rejoin {
		m.stop.rejoin, m.stop.cause, m.stop.fault = false, CauseStuck, fault
	}
	if m.settle.rejoin {
		m.settle.rejoin, m.settle.cause, m.settle.fault = false, CauseStuck, fault
	}
	m.settle.done = m.settle.done || m.phase == Settling
}

// settleAlone ends the wait for a planner that says nothing.
func (m *Machine) settleAlone() {
	m.settle.done = true
	m.settled()
}

// settled goes on when the user's code is gone and it is known what is next.
func (m *Machine) settled() {
	switch {
	case m.code != codeNone:
	case m.phase == Stopping:
		m.conclude()
	case m.phase != Settling || !m.settle.done:
	case m.settle.rejoin:
		m.rejoin()
	default:
		m.finish(m.settle.cause, m.settle.fault)
	}
}

// rejoin goes back to the barrier.
func (m *Machine) rejoin() {
	m.do(StopReports{})
	m.tell(EventRejoin, fmt.Sprintf("going back to the barrier, for start number %d", m.attempt+1), "attempt", fmt.Sprint(m.attempt+1))
	m.again()
}

func (m *Machine) onUpdated(in Updated) {
	if !m.updating || m.membership == nil || in.Epoch != m.membership.Epoch {
		return
	}
	m.updating = false
	next := m.reports.next
	m.reports.next = nil
	if next == nil || in.Generation != next.Generation {
		return
	}
	if in.Err != nil {
		m.tell(EventProblem, "the gang's new membership could not be written down: "+short(in.Err.Error())+"; trying again")
		m.reports.pause = updateAgain
	} else {
		before := len(m.membership.Members)
		m.membership = next
		m.tell(EventResized, fmt.Sprintf("the gang has %d members now; there were %d", len(next.Members), before),
			"members", fmt.Sprint(len(next.Members)), "generation", fmt.Sprint(next.Generation))
	}
	m.reportAgain()
}

func (m *Machine) onCheckpoint(in CheckpointSeen) {
	asking := m.phase == Stopping && (m.stop.stage == stageAsk || m.stop.stage == stageAwait)
	if asking && in.Answers == m.stop.asked {
		m.tell(EventCheckpoint, "there is a new checkpoint"+m.stopped(), m.details()...)
		m.terminate()
		return
	}
	if m.everTold && m.now-m.told < tellCheckpointEvery || m.code != codeUp {
		return
	}
	m.told, m.everTold = m.now, true
	text, details := "there is a new checkpoint", []string{"path", short(in.Path)}
	if in.Step != nil {
		text += fmt.Sprintf(" of step %d", *in.Step)
		details = append(details, "step", fmt.Sprint(*in.Step))
	}
	m.tell(EventCheckpoint, text, details...)
}

// suspend and resume: the last word counts, whoever says it.
func (m *Machine) suspend(why string) {
	if m.code != codeUp || m.phase == Stopping || m.frozen {
		return
	}
	m.frozen = true
	m.tell(EventSuspended, "suspending the user's code"+orNothing(": ", why))
	m.do(Freeze{})
}

func (m *Machine) resume(why string) {
	if m.code != codeUp || m.phase == Stopping || !m.frozen {
		return
	}
	m.frozen = false
	m.tell(EventResumed, "resuming the user's code"+orNothing(": ", why))
	m.do(Thaw{})
}

func (m *Machine) onFrozen(in Frozen) {
	if m.phase != Running && m.phase != Suspended {
		return
	}
	if in.Err != nil {
		m.frozen = m.phase == Suspended
		m.tell(EventProblem, "the user's code could not be suspended or resumed: "+short(in.Err.Error()))
		return
	}
	next, state := Running, gangapi.MemberRunning
	if in.Suspended {
		next, state = Suspended, gangapi.MemberSuspended
	}
	if m.phase != next {
		m.phase = next
		m.report(state, nil)
	}
}
