package daemon

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/caravan-sched/caravan/planner/apply"
	"github.com/caravan-sched/caravan/planner/core/model"
	known "github.com/caravan-sched/caravan/planner/history"
	"github.com/caravan-sched/caravan/planner/record"
)

// learner is what is known of jobs that have ended. The planner that leads adds
// to it and writes it down; the others read what was written when they begin to
// lead.
type learner struct {
	store documents

	mu   sync.Mutex
	book known.Book
	// loaded: book continues what is stored, with that index.
	loaded bool
	index  uint64
	// fresh: something was added since it was written.
	fresh bool
	saved time.Time
}

// historyNames are the names of the document that it is kept in.
var historyNames = []string{"jobs", "ended"}

// ended adds a job that has ended.
func (l *learner) ended(e apply.Ending) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.book.Add(known.Ended{Job: e.Job, Ran: e.Service.Ran, GPUSeconds: e.Service.GPUSeconds, Completed: e.Completed, At: e.At})
	l.fresh = true
}

// predict notes how long others like a job have run.
func (l *learner) predict(j *model.Job) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if p, found := l.book.Predict(j); found {
		j.Estimate, j.EstimateSpread, j.EstimateRuns = p.Median, p.Spread, p.Runs
	}
}

// past is what the decision core is told of jobs that have ended.
func (l *learner) past() model.History {
	l.mu.Lock()
	defer l.mu.Unlock()
	return model.History{Demands: slices.Clone(l.book.Demands)}
}

// accuracy says how far predictions were off lately; "" if there were none.
func (l *learner) accuracy() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	part, of := l.book.Error()
	if of == 0 {
		return ""
	}
	return fmt.Sprintf("half of the last %d predictions were off by %.0f%% or less", of, 100*part)
}

// forget is for a planner that does not lead: another one writes.
func (l *learner) forget() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.loaded = false
}

// load reads what another planner, or this one, has left. What is damaged is
// learned anew.
func (l *learner) load(ctx context.Context) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.loaded {
		return nil
	}
	doc, err := l.store.Get(ctx, historyNames...)
	l.book, l.index, l.fresh = known.Book{}, doc.Index, false
	switch {
	case err == nil:
		if book, err := known.Decode(doc.JSON); err == nil {
			l.book = *book
		}
	case !errors.Is(err, record.ErrNotFound) && !errors.Is(err, record.ErrDamaged):
		return fmt.Errorf("read what is known of jobs that have ended: %w", err)
	}
	l.loaded = true
	return nil
}

// save writes what was added, if that is due.
func (l *learner) save(ctx context.Context, now time.Time) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.loaded || !l.fresh || now.Sub(l.saved) < saveEvery {
		return nil
	}
	doc, err := l.book.Encode()
	if err != nil {
		return err
	}
	index, err := l.store.Put(ctx, l.index, doc, historyNames...)
	if err != nil {
		l.loaded = false // somebody else has written it
		return fmt.Errorf("write what is known of jobs that have ended: %w", err)
	}
	l.index, l.saved, l.fresh = index, now, false
	return nil
}
