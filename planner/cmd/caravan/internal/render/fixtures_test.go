package render

import (
	"fmt"
	"time"

	"github.com/caravan-sched/caravan/planner/barrier"
	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/httpapi"
)

var now = time.Date(2031, 5, 17, 12, 0, 0, 0, time.UTC)

func uuids(node string, from, to int) []string {
	var out []string
	for i := from; i < to; i++ {
		out = append(out, fmt.Sprintf("GPU-%s00000%d-1111-2222-3333-444444444444", node, i))
	}
	return out
}

var jobs = []httpapi.Job{
	{Namespace: "default", ID: "train-gang", Type: "batch", State: model.StateRunning, Queue: "default", RunTime: "predicted to run for 1h0m0s (± 5m0s, the median of 4 like it)", Gang: model.GangJob, Members: 2, Placed: 2, GPUs: 16, HeldGPUs: 16, Submitted: now.Add(-3 * time.Minute), Reason: "both members fit in rack r1, the tightest domain", Work: "step 1200, 31.25/s, checkpoint 2m5s ago"},
	{Namespace: "research", ID: "sweep", Type: "batch", State: model.StateQueued, Position: 1, Queue: "research/vision", Priority: 50, Gang: model.GangNone, Members: 6, Placed: 2, GPUs: 6, HeldGPUs: 2, Submitted: now.Add(-26 * time.Hour), Reason: "needs 4 more GPUs; 0 are free", Work: "waiting for gang: 1 of 2 joined, gpu-4 missing"},
	{Namespace: "default", ID: "big", Type: "batch", State: model.StateQueued, Position: 2, Queue: "default", Priority: 70, Gang: model.GangJob, Members: 4, GPUs: 32, Submitted: now.Add(-90 * time.Minute), Reason: "needs 4 whole nodes; 1 is free"},
	{Namespace: "default", ID: "old", Type: "service", State: model.StateRunning, Queue: "default", Gang: model.GangNone, Members: 1, Placed: 1, GPUs: 1, HeldGPUs: 1, Submitted: now.Add(-5 * time.Second), Released: true},
	{Namespace: "default", ID: "elastic", Type: "batch", State: model.StateRunning, Queue: "default", Gang: model.GangJob, Members: 1, Placed: 2, GPUs: 8, HeldGPUs: 16, Submitted: now.Add(-2 * time.Minute)},
}

var waiting = httpapi.Explain{
	Job:    jobs[2],
	Action: model.ActionWait,
	Detail: model.Detail{
		Code: "no_domain", Level: "block", Domain: "b1", MembersWanted: 4, MembersFit: 3, FreeGPUs: 26, WantedGPUs: 32, Ahead: 1,
		Basis:    "unknown: nobody says how long train-gang, sweep will run; set caravan_duration in them",
		Filtered: map[string]int{"memory": 1, "draining": 2}, Held: []string{"gpu-3", "2c00e51a-1239-4f9e-ba0b-6fca15c0d968"},
	},
	Attempts: 2, RetryAfter: now.Add(time.Minute),
	History: []httpapi.Past{{At: now.Add(-time.Hour), Action: model.ActionWait, Reason: "behind train-gang"}},
}

var running = httpapi.Explain{
	Job: jobs[0], Action: model.ActionAdmit,
	Detail: model.Detail{Code: "placed", Level: "rack", Domain: "r1"},
	Speed:  &httpapi.Speed{Text: "1899 samples/s with 16 GPUs, give or take 1 % (20 measurements); 3230 samples/s with 32 GPUs, give or take 35 % (not measured)", Unit: "samples"},
	Placement: []httpapi.Placed{
		{Member: model.Member{Group: "trainer", Index: 0, Rank: 0, Node: "11111111-aaaa", GPUs: uuids("a0", 0, 8)}, NodeName: "gpu-1", State: "placed"},
		{Member: model.Member{Group: "trainer", Index: 1, Rank: 1, Node: "22222222-bbbb", GPUs: uuids("b0", 0, 8)}, State: "lost"},
	},
}

var tree = httpapi.Topology{
	Levels: []string{"rack", "node"},
	Root: httpapi.Domain{Level: "cluster", Name: "cluster", Nodes: 4, GPUs: 32, FreeGPUs: 10, UnhealthyGPUs: 1, Children: []httpapi.Domain{
		{Level: "rack", Name: "r1", Nodes: 2, GPUs: 16, FreeGPUs: 0, UnhealthyGPUs: 1, Children: []httpapi.Domain{
			{Level: "node", Name: "gpu-1", Nodes: 1, GPUs: 8, UsedGPUs: 8, Model: "NVIDIA H100 80GB HBM3"},
			{Level: "node", Name: "gpu-2", Nodes: 1, GPUs: 8, UsedGPUs: 7, UnhealthyGPUs: 1, Model: "NVIDIA H100 80GB HBM3"},
		}},
		{Level: "rack", Name: "r2", Nodes: 1, GPUs: 8, FreeGPUs: 8, Children: []httpapi.Domain{
			{Level: "node", Name: "gpu-3", Nodes: 1, GPUs: 8, FreeGPUs: 8, SharedGPUs: 2, Slices: 8, FreeSlices: 5, Unschedulable: "draining"},
		}},
		{Level: "node", Name: "gpu-4", Nodes: 1, GPUs: 8, FreeGPUs: 2, UsedGPUs: 6},
		{Level: "node", Name: "gpu-5", Nodes: 1, GPUs: 8, UsedGPUs: 2, Unschedulable: "ineligible"},
	}},
}

func pairNode() httpapi.NodeTopology {
	n := httpapi.NodeTopology{
		ID: "33333333-cccc", Name: "gpu-5", Datacenter: "dc1", Pool: "gpu",
		Levels:   map[string]string{"rack": "r1", "block": "b2", "pod": "p9"},
		Islands:  [][]int{{0, 2}, {1, 3}},
		Warnings: []httpapi.Warning{{Subject: "gpu-5", Text: "two GPUs of one UUID"}},
	}
	for i, id := range uuids("c0", 0, 4) {
		n.GPUs = append(n.GPUs, httpapi.GPUUse{GPU: model.GPU{UUID: id, Model: "NVIDIA A40", Island: i % 2, NUMA: i/2 - i%2}})
		row := make([]model.Link, 4)
		for j := range row {
			switch {
			case i == j:
				row[j].Kind = "X"
			case i%2 == j%2:
				row[j].Kind = "NV4"
			default:
				row[j].Kind = "SYS"
			}
		}
		n.Links = append(n.Links, row)
	}
	n.GPUs[0].Job, n.GPUs[0].Namespace = "sweep", "research"
	n.GPUs[1].Job, n.GPUs[1].Stopping = "big", true
	n.GPUs[2].Alloc, n.GPUs[2].Lost = "deadbeef", true
	n.GPUs[3].Unhealthy = "XID 79"
	return n
}

var gangStatuses = []barrier.Status{
	{
		Gang: "a", Phase: "running", Epoch: "2-1a2b3c4d", Generation: 3, Started: now.Add(-2 * time.Hour), Joined: 2, Size: 2,
		Members: []barrier.MemberStatus{
			{Group: "a", Index: 1, NodeName: "gpu-1", State: "running", Step: new(int64(1200)), Throughput: new(31.25), CheckpointAgeMS: new(int64(125_400)), CheckpointStep: new(int64(1000))},
			{Group: "a", Index: 0, NodeName: "gpu-2", State: "suspended"},
		},
		Events: []barrier.Event{{At: now.Add(-2 * time.Hour), Text: "epoch 2-1a2b3c4d: 2 members start together, rank 0 is on gpu-1"}},
	},
	{
		Gang: "b", Phase: "waiting", Reason: "waiting for gang: 1 of 2 joined, gpu-4 missing", Joined: 1, Size: 2,
		Members: []barrier.MemberStatus{{Group: "b", NodeName: "gpu-3"}, {Group: "b", Index: 1, NodeName: "gpu-4", Why: "has not joined yet"}},
	},
}
