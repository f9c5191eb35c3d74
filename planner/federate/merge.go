package federate

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
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
	m := merging{Federation: f, view: &v, snap: &snap, names: map[jobKey]string{}, gpus: map[string]string{}}
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
	slices.SortFunc(v.Nodes, func(a, b observe.NodeRef) int { return strings.Compare(a.ID, b.ID) })
	slices.SortFunc(snap.Nodes, func(a, b model.Node) int { return strings.Compare(a.ID, b.ID) })
	slices.SortStableFunc(v.Managed, func(a, b observe.Managed) int {
		return cmp.Or(a.Model.Submitted.Compare(b.Model.Submitted), strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.ID, b.ID))
	})
	slices.SortStableFunc(snap.Jobs, func(a, b model.Job) int {
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
	// names are the regions that have a job of that name, gpus the nodes that list
	// each GPU.
	names map[jobKey]string
	gpus  map[string]string
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
		if twice := m.twice(&n); twice != "" {
			m.view.Warnings = append(m.view.Warnings, observe.Warning{Subject: "node " + cmp.Or(n.Name, n.ID),
				Text: fmt.Sprintf("region %s: its device %s is listed in another region, too, so nothing is placed on the node; give each GPU an ID of its own", r.Name, twice)})
			n.GPUs, n.Links, n.Unschedulable = nil, nil, "a device of it is listed in another region"
		}
		m.snap.Nodes = append(m.snap.Nodes, n)
	}
}

// twice is a GPU of the node that a node before it has listed; "" if there is
// none.
func (m *merging) twice(n *model.Node) string {
	for _, g := range n.GPUs {
		if _, taken := m.gpus[g.UUID]; taken {
			return g.UUID
		}
	}
	for _, g := range n.GPUs {
		m.gpus[g.UUID] = n.ID
	}
	return ""
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
