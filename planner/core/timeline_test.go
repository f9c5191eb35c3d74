package core

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/core/topo"
)

// anyBooking draws a part of a node's time: of a few jobs, some of which ask
// themselves.
func anyBooking(t *rapid.T) booking {
	hours := func(name string, from int) time.Duration {
		return time.Duration(rapid.IntRange(from, 8).Draw(t, name)) * time.Hour
	}
	b := booking{from: hours("from", -1), until: hours("until", 0), job: jobKey{id: rapid.SampledFrom([]string{"a", "b"}).Draw(t, "job")}}
	if rapid.Bool().Draw(t, "for ever") {
		b.until = eternity
	}
	b.claim = topo.Claim{GPUs: rapid.Uint64Range(0, 15).Draw(t, "mask"), Resources: model.Resources{CPUMHz: rapid.IntRange(-1, 3).Draw(t, "cpu") * 1000, MemoryMiB: rapid.IntRange(0, 3).Draw(t, "memory") * 1000}}
	switch rapid.IntRange(0, 9).Draw(t, "kind") {
	case 0:
		b.closed = true
	case 1, 2:
		b.kept = true
		b.from = 0
	case 3, 4:
		b.foreseen = true
	case 5:
		b.claim.Ports = []uint16{uint16(rapid.IntRange(1, 3).Draw(t, "port"))}
	case 6:
		b.queue = "q"
	case 7:
		b.lead = hours("lead", 1)
	}
	return b
}

// A node's time that is cut into pieces says what is free as a look at all that is
// given away of it does, at every time, for everybody, whatever is given away next.
func TestTimelines(t *testing.T) {
	odd, plain := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		s := &model.Snapshot{Now: testNow}
		for n := range 2 {
			node := model.Node{ID: fmt.Sprint("n", n), Capacity: model.Resources{CPUMHz: 8000, MemoryMiB: 8000}}
			for g := range 4 {
				gpu := model.GPU{UUID: fmt.Sprintf("%d.%d", n, g), Vendor: "nvidia", Type: "gpu", Model: "H100", NUMA: -1}
				node.GPUs = append(node.GPUs, gpu)
				if rapid.Bool().Draw(t, "busy") {
					s.Jobs = append(s.Jobs, model.Job{ID: "j" + gpu.UUID, Type: "batch", State: model.StateRunning, Gang: model.GangJob, Started: testNow, Duration: time.Duration(rapid.IntRange(0, 6).Draw(t, "runs")) * time.Hour})
					s.Allocs = append(s.Allocs, model.Alloc{ID: "a" + gpu.UUID, Node: node.ID, Job: "j" + gpu.UUID, GPUs: []string{gpu.UUID}, Resources: model.Resources{CPUMHz: 1000}})
				}
			}
			s.Nodes = append(s.Nodes, node)
		}
		each := rapid.IntRange(1, 4).Draw(t, "each")
		asks := model.Job{ID: "x", Type: "batch", State: model.StateQueued, Gang: model.GangJob, Groups: []model.TaskGroup{{Name: "g", Count: 1, Resources: model.Resources{CPUMHz: 1000}, Devices: []model.DeviceAsk{{Name: "nvidia/gpu", Count: each}}}}}
		s.Jobs = append(s.Jobs, asks)
		p, err := Prepare(s, Policy{})
		if err != nil {
			t.Fatal(err)
		}
		for range 2 { // what is used again must not be mistaken for what is new
			c := newCycle(p, s.Now)
			a := c.openAhead()
			k := curveKey{c.catalog.Compile(&asks, &asks.Groups[0]), false, topo.Root, rapid.Bool().Draw(t, "unequal")}
			for range rapid.IntRange(1, 6).Draw(t, "bookings") {
				a.book(int32(rapid.IntRange(0, 1).Draw(t, "node")), anyBooking(t))
				w := who{self: jobKey{id: rapid.SampledFrom([]string{"a", "x"}).Draw(t, "self")}, queue: rapid.SampledFrom([]string{"", "q/r"}).Draw(t, "queue"), foreseen: rapid.Bool().Draw(t, "foreseen")}
				runs := time.Duration(rapid.IntRange(1, 20).Draw(t, "halves"))*time.Hour/2 + 1
				if rapid.IntRange(0, 4).Draw(t, "endless") == 0 {
					runs = eternity
				}
				for _, node := range a.given {
					if a.lineOf(node, w) == nil {
						odd++
					} else {
						plain++
					}
					for halves := range 20 {
						at := time.Duration(halves) * time.Hour / 2
						got, want := a.rowOf(node, at, runs, w), a.row(node, at, runs, w)
						if !sameRow(&got, &want) {
							t.Fatalf("node %d at %s for %s, %+v: %+v, want %+v", node, at, runs, w, got, want)
						}
					}
					got, want := a.jumpsOf(k, a.remembered(k, w), node, runs, w, nil), a.oddJumps(k, node, runs, w, nil)
					if !slices.Equal(got, want) {
						t.Fatalf("node %d for %s, %+v: jumps %v, want %v", node, runs, w, got, want)
					}
				}
			}
			c.revert()
		}
	})
	if odd == 0 || plain == 0 {
		t.Errorf("%d looks at nodes that differ by who asks, %d at others; want some of each", odd, plain)
	}
}
