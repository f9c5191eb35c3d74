package core

import (
	"fmt"
	"testing"
	"time"

	"github.com/caravan-sched/caravan/planner/core/model"
)

// benchCluster is a fragmented, half-full cluster of 8-GPU nodes: 16 nodes in
// a rack, 16 racks in a block. Whole racks are full, others are empty but for
// some nodes with a few GPUs in use.
func benchCluster(nodes int) *model.Snapshot {
	s := &model.Snapshot{Now: testNow}
	attributes := map[string]string{"memory": "81559 MiB", "nvlink_island_size": "8", "driver_version": "\"550.54\""}
	links := make([][]model.Link, 8)
	for i := range links {
		links[i] = make([]model.Link, 8)
		for k := range links[i] {
			links[i][k] = model.Link{Kind: "NV18", GBs: 450}
		}
	}
	for i := range nodes {
		n := model.Node{
			ID: fmt.Sprintf("%08x-0000-4000-8000-%012x", uint32(i)*2654435761, i), Name: fmt.Sprintf("gpu-%05d", i), Datacenter: "dc1", Pool: "default",
			Attributes: map[string]string{"attr.kernel.name": "linux", "attr.cpu.arch": "amd64", "meta.caravan_rack": fmt.Sprint("r", i/16)},
			Levels:     map[string]string{"block": fmt.Sprint("b", i/256), "rack": fmt.Sprint("r", i/16)},
			Capacity:   model.Resources{CPUMHz: 96 * 2500, Cores: 96, MemoryMiB: 2 << 20, DiskMiB: 8 << 20}, Links: links,
		}
		for g := range 8 {
			n.GPUs = append(n.GPUs, model.GPU{UUID: fmt.Sprintf("GPU-%06d-%d", i, g), Vendor: "nvidia", Type: "gpu", Model: "NVIDIA H100 80GB HBM3", Attributes: attributes, NUMA: g / 4})
		}
		used := 0
		switch rack := i / 16; {
		case rack%5 < 2:
			used = 8
		case i%11 == 0:
			used = 1 + i%7
		}
		if used > 0 {
			a := model.Alloc{ID: fmt.Sprintf("%08x-alloc", i), Namespace: "default", Job: fmt.Sprint("old-", i/64), Group: "g", Index: i % 64, Node: n.ID, Resources: model.Resources{CPUMHz: 20000, MemoryMiB: 1 << 18}}
			for _, g := range n.GPUs[:used] {
				a.GPUs = append(a.GPUs, g.UUID)
			}
			s.Allocs = append(s.Allocs, a)
		}
		s.Nodes = append(s.Nodes, n)
	}
	return s
}

func benchJob(i, count, gpus int, t model.Topology) model.Job {
	return model.Job{
		Namespace: "default", ID: fmt.Sprintf("job-%05d", i), Type: "batch", State: model.StateQueued, Submitted: testNow.Add(time.Duration(i) * time.Second),
		Priority: 50, Datacenters: []string{"dc*"}, Pool: "default", Gang: model.GangJob, Topology: t,
		Constraints: []model.Constraint{{Left: "${attr.kernel.name}", Operand: "=", Right: "linux"}},
		Groups: []model.TaskGroup{{Name: "worker", Count: count, Resources: model.Resources{CPUMHz: 1000 * gpus, MemoryMiB: 16384 * gpus},
			Devices: []model.DeviceAsk{{Name: "nvidia/gpu", Count: gpus, Constraints: []model.Constraint{{Left: "${device.attr.memory}", Operand: ">=", Right: "40 GiB"}}}}}},
	}
}

// apartByKernel lets a job have one member for each kernel.
func apartByKernel(j model.Job) model.Job {
	j.Constraints = []model.Constraint{{Left: "${attr.kernel.name}", Operand: "distinct_property", Right: "1"}}
	return j
}

func BenchmarkDecide(b *testing.B) {
	kept := func(nodes int, job model.Job, want model.Action) func(*testing.B) {
		return func(b *testing.B) {
			s := benchCluster(nodes)
			s.Jobs = []model.Job{job}
			p, err := Prepare(s, Policy{})
			if err != nil {
				b.Fatal(err)
			}
			if d := p.Decide(s.Now).Decisions[0]; d.Action != want {
				b.Fatalf("%s: %s", d.Action, d.Reason)
			}
			b.ReportAllocs()
			for b.Loop() {
				p.Decide(s.Now)
			}
		}
	}
	cycle := func(nodes, jobs int) func(*testing.B) {
		return func(b *testing.B) {
			s := benchCluster(nodes)
			for i := range jobs {
				s.Jobs = append(s.Jobs, benchJob(i, 1, 1, model.Topology{}))
			}
			b.ReportAllocs()
			for b.Loop() {
				plan, err := Decide(s, Policy{})
				if err != nil || len(plan.Decisions) != jobs {
					b.Fatal(err)
				}
			}
		}
	}
	event := func(b *testing.B) {
		s := benchCluster(256)
		for i := range 50 {
			s.Jobs = append(s.Jobs, benchJob(i, 1+i%40, 8, model.Topology{}))
		}
		p, err := Prepare(s, Policy{})
		if err != nil {
			b.Fatal(err)
		}
		b.ReportAllocs()
		for i := 0; b.Loop(); i++ {
			// An allocation ends, another one starts.
			a := s.Allocs[i/2%len(s.Allocs)]
			ch := Change{DropAllocs: []string{a.ID}}
			if i%2 == 1 {
				ch = Change{PutAllocs: []model.Alloc{a}}
			}
			if err := p.Apply(ch); err != nil {
				b.Fatal(err)
			}
			p.Decide(s.Now)
		}
	}
	b.Run("event/gpus=2048", event)
	b.Run("gang=128/gpus=4096", kept(512, benchJob(0, 128, 8, model.Topology{}), model.ActionAdmit))
	b.Run("gang=512/gpus=131072", kept(16384, benchJob(0, 512, 8, model.Topology{}), model.ActionAdmit))
	b.Run("unschedulable/gpus=131072", kept(16384, benchJob(0, 200, 8, model.Topology{Mode: "require", Level: "block"}), model.ActionWait))
	b.Run("jobs=500/gpus=800", cycle(100, 500))
	b.Run("jobs=10000/gpus=131072", cycle(16384, 10000))
	b.Run("distinct_property/jobs=1000/gpus=131072", func(b *testing.B) {
		s := benchCluster(16384)
		for i := range 1000 {
			s.Jobs = append(s.Jobs, apartByKernel(benchJob(i, 1+i%8, 1, model.Topology{})))
		}
		p, err := Prepare(s, Policy{})
		if err != nil {
			b.Fatal(err)
		}
		for b.Loop() {
			p.Decide(s.Now)
		}
	})
}

// A whole cycle, snapshot to plan, with 200 queues in a tree of two levels.
func BenchmarkCycle(b *testing.B) {
	cycle := func(nodes, jobs, queues int, policy Policy) func(*testing.B) {
		return func(b *testing.B) {
			s := benchCluster(nodes)
			for i := range queues {
				org := fmt.Sprint("org-", i/20)
				if i%20 == 0 {
					s.Queues = append(s.Queues, model.Queue{Path: org, Weight: float64(1 + i%3)})
				}
				s.Queues = append(s.Queues, model.Queue{Path: fmt.Sprintf("%s/team-%d", org, i), Guarantee: map[string]int{"gpu": nodes * 8 / 2 / queues}})
			}
			for i := range jobs {
				j := benchJob(i, 1, 1, model.Topology{})
				if queues > 0 {
					j.Queue = fmt.Sprintf("org-%d/team-%d/user-%d", i%queues/20, i%queues, i/queues%3)
				}
				s.Jobs = append(s.Jobs, j)
			}
			b.ReportAllocs()
			for b.Loop() {
				plan, err := Decide(s, policy)
				if err != nil || len(plan.Decisions) != jobs {
					b.Fatal(err)
				}
			}
		}
	}
	for _, order := range []string{"fifo", "fairshare"} {
		for _, queues := range []int{0, 200} {
			b.Run(fmt.Sprintf("nodes=100/jobs=500/queues=%d/%s", queues, order), cycle(100, 500, queues, Policy{Order: order}))
			b.Run(fmt.Sprintf("nodes=16384/jobs=10000/queues=%d/%s", queues, order), cycle(16384, 10000, queues, Policy{Order: order}))
		}
	}
}
