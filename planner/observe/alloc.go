package observe

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/planner/core/model"
)

// nodeCutOff says whether the servers cannot reach a node's client: what runs
// there may go on running.
func nodeCutOff(status string) bool {
	return status == api.NodeStatusDown || status == api.NodeStatusDisconnected
}

// stateOf says what an allocation is, as far as it alone and its node's status
// tell; where it was to be placed is another question.
func stateOf(a *api.AllocationListStub, nodeStatus string) AllocState {
	switch a.ClientStatus {
	case api.AllocClientStatusComplete:
		return AllocComplete
	case api.AllocClientStatusFailed, api.AllocClientStatusLost:
		return AllocDead
	case api.AllocClientStatusUnknown:
		return AllocLost
	}
	switch {
	case nodeCutOff(nodeStatus):
		return AllocLost
	case a.DesiredStatus != api.AllocDesiredStatusRun:
		return AllocStopping
	}
	return AllocPlaced
}

// phaser says in which phase of an allocation a task runs; nil: the main one.
type phaser func(task string) *api.TaskLifecycle

// allocModel is the allocation as the decision core reads it; false when it
// holds nothing.
func allocModel(a *api.AllocationListStub, nodeStatus string, phase phaser) (model.Alloc, bool) {
	state := stateOf(a, nodeStatus)
	if !state.Holds() {
		return model.Alloc{}, false
	}
	return held(a, state, phase), true
}

// held is the model of an allocation that holds its resources.
func held(a *api.AllocationListStub, state AllocState, phase phaser) model.Alloc {
	out := model.Alloc{
		ID: a.ID, Namespace: a.Namespace, Job: a.JobID, Group: a.TaskGroup,
		Index: allocIndex(a.Name), Node: a.NodeID,
		GPUs:     AllocGPUs(a),
		Stopping: state == AllocStopping,
		Lost:     state == AllocLost,
	}
	if a.AllocatedResources != nil {
		out.Resources = allocResources(a.AllocatedResources, phase)
		out.Ports = allocPorts(a.AllocatedResources)
	}
	return out
}

// returnFence is how long after a node's return an allocation counts as holding
// its resources that the servers gave up for lost and that the client has not
// spoken of since: its tasks may run on, and be on their way to be stopped.
const returnFence = 30 * time.Second

// fenced says whether an allocation that the servers gave up for lost holds its
// resources, and until when by nothing but time; zero for as long as the node is
// cut off. There nothing is placed anyway, but its machine may be back under a
// new ID, whose client knows nothing of the tasks that run on.
func (st *state) fenced(a *api.AllocationListStub, now time.Time) (holds bool, until time.Time) {
	n := st.nodes[a.NodeID]
	switch {
	case a.ClientStatus != api.AllocClientStatusLost || n == nil:
		return false, time.Time{}
	case nodeCutOff(n.status):
		return true, time.Time{}
	case n.status != api.NodeStatusReady:
		return false, time.Time{}
	}
	until = n.statusAt.Add(returnFence)
	return until.After(now), until
}

// allocIndex reads the index at the end of "job.group[3]"; 0 when there is
// none.
func allocIndex(name string) int {
	open := strings.LastIndexByte(name, '[')
	if open < 0 || !strings.HasSuffix(name, "]") {
		return 0
	}
	n, err := strconv.Atoi(name[open+1 : len(name)-1])
	if err != nil || n < 0 || n > model.MaxCount {
		return 0
	}
	return n
}

// AllocGPUs are the IDs of all devices held, sorted.
func AllocGPUs(a *api.AllocationListStub) []string {
	if a.AllocatedResources == nil {
		return nil
	}
	var out []string
	for _, t := range a.AllocatedResources.Tasks {
		if t == nil {
			continue
		}
		for _, d := range t.Devices {
			if d != nil {
				out = append(out, d.DeviceIDs...)
			}
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// allocResources adds up what an allocation holds as Nomad does: tasks of
// different phases do not run together, so the largest phase counts.
func allocResources(r *api.AllocatedResources, phase phaser) model.Resources {
	var before, during, after model.Resources
	out := model.Resources{DiskMiB: quantity(r.Shared.DiskMB)}
	for name, t := range r.Tasks {
		if t == nil {
			continue
		}
		cpu, memory := quantity(t.Cpu.CpuShares), quantity(t.Memory.MemoryMB)
		if n := len(t.Cpu.ReservedCores); n > 0 {
			// Reserved cores stay with their task for the allocation's life.
			out.Cores += n
			out.CPUMHz += cpu
			cpu = 0
		}
		add := func(to *model.Resources) { to.CPUMHz += cpu; to.MemoryMiB += memory }
		switch l := phase(name); {
		case l == nil || l.Hook == api.TaskLifecycleHookPoststart:
			add(&during)
		case l.Hook == api.TaskLifecycleHookPrestart:
			add(&before)
			if l.Sidecar {
				add(&during)
			}
		default:
			add(&after)
		}
	}
	out.CPUMHz += max(before.CPUMHz, during.CPUMHz, after.CPUMHz)
	out.MemoryMiB = max(before.MemoryMiB, during.MemoryMiB, after.MemoryMiB)
	return out
}

// maxQuantity is more than any allocation holds, and far from overflowing when
// many are added up.
const maxQuantity = 1 << 30

func quantity(n int64) int { return int(min(max(n, 0), maxQuantity)) }

// allocPorts are the host ports held, sorted. They stand in up to three
// places, depending on how the job asked for them.
func allocPorts(r *api.AllocatedResources) []int {
	var out []int
	network := func(n *api.NetworkResource) {
		if n == nil {
			return
		}
		for _, ports := range [][]api.Port{n.ReservedPorts, n.DynamicPorts} {
			for _, p := range ports {
				out = append(out, p.Value)
			}
		}
	}
	for _, p := range r.Shared.Ports {
		out = append(out, p.Value)
	}
	for _, n := range r.Shared.Networks {
		network(n)
	}
	for _, t := range r.Tasks {
		if t != nil {
			for _, n := range t.Networks {
				network(n)
			}
		}
	}
	out = slices.DeleteFunc(out, func(p int) bool { return p < 1 || p > 65535 })
	slices.Sort(out)
	return slices.Compact(out)
}
