package barrier

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/caravan-sched/caravan/planner/record"
)

// stored is a state as it was read.
type stored struct {
	state *State
	index uint64
}

func (s *Service) load(ctx context.Context) (map[Key]stored, error) {
	docs, err := s.opts.Documents.List(ctx)
	if err != nil {
		return nil, err
	}
	out := map[Key]stored{}
	for _, doc := range docs {
		st, err := decodeState(doc.JSON)
		if err != nil {
			s.opts.Log.Warn("a gang's state cannot be read and counts as none", "error", err)
			continue
		}
		out[st.Key()] = stored{st, doc.Index}
	}
	return out, nil
}

// decodeState reads a state, and refuses one that does not hold together.
func decodeState(raw []byte) (*State, error) {
	st := new(State)
	if err := json.Unmarshal(raw, st); err != nil {
		return nil, fmt.Errorf("decode a gang's state: %w", err)
	}
	members := 0
	if st.Membership != nil {
		members = len(st.Membership.Members)
	}
	switch {
	case st.Job == "" || st.Namespace == "":
		return nil, errors.New("decode a gang's state: it names no job")
	case members != len(st.Runs), st.Running && members == 0, st.Membership != nil && members == 0:
		return nil, fmt.Errorf("decode the state of %s: it has %d members and %d runs", st.Key(), members, len(st.Runs))
	}
	return st, nil
}

// drive stores the state that follows, if one does. Until it is stored nobody
// is told of it. The gang is locked.
func (s *Service) drive(g *served) {
	now := s.opts.Now()
	if g.writing || now.Before(g.retry) {
		return
	}
	next, due := g.gang.Next(now)
	if next != nil {
		s.store(g, next)
		return
	}
	if !due.IsZero() {
		s.later(g, due.Sub(now))
	}
}

// later drives the gang after a while.
func (s *Service) later(g *served, after time.Duration) {
	if g.timer != nil {
		g.timer.Stop()
	}
	g.timer = time.AfterFunc(after+time.Millisecond, func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		s.drive(g)
	})
}

// store writes a state in the background. The gang is locked.
func (s *Service) store(g *served, next *State) {
	s.mu.Lock()
	term := s.term
	s.mu.Unlock()
	if term == nil {
		return
	}
	g.writing = true
	index := g.index
	go func() {
		ctx, cancel := context.WithTimeout(term, writeTimeout)
		defer cancel()
		index, st, err := s.write(ctx, next, index)
		g.mu.Lock()
		defer g.mu.Unlock()
		g.writing = false
		if term.Err() != nil {
			return // whoever leads now reads what was stored
		}
		if err != nil {
			s.opts.Log.Warn("a gang's state cannot be stored; it is tried again", "gang", next.Key(), "error", err)
			g.retry = s.opts.Now().Add(writeRest)
			s.later(g, writeRest)
			return
		}
		if st == next && len(st.Events) > 0 {
			s.opts.Log.Info("gang", "gang", next.Key(), "event", st.Events[0].Text)
			st.postpone(g.gang.State(), s.opts.Now())
			s.entered(g, g.gang.State(), st)
		}
		g.index = index
		g.gang.Commit(st)
		s.over(g)
		g.encoded = nil
		g.bump()
		s.drive(g)
	}()
}

// write stores a state. If somebody else has written in between, theirs is
// returned.
func (s *Service) write(ctx context.Context, next *State, index uint64) (uint64, *State, error) {
	raw, err := json.Marshal(next)
	if err != nil {
		return 0, nil, fmt.Errorf("encode a gang's state: %w", err)
	}
	names := next.Key().names()
	written, err := s.opts.Documents.Put(ctx, index, raw, names...)
	if err == nil {
		return written, next, nil
	}
	if !errors.Is(err, record.ErrConflict) {
		return 0, nil, err
	}
	doc, err := s.opts.Documents.Get(ctx, names...)
	switch {
	case errors.Is(err, record.ErrNotFound):
		return 0, nil, nil
	case errors.Is(err, record.ErrDamaged):
		return doc.Index, nil, nil
	case err != nil:
		return 0, nil, err
	}
	st, err := decodeState(doc.JSON)
	if err != nil {
		s.opts.Log.Warn("a gang's state cannot be read and counts as none", "error", err)
	}
	return doc.Index, st, nil
}

// postpone moves a common start so that there is still time to tell everybody,
// however long it took to store.
func (s *State) postpone(was *State, now time.Time) {
	if !s.Running || was.epoch() == s.epoch() {
		return
	}
	if at := now.Add(startLead(len(s.Membership.Members))); at.After(s.StartAt) {
		s.StartAt = at
	}
}

func startLead(members int) time.Duration {
	n := time.Duration(members)
	return lead + n*leadEach + n*n*leadEntry
}
