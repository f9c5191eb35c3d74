package apply_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/observe"
	"github.com/caravan-sched/caravan/planner/record"
	"github.com/caravan-sched/caravan/planner/rewrite"
)

// update replaces the allocations of groups whose tasks or meta have changed,
// at once, and brings the others to the new version in place.
func (f *fakeNomad) update(job *api.Job) {
	for _, a := range f.allocs {
		after := job.LookupTaskGroup(a.TaskGroup)
		if a.JobID != *job.ID || a.DesiredStatus != "run" || a.ClientStatus != "running" || after == nil {
			continue
		}
		if gated := append(slices.Clone(job.Constraints), after.Constraints...); !allowed(a.NodeID, nil, gated) {
			continue
		}
		if f.made[a.ID] == f.says(job, after) {
			a.JobVersion = *job.Version
			continue
		}
		a.DesiredStatus, a.ClientStatus = "stop", "complete"
	}
}

// says is what restarts a member when it changes.
func (f *fakeNomad) says(job *api.Job, g *api.TaskGroup) string {
	meta := maps.Clone(job.Meta)
	if meta == nil {
		meta = map[string]string{}
	}
	maps.Copy(meta, g.Meta)
	data, err := json.Marshal([]any{g.Tasks[0].Env, g.Tasks[0].Config, g.Tasks[0].Resources, meta})
	if err != nil {
		f.t.Error(err)
	}
	return string(data)
}

// schedule places what may be placed and returns the groups of which
// something could not be.
func (f *fakeNomad) schedule(job *api.Job, commit bool) map[string]*api.AllocationMetric {
	failed := map[string]*api.AllocationMetric{}
	taken := map[string]bool{}
	f.held(func(_ *api.AllocationListStub, gpu string) { taken[gpu] = true })
	for _, g := range job.TaskGroups {
		live := 0
		busy, names := map[string]bool{}, map[string]bool{}
		for _, a := range f.allocs {
			if a.JobID == *job.ID && a.TaskGroup == *g.Name && a.DesiredStatus == "run" && a.ClientStatus != "lost" && !f.forgotten(job, a) {
				// A completed member of an earlier version runs again.
				if a.ClientStatus == "complete" && a.JobVersion != deref(job.Version) {
					continue
				}
				busy[a.NodeID] = true
				if !f.down[a.NodeID] {
					live++
					names[a.Name] = true
				}
			}
		}
		if commit {
			f.shrink(job, g, live)
		}
		for range *g.Count - live {
			node, ids := f.choose(job, g, taken, busy)
			if node == "" {
				failed[*g.Name] = &api.AllocationMetric{NodesEvaluated: len(f.nodes), DimensionExhausted: map[string]int{"devices": 1}}
				continue
			}
			busy[node] = true
			for _, id := range ids {
				taken[id] = true
			}
			if commit {
				free := 0
				for names[allocName(job, g, free)] {
					free++
				}
				names[allocName(job, g, free)] = true
				f.index++
				f.made[fmt.Sprintf("alloc-%d", f.index)] = f.says(job, g)
				f.allocs = append(f.allocs, &api.AllocationListStub{
					ID: fmt.Sprintf("alloc-%d", f.index), Namespace: "default", JobID: *job.ID, TaskGroup: *g.Name, NodeID: node,
					Name: allocName(job, g, free), JobVersion: *job.Version, CreateIndex: f.index,
					DesiredStatus: "run", ClientStatus: "running", CreateTime: f.now.UnixNano(),
					AllocatedResources: &api.AllocatedResources{Tasks: map[string]*api.AllocatedTaskResources{"t": {Devices: []*api.AllocatedDeviceResource{{DeviceIDs: ids}}}}},
				})
			}
			live++
		}
	}
	return failed
}

func allocName(job *api.Job, g *api.TaskGroup, index int) string {
	return fmt.Sprintf("%s.%s[%d]", *job.ID, *g.Name, index)
}

// forgotten says whether a failed allocation does not count any more: one of a
// batch job's earlier version, or one that is tried again.
func (f *fakeNomad) forgotten(job *api.Job, a *api.AllocationListStub) bool {
	return a.ClientStatus == "failed" && (*job.Type == "batch" && a.JobVersion != deref(job.Version) || f.retried[a.ID])
}

// retry starts failed members of the job again, as its reschedule block says.
func (f *fakeNomad) retry(job string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.reschedule(job)
}

func (f *fakeNomad) reschedule(job string) {
	for _, a := range f.allocs {
		if a.JobID == job && a.ClientStatus == "failed" && a.DesiredStatus == "run" {
			f.retried[a.ID] = true
		}
	}
	f.schedule(f.jobs[job], true)
}

// shrink stops what is beyond a group's count, the highest indexes first.
func (f *fakeNomad) shrink(job *api.Job, g *api.TaskGroup, live int) {
	var of []*api.AllocationListStub
	for _, a := range f.allocs {
		if a.JobID == *job.ID && a.TaskGroup == *g.Name && a.DesiredStatus == "run" && (a.ClientStatus == "running" || a.ClientStatus == "failed" && !f.forgotten(job, a)) && !f.down[a.NodeID] {
			of = append(of, a)
		}
	}
	slices.SortFunc(of, func(a, b *api.AllocationListStub) int { return strings.Compare(b.Name, a.Name) })
	for _, a := range of[:min(len(of), max(0, live-*g.Count))] {
		a.DesiredStatus = "stop"
	}
}

func (f *fakeNomad) held(yield func(a *api.AllocationListStub, gpu string)) {
	for _, a := range f.allocs {
		if a.ClientStatus == "running" || a.ClientStatus == "unknown" {
			for _, d := range a.AllocatedResources.Tasks["t"].Devices {
				for _, id := range d.DeviceIDs {
					yield(a, id)
				}
			}
		}
	}
}

// choose finds a node and GPUs for one member, by the constraints of job,
// group and device.
func (f *fakeNomad) choose(job *api.Job, g *api.TaskGroup, taken, busy map[string]bool) (string, []string) {
	var only []string
	want := 0
	for _, t := range g.Tasks {
		if t.Resources == nil {
			continue
		}
		for _, d := range t.Resources.Devices {
			want += int(*d.Count)
			for _, c := range d.Constraints {
				only = strings.Split(c.RTarget, ",")
			}
		}
	}
	for _, node := range f.nodes {
		if f.down[node] || f.unusable[node] != "" || !allowed(node, busy, append(slices.Clone(job.Constraints), g.Constraints...)) {
			continue
		}
		var ids []string
		for i := range gpusPerNode {
			if id := gpu(node, i); !taken[id] && f.sick[id] == "" && !f.hidden[id] && len(ids) < want && (only == nil || slices.Contains(only, id)) {
				ids = append(ids, id)
			}
		}
		if len(ids) == want {
			return node, ids
		}
	}
	return "", nil
}

func allowed(node string, busy map[string]bool, constraints []*api.Constraint) bool {
	for _, c := range constraints {
		switch {
		case c.LTarget == rewrite.GateAttribute && c.Operand == "=":
			return false
		case c.LTarget == "${node.unique.id}" && !regexp.MustCompile(c.RTarget).MatchString(node):
			return false
		case c.Operand == "distinct_hosts" && busy[node]:
			return false
		}
	}
	return true
}

// decide admits every queued job that fits, with the first free nodes.
func decide(f *fakeNomad, v *observe.View) *model.Plan {
	taken := map[string]bool{}
	for _, a := range v.Snapshot.Allocs {
		for _, id := range a.GPUs {
			taken[id] = true
		}
	}
	plan := &model.Plan{}
	for i := range v.Managed {
		m := &v.Managed[i]
		if m.Record == nil || m.Record.RetryAfter.After(v.Taken) || m.Record.Held != "" || m.BatchDone && m.Record.Phase == record.PhaseQueued {
			continue
		}
		have := map[rewrite.Place]bool{}
		for _, member := range m.Record.Members {
			have[rewrite.Place{Group: member.Group, Index: member.Index}] = m.Record.Phase != record.PhaseQueued
		}
		d := model.Decision{Namespace: m.Namespace, Job: m.ID, Action: model.ActionAdmit, Reason: "it fits"}
		whole := true
		for _, g := range m.Model.Groups {
			var members []model.Member
			missing := 0
			lacking := g.Count
			for at, is := range have {
				if is && at.Group == g.Name {
					lacking--
				}
			}
			for index := 0; lacking > 0; index++ {
				if have[rewrite.Place{Group: g.Name, Index: index}] {
					continue
				}
				lacking--
				node, ids := f.free(taken, g.Devices[0].Count)
				if node == "" {
					missing++
					continue
				}
				for _, id := range ids {
					taken[id] = true
				}
				members = append(members, model.Member{Group: g.Name, Index: index, Rank: index, Node: node, GPUs: ids})
			}
			whole = whole && missing == 0
			if missing == 0 || m.Model.Gang == model.GangNone {
				d.Members = append(d.Members, members...)
			}
		}
		if len(d.Members) > 0 && (whole || m.Model.Gang != model.GangJob) {
			plan.Decisions = append(plan.Decisions, d)
		}
		if d := f.decideCanaries(v, m, taken); len(d.Members) > 0 {
			plan.Decisions = append(plan.Decisions, d)
		}
	}
	return plan
}

// decideCanaries decides on the canaries of an update: all of a gang or none.
func (f *fakeNomad) decideCanaries(v *observe.View, m *observe.Managed, taken map[string]bool) model.Decision {
	d := model.Decision{Namespace: m.Namespace, Job: observe.CanaryID(m.ID), Action: model.ActionAdmit, Reason: "they fit"}
	if !observe.CanariesWait(m.Record) || m.Record.Rollout.Canary.RetryAfter.After(v.Taken) {
		return d
	}
	lacking := m.Record.Rollout.Canary.Lacking()
	for _, group := range slices.Sorted(maps.Keys(lacking)) {
		for index := range lacking[group] {
			node, ids := f.free(taken, m.Model.Groups[0].Devices[0].Count)
			if node == "" && m.Model.Gang != model.GangNone {
				return model.Decision{}
			}
			if node != "" {
				d.Members = append(d.Members, model.Member{Group: group, Index: index, Node: node, GPUs: ids})
			}
			for _, id := range ids {
				taken[id] = true
			}
		}
	}
	return d
}

// free finds a node with so many free GPUs.
func (f *fakeNomad) free(taken map[string]bool, want int) (node string, ids []string) {
	for _, node := range f.nodes {
		ids = nil
		for k := range gpusPerNode {
			if id := gpu(node, k); !taken[id] && f.sick[id] == "" && !f.hidden[id] && len(ids) < want {
				ids = append(ids, id)
			}
		}
		if len(ids) == want && !f.down[node] && f.unusable[node] == "" {
			return node, ids
		}
	}
	return "", nil
}
