package federate

import (
	"cmp"
	"context"
	"fmt"

	"github.com/caravan-sched/caravan/planner/observe"
	"github.com/caravan-sched/caravan/planner/record"
)

// goOn does the next step about a job that its home has sent elsewhere; "" if there
// is none.
func (f *Federation) goOn(ctx context.Context, home *region, at away) (string, error) {
	rec := at.rec
	key := jobKey{rec.Namespace, rec.JobID}
	to := f.region(rec.Route.Region)
	if to == nil || !to.usable() {
		return "", nil
	}
	there := to.records[key]
	if there != nil && there.Home != home.Name {
		there = nil
	}
	job := to.jobs[key]
	if there == nil {
		// Nothing was done there yet, or all of it is over.
		return f.settled(ctx, home, rec, nil, fmt.Sprintf("it is not in region %s", to.Name))
	}
	if job != nil && job.Current.JobModifyIndex != nil && *job.Current.JobModifyIndex <= there.PriorIndex {
		job = nil // one of that name from before, which has ended
	}
	active := at.job != nil && !ended(at.job.Current)
	switch {
	case rec.Route.Recall != "":
		return f.recall(ctx, home, to, rec, there, job)
	case there.Phase == record.PhaseReleased:
		return f.letGo(ctx, home, to, at, there)
	case !active:
		return f.takeBack(ctx, home, key, "it was stopped in region "+home.Name)
	case rec.Stale():
		return f.takeBack(ctx, home, key, "it was submitted anew in region "+home.Name)
	case job == nil && !there.Ran():
		if why := f.refusal(key, to.Name); why != "" {
			return f.takeBack(ctx, home, key, why)
		}
		return f.retry(ctx, to, there)
	case job == nil || to.Executor.Withheld(key.namespace, key.id):
		return fmt.Sprintf("it has ended in region %s", to.Name), f.end(ctx, home, at.job)
	case there.Held != "" && rec.Held == "":
		next := *rec
		next.Held, next.Reason = there.Held, there.Reason
		return "it is held: " + there.Held, f.write(ctx, home, &next)
	}
	return "", nil
}

// retry registers a job where it was sent, which whoever sent it did not come to.
func (f *Federation) retry(ctx context.Context, to *region, there *record.Record) (string, error) {
	ctx, cancel := to.within(ctx)
	defer cancel()
	before, err := to.Executor.Find(ctx, there.Namespace, there.JobID)
	if err != nil {
		return "", err
	}
	index := uint64(0)
	if before != nil {
		if !ended(before) {
			return "", nil // it shows at the next look
		}
		index = *before.JobModifyIndex
	}
	return "it is registered in region " + to.Name, f.arrive(ctx, to, there, index)
}

// takeBack writes down that a job is to come back from where it was sent.
func (f *Federation) takeBack(ctx context.Context, home *region, key jobKey, why string) (string, error) {
	rec := home.records[key]
	if rec == nil || rec.Route == nil || rec.Route.Recall != "" {
		return "", nil
	}
	next, route := *rec, *rec.Route
	route.Recall, next.Route = why, &route
	return fmt.Sprintf("it is taken back from region %s: %s", route.Region, why), f.write(ctx, home, &next)
}

// recall takes a job off where it was sent, and has its home decide on it again
// when nothing of it is left there.
func (f *Federation) recall(ctx context.Context, home, to *region, rec, there *record.Record, job *observe.Managed) (string, error) {
	key := jobKey{rec.Namespace, rec.JobID}
	stopped := job == nil || job.Current.Stop != nil && *job.Current.Stop
	if !stopped && !to.Executor.Withheld(key.namespace, key.id) {
		ctx, cancel := to.within(ctx)
		defer cancel()
		return "it is stopped in region " + to.Name, to.Executor.Stop(ctx, key.namespace, key.id)
	}
	if !quiet(to.view, key) {
		return "", nil
	}
	next := there
	if job != nil && job.Model.RetryAfter.After(there.RetryAfter) {
		// What is cut off there may run for as long as its fence takes.
		later := *there
		later.RetryAfter, next = job.Model.RetryAfter, &later
	}
	return f.settled(ctx, home, rec, next, rec.Route.Recall)
}

// settled has the home decide on a job again of which nothing is left elsewhere.
func (f *Federation) settled(ctx context.Context, home *region, rec, there *record.Record, why string) (string, error) {
	next := rec.Returned(there)
	if there != nil && there.Ran() {
		// Its checkpoints are there.
		next.Regions = []string{rec.Route.Region}
	}
	next.Reason = why
	what := fmt.Sprintf("nothing of it is left in region %s, and region %s decides on it: %s", rec.Route.Region, home.Name, cmp.Or(why, "it was taken back"))
	return what, f.write(ctx, home, next)
}

// end stops the job at home after it has ended elsewhere.
func (f *Federation) end(ctx context.Context, home *region, job *observe.Managed) error {
	ctx, cancel := home.within(ctx)
	defer cancel()
	return home.Executor.End(ctx, job)
}

// letGo leaves a job to the region where it was released: it ends at home, and is
// that region's own from then on.
func (f *Federation) letGo(ctx context.Context, home, to *region, at away, there *record.Record) (string, error) {
	if at.job != nil && !ended(at.job.Current) {
		return fmt.Sprintf("it was released in region %s and ends in region %s", to.Name, home.Name), f.end(ctx, home, at.job)
	}
	if there.Home != "" {
		next := *there
		next.Home = ""
		if err := f.write(ctx, to, &next); err != nil {
			return "", err
		}
	}
	return f.settled(ctx, home, at.rec, nil, "it was released in region "+to.Name)
}

// astray is the home of a job that runs in a region without its home's word, as
// after the home's record was deleted or put back by hand; nil where all is well.
func (f *Federation) astray(r *region, key jobKey, m *observe.Managed) *region {
	if m.Record == nil || m.Record.Home == "" || m.Record.Phase == record.PhaseReleased {
		return nil
	}
	home := f.region(m.Record.Home)
	if home == nil || !home.usable() {
		return nil
	}
	at := home.records[key]
	if at == nil || at.Route != nil && at.Route.Region == r.Name || quiet(r.view, key) {
		return nil
	}
	return home
}

// gather has a job run in one region again: its home takes its word back up if it
// is the same job, and has not begun to run it; else it is stopped where it strays.
func (f *Federation) gather(ctx context.Context, home, r *region, key jobKey, m *observe.Managed) (string, error) {
	at, job := home.records[key], home.jobs[key]
	if at.Route == nil && at.Phase == record.PhaseQueued && at.SpecHash == m.Record.SpecHash && job != nil && !ended(job.Current) && quiet(home.view, key) {
		next := *at
		next.Reason = "it runs in region " + r.Name + " already"
		next.Route = &record.Route{Region: r.Name, SpecHash: at.SpecHash, Submitted: at.Submitted, Since: f.opts.Now(), Reason: next.Reason}
		return "region " + home.Name + " had forgotten that " + next.Reason, f.write(ctx, home, &next)
	}
	if m.Current.Stop != nil && *m.Current.Stop {
		return "", nil
	}
	ctx, cancel := r.within(ctx)
	defer cancel()
	return fmt.Sprintf("it is stopped in region %s, since region %s has not sent it there", r.Name, home.Name), r.Executor.Stop(ctx, key.namespace, key.id)
}
