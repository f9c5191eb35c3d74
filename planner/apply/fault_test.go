package apply_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/planner/apply"
	"github.com/caravan-sched/caravan/planner/observe"
	"github.com/caravan-sched/caravan/planner/record"
)

// TestTroubleStopsAnywhere lets the planner die at each of the writes that a
// trouble makes it do, before or after Nomad has done it, and another one take
// over. In the end every gang runs whole, nothing runs beside it, and at no
// time is a GPU held twice.
func TestTroubleStopsAnywhere(t *testing.T) {
	groups := func() *api.Job {
		job := gatedJob("train", "service", "group", 2, 8)
		second := fakeJob("", "service", "group", 2, 8).TaskGroups[0]
		second.Name = ptr("v")
		job.TaskGroups = append(job.TaskGroups, second)
		return job
	}
	tests := map[string]struct {
		job     *api.Job
		members int
		breakIt func(*fakeNomad)
		mend    func(*fakeNomad)
	}{
		"drain": {gatedJob("train", "service", "job", 2, 8), 2,
			func(f *fakeNomad) { f.unusable[f.nodes[0]] = "draining" }, func(f *fakeNomad) { clear(f.unusable) }},
		"lost node": {gatedJob("train", "batch", "job", 2, 8), 2,
			func(f *fakeNomad) { f.down[f.nodes[0]] = true }, func(f *fakeNomad) { clear(f.down) }},
		"drain of one gang of two": {groups(), 4,
			func(f *fakeNomad) { f.unusable[f.nodes[0]] = "draining" }, func(f *fakeNomad) { clear(f.unusable) }},
		"drain of a replica": {gatedJob("train", "service", "none", 3, 8), 3,
			func(f *fakeNomad) { f.unusable[f.nodes[1]] = "draining" }, func(f *fakeNomad) { clear(f.unusable) }},
		"two parts of a node": {gatedJob("train", "batch", "job", 4, 4), 4,
			func(f *fakeNomad) { f.sick[gpu(f.nodes[0], 0)] = "XID 79" }, func(f *fakeNomad) {}},
	}
	for name, test := range tests {
		for _, after := range []bool{false, true} {
			total := 1
			for n := 1; n <= total; n++ {
				t.Run(fmt.Sprintf("%s/after=%v/write=%d", name, after, n), func(t *testing.T) {
					f := newFake(t, 5)
					f.submit(test.job)
					e := apply.NewExecutor(f.client, f, options())
					run(t, f, e, "running", settledJob("train", test.members))
					test.breakIt(f)
					total = max(total, f.diesThenMends(n, after, test.mend, test.members))
				})
			}
			if total < 4 {
				t.Errorf("%s: only %d writes", name, total)
			}
		}
	}
}

// settledJob holds when the job runs with so many members, all placed.
func settledJob(job string, members int) func(*observe.View) bool {
	return func(v *observe.View) bool {
		m, ok := v.Job("default", job)
		if !ok || m.Record == nil || m.Record.Phase != record.PhaseRunning || len(m.Members) != members {
			return false
		}
		for _, s := range m.Members {
			if s.State != observe.AllocPlaced {
				return false
			}
		}
		return true
	}
}

// diesThenMends lets planners die at the n-th write from now, has the trouble
// mended in the end, and returns how many writes it took.
func (f *fakeNomad) diesThenMends(n int, late bool, mend func(*fakeNomad), members int) int {
	began, dead := f.writes, false
	f.fail = func(i int, _ string, after bool) int {
		dead = dead || i == began+n && after == late
		if dead {
			return http.StatusServiceUnavailable
		}
		return 0
	}
	acted := false
	for turn := range 40 {
		e := apply.NewExecutor(f.client, f, options())
		for range 8 {
			v := f.view()
			e.Execute(f.t.Context(), v, decide(f, v))
			f.oneHolder()
			if dead {
				break
			}
			f.tick()
		}
		if dead {
			f.fail, dead = nil, false
		}
		if turn == 2 {
			mend(f)
		}
		v := f.view()
		acted = acted || f.writes > began
		if turn > 2 && acted && settledJob("train", members)(v) {
			live := 0
			for _, a := range v.Snapshot.Allocs {
				if a.Job == "train" {
					live++
				}
			}
			if live != members {
				f.t.Errorf("%d allocations, want %d", live, members)
			}
			return f.writes - began
		}
	}
	f.t.Fatalf("it never runs whole again:\n%s", strings.Join(f.log[began:], "\n"))
	return 0
}

// oneHolder checks that no GPU is held twice.
func (f *fakeNomad) oneHolder() {
	f.mu.Lock()
	defer f.mu.Unlock()
	holder := map[string]string{}
	f.held(func(a *api.AllocationListStub, gpu string) {
		if other := holder[gpu]; other != "" && other != a.ID {
			f.t.Errorf("GPU %s is held by %s and %s", gpu, other, a.ID)
		}
		holder[gpu] = a.ID
	})
}
