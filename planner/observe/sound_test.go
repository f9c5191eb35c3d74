package observe

import (
	"fmt"
	"strings"
	"testing"

	"github.com/hashicorp/nomad/api"
	"pgregory.net/rapid"

	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/record"
)

// stateFrom makes a state without a Nomad.
func stateFrom(o *Observer, nodes []*api.Node, jobs []*api.Job, records []*record.Record, allocs []*api.AllocationListStub) *state {
	st := &state{nodes: map[string]*nodeEntry{}, jobs: map[jobKey]*jobEntry{}, records: map[jobKey]*record.Record{},
		allocs: allocs, allocsByJob: map[jobKey][]*api.AllocationListStub{}}
	for _, n := range nodes {
		st.nodes[n.ID] = o.reader.read(n)
	}
	for _, r := range records {
		st.records[jobKey{r.Namespace, r.JobID}] = r
	}
	for _, a := range allocs {
		key := jobKey{a.Namespace, a.JobID}
		st.allocsByJob[key] = append(st.allocsByJob[key], a)
	}
	for _, j := range jobs {
		key := jobKey{*j.Namespace, *j.ID}
		st.jobs[key] = o.readJob(j, st.records[key])
	}
	st.indexAllocs(&state{})
	return st
}

// Whatever Nomad shows, the core can read it.
func TestSnapshotIsAlwaysValid(t *testing.T) {
	f := newFake(t)
	o := f.observer(t)
	ids := []string{"n0", "n1", "n2"}
	rapid.Check(t, func(t *rapid.T) {
		var nodes []*api.Node
		for _, id := range ids[:rapid.IntRange(0, 3).Draw(t, "nodes")] {
			n := node(id, rapid.SampledFrom([]int{0, 1, 3, 70}).Draw(t, "gpus"))
			n.ID = id
			n.Status = rapid.SampledFrom([]string{"ready", "down", "disconnected", ""}).Draw(t, "status")
			for _, d := range n.NodeResources.Devices[0].Instances {
				if rapid.IntRange(0, 3).Draw(t, "shared") == 0 {
					d.ID = "shared-" + d.ID[len(d.ID)-1:]
				}
			}
			n.NodeResources.Memory.MemoryMB = rapid.Int64().Draw(t, "memory")
			n.ReservedResources.Networks.ReservedHostPorts = rapid.SampledFrom([]string{"", "0", "1-3", "70000"}).Draw(t, "ports")
			nodes = append(nodes, n)
		}
		gpu := rapid.Custom(func(t *rapid.T) string {
			return rapid.SampledFrom([]string{"n0", "n1", "n2", "shared"}).Draw(t, "of") + fmt.Sprintf("-%d", rapid.IntRange(0, 3).Draw(t, "gpu"))
		})
		var jobs []*api.Job
		var records []*record.Record
		for i := range rapid.IntRange(0, 3).Draw(t, "jobs") {
			j := gpuJob(fmt.Sprintf("j%d", i), rapid.IntRange(-1, 3).Draw(t, "count"), 1)
			j.SetMeta("caravan_topology", rapid.SampledFrom([]string{"", "require:rack", "require:nowhere", "x"}).Draw(t, "topology"))
			j.TaskGroups[0].Tasks[0].Resources.MemoryMB = ptr(rapid.Int().Draw(t, "memory"))
			jobs = append(jobs, j)
			if rapid.Bool().Draw(t, "recorded") {
				r := queuedRecord(j, rapid.SampledFrom([]record.Phase{record.PhaseQueued, record.PhaseAdmitted, record.PhaseRunning, record.PhaseRollback, "?"}).Draw(t, "phase"))
				for range rapid.IntRange(0, 3).Draw(t, "members") {
					r.Members = append(r.Members, model.Member{
						Group: rapid.SampledFrom([]string{"workers", "gone"}).Draw(t, "group"), Index: rapid.IntRange(-1, 2).Draw(t, "index"),
						Node: rapid.SampledFrom(append(ids, "gone")).Draw(t, "node"), GPUs: []string{gpu.Draw(t, "gpu")}})
				}
				records = append(records, r)
			}
		}
		var allocs []*api.AllocationListStub
		for i := range rapid.IntRange(0, 6).Draw(t, "allocs") {
			a := alloc(fmt.Sprintf("x%d", i), rapid.SampledFrom([]string{"j0", "j1", "other"}).Draw(t, "job"), "workers",
				rapid.SampledFrom(append(ids, "gone")).Draw(t, "node"), rapid.Int().Draw(t, "index"), rapid.SliceOfN(gpu, 0, 3).Draw(t, "gpus")...)
			a.DesiredStatus = rapid.SampledFrom([]string{"run", "stop"}).Draw(t, "desired")
			a.ClientStatus = rapid.SampledFrom([]string{"running", "unknown", "complete"}).Draw(t, "client")
			a.AllocatedResources.Shared.DiskMB = rapid.Int64().Draw(t, "disk")
			a.AllocatedResources.Shared.Ports[0].Value = rapid.IntRange(-1, 70000).Draw(t, "port")
			allocs = append(allocs, a)
		}
		v := o.view(stateFrom(o, nodes, jobs, records, allocs))
		if err := v.Snapshot.Validate(); err != nil {
			t.Fatal(err)
		}
	})
}

func TestOneMachineUnderTwoIDs(t *testing.T) {
	f := newFake(t)
	old, now := node("old", 0), node("new", 0)
	for _, n := range []*api.Node{old, now} {
		n.NodeResources.Devices[0].Instances = []*api.NodeDevice{{ID: "g0", Healthy: true}, {ID: "g1", Healthy: true}}
	}
	old.Status = api.NodeStatusDown
	f.putNode(now)
	f.putNode(old)
	a := alloc("x", "j", "g", "id-old", 0, "g1")
	f.putAlloc(a)
	v := refresh(t, f.observer(t))
	gpus := map[string]int{}
	for _, n := range v.Snapshot.Nodes {
		gpus[n.Name] = len(n.GPUs)
	}
	if gpus["new"] != 2 || gpus["old"] != 0 {
		t.Errorf("GPUs by node = %v, want both on the new one", gpus)
	}
	if got := v.Snapshot.Allocs; len(got) != 1 || got[0].Node != "id-new" || !got[0].Lost {
		t.Errorf("allocations = %+v, want x to hold g1 on the new node, lost", got)
	}
	if len(v.Warnings) != 1 || !strings.Contains(v.Warnings[0].Text, "purge") {
		t.Errorf("warnings = %+v", v.Warnings)
	}
}

// TestMembersOfAMachineUnderItsOldID hold nothing there: what they have is the
// new node's.
func TestMembersOfAMachineUnderItsOldID(t *testing.T) {
	for name, test := range map[string]struct {
		status string
		listed []string // by the new node
		want   int
	}{
		"the machine is back under a new ID": {api.NodeStatusDown, []string{"g0", "g1"}, 0},
		"both IDs are up":                    {api.NodeStatusReady, []string{"g0", "g1"}, 0},
		"one of its GPUs is in another one":  {api.NodeStatusReady, []string{"g1"}, 0},
		"the new node has GPUs of its own":   {api.NodeStatusReady, []string{"g7"}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFake(t)
			old, now := node("old", 0), node("new", 0)
			old.NodeResources.Devices[0].Instances = []*api.NodeDevice{{ID: "g0", Healthy: true}, {ID: "g1", Healthy: true}}
			for _, id := range test.listed {
				now.NodeResources.Devices[0].Instances = append(now.NodeResources.Devices[0].Instances, &api.NodeDevice{ID: id, Healthy: true})
			}
			old.Status = test.status
			f.putNode(old)
			f.putNode(now)
			j := gpuJob("j", 1, 2)
			f.putJob(j)
			r := queuedRecord(j, record.PhaseRunning)
			r.Members = []model.Member{{Group: "workers", Node: "id-old", GPUs: []string{"g0", "g1"}}}
			f.putRecord(r)
			f.putAlloc(alloc("x", "j", "workers", "id-old", 0, "g0", "g1"))
			v := refresh(t, f.observer(t))
			m, _ := v.Job("default", "j")
			if len(m.Model.Members) != test.want || len(m.Members) != 1 {
				t.Errorf("%d members for the core, want %d; %d in force, want 1", len(m.Model.Members), test.want, len(m.Members))
			}
		})
	}
}
