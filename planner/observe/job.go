package observe

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/gangspec"
	"github.com/caravan-sched/caravan/planner/record"
	"github.com/caravan-sched/caravan/planner/rewrite"
)

// jobKey names a job.
type jobKey struct{ namespace, id string }

// jobEntry is what is known of one job, as far as it depends on the job and on
// the specification in its record alone.
type jobEntry struct {
	modifyIndex    uint64
	jobModifyIndex uint64
	job            *api.Job
	// recordHash is the SpecHash of the record that base was made from; ""
	// without one.
	recordHash string
	specHash   string
	managed    bool
	gated      bool
	pinned     bool
	spec       gangspec.Spec
	base       model.Job
	faults     []string
}

// readJob reads the job's contract, from the user's own version where it is
// remembered.
func (o *Observer) readJob(job *api.Job, rec *record.Record) *jobEntry {
	e := &jobEntry{modifyIndex: deref(job.ModifyIndex), jobModifyIndex: deref(job.JobModifyIndex), job: job}
	if rec != nil {
		e.recordHash = rec.SpecHash
	}
	e.gated, e.pinned = rewrite.IsGated(job), rewrite.IsPinned(job)
	own, err := ownVersion(job, rec)
	if err != nil {
		e.faults = append(e.faults, err.Error())
	}
	e.managed = gangspec.Managed(own, o.managed.Devices) && o.managed.Exempt(namespaceOf(job), deref(own.NodePool)) == ""
	if !e.managed && rec == nil {
		return e
	}
	e.spec, err = gangspec.Parse(own, o.levelNames...)
	e.faults = append(e.faults, gangspec.Sentences(err)...)
	e.base = gangspec.ToModel(own, e.spec)
	e.base.Namespace, e.base.ID = namespaceOf(job), deref(job.ID)
	if err := soundJob(e.base, o.levelNames); err != nil {
		e.faults = append(e.faults, gangspec.Sentences(err)...)
		e.base = model.Job{Namespace: e.base.Namespace, ID: e.base.ID, Type: e.base.Type, Priority: e.base.Priority, Queue: e.base.Queue}
	}
	if e.specHash = e.recordHash; e.specHash == "" {
		e.specHash = gangspec.Hash(own)
	}
	return e
}

// ownVersion is the job as its user wrote it. A job that cannot be taken apart
// counts as it is.
func ownVersion(job *api.Job, rec *record.Record) (*api.Job, error) {
	if rec != nil && rec.Original != nil {
		return rec.Original, nil
	}
	own, err := rewrite.Strip(job, nil)
	if err != nil {
		return job, fmt.Errorf("take gate and pins out of the job: %w", err)
	}
	return own, nil
}

// fresh says whether the entry still describes the job.
func (e *jobEntry) fresh(modifyIndex uint64, rec *record.Record) bool {
	hash := ""
	if rec != nil {
		hash = rec.SpecHash
	}
	return e.modifyIndex == modifyIndex && e.recordHash == hash
}

func submitted(job *api.Job, rec *record.Record) time.Time {
	if rec != nil && !rec.Submitted.IsZero() {
		return rec.Submitted
	}
	return time.Unix(0, deref(job.SubmitTime)).UTC()
}

// jobDead is Nomad's status of a job that has nothing left to run.
const jobDead = "dead"

// ended says whether Nomad will run nothing more of the job.
func ended(job *api.Job) bool {
	return deref(job.Stop) || deref(job.Status) == jobDead
}

// manage joins a job, its record and its allocations. inSnapshot is false for
// a job that the core has nothing to decide about. owner is the node of each
// GPU.
func (o *Observer) manage(e *jobEntry, rec *record.Record, allocs []*api.AllocationListStub, st *state, owner map[string]string) (m Managed, inSnapshot bool) {
	m = Managed{
		Namespace: e.base.Namespace, ID: e.base.ID, Current: e.job, Record: rec, SpecHash: e.specHash,
		Model: e.base, Allocs: allocs, Faults: e.faults,
	}
	m.Model.Submitted = submitted(e.job, rec)
	m.Model.Deadline = e.spec.DeadlineFor(m.Model.Submitted)
	// What is lost counts as gone for the decision; the Snapshot has it all the
	// same, and nothing it held is given away.
	live := 0
	for _, a := range allocs {
		switch s := stateOf(a, st.nodeStatus(a.NodeID)); {
		case s == AllocLost:
		case s.Holds():
			live++
		case s == AllocComplete && a.DesiredStatus == api.AllocDesiredStatusRun && m.Model.Type == api.JobTypeBatch &&
			(rec == nil || a.CreateIndex > rec.PriorIndex):
			// What completed before this submission came is not this one's.
			m.BatchDone = true
		}
	}
	if rec != nil && (rec.Phase == record.PhaseAdmitted || rec.Phase == record.PhaseRunning) {
		m.Members = pair(originsOf(e.job, rec), rec.Members, allocs, st, rec.Floor())
		m.Model.Members = inForce(m.Members)
		if beside := rec.Rollout.Beside(); len(beside) > 0 {
			m.Canaries = pair(originsOf(e.job, rec), beside, allocs, st, max(rec.Floor(), rec.Rollout.Canary.Index))
		}
	} else if rec != nil && rec.Phase == record.PhaseReleased {
		m.Members = adopt(e.job, allocs, st)
	} else if rec == nil && !e.gated && live > 0 {
		m.Members = adopt(e.job, allocs, st)
		m.Adopted = live >= wanted(e.base)
		m.Model.Members = inForce(m.Members)
	}
	soundMembers(&m.Model, st, owner)
	m.Model.State = stateFor(&m, live, ended(e.job))
	st.wait(&m, originsOf(e.job, rec))
	avoid(&m.Model, rec, o.now())
	contend(&m.Model, rec)
	o.estimate(&m.Model)
	m.Model.Hold = o.hold(&m, st)
	if rec != nil && rec.Phase == record.PhaseReleased {
		return m, false
	}
	return m, !ended(e.job) || live > 0
}

// wanted is how many members the job asks for.
func wanted(j model.Job) int {
	n := 0
	for _, g := range j.Groups {
		n += g.Count
	}
	return n
}

func stateFor(m *Managed, live int, ended bool) model.State {
	switch {
	case ended:
		return model.StateStopping
	case m.Record == nil && m.Adopted:
		return model.StateRunning
	case m.Record == nil:
		return model.StateQueued
	}
	switch m.Record.Phase {
	case record.PhaseAdmitted:
		return model.StateAdmitted
	case record.PhaseRunning, record.PhaseReleased:
		return model.StateRunning
	case record.PhaseRollback:
		return model.StateStopping
	}
	if live > 0 {
		return model.StateStopping
	}
	return model.StateQueued
}

// hold says why nothing may be decided on the job.
func (o *Observer) hold(m *Managed, st *state) string {
	if r := m.Record; r != nil && r.Phase == record.PhaseRunning && r.Unpinned {
		held := 0
		for _, s := range m.Members {
			if s.State.Holds() {
				held++
			}
		}
		// Nothing is placed beside what Nomad placed by itself; room that was given
		// to the rest would be kept from others for nothing.
		if held > 0 && held < wanted(m.Model) {
			return r.Reason
		}
	}
	if r := m.Record; r != nil && r.Phase == record.PhaseRunning && r.KeepSize != "" {
		return r.KeepSize
	}
	if m.Model.State != model.StateQueued {
		return ""
	}
	switch {
	case len(m.Faults) > 0:
		return "the job's contract cannot be read: " + strings.Join(m.Faults, "; ") + "; correct it and submit the job again"
	case m.Record != nil && m.Record.Held != "":
		return m.Record.Reason
	case m.BatchDone:
		why := "a member has completed already, and would run a second time if the job were placed again; to run all of it again, stop the job and submit it again, or submit it under another ID"
		if m.Record != nil && m.Record.Reason != "" {
			why = m.Record.Reason + "; " + why
		}
		return why
	case st.preemption[m.Model.Type] && m.Model.Gang != model.GangNone && wanted(m.Model) > 1:
		return fmt.Sprintf("Nomad's own preemption is on for %s jobs and would take single members out of a gang; turn it off: nomad operator scheduler set-config -preempt-%s-scheduler=false", m.Model.Type, m.Model.Type)
	}
	return ""
}

// inForce are the members as the core reads them.
func inForce(members []MemberState) []model.Member {
	out := make([]model.Member, 0, len(members))
	for _, m := range members {
		member := m.Member
		member.Ended = m.Member.Ended || m.State == AllocComplete
		out = append(out, member)
	}
	return out
}

// adopt makes members of allocations that Nomad placed by itself, so that the
// core knows what holds what.
func adopt(job *api.Job, allocs []*api.AllocationListStub, st *state) []MemberState {
	origins := originsOf(job, nil)
	var out []MemberState
	for _, a := range allocs {
		s := stateOf(a, st.nodeStatus(a.NodeID))
		if !s.Holds() {
			continue
		}
		at := origins.of(a)
		out = append(out, MemberState{
			Member: model.Member{Group: at.group, Index: at.indexOf(a), Node: a.NodeID, GPUs: AllocGPUs(a)},
			Alloc:  a, State: s,
		})
	}
	slices.SortStableFunc(out, func(a, b MemberState) int {
		return cmp.Or(cmp.Compare(a.Member.Group, b.Member.Group), cmp.Compare(a.Member.Index, b.Member.Index))
	})
	for i := range out {
		out[i].Member.Rank = i
	}
	return out
}

// origins maps the names of a rewritten job's groups back to the user's.
type origins struct {
	orig   *api.Job
	groups map[string]origin
}

type origin struct {
	group string
	index int
	split bool
	slot  int
}

func originsOf(job *api.Job, rec *record.Record) origins {
	out := origins{groups: map[string]origin{}}
	if rec != nil {
		out.orig = rec.Original
	}
	for _, g := range job.TaskGroups {
		if g == nil {
			continue
		}
		group, index, split := rewrite.Origin(g)
		out.groups[deref(g.Name)] = origin{group, index, split, rewrite.Slot(g)}
	}
	return out
}

// of says which of the user's groups an allocation belongs to. A group that
// the job does not have any more is known by its name.
func (o origins) of(a *api.AllocationListStub) origin {
	if at, ok := o.groups[a.TaskGroup]; ok {
		return at
	}
	group, index, split := rewrite.OriginByName(o.orig, a.TaskGroup)
	return origin{group, index, split, rewrite.SlotByName(o.orig, a.TaskGroup)}
}

// indexOf is the allocation's index in the user's group, as far as Nomad knows.
func (o origin) indexOf(a *api.AllocationListStub) int {
	if o.split {
		return o.index
	}
	return allocIndex(a.Name)
}

func namespaceOf(job *api.Job) string {
	if ns := deref(job.Namespace); ns != "" {
		return ns
	}
	return api.DefaultNamespace
}

func deref[T any](p *T) T {
	var zero T
	if p == nil {
		return zero
	}
	return *p
}
