package machine

import (
	"fmt"
	"time"
)

// fence is the watch on Nomad's servers. It is armed when the local agent has
// them in sight for the first time: where it cannot be asked, because its address
// is wrong, a planner that is away must not end every task. What the planner says
// counts as a sign of the servers only after that.
type fence struct {
	armed  bool
	seenAt time.Duration
	warned bool
	// unarmed: the user was told that it is not armed.
	unarmed bool
}

// agentSeen takes in that the local agent reached the servers at the given time.
func (m *Machine) agentSeen(at time.Duration) {
	if !m.fence.armed {
		m.fence.armed, m.fence.seenAt = true, min(at, m.now)
		return
	}
	m.attached(at)
}

// attached takes in that the servers saw the node at the given time.
func (m *Machine) attached(at time.Duration) {
	at = min(at, m.now)
	if !m.fence.armed || at <= m.fence.seenAt {
		return
	}
	m.fence.seenAt = at
	if m.fence.warned && m.now-at < m.cfg.FenceAfter/2 {
		m.fence.warned = false
		m.tell(EventFence, "this node reaches Nomad's servers again")
	}
}

// fenceDeadlines watches while there is, or is about to be, user's code.
func (m *Machine) fenceDeadlines() []deadline {
	switch {
	case m.cfg.FenceAfter <= 0:
		return nil
	case !m.fence.armed && (m.fence.unarmed || m.phase != Running):
		return nil
	case !m.fence.armed:
		return []deadline{{m.startedAt + m.cfg.FenceAfter, m.warnUnarmed}}
	}
	switch {
	case m.phase == Exited:
		return nil
	case m.phase == Stopping && (m.stop.stage >= stageKill || m.code != codeUp):
		return nil
	case m.code == codeNone && m.phase != Starting, m.code == codeClearing:
		return nil
	}
	out := []deadline{{m.fence.seenAt + m.cfg.FenceAfter, m.cutOff}}
	if !m.fence.warned && m.now < m.fence.seenAt+m.cfg.FenceAfter {
		out = append(out, deadline{m.fence.seenAt + m.cfg.FenceAfter/2, m.warnFence})
	}
	return out
}

func (m *Machine) warnFence() {
	m.fence.warned = true
	m.tell(EventFence, fmt.Sprintf("this node has not reached Nomad's servers for %s; the user's code is killed after %s (fence_after)",
		round(m.now-m.fence.seenAt), m.cfg.FenceAfter))
}

// warnUnarmed says that what the planner counts on does not hold for this task.
func (m *Machine) warnUnarmed() {
	m.fence.unarmed = true
	m.tell(EventFence, fmt.Sprintf("the local agent could not be asked whether it reaches Nomad's servers, for %s: should this node be cut off, this task runs on, and another may be started in its place (fence_after). The task's secrets/api.sock may be missing, as where its path is too long, which the agent's log tells; else set the plugin's nomad.address",
		round(m.now-m.startedAt)))
}

func (m *Machine) cutOff() {
	reason := fmt.Sprintf("this node has been cut off from Nomad's servers for %s (fence_after), which may start another one in its place", m.cfg.FenceAfter)
	m.tell(EventFence, reason)
	m.beginStop(stop{cause: CauseFenced, fault: reason, reason: reason, killAt: m.now, urgent: true})
}
