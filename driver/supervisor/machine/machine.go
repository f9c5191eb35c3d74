package machine

import (
	"time"

	"github.com/caravan-sched/caravan/driver/gangapi"
	"github.com/caravan-sched/caravan/driver/rendezvous"
)

// Config is what a Machine has to know of its task.
type Config struct {
	Namespace, Job, Alloc string
	// GPUs are the UUIDs that the task was granted.
	GPUs []string
	Role Role
	// Preflight says that the node is looked at before the barrier.
	Preflight   bool
	JoinTimeout time.Duration
	// CheckpointSignal is "" where no checkpoint can be asked for; Grace is how
	// long a stop waits for one.
	CheckpointSignal string
	Grace            time.Duration
	// StopSignal and KillAfter are for stops that Nomad did not ask for;
	// StopSignal also for those of Nomad's that name no signal.
	StopSignal string
	KillAfter  time.Duration
	// FenceAfter is 0 where the task is never fenced.
	FenceAfter time.Duration
	// ResizeSignal is "" where none is sent.
	ResizeSignal string
}

// EndWithin is how long user's code has to end after the signal that asks for it,
// where Nomad has not set another time.
const EndWithin = 10 * time.Second

// The machine's own times.
const (
	// tellEvery is how often at most the user is told what is waited for.
	tellEvery = 30 * time.Second
	// tellCheckpointEvery is the same for new checkpoints.
	tellCheckpointEvery = time.Minute
	// settleFor is how long a task that failed waits for the planner to say that
	// another one failed first.
	settleFor = 3 * time.Second
	// killEvery is how often a kill is repeated, and giveUpAfter how long it is
	// tried. Processes that live on then hang in the kernel.
	killEvery   = 10 * time.Second
	giveUpAfter = time.Minute
	// cancelFor is how long a stop waits for a preflight to be cancelled.
	cancelFor = 5 * time.Second
	// calmly is the least time between polls that bring nothing new.
	calmly = time.Second
	// updateAgain is the wait after files could not be replaced.
	updateAgain = 5 * time.Second
	// silence is after how many failed reports in a row the user is told.
	silence = 3
)

// code is what there is of the user's code.
type code int

const (
	codeNone code = iota
	codeLaunching
	codeUp
	codeClearing
)

// Machine is one task. Its methods are not to be called concurrently.
type Machine struct {
	cfg   Config
	now   time.Duration
	out   []Action
	phase Phase

	attempt int
	code    code
	barrier barrier
	// membership is what the user's code has; nil without a gang. ran is the
	// epoch of the attempt before.
	membership *rendezvous.Membership
	ran        string
	startedAt  time.Duration
	everRan    bool

	reports  reports
	updating bool
	// asks counts the checkpoints that were asked for.
	asks int64
	// frozen is what was ordered last.
	frozen bool

	fence  fence
	stop   stop
	settle settle
	exit   *Exit

	// ended is how the user's code ended in this attempt, if it did.
	ended    Ended
	hasEnded bool
	endedAt  time.Duration
	// told is when the user was told of a checkpoint.
	told     time.Duration
	everTold bool
}

// barrier is the state of joining.
type barrier struct {
	until    time.Duration
	failures int
	sentAt   time.Duration
	fault    *gangapi.NodeFault
	// reason is what is waited for, shown what the user was told last, and
	// shownAt when.
	reason    string
	shown     string
	shownAt   time.Duration
	shownOnce bool

	startAt  time.Duration
	prepared bool
}

// New makes a machine; Begin starts it.
func New(cfg Config) *Machine {
	if cfg.StopSignal == "" {
		cfg.StopSignal = "SIGTERM"
	}
	if cfg.Role == None {
		cfg.FenceAfter = 0
	}
	return &Machine{cfg: cfg, phase: Joining}
}

// Begin returns the first actions.
func (m *Machine) Begin(now time.Duration) []Action {
	m.now = now
	m.again()
	return m.take()
}

// Step takes in what happened by now. Time that runs backwards stands still.
func (m *Machine) Step(now time.Duration, in Input) []Action {
	m.now = max(m.now, now)
	if m.phase == Exited {
		return nil
	}
	switch in := in.(type) {
	case Tick:
	case PreflightDone:
		m.onPreflight(in)
	case JoinAnswered:
		m.onJoin(in)
	case Prepared:
		m.onPrepared(in)
	case Launched:
		m.onLaunched(in)
	case Ended:
		m.onEnded(in)
	case Cleared:
		m.onCleared(in)
	case ReportAnswered:
		m.onReport(in)
	case Updated:
		m.onUpdated(in)
	case Asked:
		m.onAsked(in)
	case CheckpointSeen:
		m.onCheckpoint(in)
	case Frozen:
		m.onFrozen(in)
	case AgentSeen:
		m.agentSeen(in.At)
	case StopAsked:
		m.onStop(in)
	case SuspendAsked:
		m.suspend("")
	case ResumeAsked:
		m.resume("")
	}
	m.pass()
	return m.take()
}

func (m *Machine) take() []Action {
	out := m.out
	m.out = nil
	return out
}

func (m *Machine) do(a Action) { m.out = append(m.out, a) }

func (m *Machine) tell(kind EventKind, message string, details ...string) {
	var d map[string]string
	for i := 0; i+1 < len(details); i += 2 {
		if details[i+1] == "" {
			continue
		}
		if d == nil {
			d = map[string]string{}
		}
		d[details[i]] = details[i+1]
	}
	m.do(Tell{Kind: kind, Message: message, Details: d})
}

// deadline is a time at which something is due, and what.
type deadline struct {
	at  time.Duration
	due func()
}

// pass does what is due by now.
func (m *Machine) pass() {
	for m.phase != Exited {
		next, ok := m.soonest()
		if !ok || next.at > m.now {
			return
		}
		next.due()
	}
}

// Next is when the machine wants to be told the time; ok is false where it
// waits for something to happen only.
func (m *Machine) Next() (at time.Duration, ok bool) {
	next, ok := m.soonest()
	return next.at, ok
}

func (m *Machine) soonest() (best deadline, ok bool) {
	for _, d := range m.deadlines() {
		if !ok || d.at < best.at {
			best, ok = d, true
		}
	}
	return best, ok
}

// deadlines lists what is due in this phase. What is done when due must change
// what is listed.
func (m *Machine) deadlines() []deadline {
	var out []deadline
	switch m.phase {
	case Joining, Waiting:
		out = append(out, deadline{m.barrier.until, m.joinTimedOut})
		if m.barrier.reason != m.barrier.shown {
			out = append(out, deadline{m.barrier.shownAt + tellEvery, m.showWaiting})
		}
	case Starting:
		if m.code == codeNone && m.barrier.prepared {
			out = append(out, deadline{m.barrier.startAt, m.launch})
		}
	case Settling:
		if !m.settle.done {
			out = append(out, deadline{m.settle.until, m.settleAlone})
		}
	case Stopping:
		out = append(out, m.stopDeadlines()...)
	}
	if m.code == codeClearing {
		out = append(out, deadline{m.settle.clearBy, m.clearTimedOut})
	}
	return append(out, m.fenceDeadlines()...)
}

// Phase is where the task stands.
func (m *Machine) Phase() Phase { return m.phase }

// Attempt counts from 1 how often the task was at the barrier.
func (m *Machine) Attempt() int { return m.attempt }

// Reason says what is waited for, or why the task is being stopped.
func (m *Machine) Reason() string {
	switch m.phase {
	case Joining, Waiting:
		return m.barrier.reason
	case Stopping:
		return m.stop.reason
	case Exited:
		return m.exit.Fault
	}
	return ""
}

// Membership is what the user's code has; nil where there is none.
func (m *Machine) Membership() *rendezvous.Membership { return m.membership }
