package core

import (
	"fmt"
	"math/bits"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/core/queue"
)

// anyOwners draws a cluster with capacity kept for queues, no more than it has,
// what runs on it, foreign jobs that wait, and behind them one of each owner.
func anyOwners(t *rapid.T) (*model.Snapshot, Policy) {
	s := &model.Snapshot{Now: testNow, Levels: []string{"block", "rack"}}
	total := 0
	for n := range rapid.IntRange(1, 5).Draw(t, "nodes") {
		node := model.Node{ID: fmt.Sprintf("n%d", n), Levels: map[string]string{"block": "b", "rack": rapid.SampledFrom([]string{"r1", "r2"}).Draw(t, "rack")}, Capacity: model.Resources{CPUMHz: 8000, MemoryMiB: 8000}}
		for g := range rapid.IntRange(1, 4).Draw(t, "gpus") {
			gpu := model.GPU{UUID: fmt.Sprintf("%s.%d", node.ID, g), Vendor: "nvidia", Type: "gpu", Model: "H100", NUMA: -1}
			if by := rapid.SampledFrom([]string{"", "", "", "v", "w", "z", "q"}).Draw(t, "by"); by != "" {
				s.Jobs = append(s.Jobs, model.Job{ID: by + gpu.UUID, Queue: by, Type: "batch", State: model.StateRunning, Gang: model.GangJob,
					Duration: time.Duration(rapid.IntRange(0, 2).Draw(t, "runs")) * time.Hour, Started: testNow.Add(-time.Minute)})
				s.Allocs = append(s.Allocs, model.Alloc{ID: gpu.UUID + "!", Node: node.ID, GPUs: []string{gpu.UUID}, Job: by + gpu.UUID})
			}
			node.GPUs = append(node.GPUs, gpu)
			total++
		}
		s.Nodes = append(s.Nodes, node)
	}
	for i, q := range []string{"v", "w", "v"} {
		if n := rapid.IntRange(0, total).Draw(t, "kept"); n > 0 {
			s.Reservations = append(s.Reservations, model.Reservation{Name: fmt.Sprint("r", 9-i), Kind: model.ReserveCapacity, Queue: q, GPUs: n})
			total -= n
		}
	}
	wait := func(id, queue string) {
		j := model.Job{ID: id, Queue: queue, Type: "batch", State: model.StateQueued, Gang: model.GangJob, Submitted: testNow.Add(time.Duration(len(s.Jobs)-100) * time.Minute)}
		j.Duration = time.Duration(rapid.IntRange(0, 3).Draw(t, "runs")) * time.Hour
		g := model.TaskGroup{Name: "g", Count: rapid.IntRange(1, 3).Draw(t, "count")}
		g.Devices = []model.DeviceAsk{{Name: "nvidia/gpu", Count: rapid.IntRange(1, 4).Draw(t, "each")}}
		j.Groups = []model.TaskGroup{g}
		s.Jobs = append(s.Jobs, j)
	}
	for i := range rapid.IntRange(0, 4).Draw(t, "foreign") {
		wait(fmt.Sprint("z", i), rapid.SampledFrom([]string{"", "z", "q"}).Draw(t, "queue"))
	}
	wait("v", "v")
	wait("w", "w/team")
	p := Policy{Order: rapid.SampledFrom(queue.Orders()).Draw(t, "order")}
	p.Backfill.Mode = rapid.SampledFrom(queue.BackfillModes[:]).Draw(t, "mode")
	p.Preempt.Enabled = rapid.Bool().Draw(t, "preempt")
	return s, p
}

// keptGPUs is what a plan keeps for queues, by queue and node; it fails where one
// GPU counts twice, or more or less is kept than is asked for.
func keptGPUs(t *rapid.T, s *model.Snapshot, policy Policy) map[string]map[string]uint64 {
	p, err := Prepare(s, policy)
	if err != nil {
		t.Fatal(err)
	}
	c := newCycle(p, s.Now)
	defer c.revert()
	c.keepPlaces()
	c.stand()
	c.setApart()
	out := map[string]map[string]uint64{"v": {}, "w": {}}
	if c.ahead == nil {
		return out
	}
	counts := map[string]int{}
	for node := range int32(len(p.tree.Nodes)) {
		var seen uint64
		id := p.tree.Nodes[node].Model.ID
		for i := range c.ahead.on[node] {
			b := &c.ahead.on[node][i]
			if b.queue == "" {
				continue
			}
			if b.claim.GPUs&seen != 0 {
				t.Fatalf("%b of %s counts twice: %b is kept or used", b.claim.GPUs, id, seen)
			}
			seen |= b.claim.GPUs
			kept := b.claim.GPUs &^ c.ahead.maskOf(node, b.queue) // the rest it uses
			out[b.queue][id] |= kept
			counts[b.queue] += bits.OnesCount64(kept)
		}
	}
	want := map[string]int{}
	for i, r := range s.Reservations {
		want[r.Queue] += r.GPUs
		counts[c.apart[i].Queue] += c.uses[i].Used
	}
	for q := range want {
		if counts[q] != want[q] {
			t.Fatalf("%d count for queue %s, want %d", counts[q], q, want[q])
		}
	}
	return out
}

// Where capacity is kept for queues that the cluster has: no GPU counts for two, no
// foreign job is placed on it, and an owner's job for which there is room in what
// is kept and free starts now, whoever is ahead.
func TestOwnersHaveTheirOwn(t *testing.T) {
	started, waited := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		s, policy := anyOwners(t)
		kept := keptGPUs(t, s, policy)
		plan := mustDecide(t, s, policy)
		if faults := planFaults(s, plan); len(faults) > 0 {
			t.Fatalf("faults: %q", faults)
		}
		busy := map[string]bool{}
		for _, a := range s.Allocs {
			for _, gpu := range a.GPUs {
				busy[gpu] = true
			}
		}
		for _, d := range plan.Decisions {
			owner, own := d.Job, kept[d.Job] != nil
			for _, m := range d.Members {
				for q, on := range kept {
					for g, gpu := range nodeOf(s, m.Node).GPUs {
						if q != owner && on[m.Node]&(1<<g) != 0 && slices.Contains(m.GPUs, gpu.UUID) {
							t.Fatalf("%s is placed on %s, which is kept for %s", d.Job, gpu.UUID, q)
						}
					}
				}
			}
			if !own {
				continue
			}
			g := jobOf(s, d.Job).Groups[0]
			room := 0
			for node, mask := range kept[d.Job] {
				free := 0
				for k, gpu := range nodeOf(s, node).GPUs {
					if mask&(1<<k) != 0 && !busy[gpu.UUID] {
						free++
					}
				}
				room += free / g.Devices[0].Count
			}
			switch {
			case d.Action == model.ActionAdmit:
				started++
			case room >= g.Count:
				t.Fatalf("%s waits, though what is kept for it has room: %s", d.Job, d.Reason)
			default:
				waited++
			}
		}
	})
	if started == 0 || waited == 0 {
		t.Errorf("%d started, %d waited; want some of each", started, waited)
	}
}

func nodeOf(s *model.Snapshot, id string) *model.Node {
	for i := range s.Nodes {
		if s.Nodes[i].ID == id {
			return &s.Nodes[i]
		}
	}
	return &model.Node{}
}

func jobOf(s *model.Snapshot, id string) *model.Job {
	for i := range s.Jobs {
		if s.Jobs[i].ID == id {
			return &s.Jobs[i]
		}
	}
	return &model.Job{}
}
