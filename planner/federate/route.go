package federate

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/hashicorp/nomad/api"
	"golang.org/x/sync/errgroup"

	"github.com/caravan-sched/caravan/planner/apply"
	"github.com/caravan-sched/caravan/planner/observe"
	"github.com/caravan-sched/caravan/planner/record"
)

// writers bounds how many jobs are sent at once.
const writers = 8

// KindRoute is the kind of results about jobs that go from region to region.
const KindRoute apply.Kind = "route"

// route begins what is decided of jobs that go elsewhere, and does the next step
// of what was begun.
func (f *Federation) route(ctx context.Context, sent []sending) []apply.Result {
	var mu sync.Mutex
	var out []apply.Result
	var group errgroup.Group
	group.SetLimit(writers)
	do := func(namespace, job string, step func() (string, error)) {
		group.Go(func() error {
			what, err := step()
			if what == "" && err == nil {
				return nil
			}
			mu.Lock()
			defer mu.Unlock()
			if err != nil && apply.Halts(err) {
				err = errors.New(err.Error()) // one region is no reason to leave the others in peace
			}
			out = append(out, apply.Result{Namespace: namespace, Job: job, Kind: KindRoute, Reason: what, Changed: what != "", Err: err})
			if err == nil {
				f.opts.Log.Info("routes a job", "namespace", namespace, "job", job, "what", what)
			}
			return nil
		})
	}
	begun := map[jobKey]bool{}
	for _, r := range f.regions {
		if !r.usable() {
			continue
		}
		for _, at := range routed(r.view) {
			begun[jobKey{at.rec.Namespace, at.rec.JobID}] = true
			do(at.rec.Namespace, at.rec.JobID, func() (string, error) { return f.goOn(ctx, r, at) })
		}
	}
	for _, r := range f.regions {
		if !r.usable() {
			continue
		}
		for key, m := range r.jobs {
			if home := f.astray(r, key, m); home != nil {
				begun[key] = true
				do(key.namespace, key.id, func() (string, error) { return f.gather(ctx, home, r, key, m) })
			}
		}
	}
	for _, s := range sent {
		key := jobKey{s.job.Namespace, s.job.JobID()}
		switch from := f.region(s.job.Region); {
		case s.job.Record != nil && s.job.Record.Home != "":
			home := f.region(s.job.Record.Home)
			if home != nil && home.usable() && from.usable() {
				do(key.namespace, s.job.ID, func() (string, error) { return f.takeBack(ctx, home, key, "there is room in region "+s.to.Name) })
			}
		case from.usable() && s.to.usable() && !begun[key]:
			do(key.namespace, s.job.ID, func() (string, error) { return f.send(ctx, from, s) })
		}
	}
	_ = group.Wait() // no step returns its error to the group
	return out
}

// away is a job that was sent from its home.
type away struct {
	rec *record.Record
	// job is the home's; nil if its Nomad does not know it any more.
	job *observe.Managed
}

// routed are the jobs that a region has sent elsewhere.
func routed(v *observe.View) []away {
	var out []away
	for i := range v.Managed {
		if rec := v.Managed[i].Record; rec != nil && rec.Route != nil {
			out = append(out, away{rec, &v.Managed[i]})
		}
	}
	for _, rec := range v.Orphans {
		if rec.Route != nil {
			out = append(out, away{rec: rec})
		}
	}
	return out
}

// send sends a job that waits to another region: first its home says so, then the
// other region has a record, and then the job. It is placed there at the next look.
func (f *Federation) send(ctx context.Context, from *region, s sending) (string, error) {
	rec, job := s.job.Record, s.job.Current
	key := jobKey{s.job.Namespace, s.job.JobID()}
	if why := f.unsent(from, s); why != "" {
		return "", nil
	}
	ctx, cancel := s.to.within(ctx)
	defer cancel()
	before, err := s.to.Executor.Find(ctx, key.namespace, key.id)
	if err != nil {
		return "", err
	}
	if before != nil && !ended(before) {
		f.refuse(key, s.to.Name, fmt.Sprintf("region %s has a job of that name", s.to.Name))
		return "", nil
	}
	index, prior := uint64(0), uint64(0)
	if before != nil {
		index = *before.JobModifyIndex
		prior = max(index, *before.ModifyIndex)
	}
	there := rec.Sent(from.Name, prior)
	there.Reason = s.reason
	there.Note(f.opts.Now(), string(KindRoute), fmt.Sprintf("sent from region %s to %s: %s", from.Name, s.to.Name, s.reason))
	if err := s.to.Executor.Would(ctx, there); err != nil {
		return "", f.refusedBy(key, s.to, err)
	}
	next := *rec
	if job.JobModifyIndex != nil && *job.JobModifyIndex > next.PriorIndex {
		next.Prior = nil
	}
	next.Route = &record.Route{Region: s.to.Name, SpecHash: rec.SpecHash, Submitted: rec.Submitted, Since: f.opts.Now(), Reason: s.reason}
	next.Reason = "it was sent to region " + s.to.Name + ": " + s.reason
	if err := f.write(ctx, from, &next); err != nil {
		return "", err
	}
	what := fmt.Sprintf("it is sent from region %s to region %s: %s", from.Name, s.to.Name, s.reason)
	if err := s.to.Executor.Write(ctx, there, f.opts.Now()); err != nil {
		return what, err
	}
	return what, f.arrive(ctx, s.to, there, index)
}

// unsent says why a job is not sent although that was decided; "" if it is.
func (f *Federation) unsent(from *region, s sending) string {
	rec := s.job.Record
	key := jobKey{s.job.Namespace, s.job.JobID()}
	now := f.opts.Now()
	switch {
	case rec == nil || rec.Original == nil || s.job.Current == nil:
		return "it is not recorded yet"
	case rec.Phase != record.PhaseQueued || rec.Route != nil || rec.Held != "" || rec.RetryAfter.After(now):
		return "it is not to be placed now"
	case ended(s.job.Current):
		return "it was stopped"
	case from.Executor.Withheld(key.namespace, key.id):
		return "it has ended"
	case !quiet(from.view, key):
		return "what runs of an earlier version is stopped first"
	case s.to.records[key] != nil:
		return "there is a record of that name in the other region"
	case rec.Prior != nil && s.job.Current.JobModifyIndex != nil && *s.job.Current.JobModifyIndex <= rec.PriorIndex:
		return "its last version is on its way"
	}
	return ""
}

// arrive registers a job where it was sent. If that region will not have it, it is
// not sent there again for a while.
func (f *Federation) arrive(ctx context.Context, to *region, rec *record.Record, index uint64) error {
	err := to.Executor.Arrive(ctx, rec, index)
	if err != nil {
		return f.refusedBy(jobKey{rec.Namespace, rec.JobID}, to, err)
	}
	return nil
}

// refusedBy remembers a region's refusal; what is no refusal is tried again.
func (f *Federation) refusedBy(key jobKey, to *region, err error) error {
	if errors.Is(err, apply.ErrRefused) || errors.Is(err, apply.ErrForbidden) {
		f.refuse(key, to.Name, fmt.Sprintf("region %s refuses it: %v", to.Name, err))
	}
	return fmt.Errorf("region %s: %w", to.Name, err)
}

func (f *Federation) refuse(key jobKey, region, why string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.refused[refusal{key.namespace, key.id, region}] = refusedUntil{f.opts.Now().Add(refusedFor), why}
}

// refusal says why a region would not have the job a while ago; "" if it would.
func (f *Federation) refusal(key jobKey, region string) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	at := refusal{key.namespace, key.id, region}
	was, ok := f.refused[at]
	if ok && !f.opts.Now().Before(was.until) {
		delete(f.refused, at)
		return ""
	}
	return was.why
}

// write writes a record of a region.
func (f *Federation) write(ctx context.Context, in *region, rec *record.Record) error {
	ctx, cancel := in.within(ctx)
	defer cancel()
	if err := in.Executor.Write(ctx, rec, f.opts.Now()); err != nil {
		return fmt.Errorf("region %s: %w", in.Name, err)
	}
	return nil
}

// ended says whether Nomad will run nothing more of the job.
func ended(job *api.Job) bool {
	return job.Stop != nil && *job.Stop || job.Status != nil && *job.Status == "dead"
}
