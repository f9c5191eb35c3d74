// Package live makes a trace of what a Nomad cluster still knows of the jobs that
// ran on it.
package live

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/planner/sim/trace"
)

// Nomad is what is asked.
type Nomad interface {
	Jobs(ctx context.Context) ([]*api.JobListStub, error)
	Allocations(ctx context.Context) ([]*api.AllocationListStub, error)
	// Versions are when the versions were registered that Nomad keeps of a job, in Unix
	// nanoseconds, the oldest first.
	Versions(ctx context.Context, namespace, id string) ([]int64, error)
}

// metaQueue is the key of a job's meta that names its queue.
const metaQueue = "caravan_queue"

// key names a job.
type key struct{ namespace, id string }

// run is an allocation's time with its GPUs.
type run struct {
	from, to time.Time
	gpus     int
	open     bool // it has not ended
	done     bool // it ended well, and nobody stopped it
}

// Import makes a trace, the earliest job first. A job's GPUs are the most that it
// had at once, and its duration is how long it had any: what it waited in between
// does not count. One that was registered again after all of it had ended well is
// another job. Jobs that still run are left out, and so are those that had no
// whole GPU, or that Nomad does not know any more.
func Import(ctx context.Context, n Nomad) ([]trace.Job, trace.Report, error) {
	rep := trace.Report{Left: map[string]int{}}
	stubs, err := n.Jobs(ctx)
	if err != nil {
		return nil, rep, fmt.Errorf("list jobs: %w", err)
	}
	allocs, err := n.Allocations(ctx)
	if err != nil {
		return nil, rep, fmt.Errorf("list allocations: %w", err)
	}
	runs, open := map[key][]run{}, map[key]bool{}
	for _, a := range allocs {
		k := key{a.Namespace, a.JobID}
		if r, ran := runOf(a); ran {
			runs[k] = append(runs[k], r)
			open[k] = open[k] || r.open
		}
	}
	var jobs []trace.Job
	for _, s := range stubs {
		k := key{cmp.Or(s.Namespace, api.DefaultNamespace), s.ID}
		list := runs[k]
		delete(runs, k)
		if s.Type != api.JobTypeBatch && s.Type != api.JobTypeService || s.Periodic || s.ParameterizedJob {
			continue
		}
		rep.Rows++
		switch {
		case len(list) == 0:
			rep.Left["it has had no whole GPU, or Nomad has forgotten its allocations"]++
		case open[k] || s.Status != "dead":
			rep.Left["it has not ended"]++
		default:
			made, err := jobsOf(ctx, n, s, k, list)
			if err != nil {
				return nil, rep, err
			}
			if jobs = append(jobs, made...); len(made) == 0 {
				rep.Left["it ran for no time"]++
			}
			rep.Rows += max(0, len(made)-1)
		}
	}
	for range runs {
		rep.Rows++
		rep.Left["it was purged: Nomad knows no more than its allocations"]++
	}
	rep.Jobs = len(jobs)
	trace.Sort(jobs)
	return trace.Shift(jobs), rep, nil
}

// jobsOf are the jobs that had a name, one behind the other.
func jobsOf(ctx context.Context, n Nomad, s *api.JobListStub, k key, list []run) ([]trace.Job, error) {
	versions, err := n.Versions(ctx, k.namespace, k.id)
	if err != nil {
		return nil, fmt.Errorf("read the versions of job %s/%s: %w", k.namespace, k.id, err)
	}
	slices.SortStableFunc(list, func(a, b run) int { return a.from.Compare(b.from) })
	var out []trace.Job
	for from, known := 0, 0; from < len(list); {
		to, next := from+1, known
		for ; to < len(list); to++ {
			if next = another(list[from:to], list[to].from, versions); next > known {
				break
			}
		}
		// A job is rewritten when it is placed, and only a few versions are kept.
		at := list[from].from
		if known < len(versions) && time.Unix(0, versions[known]).Before(at) {
			at = time.Unix(0, versions[known])
		}
		j := trace.Job{ID: k.namespace + "/" + k.id, Queue: cmp.Or(s.Meta[metaQueue], k.namespace), Submit: float64(at.UnixMilli()) / 1000}
		if len(out) > 0 {
			j.ID = fmt.Sprintf("%s#%d", j.ID, len(out)+1)
		}
		if j.GPUs, j.Duration = together(list[from:to]); j.Duration > 0 {
			out = append(out, j)
		}
		from, known = to, next
	}
	return out, nil
}

// another is the number of the version that was registered after all runs had ended
// well, but before one began at a time, so that this is of another job; 0 if there is none.
func another(list []run, begins time.Time, versions []int64) int {
	var end, ill time.Time
	for _, r := range list {
		if r.to.After(end) {
			end = r.to
		}
		if !r.done && r.to.After(ill) {
			ill = r.to
		}
	}
	// What gave way, or failed, goes on: something began after it.
	if !slices.ContainsFunc(list, func(r run) bool { return !r.from.Before(ill) }) {
		return 0
	}
	for i, v := range versions {
		if at := time.Unix(0, v); i > 0 && at.After(end) && !at.After(begins) {
			return i
		}
	}
	return 0
}

// runOf is when an allocation had its GPUs; false if it never ran with any.
func runOf(a *api.AllocationListStub) (run, bool) {
	var r run
	if a.AllocatedResources == nil {
		return r, false
	}
	for _, t := range a.AllocatedResources.Tasks {
		for _, d := range t.Devices {
			if d.Type == "gpu" {
				r.gpus += len(d.DeviceIDs)
			}
		}
	}
	for _, t := range a.TaskStates {
		if from := began(a, t); !from.IsZero() && (r.from.IsZero() || from.Before(r.from)) {
			r.from = from
		}
		if t.FinishedAt.After(r.to) {
			r.to = t.FinishedAt
		}
	}
	if r.gpus == 0 || r.from.IsZero() {
		return r, false
	}
	r.done = a.ClientStatus == api.AllocClientStatusComplete && a.DesiredStatus == api.AllocDesiredStatusRun
	switch a.ClientStatus {
	case api.AllocClientStatusRunning, api.AllocClientStatusPending, api.AllocClientStatusUnknown:
		r.open = true
	case api.AllocClientStatusLost:
		if lost := time.Unix(0, a.ModifyTime); r.to.Before(r.from) {
			r.to = lost // the node never told
		}
	}
	return r, true
}

// began is when a task was started first. Nomad says when it was started last, and what
// its last ten events were: of one that was restarted more often no more is known than
// when it was given its GPUs.
func began(a *api.AllocationListStub, t *api.TaskState) time.Time {
	if t.Restarts == 0 || t.StartedAt.IsZero() || len(t.Events) == 0 {
		return t.StartedAt
	}
	if first := t.Events[0].Type; first == api.TaskReceived || first == api.TaskSetup {
		for _, e := range t.Events {
			if e.Type == api.TaskStarted {
				return time.Unix(0, e.Time)
			}
		}
	}
	return time.Unix(0, a.CreateTime)
}

// together is the most GPUs of runs at once, and for how many seconds any ran.
func together(list []run) (most int, seconds float64) {
	type change struct {
		at   time.Time
		gpus int
	}
	var changes []change
	for _, r := range list {
		if r.to.After(r.from) {
			changes = append(changes, change{r.from, r.gpus}, change{r.to, -r.gpus})
		}
	}
	slices.SortFunc(changes, func(a, b change) int { return cmp.Or(a.at.Compare(b.at), cmp.Compare(a.gpus, b.gpus)) })
	have := 0
	for i, c := range changes {
		if have > 0 {
			seconds += c.at.Sub(changes[i-1].at).Seconds()
		}
		have += c.gpus
		most = max(most, have)
	}
	return most, seconds
}

// Client asks Nomad's API, or the planner's gateway, for all namespaces, page by
// page.
type Client struct{ API *api.Client }

// pageSize is how many are asked for at once.
const pageSize = 500

func pages[T any](ctx context.Context, params map[string]string, list func(*api.QueryOptions) ([]T, *api.QueryMeta, error)) ([]T, error) {
	var all []T
	q := (&api.QueryOptions{Namespace: api.AllNamespacesNamespace, PerPage: pageSize, Params: params}).WithContext(ctx)
	for {
		page, meta, err := list(q)
		if err != nil {
			return nil, err
		}
		all = append(all, page...)
		if meta == nil || meta.NextToken == "" || strings.EqualFold(meta.NextToken, q.NextToken) {
			return all, nil
		}
		q.NextToken = meta.NextToken
	}
}

// Jobs implements Nomad.
func (c Client) Jobs(ctx context.Context) ([]*api.JobListStub, error) {
	return pages(ctx, map[string]string{"meta": "true"}, c.API.Jobs().List)
}

// Allocations implements Nomad.
func (c Client) Allocations(ctx context.Context) ([]*api.AllocationListStub, error) {
	return pages(ctx, map[string]string{"resources": "true", "task_states": "true"}, c.API.Allocations().List)
}

// Versions implements Nomad.
func (c Client) Versions(ctx context.Context, namespace, id string) ([]int64, error) {
	versions, _, _, err := c.API.Jobs().Versions(id, false, (&api.QueryOptions{Namespace: namespace}).WithContext(ctx))
	if err != nil {
		return nil, err
	}
	var out []int64
	for _, v := range versions {
		if v.SubmitTime != nil {
			out = append(out, *v.SubmitTime)
		}
	}
	slices.Sort(out)
	return out, nil
}
