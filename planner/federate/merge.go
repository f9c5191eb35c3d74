package federate

import (
	"cmp"
	"fmt"
	"maps"
	"strings"

	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/observe"
)

// merge makes one View of what is seen of the regions.
func (f *Federation) merge() *observe.View {
	first := f.regions[0].view
	v := *first
	v.Snapshot = nil
	v.Managed, v.Nodes, v.Orphans, v.Strays, v.Warnings, v.Unseen = nil, nil, nil, nil, nil, nil
	v.PreemptionOn = maps.Clone(first.PreemptionOn)
	snap := *first.Snapshot
	snap.Nodes, snap.Jobs, snap.Allocs = nil, nil, nil
	m := merging{Federation: f, view: &v, snap: &snap, names: map[jobKey]string{}, twice: f.twice()}
	m.makeRoom()
	for _, r := range f.regions {
		state := observe.RegionState{Name: r.Name, Held: r.held, Since: r.since}
		if r.view != nil {
			state.Taken = r.view.Taken
		}
		v.Regions = append(v.Regions, state)
		if r.held != "" {
			v.Warnings = append(v.Warnings, observe.Warning{Subject: "region " + r.Name, Text: r.held + "; what runs there is left as it is, and nothing is placed there until it is seen again"})
		}
		if r.view == nil {
			v.Partial = true
			continue
		}
		m.addNodes(r)
		m.addJobs(r)
		m.addRest(r)
	}
	v.Nodes = inOrder(v.Nodes, m.ends, func(a, b *observe.NodeRef) int { return strings.Compare(a.ID, b.ID) })
	snap.Nodes = inOrder(snap.Nodes, m.ends, func(a, b *model.Node) int { return strings.Compare(a.ID, b.ID) })
	v.Managed = inOrder(v.Managed, m.managedEnds, func(a, b *observe.Managed) int {
		return cmp.Or(a.Model.Submitted.Compare(b.Model.Submitted), strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.ID, b.ID))
	})
	snap.Jobs = inOrder(snap.Jobs, m.jobEnds, func(a, b *model.Job) int {
		return cmp.Or(a.Submitted.Compare(b.Submitted), strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.ID, b.ID))
	})
	snap.Now = v.Taken
	v.Snapshot = &snap
	return &v
}

// merging is one View in the making.
type merging struct {
	*Federation
	view *observe.View
	snap *model.Snapshot
	// names are the regions that have a job of that name, twice the nodes with a GPU
	// that another region lists, too.
	names map[jobKey]string
	twice map[string]string
	// ends, managedEnds and jobEnds are where each region's part of the nodes, the
	// managed jobs and the snapshot's jobs ends.
	ends, managedEnds, jobEnds []int
}

// makeRoom allocates the lists at once.
func (m *merging) makeRoom() {
	nodes, jobs, allocs := 0, 0, 0
	for _, r := range m.regions {
		if r.view != nil {
			nodes += len(r.view.Nodes)
			jobs += len(r.view.Managed)
			allocs += len(r.view.Snapshot.Allocs)
		}
	}
	m.view.Nodes, m.view.Managed = make([]observe.NodeRef, 0, nodes), make([]observe.Managed, 0, jobs)
	m.snap.Nodes, m.snap.Jobs, m.snap.Allocs = make([]model.Node, 0, nodes), make([]model.Job, 0, jobs), make([]model.Alloc, 0, allocs)
}

// inOrder puts a list in order of which the parts are, up to ends.
func inOrder[T any](list []T, ends []int, order func(a, b *T) int) []T {
	at := make([]int, len(ends))
	for i := 1; i < len(ends); i++ {
		at[i] = ends[i-1]
	}
	out := make([]T, 0, len(list))
	for len(out) < len(list) {
		next := -1
		for i := range ends {
			if at[i] < ends[i] && (next < 0 || order(&list[at[i]], &list[at[next]]) < 0) {
				next = i
			}
		}
		out = append(out, list[at[next]])
		at[next]++
	}
	return out
}

// addNodes adds a region's nodes. On those of one that is held nothing is placed.
func (m *merging) addNodes(r *region) {
	for _, n := range r.view.Nodes {
		n.Region = r.Name
		m.view.Nodes = append(m.view.Nodes, n)
	}
	for _, n := range r.view.Snapshot.Nodes {
		if r.held != "" {
			n.Unschedulable = cmp.Or(n.Unschedulable, "region held")
		}
		if twice := m.twice[n.ID]; twice != "" {
			m.view.Warnings = append(m.view.Warnings, observe.Warning{Subject: "node " + cmp.Or(n.Name, n.ID),
				Text: fmt.Sprintf("region %s: its device %s is listed in another region, too, so nothing is placed on the node; give each GPU an ID of its own", r.Name, twice)})
			n.GPUs, n.Links, n.Unschedulable = nil, nil, "a device of it is listed in another region"
		}
		m.snap.Nodes = append(m.snap.Nodes, n)
	}
	m.ends = append(m.ends, len(m.snap.Nodes))
}

// listed is what is known of the GPUs of all nodes: which node lists one that a
// node of an earlier region lists, too.
type listed struct {
	// first are the nodes' lists, by their first GPU.
	first map[string]*model.GPU
	twice map[string]string
}

// twice are the GPUs that two regions list, by the node of the later one. As long
// as no node's list changes it is not looked at again.
func (f *Federation) twice() map[string]string {
	changed, nodes := false, 0
	each := func(do func(n *model.Node)) {
		for _, r := range f.regions {
			if r.view == nil {
				continue
			}
			for i := range r.view.Snapshot.Nodes {
				if n := &r.view.Snapshot.Nodes[i]; len(n.GPUs) > 0 {
					do(n)
				}
			}
		}
	}
	each(func(n *model.Node) {
		nodes++
		changed = changed || f.gpus.first[n.ID] != &n.GPUs[0]
	})
	if !changed && nodes == len(f.gpus.first) {
		return f.gpus.twice
	}
	next, on := listed{map[string]*model.GPU{}, map[string]string{}}, map[string]string{}
	each(func(n *model.Node) {
		next.first[n.ID] = &n.GPUs[0]
		for i := range n.GPUs {
			if _, taken := on[n.GPUs[i].UUID]; taken {
				next.twice[n.ID] = n.GPUs[i].UUID
				return
			}
		}
		for i := range n.GPUs {
			on[n.GPUs[i].UUID] = n.ID
		}
	})
	f.gpus = next
	return next.twice
}

// addJobs adds a region's jobs, each once: one that was sent elsewhere counts where
// it is.
func (m *merging) addJobs(r *region) {
	renamed := map[jobKey]string{}
	inSnapshot := map[jobKey]*model.Job{}
	for i := range r.view.Snapshot.Jobs {
		j := &r.view.Snapshot.Jobs[i]
		inSnapshot[jobKey{j.Namespace, j.ID}] = j
	}
	for _, job := range r.view.Managed {
		key := jobKey{job.Namespace, job.ID}
		here, why := m.counts(r, &job)
		if !here {
			continue
		}
		job.Region = r.Name
		if other, taken := m.names[key]; taken && other != r.Name {
			job.ID = observe.InRegion(job.ID, r.Name)
			job.Model.ID = job.ID
			renamed[key] = job.ID
		} else {
			m.names[key] = r.Name
		}
		m.allow(r, &job, why)
		m.view.Managed = append(m.view.Managed, job)
		if inSnapshot[key] != nil {
			m.snap.Jobs = append(m.snap.Jobs, job.Model)
		}
		if beside := inSnapshot[jobKey{key.namespace, observe.CanaryID(key.id)}]; beside != nil {
			canaries := *beside
			canaries.ID, canaries.Regions = observe.CanaryID(job.ID), []string{r.Name}
			m.snap.Jobs = append(m.snap.Jobs, canaries)
		}
	}
	m.managedEnds, m.jobEnds = append(m.managedEnds, len(m.view.Managed)), append(m.jobEnds, len(m.snap.Jobs))
	m.addAllocs(r, renamed)
}

func (m *merging) addAllocs(r *region, renamed map[jobKey]string) {
	for _, a := range r.view.Snapshot.Allocs {
		job, canary := observe.CanaryOf(a.Job)
		if to := renamed[jobKey{a.Namespace, job}]; to != "" {
			a.Job = to
			if canary {
				a.Job = observe.CanaryID(to)
			}
		}
		m.snap.Allocs = append(m.snap.Allocs, a)
	}
}

// addRest adds what is for people.
func (m *merging) addRest(r *region) {
	for _, w := range r.view.Warnings {
		w.Subject = "region " + r.Name + ": " + w.Subject
		m.view.Warnings = append(m.view.Warnings, w)
	}
	m.view.Orphans = append(m.view.Orphans, r.view.Orphans...)
	m.view.Strays = append(m.view.Strays, r.view.Strays...)
	for kind, on := range r.view.PreemptionOn {
		m.view.PreemptionOn[kind] = m.view.PreemptionOn[kind] || on
	}
	if ends := r.view.FenceEnds; !ends.IsZero() && (m.view.FenceEnds.IsZero() || ends.Before(m.view.FenceEnds)) {
		m.view.FenceEnds = ends
	}
	m.view.ACLsOff = m.view.ACLsOff && r.view.ACLsOff
	if r.view.Taken.After(m.view.Taken) {
		m.view.Taken = r.view.Taken
	}
}
