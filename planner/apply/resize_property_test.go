package apply_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/hashicorp/nomad/api"
	"pgregory.net/rapid"

	"github.com/caravan-sched/caravan/planner/apply"
	"github.com/caravan-sched/caravan/planner/observe"
	"github.com/caravan-sched/caravan/planner/record"
)

// TestResizeStopsAnywhere lets the planner die at each write that a new count
// makes it do. Nobody who stays is touched, and in the end all are there.
func TestResizeStopsAnywhere(t *testing.T) {
	tests := map[string]struct {
		job      *api.Job
		from, to int
		// full lets Nomad place a part of the growth only, at first.
		full bool
	}{
		"a gang grows":              {job: elasticJob("service", "job", 2, 1, 5), from: 2, to: 4},
		"a gang grows in part only": {job: elasticJob("batch", "job", 2, 1, 5), from: 2, to: 4, full: true},
		"a gang shrinks":            {job: elasticJob("service", "job", 4, 1, 5), from: 4, to: 2},
		"one of the gangs grows":    {job: elasticJob("service", "group", 2, 1, 5), from: 2, to: 4},
		"replicas, more":            {job: gatedJob("train", "service", "none", 2, 8), from: 2, to: 4},
	}
	for name, tt := range tests {
		for _, after := range []bool{false, true} {
			total := 1
			for n := 1; n <= total; n++ {
				t.Run(fmt.Sprintf("%s/after=%v/write=%d", name, after, n), func(t *testing.T) {
					f := newFake(t, 5)
					f.submit(tt.job)
					run(t, f, apply.NewExecutor(f.client, f, options()), "running", settledJob("train", tt.from))
					before := f.running()
					if tt.full {
						f.planned = func() {
							f.mu.Lock()
							defer f.mu.Unlock()
							f.unusable[f.nodes[3]] = "full"
						}
					}
					if !f.scale("w", tt.to) {
						t.Fatal("not resized")
					}
					total = max(total, f.diesThenMends(n, after, func(f *fakeNomad) { f.planned = nil; clear(f.unusable) }, tt.to))
					left := 0
					for id := range f.running() {
						if before[id] != "" {
							left++
						}
					}
					if left != min(tt.from, tt.to) {
						t.Errorf("%d of those before run, want %d:\n%s", left, min(tt.from, tt.to), strings.Join(f.log, "\n"))
					}
				})
			}
			if tt.to > tt.from && total < 3 {
				t.Errorf("%s: only %d writes", name, total)
			}
		}
	}
}

// TestResizeAtRandom: through any series of counts and lost nodes no GPU is
// held twice, nobody who stays is touched, and no part of a growth is left.
func TestResizeAtRandom(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		f := newFake(t, 5)
		gang := rapid.SampledFrom([]string{"job", "group", "none"}).Draw(rt, "gang")
		job := elasticJob("service", gang, 2, 1, 5)
		f.submit(job)
		e := apply.NewExecutor(f.client, f, options())
		grow := gang != "none" && rapid.Bool().Draw(rt, "grows by itself, too")
		wanted := func(m *observe.Managed) int {
			return max(*m.Record.Original.TaskGroups[0].Count, m.Record.Sizes["w"])
		}
		// It is enough when all is as it is to be, and stays so for some turns.
		settle := func(turns int) {
			quiet := 0
			for range turns {
				v, before := f.view(), f.writes
				plan := decide(f, v)
				if grow {
					plan = grows(f, v, 5)
				}
				e.Execute(t.Context(), v, plan)
				f.oneHolder()
				f.tick()
				quiet++
				if m, _ := v.Job("default", "train"); f.writes > before || m.Record == nil || !settledJob("train", wanted(m))(v) {
					quiet = 0
				}
				if quiet > 4 {
					return
				}
			}
		}
		settle(8)
		for range rapid.IntRange(1, 6).Draw(rt, "steps") {
			before := f.running()
			to := rapid.IntRange(1, 5).Draw(rt, "count")
			f.scale("w", to)
			if rapid.IntRange(0, 3).Draw(rt, "trouble") == 0 {
				f.unusable[f.nodes[rapid.IntRange(0, 4).Draw(rt, "node")]] = "ineligible"
			}
			settle(rapid.IntRange(0, 3).Draw(rt, "partly"))
			least := min(len(before), to)
			if rapid.Bool().Draw(rt, "again") {
				then := rapid.IntRange(1, 5).Draw(rt, "then")
				f.scale("w", then)
				least = min(least, then)
			}
			settle(12)
			clear(f.unusable)
			settle(60)
			m, _ := f.view().Job("default", "train")
			want := wanted(m)
			after := f.running()
			stay := 0
			for id := range before {
				if after[id] != "" {
					stay++
				}
			}
			if len(after) != want || m.Record.Growth != nil || m.Record.Phase != record.PhaseRunning {
				rt.Fatalf("%d run, want %d; %s, %+v: %s", len(after), want, m.Record.Phase, m.Record.Growth, m.Record.Reason)
			}
			if stay < least {
				rt.Fatalf("%d of %v stay, want %d: %v\n%s", stay, slices.Sorted(maps.Keys(before)), least, slices.Sorted(maps.Keys(after)), strings.Join(f.log, "\n"))
			}
		}
	})
}
