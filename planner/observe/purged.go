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
)

// `nomad job stop -purge` deletes a job's allocations together with it, and a
// forced collection those that are told to stop: for Nomad their GPUs are free
// while their tasks still have their kill_timeout on the client. So whatever is
// gone from Nomad before its client has said that it ended is remembered here
// for as long as it may run.

// hearing is how long a client that is connected takes at most to hear that an
// allocation of its is gone, and to begin to stop it.
const hearing = 5 * time.Second

// purgedAlloc is an allocation that was gone before it had ended.
type purgedAlloc struct {
	model model.Alloc
	// since is when it was seen to be gone, and grace how long it may run after
	// that, or after its client is back.
	since time.Time
	grace time.Duration
	// collected: the servers had given it up for lost, and forgot it while they
	// remember its job. Its machine may be back under a new ID; while the old one
	// is cut off it holds nothing any more.
	collected bool
}

// holds says whether it holds its resources, and until when by nothing but
// time; zero where its client does not hear of anything at present.
func (p *purgedAlloc) holds(n *nodeEntry, now time.Time) (holds bool, until time.Time) {
	if n.status != api.NodeStatusReady {
		return !p.collected, time.Time{}
	}
	from := p.since
	if n.statusAt.After(from) {
		from = n.statusAt
	}
	until = from.Add(p.grace)
	return until.After(now), until
}

// purgedModels are those that hold something still; next is when the first of
// them ceases to.
func (st *state) purgedModels(now time.Time) (out []model.Alloc, next time.Time) {
	for _, p := range st.purged {
		holds, until := p.holds(st.nodes[p.model.Node], now)
		if !holds {
			continue
		}
		a := p.model
		a.Until = until.UTC()
		if until.IsZero() {
			a.Until = time.Time{}
		}
		out = append(out, a)
		next = sooner(next, until)
	}
	return out, next
}

// sooner is the earlier of two times; one that is zero is never.
func sooner(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// rememberPurged notes what is gone since old was read, and drops what has had
// its time.
func (st *state) rememberPurged(old *state, now time.Time) {
	var out []*purgedAlloc
	for _, p := range old.purged {
		n := st.nodes[p.model.Node]
		if _, back := st.models[p.model.ID]; back || n == nil {
			continue
		}
		if holds, until := p.holds(n, now); holds || until.IsZero() {
			out = append(out, p)
		}
	}
	for _, a := range old.allocs {
		if _, known := st.models[a.ID]; known || st.nodes[a.NodeID] == nil {
			continue
		}
		if p := old.purge(a, now); p != nil {
			p.collected = a.ClientStatus == api.AllocClientStatusLost &&
				slices.ContainsFunc(st.jobStubs, func(j *api.JobListStub) bool { return j != nil && j.ID == a.JobID && j.Namespace == a.Namespace })
			out = append(out, p)
		}
	}
	if old.index[partAllocs] == 0 {
		out = append(out, st.purgedBefore(now)...)
	}
	slices.SortFunc(out, func(a, b *purgedAlloc) int { return strings.Compare(a.model.ID, b.model.ID) })
	st.purged = out
}

// purge is what an allocation of this state holds once it is gone; nil if its
// client has said that it ended.
func (st *state) purge(a *api.AllocationListStub, now time.Time) *purgedAlloc {
	e := st.models[a.ID]
	out := e.model
	if !e.holds {
		if held, _ := st.fenced(a, now); !held {
			return nil
		}
		out = held(a, AllocStopping, st.phases(a))
	}
	out.Stopping, out.Lost = true, false
	key := jobKey{a.Namespace, a.JobID}
	var job *api.Job
	if known := st.jobs[key]; known != nil {
		job = known.job
	}
	grace := gangspec.KillTime(job, a.TaskGroup)
	if rec := st.records[key]; rec != nil && rec.Original != nil {
		// It may be of a version before the one that Nomad had last.
		grace = max(grace, gangspec.KillTime(rec.Original, a.TaskGroup))
	}
	return &purgedAlloc{model: out, since: now, grace: grace + hearing}
}

// purgedBefore is what may run of jobs that were purged before anything was
// seen: a record that has outlived its job tells where its members were.
func (st *state) purgedBefore(now time.Time) (out []*purgedAlloc) {
	if len(st.unseen) > 0 {
		return nil // what is hidden is not gone
	}
	for key, rec := range st.records {
		if st.jobs[key] != nil || rec.Original == nil || len(st.allocsByJob[key]) > 0 {
			continue
		}
		spec, _ := gangspec.Parse(rec.Original)
		groups := gangspec.ToModel(rec.Original, spec).Groups
		for _, m := range slices.Concat(rec.Members, rec.Rollout.Beside()) {
			if m.Ended || st.nodes[m.Node] == nil {
				continue
			}
			out = append(out, &purgedAlloc{
				model: memberModel(rec, m, groups), since: now,
				grace: gangspec.KillTime(rec.Original, m.Group) + hearing,
			})
		}
	}
	return out
}

// memberModel is a member of a record as the allocation that it had.
func memberModel(rec *record.Record, m model.Member, groups []model.TaskGroup) model.Alloc {
	a := model.Alloc{
		ID:        fmt.Sprintf("%s/%s.%s[%d].%d", cmp.Or(rec.Namespace, api.DefaultNamespace), rec.JobID, m.Group, m.Index, m.Slot),
		Namespace: rec.Namespace, Job: rec.JobID, Group: m.Group, Index: m.Index, Node: m.Node,
		GPUs: slices.Sorted(slices.Values(m.GPUs)), Stopping: true,
	}
	for _, g := range groups {
		if g.Name == m.Group {
			a.Resources, a.Ports = g.Resources, g.Ports
		}
	}
	return a
}
