package machine

import (
	"fmt"
	"time"

	"github.com/caravan-sched/caravan/driver/gangapi"
)

// stage is how far a stop has come.
type stage int

const (
	// stageLaunch waits for a launch that is under way, stageCancel for the
	// preflight to be cancelled.
	stageLaunch stage = iota
	stageCancel
	// stageAsk: the checkpoint's signal is on its way; stageAwait: it was sent.
	stageAsk
	stageAwait
	stageTerminate
	stageKill
	// stageClear: the user's process has ended, and what it left is killed.
	stageClear
)

// stop is a stop conversation.
type stop struct {
	stage stage
	began time.Duration
	// askUntil is how long a checkpoint is waited for.
	askUntil time.Duration
	asked    int64
	// killAt is when the user's code is killed, killedAt when that began, and
	// killAgain when it is repeated.
	killAt    time.Duration
	killedAt  time.Duration
	killAgain time.Duration

	signal string
	reason string
	// urgent kills at once; abrupt only asks for no checkpoint.
	urgent, abrupt bool
	// rejoin goes back to the barrier at the end; else the task ends with cause
	// and fault.
	rejoin bool
	cause  Cause
	fault  string
}

func (m *Machine) onStop(in StopAsked) {
	signal := orElse(in.Signal, m.cfg.StopSignal)
	m.beginStop(stop{killAt: m.now + max(0, in.Timeout), signal: signal, reason: "the task is to be stopped", cause: CauseStopped})
}

// beginStop stops the task in whatever phase it is.
func (m *Machine) beginStop(s stop) {
	s.began = m.now
	switch m.phase {
	case Exited:
		return
	case Stopping:
		m.hasten(s)
		return
	case Preflight:
		m.do(CancelPreflight{})
		s.stage, s.killAt = stageCancel, m.now+cancelFor
	}
	was := m.phase
	m.phase, m.stop = Stopping, s
	switch m.code {
	case codeNone:
		if s.stage != stageCancel {
			if was == Settling {
				m.do(StopReports{})
			}
			m.conclude()
		}
	case codeLaunching:
		m.stop.stage = stageLaunch
	case codeUp:
		m.converse()
	case codeClearing:
		m.stop.stage = stageClear
	}
}

// hasten merges another stop into the one under way: the earlier end counts, and
// an end of the task counts more than its restart.
func (m *Machine) hasten(s stop) {
	c := &m.stop
	if c.rejoin && !s.rejoin {
		c.rejoin, c.cause, c.fault, c.reason, c.signal = false, s.cause, s.fault, s.reason, s.signal
	}
	if c.stage == stageCancel || c.stage >= stageKill {
		return
	}
	c.killAt = min(c.killAt, s.killAt)
	c.urgent, c.abrupt = c.urgent || s.urgent, c.abrupt || s.abrupt
	switch {
	case c.stage == stageLaunch:
	case c.urgent || c.killAt <= m.now:
		m.kill()
	case c.stage == stageAsk || c.stage == stageAwait:
		c.askUntil = min(c.askUntil, m.askUntil(m.cfg.Grace))
		if c.abrupt {
			m.terminate()
		}
	}
}

// converse begins the conversation with the user's code.
func (m *Machine) converse() {
	c := &m.stop
	if m.frozen && !c.urgent {
		m.frozen = false
		m.do(Thaw{})
	}
	m.report(gangapi.MemberStopping, nil)
	switch {
	case c.urgent || c.killAt <= m.now:
		m.kill()
	case m.cfg.CheckpointSignal != "" && m.cfg.Grace > 0 && !c.abrupt:
		c.stage, c.askUntil = stageAsk, m.askUntil(m.cfg.Grace)
		m.tell(EventStopping, fmt.Sprintf("stopping the user's code: %s; asking for a checkpoint by %s, waiting up to %s",
			orElse(c.reason, "no reason was given"), m.cfg.CheckpointSignal, round(c.askUntil-m.now)), m.details()...)
		c.asked = m.ask()
	default:
		m.tell(EventStopping, "stopping the user's code: "+orElse(c.reason, "no reason was given"), m.details()...)
		m.terminate()
	}
}

func (m *Machine) ask() int64 {
	m.asks++
	m.do(AskCheckpoint{Serial: m.asks})
	return m.asks
}

// The share of the time until the kill that is kept for the user's code to end
// after its checkpoint.
const (
	endShare = 5
	endMost  = 10 * time.Second
)

// askUntil is when a checkpoint has to be there: the time of the kill wins over
// the grace.
func (m *Machine) askUntil(grace time.Duration) time.Duration {
	left := m.stop.killAt - m.now
	return m.now + min(grace, left-min(left/endShare, endMost))
}

func (m *Machine) onAsked(in Asked) {
	if m.phase != Stopping || m.stop.stage != stageAsk || in.Serial != m.stop.asked {
		if in.Err != nil && m.code == codeUp {
			m.tell(EventProblem, "the user's code could not be asked for a checkpoint: "+short(in.Err.Error()))
		}
		return
	}
	m.stop.stage = stageAwait
	if in.Err != nil {
		m.tell(EventProblem, "the user's code could not be asked for a checkpoint: "+short(in.Err.Error()), m.details()...)
		m.terminate()
	}
}

func (m *Machine) noCheckpoint() {
	m.tell(EventCheckpoint, "there is no new checkpoint"+m.stopped(), m.details()...)
	m.terminate()
}

func (m *Machine) terminate() {
	m.stop.stage = stageTerminate
	m.tell(EventTerminate, "sending "+m.stop.signal+" to the user's code"+m.stopped(), m.details()...)
	m.do(Signal{Name: m.stop.signal})
}

func (m *Machine) kill() {
	c := &m.stop
	if c.stage != stageKill {
		c.stage, c.killedAt = stageKill, m.now
		m.tell(EventKill, "killing the user's code"+m.stopped(), m.details()...)
	}
	c.killAgain = m.now + killEvery
	m.do(Kill{})
}

// giveUp ends a task whose processes hang in the kernel.
func (m *Machine) giveUp() {
	fault := fmt.Sprintf("the user's code could not be killed within %s", giveUpAfter)
	m.tell(EventProblem, fault)
	m.finish(CauseStuck, fault)
}

func (m *Machine) stopDeadlines() []deadline {
	c := &m.stop
	switch c.stage {
	case stageCancel:
		return []deadline{{c.killAt, m.conclude}}
	case stageAsk, stageAwait:
		return []deadline{{c.askUntil, m.noCheckpoint}, {c.killAt, m.kill}}
	case stageTerminate:
		return []deadline{{c.killAt, m.kill}}
	case stageKill:
		return []deadline{{c.killedAt + giveUpAfter, m.giveUp}, {c.killAgain, m.kill}}
	}
	return nil
}

// conclude is the end of a stop, when there is no user's code any more.
func (m *Machine) conclude() {
	if m.stop.rejoin {
		m.rejoin()
		return
	}
	m.finish(m.stop.cause, m.stop.fault)
}

// The exits of tasks whose code did not run, or did not end.
const (
	failedCode    = 1
	stoppedSignal = 15
	killSignal    = 9
)

// finish ends the task, for good.
func (m *Machine) finish(cause Cause, fault string) {
	e := Exit{Cause: cause, Fault: fault, Started: m.everRan}
	switch {
	case m.hasEnded:
		e.Code, e.Signal, e.OOM = m.ended.Code, m.ended.Signal, m.ended.OOM
	case m.code == codeUp:
		e.Signal = killSignal
	case cause == CauseStopped:
		e.Signal = stoppedSignal
	default:
		e.Code = failedCode
	}
	text := "the task is over"
	if fault != "" {
		text = "the task has failed: " + fault
	}
	m.tell(EventExit, text, "cause", string(cause))
	m.do(StopJoin{})
	exit := m.exitReport()
	if !m.hasEnded {
		exit.Code, exit.Signal = e.Code, e.Signal
	}
	m.phase, m.exit, m.code = Exited, &e, codeNone
	m.do(Finish{Exit: e})
	if m.tells() && m.membership != nil && !m.settle.heard {
		m.reports.state, m.reports.exit, m.reports.failures = gangapi.MemberExited, exit, 0
		m.send(true)
	} else {
		m.do(StopReports{})
	}
}

// stopped and details say how far the stop is.
func (m *Machine) stopped() string {
	return fmt.Sprintf(", %s after the stop began", round(m.now-m.stop.began))
}

func (m *Machine) details() []string {
	return []string{"after", round(m.now - m.stop.began).String()}
}
