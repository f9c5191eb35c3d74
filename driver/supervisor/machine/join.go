package machine

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/caravan-sched/caravan/driver/gangapi"
	"github.com/caravan-sched/caravan/driver/rendezvous"
)

// again goes back to the beginning.
func (m *Machine) again() {
	m.attempt++
	m.barrier = barrier{}
	m.stop, m.settle = stop{}, settle{}
	m.reports = reports{serial: m.reports.serial, seen: m.reports.seen}
	m.membership, m.frozen, m.updating, m.hasEnded = nil, false, false, false
	if m.cfg.Preflight {
		m.phase = Preflight
		m.do(RunPreflight{})
		return
	}
	m.join()
}

func (m *Machine) onPreflight(in PreflightDone) {
	switch {
	case m.phase == Stopping && m.stop.stage == stageCancel:
		m.conclude()
		return
	case m.phase != Preflight:
		return
	case in.Err != nil:
		m.finish(CauseStart, "prepare the start: "+in.Err.Error())
		return
	case in.Fault != nil:
		m.barrier.fault = in.Fault
		m.tell(EventPreflight, "this node is not fit: "+faultText(in.Fault), "check", in.Fault.Check, "gpu", in.Fault.GPU)
	}
	m.join()
}

// join comes after the preflight.
func (m *Machine) join() {
	if m.cfg.Role == None {
		if m.barrier.fault != nil {
			m.finish(CausePreflight, "the node is not fit: "+faultText(m.barrier.fault))
			return
		}
		m.start(nil, 0)
		return
	}
	m.phase = Joining
	m.barrier.until = m.now + m.cfg.JoinTimeout
	m.barrier.reason = "no planner has answered yet"
	m.barrier.shown = m.barrier.reason
	m.poll(0)
}

func (m *Machine) poll(pause time.Duration) {
	m.barrier.sentAt = m.now
	m.do(Join{Attempt: m.attempt, First: m.phase == Joining, Failures: m.barrier.failures, Pause: pause, Fault: m.barrier.fault})
}

func (m *Machine) onJoin(in JoinAnswered) {
	if m.phase != Joining && m.phase != Waiting || in.Attempt != m.attempt {
		return
	}
	err := in.Err
	if err == nil {
		err = m.checkJoin(in.Answer)
	}
	if err != nil {
		m.barrier.failures++
		m.wait(unansweredText(err))
		m.poll(0)
		return
	}
	m.barrier.failures = 0
	a := in.Answer
	switch {
	case a.State == gangapi.JoinWaiting:
		m.phase = Waiting
		m.wait(waitingText(a))
		pause := time.Duration(0)
		if m.now-m.barrier.sentAt < calmly {
			pause = calmly
		}
		m.poll(pause)
	case m.barrier.fault != nil:
		// Whatever it says: this node is not fit.
		m.finish(CausePreflight, "the node is not fit: "+faultText(m.barrier.fault)+orNothing("; the planner: ", a.Reason))
	case a.State == gangapi.JoinRefused:
		m.finish(CauseRefused, "the planner refused the start: "+orElse(short(a.Reason), "it gave no reason"))
	default:
		m.admitted(a)
	}
}

// unansweredText says why there is no answer. A planner that finds out that the
// member has no identity places its job anew, so that is waited for like a planner.
func unansweredText(err error) string {
	if errors.Is(err, gangapi.ErrNoIdentity) {
		return short(err.Error()) + "; waiting for the planner to place the job anew with it"
	}
	return fmt.Sprintf("the planner gives no answer that can be used: %s; trying again", short(err.Error()))
}

// checkJoin finds answers that cannot be meant for this member, which count as
// none. That the membership is sound in itself has to be checked before.
func (m *Machine) checkJoin(a gangapi.JoinAnswer) error {
	switch a.State {
	case gangapi.JoinWaiting, gangapi.JoinRefused:
		return nil
	case gangapi.JoinStart, gangapi.JoinAlone:
	default:
		return fmt.Errorf("the state %q is unknown", short(string(a.State)))
	}
	if a.State == gangapi.JoinStart && a.Membership == nil {
		return fmt.Errorf("a start without a membership")
	}
	if a.StartInMS < 0 || a.StartInMS > m.cfg.JoinTimeout.Milliseconds()+time.Hour.Milliseconds() {
		return fmt.Errorf("a start in %d ms", a.StartInMS)
	}
	if a.Membership == nil {
		return nil
	}
	if a.State == gangapi.JoinStart && m.ran != "" && a.Membership.Epoch == m.ran {
		return fmt.Errorf("the epoch %q is over for this member", short(m.ran))
	}
	return m.mine(*a.Membership)
}

// mine checks that a membership is of this member's gang.
func (m *Machine) mine(of rendezvous.Membership) error {
	if of.Namespace != m.cfg.Namespace || of.Job != m.cfg.Job {
		return fmt.Errorf("a membership of another job, %q in namespace %q", short(of.Job), short(of.Namespace))
	}
	if of.Epoch == "" || of.Generation < 1 {
		return fmt.Errorf("a membership without an epoch or a generation")
	}
	if _, err := of.Find(m.cfg.Alloc); err != nil {
		return fmt.Errorf("a membership without this member: %w", err)
	}
	return nil
}

// admitted is a member that may start.
func (m *Machine) admitted(a gangapi.JoinAnswer) {
	if a.Membership != nil {
		place, err := a.Membership.Find(m.cfg.Alloc)
		if err == nil && m.cfg.Role == Rank && !sameGPUs(place.Member.GPUs, m.cfg.GPUs) {
			m.membership = a.Membership
			m.finish(CauseDevices, fmt.Sprintf("the GPUs are not those that were planned: granted %s, planned %s",
				list(m.cfg.GPUs), list(place.Member.GPUs)))
			return
		}
	}
	m.start(a.Membership, time.Duration(a.StartInMS)*time.Millisecond)
}

// sameGPUs compares what was planned with what was granted; a plan of whole
// nodes names none.
func sameGPUs(planned, granted []string) bool {
	if len(planned) == 0 {
		return true
	}
	return slices.Equal(slices.Sorted(slices.Values(planned)), slices.Sorted(slices.Values(granted)))
}

func (m *Machine) start(of *rendezvous.Membership, in time.Duration) {
	m.phase = Starting
	m.membership = of
	m.barrier.startAt = m.now + in
	if of != nil {
		m.ran = of.Epoch
		if place, err := of.Find(m.cfg.Alloc); err == nil {
			m.tell(EventStarting, fmt.Sprintf("the gang is complete: member %d of %d, ranks from %d of %d, starting in %s",
				place.NodeRank+1, len(of.Members), place.Rank, of.World(), in.Round(time.Millisecond)),
				"epoch", of.Epoch, "members", fmt.Sprint(len(of.Members)), "node_rank", fmt.Sprint(place.NodeRank))
		}
	}
	m.do(Prepare{Attempt: m.attempt, Membership: of})
}

func (m *Machine) onPrepared(in Prepared) {
	if m.phase != Starting || in.Attempt != m.attempt || m.barrier.prepared {
		return
	}
	if in.Err != nil {
		m.finish(CauseStart, "prepare the start: "+in.Err.Error())
		return
	}
	m.barrier.prepared = true
}

func (m *Machine) launch() {
	m.code = codeLaunching
	m.do(Launch{})
}

func (m *Machine) joinTimedOut() {
	cause, text := CauseTimeout, fmt.Sprintf("the gang was not complete within %s (join_timeout): %s", m.cfg.JoinTimeout, m.barrier.reason)
	if m.barrier.fault != nil {
		cause, text = CausePreflight, fmt.Sprintf("the node is not fit: %s; no planner took note of it within %s (join_timeout)", faultText(m.barrier.fault), m.cfg.JoinTimeout)
	}
	m.finish(cause, text)
}

// wait takes note of what is waited for. The user is told when it changes, but
// not at every change of a large gang.
func (m *Machine) wait(reason string) {
	m.barrier.reason = reason
	if !m.barrier.shownOnce {
		m.showWaiting()
	}
}

func (m *Machine) showWaiting() {
	m.barrier.shown, m.barrier.shownAt, m.barrier.shownOnce = m.barrier.reason, m.now, true
	m.tell(EventWaiting, m.barrier.reason)
}

// maxMissing is how many missing members are named.
const maxMissing = 4

func waitingText(a gangapi.JoinAnswer) string {
	if a.Reason != "" {
		return short(a.Reason)
	}
	text := fmt.Sprintf("waiting for gang: %d of %d joined", a.Joined, a.Size)
	var names []string
	for i, missing := range a.Missing {
		if i == maxMissing {
			names = append(names, fmt.Sprintf("%d more", len(a.Missing)-i))
			break
		}
		names = append(names, short(orElse(missing.NodeName, fmt.Sprintf("%s[%d]", missing.Group, missing.Index))))
	}
	if len(names) > 0 {
		text += ", " + strings.Join(names, ", ") + " missing"
	}
	return text
}
