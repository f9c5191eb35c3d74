package server

import (
	"testing"
	"time"

	"github.com/hashicorp/nomad/api"
	"pgregory.net/rapid"

	"github.com/caravan-sched/caravan/internal/devnomad/clock"
	"github.com/caravan-sched/caravan/internal/devnomad/state"
)

// TestNothingIsGivenTwice drives a server with random events and looks after
// each: no GPU has two holders, no node gives more than it has, and no group
// has more members than it asked for.
func TestNothingIsGivenTwice(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		w := &world{t: t, clock: clock.NewManual(epoch)}
		w.s = New(Config{Clock: w.clock, LostAfter: 10 * time.Second, Seed: rapid.Uint64Range(1, 1<<40).Draw(rt, "seed")})
		nodes := []string{"a", "b", "c"}
		for _, n := range nodes {
			w.connect(n, rapid.SampledFrom([]string{"v1:x", "v1:y"}).Draw(rt, "class"))
		}
		pickNode := rapid.SampledFrom(nodes)
		pickJob := rapid.SampledFrom([]string{"j0", "j1", "j2", "j3"})
		rt.Repeat(map[string]func(*rapid.T){
			"register": func(rt *rapid.T) {
				typ := api.JobTypeBatch
				id := pickJob.Draw(rt, "job")
				if id == "j0" || id == "j1" {
					typ = api.JobTypeService
				}
				j := job(id, typ, rapid.IntRange(0, 4).Draw(rt, "count"), rapid.SampledFrom([]int{1, 2, 4, 8}).Draw(rt, "gpus"))
				j.Priority = ptr(rapid.IntRange(1, 100).Draw(rt, "priority"))
				if rapid.Bool().Draw(rt, "gated") {
					gated(j)
				}
				w.register(j)
			},
			"stop job": func(rt *rapid.T) {
				if _, err := w.s.Deregister(state.Key{Namespace: "default", ID: pickJob.Draw(rt, "job")}, rapid.Bool().Draw(rt, "purge"), 0); err != nil {
					rt.Fatal(err)
				}
				w.s.Step()
			},
			"stop member": func(rt *rapid.T) {
				for _, a := range w.wanted(pickJob.Draw(rt, "job")) {
					if _, err := w.s.StopAlloc(a.ID, false, false); err != nil {
						rt.Fatal(err)
					}
					break
				}
				w.s.Step()
			},
			"report": func(rt *rapid.T) {
				status := rapid.SampledFrom([]string{api.AllocClientStatusRunning, api.AllocClientStatusComplete, api.AllocClientStatusFailed}).Draw(rt, "status")
				for _, a := range w.allocs(pickJob.Draw(rt, "job")) {
					if !a.ClientTerminalStatus() {
						w.report(status, a)
						return
					}
				}
			},
			"lose node":   func(rt *rapid.T) { w.s.Disconnect(pickNode.Draw(rt, "node")); w.advance(20 * time.Second) },
			"node back":   func(rt *rapid.T) { w.connect(pickNode.Draw(rt, "node"), "v1:x") },
			"time passes": func(rt *rapid.T) { w.advance(time.Minute) },
			"preemption": func(rt *rapid.T) {
				on := rapid.Bool().Draw(rt, "on")
				if _, err := w.s.SetSchedulerConfig(&api.SchedulerConfiguration{PreemptionConfig: api.PreemptionConfig{BatchSchedulerEnabled: on, ServiceSchedulerEnabled: on}}, false); err != nil {
					rt.Fatal(err)
				}
			},
			"": func(rt *rapid.T) { w.check(rt) },
		})
	})
}

func (w *world) check(rt *rapid.T) {
	w.s.store.View(func(v *state.View) {
		holder := map[string]string{}
		memory := map[string]int64{}
		members := map[string]int{}
		for _, a := range v.Allocs() {
			if !state.Terminal(a) {
				members[a.JobID]++
			}
			if a.ClientTerminalStatus() {
				continue
			}
			for _, t := range a.AllocatedResources.Tasks {
				memory[a.NodeID] += t.Memory.MemoryMB
				for _, d := range t.Devices {
					for _, id := range d.DeviceIDs {
						// What stops keeps its GPUs, but what replaces it in one
						// plan may be given them: then it starts after it.
						if other := holder[id]; other != "" && !handedOn(v, other, a.ID) {
							rt.Fatalf("GPU %s is held by %s and by %s", id, other, a.ID)
						}
						holder[id] = a.ID
					}
				}
			}
		}
		for n, m := range memory {
			if total := v.Node(n).NodeResources.Memory.MemoryMB; m > total {
				rt.Fatalf("node %s gives %d MB of %d", n, m, total)
			}
		}
		for id, n := range members {
			j := v.Job(state.Key{Namespace: "default", ID: id})
			if want := wantedCount(j); n > want {
				rt.Fatalf("job %s has %d members, want at most %d", id, n, want)
			}
		}
	})
}

// handedOn says whether two holders of a GPU are one that a plan told to stop
// and one that the same plan placed.
func handedOn(v *state.View, x, y string) bool {
	a, b := v.Alloc(x), v.Alloc(y)
	if a.CreateIndex > b.CreateIndex {
		a, b = b, a
	}
	return a.ServerTerminalStatus() && a.AllocModifyIndex >= b.CreateIndex
}

func wantedCount(j *api.Job) int {
	if j == nil || deref(j.Stop) {
		return 0
	}
	return *j.TaskGroups[0].Count
}
