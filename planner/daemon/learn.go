package daemon

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/caravan-sched/caravan/planner/apply"
	"github.com/caravan-sched/caravan/planner/core/model"
	known "github.com/caravan-sched/caravan/planner/history"
)

// learner is what is known of jobs that have ended. The planner that leads adds
// to it and writes it down; the others read what was written when they begin to
// lead.
type learner struct {
	mu   sync.Mutex
	kept kept[known.Book]
}

// keepHistory keeps what is known of jobs that have ended.
func keepHistory(store documents) kept[known.Book] {
	return kept[known.Book]{store: store, names: []string{"jobs", "ended"}, about: "what is known of jobs that have ended",
		every: saveEvery, encode: (*known.Book).Encode, decode: known.Decode}
}

// ended adds a job that has ended.
func (l *learner) ended(e apply.Ending) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.kept.is.Add(known.Ended{Job: e.Job, Ran: e.Service.Ran, GPUSeconds: e.Service.GPUSeconds, Completed: e.Completed, At: e.At})
	l.kept.fresh = true
}

// predict notes how long others like a job have run.
func (l *learner) predict(j *model.Job) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if p, found := l.kept.is.Predict(j); found {
		j.Estimate, j.EstimateSpread, j.EstimateRuns = p.Median, p.Spread, p.Runs
	}
}

// past is what the decision core is told of jobs that have ended.
func (l *learner) past() model.History {
	l.mu.Lock()
	defer l.mu.Unlock()
	return model.History{Demands: slices.Clone(l.kept.is.Demands)}
}

// accuracy says how far predictions were off lately; "" if there were none.
func (l *learner) accuracy() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	part, of := l.kept.is.Error()
	if of == 0 {
		return ""
	}
	return fmt.Sprintf("half of the last %d predictions were off by %.0f%% or less", of, 100*part)
}

// forget is for a planner that does not lead: another one writes.
func (l *learner) forget() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.kept.forget()
}

// load reads what another planner, or this one, has left.
func (l *learner) load(ctx context.Context) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, err := l.kept.load(ctx)
	return err
}

// save writes what was added, if that is due.
func (l *learner) save(ctx context.Context, now time.Time) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.kept.save(ctx, now)
}
