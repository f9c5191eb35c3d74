package observe

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/nomad/api"
	"golang.org/x/sync/errgroup"

	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/record"
)

// parallel is how many details are fetched at once.
const parallel = 16

// state is one consistent reading. It is never changed once complete: the next
// one is made beside it and shares the entries that are still true.
type state struct {
	index [parts]uint64

	nodes       map[string]*nodeEntry
	jobs        map[jobKey]*jobEntry
	records     map[jobKey]*record.Record
	allocs      []*api.AllocationListStub
	allocsSeen  map[digest]*api.AllocationListStub
	allocsByJob map[jobKey][]*api.AllocationListStub
	models      map[string]allocEntry
	// purged are allocations that Nomad forgot before they had ended, by ID.
	purged []*purgedAlloc

	unseen     []Unseen
	aclsOff    bool
	rightsRead time.Time

	jobStubs   []*api.JobListStub
	preemption map[string]bool
	// damaged says which records cannot be read, "" if all can.
	damaged      string
	rejectJobs   bool
	pausedBroker bool
}

// allocEntry keeps an allocation's model until the allocation or its node's
// status changes.
type allocEntry struct {
	modifyIndex uint64
	nodeStatus  string
	model       model.Alloc
	holds       bool
}

func (st *state) nodeStatus(id string) string {
	if e, ok := st.nodes[id]; ok {
		return e.status
	}
	return ""
}

// allocModels are those that hold something, oldest first; next is when the
// first of them ceases to, by nothing but time.
func (st *state) allocModels(now time.Time) (out []model.Alloc, next time.Time) {
	out = make([]model.Alloc, 0, len(st.allocs))
	for _, a := range st.allocs {
		if e := st.models[a.ID]; e.holds {
			out = append(out, e.model)
		} else if holds, until := st.fenced(a, now); holds {
			out = append(out, held(a, AllocLost, st.phases(a)))
			next = sooner(next, until)
		}
	}
	gone, ends := st.purgedModels(now)
	return append(out, gone...), sooner(next, ends)
}

// read makes the next state. What has not changed since old is taken over;
// unbroken says that every change of a node since then was looked at.
func (o *Observer) read(ctx context.Context, old *state, unbroken bool) (*state, error) {
	changed, err := o.changed(ctx, old)
	if err != nil {
		return nil, err
	}
	st := *old
	var nodes []*api.NodeListStub
	g, gctx := errgroup.WithContext(ctx)
	g.Go(func() error { return o.readScheduler(gctx, &st) })
	if changed[partJobs] {
		g.Go(func() (err error) { st.jobStubs, st.index[partJobs], err = o.src.jobs(gctx); return err })
	}
	if changed[partNodes] {
		g.Go(func() (err error) { nodes, st.index[partNodes], err = o.src.nodes(gctx); return err })
	}
	if changed[partAllocs] {
		g.Go(func() error { return o.readAllocs(gctx, &st) })
	}
	if changed[partRecords] {
		g.Go(func() error { return o.readRecords(gctx, &st) })
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	if changed[partNodes] {
		if err := o.readNodes(ctx, old, &st, nodes, unbroken); err != nil {
			return nil, err
		}
	}
	if err := o.readRights(ctx, &st, changed[partNamespaces]); err != nil {
		return nil, err
	}
	for p, index := range st.index {
		if index == 0 {
			return nil, fmt.Errorf("read %s: %w", partNames[p], errNoIndex)
		}
	}
	if err := o.readJobs(ctx, old, &st); err != nil {
		return nil, err
	}
	st.indexAllocs(old)
	st.rememberPurged(old, o.now())
	return &st, nil
}

// changed asks which parts have changed since old was read.
func (o *Observer) changed(ctx context.Context, old *state) ([parts]bool, error) {
	var out [parts]bool
	g, gctx := errgroup.WithContext(ctx)
	for p := range parts {
		if old.index[p] == 0 {
			out[p] = true
			continue
		}
		g.Go(func() error {
			index, err := o.src.index(gctx, p, 0)
			out[p] = index != old.index[p]
			return err
		})
	}
	return out, g.Wait()
}

func (o *Observer) readScheduler(ctx context.Context, st *state) error {
	c, err := o.src.scheduler(ctx)
	if err != nil {
		return err
	}
	st.preemption = map[string]bool{
		api.JobTypeService:  c.PreemptionConfig.ServiceSchedulerEnabled,
		api.JobTypeBatch:    c.PreemptionConfig.BatchSchedulerEnabled,
		api.JobTypeSystem:   c.PreemptionConfig.SystemSchedulerEnabled,
		api.JobTypeSysbatch: c.PreemptionConfig.SysBatchSchedulerEnabled,
	}
	st.rejectJobs, st.pausedBroker = c.RejectJobRegistration, c.PauseEvalBroker
	return nil
}

func (o *Observer) readAllocs(ctx context.Context, st *state) error {
	index, err := o.src.index(ctx, partAllocs, 0)
	if err != nil {
		return err
	}
	list, seen, err := o.src.allocs(ctx, st.allocsSeen)
	if err != nil {
		return err
	}
	list = slices.DeleteFunc(list, func(a *api.AllocationListStub) bool { return a.ID == "" })
	slices.SortFunc(list, func(a, b *api.AllocationListStub) int {
		return cmp.Or(cmp.Compare(a.CreateIndex, b.CreateIndex), strings.Compare(a.ID, b.ID))
	})
	// The index from before the list: what was written in between is read again.
	st.allocs, st.allocsSeen, st.index[partAllocs] = list, seen, index
	st.allocsByJob = map[jobKey][]*api.AllocationListStub{}
	for _, a := range list {
		key := jobKey{a.Namespace, a.JobID}
		st.allocsByJob[key] = append(st.allocsByJob[key], a)
	}
	return nil
}

func (o *Observer) readRecords(ctx context.Context, st *state) error {
	index, err := o.src.index(ctx, partRecords, 0)
	if err != nil {
		return err
	}
	list, err := o.records.List(ctx)
	st.damaged = ""
	if errors.Is(err, record.ErrDamaged) {
		st.damaged = err.Error()
	} else if err != nil {
		return readError(partNames[partRecords], err)
	}
	st.records = make(map[jobKey]*record.Record, len(list))
	for _, r := range list {
		st.records[jobKey{r.Namespace, r.JobID}] = r
	}
	// The index from before the list: what was written in between is read again.
	st.index[partRecords] = index
	return nil
}

func (o *Observer) readNodes(ctx context.Context, old, st *state, list []*api.NodeListStub, unbroken bool) error {
	details := make([]*api.Node, len(list))
	err := each(ctx, list, func(ctx context.Context, i int, n *api.NodeListStub) (err error) {
		if known := old.nodes[n.ID]; known == nil || known.modifyIndex != n.ModifyIndex {
			details[i], err = o.src.node(ctx, n.ID)
		}
		return err
	})
	if err != nil {
		return err
	}
	st.nodes = make(map[string]*nodeEntry, len(list))
	for i, n := range list {
		known := old.nodes[n.ID]
		switch {
		case details[i] != nil:
			st.nodes[n.ID] = o.reader.read(details[i])
			st.nodes[n.ID].follow(known, unbroken)
		case known != nil && known.modifyIndex == n.ModifyIndex:
			st.nodes[n.ID] = known
		}
	}
	return nil
}

// readJobs fetches the jobs that changed and reads anew those whose record did.
func (o *Observer) readJobs(ctx context.Context, old, st *state) error {
	list := slices.DeleteFunc(slices.Clone(st.jobStubs), func(s *api.JobListStub) bool { return s == nil || !st.wants(s) })
	details := make([]*api.Job, len(list))
	err := each(ctx, list, func(ctx context.Context, i int, s *api.JobListStub) (err error) {
		known := old.jobs[jobKey{s.Namespace, s.ID}]
		if known != nil && known.modifyIndex == s.ModifyIndex {
			details[i] = known.job
			return nil
		}
		details[i], err = o.src.job(ctx, s.Namespace, s.ID)
		if errors.Is(err, ErrDenied) && st.hides(s.Namespace) {
			return nil
		}
		return err
	})
	if err != nil {
		return err
	}
	st.jobs = make(map[jobKey]*jobEntry, len(list))
	for i, s := range list {
		key := jobKey{s.Namespace, s.ID}
		known, job := old.jobs[key], details[i]
		switch {
		case job == nil:
		case known != nil && known.fresh(deref(job.ModifyIndex), st.records[key]):
			st.jobs[key] = known
		default:
			st.jobs[key] = o.readJob(job, st.records[key])
		}
	}
	return nil
}

// wants says whether a job's details matter: it may still run something, or
// something of it is still remembered.
func (st *state) wants(s *api.JobListStub) bool {
	if s.Periodic || s.ParameterizedJob {
		return false
	}
	key := jobKey{s.Namespace, s.ID}
	if !s.Stop && s.Status != jobDead {
		return true
	}
	if st.records[key] != nil {
		return true
	}
	return slices.ContainsFunc(st.allocsByJob[key], func(a *api.AllocationListStub) bool {
		return stateOf(a, st.nodeStatus(a.NodeID)).Holds()
	})
}

// indexAllocs makes the models of the allocations that changed.
func (st *state) indexAllocs(old *state) {
	st.models = make(map[string]allocEntry, len(st.allocs))
	for _, a := range st.allocs {
		status := st.nodeStatus(a.NodeID)
		e, ok := old.models[a.ID]
		if !ok || e.modifyIndex != a.ModifyIndex || e.nodeStatus != status {
			e = allocEntry{modifyIndex: a.ModifyIndex, nodeStatus: status}
			e.model, e.holds = allocModel(a, status, st.phases(a))
		}
		st.models[a.ID] = e
	}
}

// phases tells the phases of an allocation's tasks from its job.
func (st *state) phases(a *api.AllocationListStub) phaser {
	e := st.jobs[jobKey{a.Namespace, a.JobID}]
	return func(task string) *api.TaskLifecycle {
		if e == nil {
			return nil
		}
		for _, g := range e.job.TaskGroups {
			if g == nil || deref(g.Name) != a.TaskGroup {
				continue
			}
			for _, t := range g.Tasks {
				if t != nil && t.Name == task {
					return t.Lifecycle
				}
			}
		}
		return nil
	}
}

// each calls f for every element, several at once, until one fails.
func each[T any](ctx context.Context, list []T, f func(ctx context.Context, i int, x T) error) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(parallel)
	for i, x := range list {
		g.Go(func() error { return f(ctx, i, x) })
	}
	return g.Wait()
}
