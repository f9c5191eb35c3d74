package federate

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/planner/apply"
	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/observe"
)

// Execute carries a plan out that was made on a View of this Federation's: in each
// region what is decided for its jobs, and then what there is to be done about jobs
// that are sent from one to another. In a region that is held nothing is done.
func (f *Federation) Execute(ctx context.Context, v *observe.View, plan *model.Plan) []apply.Result {
	parts, sent := f.split(v, plan)
	results := make([][]apply.Result, len(f.regions)+1)
	var wg sync.WaitGroup
	for i, r := range f.regions {
		if !r.usable() {
			continue
		}
		wg.Go(func() {
			within, cancel := r.within(ctx)
			defer cancel()
			results[i] = r.Executor.Execute(within, r.view, parts[r])
		})
	}
	wg.Wait()
	results[len(f.regions)] = f.route(ctx, sent)
	return f.named(v, results)
}

// within is the context in which the region is changed.
func (r *region) within(ctx context.Context) (context.Context, context.CancelFunc) {
	if term, _ := r.Term(); term != nil {
		ctx = term
	}
	if r.first {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, changeTimeout)
}

// Due is when something is due in a region even if nothing happens, one that cannot
// be seen is looked at again among that; zero: never.
func (f *Federation) Due() time.Time {
	var next time.Time
	for _, r := range f.regions {
		if !r.fresh {
			r.mu.Lock()
			next = f.opts.Now().Add(max(again-f.opts.Now().Sub(r.tried), again/10))
			r.mu.Unlock()
			break
		}
	}
	for _, r := range f.regions {
		if due := r.Executor.Due(); !due.IsZero() && (next.IsZero() || due.Before(next)) {
			next = due
		}
	}
	return next
}

// sending is a decision to place a job in another region.
type sending struct {
	job    *observe.Managed
	to     *region
	reason string
}

// split gives each region the part of a plan that is about its jobs, under the
// names that they have there.
func (f *Federation) split(v *observe.View, plan *model.Plan) (map[*region]*model.Plan, []sending) {
	parts := map[*region]*model.Plan{}
	for _, r := range f.regions {
		parts[r] = new(model.Plan)
	}
	if plan == nil {
		return parts, nil
	}
	jobs := make(map[jobKey]*observe.Managed, len(v.Managed))
	for i := range v.Managed {
		jobs[jobKey{v.Managed[i].Namespace, v.Managed[i].ID}] = &v.Managed[i]
	}
	in := map[string]*region{}
	for i := range v.Nodes {
		in[v.Nodes[i].ID] = f.region(v.Nodes[i].Region)
	}
	find := func(namespace, id string) (*observe.Managed, *region, string) {
		of, canary := observe.CanaryOf(id)
		m := jobs[jobKey{cmp.Or(namespace, api.DefaultNamespace), of}]
		if m == nil {
			return nil, nil, ""
		}
		id = m.JobID()
		if canary {
			id = observe.CanaryID(id)
		}
		return m, f.region(m.Region), id
	}
	var sent []sending
	for _, d := range plan.Decisions {
		m, r, id := find(d.Namespace, d.Job)
		if m == nil || r == nil {
			continue
		}
		if d.Action == model.ActionAdmit && len(d.Members) > 0 {
			if to := in[d.Members[0].Node]; to != nil && to != r {
				sent = append(sent, sending{m, to, d.Reason})
				continue
			}
		}
		d.Job = id
		parts[r].Decisions = append(parts[r].Decisions, d)
	}
	for _, p := range plan.Preemptions {
		if _, r, id := find(p.Namespace, p.Job); r != nil {
			p.Job = id
			parts[r].Preemptions = append(parts[r].Preemptions, p)
		}
	}
	for _, s := range plan.Resizes {
		if _, r, id := find(s.Namespace, s.Job); r != nil {
			s.Job = id
			parts[r].Resizes = append(parts[r].Resizes, s)
		}
	}
	return parts, sent
}

// named joins the regions' results, under the names that the jobs have in the View.
func (f *Federation) named(v *observe.View, results [][]apply.Result) []apply.Result {
	type in struct {
		region string
		jobKey
	}
	names := map[in]string{}
	for i := range v.Managed {
		if m := &v.Managed[i]; m.ID != m.JobID() {
			names[in{m.Region, jobKey{m.Namespace, m.JobID()}}] = m.ID
		}
	}
	var out []apply.Result
	for i, list := range results {
		for _, one := range list {
			if i < len(f.regions) {
				name := f.regions[i].Name
				one.Job = cmp.Or(names[in{name, jobKey{one.Namespace, one.Job}}], one.Job)
				if one.Err != nil && !f.regions[i].first {
					one.Err = apart(name, one.Err)
				}
			}
			out = append(out, one)
		}
	}
	return out
}

// apart is an error of one region. That its Nomad does not answer is no reason to
// leave the others in peace.
func apart(region string, err error) error {
	if apply.Halts(err) {
		return fmt.Errorf("region %s: %v", region, err)
	}
	return fmt.Errorf("region %s: %w", region, err)
}
