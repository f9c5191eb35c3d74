// Package drawn draws the clusters and jobs that the planner's speed is measured
// on. The same numbers give the same cluster, everywhere.
package drawn

import (
	"fmt"
	"time"

	"github.com/caravan-sched/caravan/planner/core/model"
)

// Now is the time of every drawn snapshot.
var Now = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

const (
	rackNodes  = 16
	blockRacks = 16
	gpus       = 8
)

// Cluster is a fragmented, half-full cluster of nodes with 8 GPUs: 16 nodes in a
// rack, 16 racks in a block. Whole racks are full, others are empty but for some
// nodes with a few GPUs in use. What runs is nobody's that is known.
func Cluster(nodes int) *model.Snapshot {
	s := &model.Snapshot{Now: Now}
	attributes := map[string]string{"memory": "81559 MiB", "nvlink_island_size": "8", "driver_version": "\"550.54\""}
	links := make([][]model.Link, gpus)
	for i := range links {
		links[i] = make([]model.Link, gpus)
		for k := range links[i] {
			links[i][k] = model.Link{Kind: "NV18", GBs: 450}
		}
	}
	for i := range nodes {
		rack := i / rackNodes
		n := model.Node{
			ID: fmt.Sprintf("%08x-0000-4000-8000-%012x", uint32(i)*2654435761, i), Name: fmt.Sprintf("gpu-%05d", i), Datacenter: "dc1", Pool: "default",
			Attributes: map[string]string{"attr.kernel.name": "linux", "attr.cpu.arch": "amd64", "meta.caravan_rack": fmt.Sprint("r", rack)},
			Levels:     map[string]string{"block": fmt.Sprint("b", rack/blockRacks), "rack": fmt.Sprint("r", rack)},
			Capacity:   model.Resources{CPUMHz: 96 * 2500, Cores: 96, MemoryMiB: 2 << 20, DiskMiB: 8 << 20}, Links: links,
		}
		for g := range gpus {
			n.GPUs = append(n.GPUs, model.GPU{UUID: fmt.Sprintf("GPU-%06d-%d", i, g), Vendor: "nvidia", Type: "gpu", Model: "NVIDIA H100 80GB HBM3", Attributes: attributes, NUMA: g / 4})
		}
		used := 0
		switch {
		case rack%5 < 2:
			used = gpus
		case i%11 == 0:
			used = 1 + i%7
		}
		s.Nodes = append(s.Nodes, n)
		hold(s, i, used)
	}
	return s
}

// hold gives the first GPUs of a node to an allocation.
func hold(s *model.Snapshot, node, used int) {
	if used == 0 {
		return
	}
	n := &s.Nodes[node]
	a := model.Alloc{ID: fmt.Sprintf("%08x-alloc", node), Namespace: "default", Job: fmt.Sprint("old-", node/64), Group: "g", Index: node % 64, Node: n.ID, Resources: model.Resources{CPUMHz: 20000, MemoryMiB: 1 << 18}}
	for _, g := range n.GPUs[:used] {
		a.GPUs = append(a.GPUs, g.UUID)
	}
	s.Allocs = append(s.Allocs, a)
}

// Contest is Cluster with the jobs that run there, each on four nodes, of a low
// priority.
func Contest(nodes int) *model.Snapshot {
	s := Cluster(nodes)
	own(s)
	return s
}

// Full is a cluster all of whose GPUs are held by such jobs.
func Full(nodes int) *model.Snapshot {
	s := Cluster(nodes)
	s.Allocs = nil
	for i := range s.Nodes {
		hold(s, i, gpus)
	}
	own(s)
	return s
}

// own gives what runs to jobs, four nodes to one.
func own(s *model.Snapshot) {
	jobs := map[string]bool{}
	for i := range s.Allocs {
		a := &s.Allocs[i]
		a.Job = fmt.Sprint("old-", i/4)
		if !jobs[a.Job] {
			jobs[a.Job] = true
			s.Jobs = append(s.Jobs, model.Job{Namespace: "default", ID: a.Job, Type: "batch", State: model.StateRunning, Gang: model.GangJob, Priority: 20,
				Started: Now.Add(-time.Duration(1+i*7%500) * time.Minute)})
		}
	}
}

// Job is one that waits, i-th in the order of submission, with count members of
// some GPUs each.
func Job(i, count, gpus int, t model.Topology) model.Job {
	return model.Job{
		Namespace: "default", ID: fmt.Sprintf("job-%05d", i), Type: "batch", State: model.StateQueued, Submitted: Now.Add(time.Duration(i) * time.Second),
		Priority: 50, Datacenters: []string{"dc*"}, Pool: "default", Gang: model.GangJob, Topology: t,
		Constraints: []model.Constraint{{Left: "${attr.kernel.name}", Operand: "=", Right: "linux"}},
		Groups: []model.TaskGroup{{Name: "worker", Count: count, Resources: model.Resources{CPUMHz: 1000 * gpus, MemoryMiB: 16384 * gpus},
			Devices: []model.DeviceAsk{{Name: "nvidia/gpu", Count: gpus, Constraints: []model.Constraint{{Left: "${device.attr.memory}", Operand: ">=", Right: "40 GiB"}}}}}},
	}
}

// Singles adds jobs of one GPU.
func Singles(s *model.Snapshot, jobs int) {
	for i := range jobs {
		s.Jobs = append(s.Jobs, Job(i, 1, 1, model.Topology{}))
	}
}

// Mixed adds jobs as they come in shared clusters: most are small, some are
// gangs of up to 64 nodes, a few of which require a rack or a block; they have
// several priorities, and their durations are known.
func Mixed(s *model.Snapshot, jobs int) {
	for i := range jobs {
		count, each, t := 1, 1, model.Topology{}
		switch n := i * 37 % 100; {
		case n < 55:
		case n < 75:
			each = 2 << (i % 2)
		case n < 90:
			each = gpus
		case n < 96:
			count, each = 2<<(i%3), gpus
			t = model.Topology{Mode: model.TopologyRequire, Level: model.LevelRack}
		default:
			count, each = 16<<(i%3), gpus
			t = model.Topology{Mode: model.TopologyRequire, Level: model.LevelBlock}
		}
		j := Job(i, count, each, t)
		j.Priority = 10 * (3 + i%4)
		j.Duration = time.Duration(1+i*13%48) * time.Hour
		s.Jobs = append(s.Jobs, j)
	}
}

// AddQueues adds queues in a tree of two levels, and spreads the jobs that wait
// over them and three users each.
func AddQueues(s *model.Snapshot, queues int) {
	if queues == 0 {
		return
	}
	for i := range queues {
		org := fmt.Sprint("org-", i/20)
		if i%20 == 0 {
			s.Queues = append(s.Queues, model.Queue{Path: org, Weight: float64(1 + i%3)})
		}
		s.Queues = append(s.Queues, model.Queue{Path: fmt.Sprintf("%s/team-%d", org, i), Guarantee: map[string]int{model.ResourceGPU: len(s.Nodes) * gpus / 2 / queues}})
	}
	for i := range s.Jobs {
		s.Jobs[i].Queue = fmt.Sprintf("org-%d/team-%d/user-%d", i%queues/20, i%queues, i/queues%3)
	}
}
