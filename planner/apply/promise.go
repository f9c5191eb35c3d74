package apply

import (
	"context"
	"slices"

	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/record"
)

// A deadline that is promised is remembered in the job's record, so that later plans
// promise nobody else what would break it, and so is that it cannot be kept any more.
// Where a job is admitted by the same plan its record is written anyway.

// byJob are a plan's promises.
func byJob(list []model.Promise) map[key]*model.Promise {
	out := map[key]*model.Promise{}
	for i := range list {
		out[keyOf(list[i].Namespace, list[i].Job)] = &list[i]
	}
	return out
}

// keepPromise notes a promise in a record.
func keepPromise(rec *record.Record, p *model.Promise, r *round) {
	if p == nil {
		return
	}
	if rec.Promised != nil && p.Promised == nil {
		rec.History = slices.Clone(rec.History)
		rec.Note(r.view.Taken, string(KindNote), p.Reason)
	}
	rec.Promised = p.Promised
}

// promise writes one down; nil if there is no record to write it into. fresh is the
// record of a job that was seen for the first time.
func (e *Executor) promise(ctx context.Context, r *round, k key, p *model.Promise, fresh *record.Record) *Result {
	m, ok := r.view.Job(k.namespace, k.job)
	if !ok {
		return nil
	}
	j := r.job(m)
	if j.rec == nil {
		j.rec = fresh
	}
	if j.rec == nil || j.rec.Original == nil || j.rec.Phase == record.PhaseReleased || j.rec.Route != nil || deref(j.cur.Stop) {
		return nil
	}
	rec := j.next("")
	keepPromise(rec, p, r)
	return &Result{Namespace: m.Namespace, Job: m.ID, Kind: KindNote, Reason: p.Reason, Changed: true, Err: e.put(ctx, rec, r.view.Taken)}
}
