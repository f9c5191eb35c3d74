package apply_test

import (
	"slices"
	"strings"

	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/gangspec"
	"github.com/caravan-sched/caravan/planner/observe"
	"github.com/caravan-sched/caravan/planner/rewrite"
)

// view is what the observer would see.
func (f *fakeNomad) view() *observe.View {
	f.mu.Lock()
	defer f.mu.Unlock()
	v := &observe.View{Taken: f.now, Snapshot: &model.Snapshot{Now: f.now}, LevelMeta: map[string]string{}}
	for _, n := range f.nodes {
		v.Nodes = append(v.Nodes, observe.NodeRef{ID: n, GPUs: gpusPerNode})
		v.Snapshot.Nodes = append(v.Snapshot.Nodes, f.modelNode(n))
	}
	for _, a := range f.allocs {
		if s := f.state(a); s.Holds() {
			v.Snapshot.Allocs = append(v.Snapshot.Allocs, model.Alloc{ID: a.ID, Job: a.JobID, Node: a.NodeID, GPUs: idsOf(a), Stopping: s == observe.AllocStopping, Lost: s == observe.AllocLost})
		}
	}
	for _, job := range f.jobs {
		if m, ok := f.managed(job); ok {
			v.Managed = append(v.Managed, m)
		}
	}
	for key, rec := range f.records {
		if f.jobs[rec.JobID] == nil {
			orphan := f.records[key]
			v.Orphans = append(v.Orphans, &orphan)
		}
	}
	slices.SortFunc(v.Managed, func(a, b observe.Managed) int { return strings.Compare(a.ID, b.ID) })
	return v
}

func (f *fakeNomad) modelNode(id string) model.Node {
	out := model.Node{ID: id, Unschedulable: f.unusable[id]}
	if f.down[id] {
		out.Unschedulable = api.NodeStatusDown
	}
	for i := range gpusPerNode {
		if !f.hidden[gpu(id, i)] {
			out.GPUs = append(out.GPUs, model.GPU{UUID: gpu(id, i), Model: "H100", Unhealthy: f.sick[gpu(id, i)]})
		}
	}
	return out
}

func (f *fakeNomad) managed(job *api.Job) (observe.Managed, bool) {
	if !gangspec.Managed(job, gangspec.DefaultDevices) {
		return observe.Managed{}, false
	}
	copied, err := gangspec.Copy(job)
	if err != nil {
		f.t.Error(err)
	}
	m := observe.Managed{Namespace: "default", ID: *job.ID, Current: copied}
	orig, err := rewrite.Strip(copied, nil)
	if err != nil {
		f.t.Error(err)
	}
	if rec, ok := f.records["default/"+*job.ID]; ok {
		m.Record, orig = &rec, rec.Original
	}
	spec, _ := gangspec.Parse(orig)
	m.Model = gangspec.ToModel(orig, spec)
	m.Model.Submitted = f.now
	live := 0
	for _, a := range f.allocs {
		if a.JobID != *job.ID {
			continue
		}
		stub := *a
		m.Allocs = append(m.Allocs, &stub)
		m.BatchDone = m.BatchDone || *job.Type == "batch" && a.ClientStatus == "complete" && a.DesiredStatus == "run" && (m.Record == nil || a.CreateIndex > m.Record.PriorIndex)
		if f.state(a).Holds() {
			live++
			if m.Record == nil {
				m.Members = append(m.Members, observe.MemberState{Member: model.Member{Group: a.TaskGroup, Index: live - 1, Node: a.NodeID, GPUs: idsOf(a)}, Alloc: &stub, State: f.state(a)})
			}
		}
	}
	m.Adopted = m.Record == nil && live > 0 && live == *orig.TaskGroups[0].Count
	if m.Record != nil {
		f.pair(&m)
	}
	return m, true
}

func (f *fakeNomad) pair(m *observe.Managed) {
	m.Members = f.pairOf(m, m.Record.Members)
	m.Canaries = f.pairOf(m, m.Record.Rollout.Beside())
}

func (f *fakeNomad) pairOf(m *observe.Managed, members []model.Member) (out []observe.MemberState) {
	for _, member := range members {
		s := observe.MemberState{Member: member, State: observe.AllocNone}
		for _, a := range m.Allocs {
			group, index, split := rewrite.OriginByName(m.Record.Original, a.TaskGroup)
			state := f.state(a)
			if group != member.Group || rewrite.SlotByName(m.Record.Original, a.TaskGroup) != member.Slot || split && index != member.Index || !state.Holds() && a.DesiredStatus != "run" {
				continue
			}
			if a.NodeID == member.Node {
				s.Alloc, s.State = a, state
				if state == observe.AllocPlaced && !slices.Equal(slices.Sorted(slices.Values(member.GPUs)), idsOf(a)) {
					s.State = observe.AllocMisplaced
				}
			}
		}
		out = append(out, s)
	}
	return out
}

func idsOf(a *api.AllocationListStub) []string {
	return slices.Sorted(slices.Values(a.AllocatedResources.Tasks["t"].Devices[0].DeviceIDs))
}

func (f *fakeNomad) state(a *api.AllocationListStub) observe.AllocState {
	switch {
	case a.ClientStatus == "complete":
		return observe.AllocComplete
	case a.ClientStatus == "failed" || a.ClientStatus == "lost":
		return observe.AllocDead
	case a.ClientStatus == "unknown" || f.down[a.NodeID]:
		return observe.AllocLost
	case a.DesiredStatus == "stop":
		return observe.AllocStopping
	}
	return observe.AllocPlaced
}
