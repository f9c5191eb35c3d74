package barrier

import (
	"maps"
	"slices"
	"time"
)

// The causes of failures.
const (
	// CauseExit, CauseSignal and CauseOOM: a member's code ended by itself, with
	// an exit code, by a signal, or for want of memory.
	CauseExit   = "exit"
	CauseSignal = "signal"
	CauseOOM    = "oom"
	// CauseStartedAgain: a member's task was started anew, and nobody has told
	// why.
	CauseStartedAgain = "started_again"
	// CauseLost: a member's allocation or node is lost, and the others go on.
	CauseLost = "lost"
)

// Causes are all causes of failures.
var Causes = []string{CauseExit, CauseSignal, CauseOOM, CauseStartedAgain, CauseLost}

// Watch is told what happens to gangs; any of it may be nil. It must not block.
type Watch struct {
	// Started: all members of a gang have joined. The first of them had waited
	// that long.
	Started func(members int, waited time.Duration)
	// Told: all members of a gang were told to start; spread is how long after
	// the common moment the last of them was, 0 if all were before it.
	Told func(spread time.Duration)
	// Failed: a member has failed, with one of Causes.
	Failed func(cause string)
	// Over: a gang that is placed has failed for good; it is said again with
	// every view until the gang is taken off.
	Over func(Over)
}

// Over is a gang that has failed for good.
type Over struct {
	Namespace, Job string
	// Group is the gang's, "" if it is the whole job.
	Group string
	// Alloc is one of its allocations.
	Alloc string
	Why   string
}

// caused notes why a state follows.
func caused(next *State, cause string) *State {
	if next != nil {
		next.cause = cause
	}
	return next
}

// Waiting is how many members wait at the barrier.
func (s *Service) Waiting() int {
	s.mu.Lock()
	gangs := slices.Collect(maps.Values(s.gangs))
	s.mu.Unlock()
	n, now := 0, s.opts.Now()
	for _, g := range gangs {
		g.mu.Lock()
		for alloc := range g.gang.joins {
			if g.gang.waits(alloc, now) {
				n++
			}
		}
		g.mu.Unlock()
	}
	return n
}

// entered tells of a state that is in force now, which next is; was is the one
// before. The gang is locked, and has not taken it yet.
func (s *Service) entered(g *served, was, next *State) {
	w := s.opts.Watch
	if next.cause != "" && w.Failed != nil {
		w.Failed(next.cause)
	}
	if !next.Running || was.epoch() == next.epoch() {
		return
	}
	g.untold = make(map[string]bool, len(next.Membership.Members))
	first := s.opts.Now()
	for _, m := range next.Membership.Members {
		g.untold[m.Alloc] = true
		if j := g.gang.joins[m.Alloc]; j != nil && j.since.Before(first) {
			first = j.since
		}
	}
	if w.Started != nil {
		w.Started(len(next.Membership.Members), s.opts.Now().Sub(first))
	}
}

// tell notes that a member is told to start. The gang is locked.
func (s *Service) tell(g *served, alloc string, now time.Time) {
	if !g.untold[alloc] {
		return
	}
	delete(g.untold, alloc)
	if len(g.untold) == 0 && s.opts.Watch.Told != nil {
		s.opts.Watch.Told(max(now.Sub(g.gang.state.StartAt), 0))
	}
}

// over tells of a gang that has failed for good. The gang is locked.
func (s *Service) over(g *served) {
	gang := g.gang
	if s.opts.Watch.Over == nil || gang.plan == nil || gang.failed() == "" {
		return
	}
	o := Over{Namespace: gang.key.Namespace, Job: gang.key.Job, Group: gang.key.Group, Why: gang.failed()}
	for i := range gang.plan.Members {
		m := &gang.plan.Members[i]
		if _, in := gang.inEpoch[m.Alloc]; in && (o.Alloc == "" || m.Alloc == gang.state.EndedBy) {
			o.Alloc = m.Alloc
		}
	}
	s.opts.Watch.Over(o)
}
