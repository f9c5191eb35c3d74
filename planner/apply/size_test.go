package apply_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/planner/apply"
	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/gangspec"
	"github.com/caravan-sched/caravan/planner/observe"
	"github.com/caravan-sched/caravan/planner/record"
	"github.com/caravan-sched/caravan/planner/rewrite"
)

// grows is a plan that gives the job "train" members beyond its count, as long as
// it has as many as that says and its size was not changed since.
func grows(f *fakeNomad, v *observe.View, to int) *model.Plan {
	plan := decide(f, v)
	m, ok := v.Job("default", "train")
	if !ok || m.Record == nil || m.Record.Phase != record.PhaseRunning || len(m.Record.Members) != gangspec.Count(m.Record.Original.TaskGroups[0]) || len(m.Record.Resizes) > 0 {
		return plan
	}
	r := model.Resize{Namespace: "default", Job: "train", Action: model.ActionGrow, Group: "w", From: len(m.Record.Members), To: to, Reason: "grows into what is idle"}
	taken := map[string]bool{}
	for _, s := range m.Members {
		taken[s.Member.Node] = true
	}
	for _, node := range f.nodes {
		if n := r.From + len(r.Members); !taken[node] && n < to {
			member := model.Member{Group: "w", Index: n, Rank: n, Node: node}
			for i := range gpusPerNode {
				member.GPUs = append(member.GPUs, gpu(node, i))
			}
			r.Members = append(r.Members, member)
		}
	}
	plan.Resizes = append(plan.Resizes, r)
	return plan
}

// turns lets a planner work for a while.
func (f *fakeNomad) turns(e *apply.Executor, n int, plan func(*observe.View) *model.Plan) *observe.View {
	for range n {
		v := f.view()
		e.Execute(f.t.Context(), v, plan(v))
		f.tick()
	}
	return f.view()
}

// TestGrowsBeyondItsCount: the user's own job stays as it is, what ran runs on,
// and the size is remembered until the user changes the count.
func TestGrowsBeyondItsCount(t *testing.T) {
	for _, kind := range []string{"batch", "service"} {
		t.Run(kind, func(t *testing.T) {
			f := newFake(t, 5)
			f.submit(elasticJob(kind, "job", 2, 1, 4))
			e := apply.NewExecutor(f.client, f, options())
			run(t, f, e, "it runs", settledJob("train", 2))
			before, hash := f.running(), f.records["default/train"].SpecHash
			v := f.turns(e, 8, func(v *observe.View) *model.Plan { return grows(f, v, 4) })
			placed(t, f, v, "train", 4)
			now := f.running()
			for id := range before {
				if now[id] == "" {
					t.Errorf("%s does not run on", id)
				}
			}
			rec := f.records["default/train"]
			if rec.Phase != record.PhaseRunning || rec.Sizes["w"] != 4 || len(rec.Resizes) != 1 || rec.Growth != nil || rec.SpecHash != hash {
				t.Errorf("%s, sizes %v, resized %v, growth %+v", rec.Phase, rec.Sizes, rec.Resizes, rec.Growth)
			}
			own, err := rewrite.Strip(f.jobs["train"], rec.Original)
			if err != nil || gangspec.Count(own.TaskGroups[0]) != 2 || gangspec.Hash(own) != hash {
				t.Errorf("the user's job has count %d: %v", gangspec.Count(own.TaskGroups[0]), err)
			}
			// Another planner leaves it as it is.
			other := apply.NewExecutor(f.client, f, options())
			if v := f.turns(other, 4, func(v *observe.View) *model.Plan { return decide(f, v) }); len(f.running()) != 4 {
				t.Errorf("after another planner took over: %+v", v.Managed)
			}
			// It gives one back.
			last := slices.IndexFunc(rec.Members, func(m model.Member) bool { return m.Index == 3 })
			give := &model.Plan{Preemptions: []model.Preemption{{Namespace: "default", Job: "train", Action: model.ActionShrink, Returned: true,
				For: model.JobName{Namespace: "default", ID: "high"}, Members: []model.Member{rec.Members[last]}, Reason: "gives 1 member back to high"}}}
			e.Execute(t.Context(), f.view(), give)
			f.turns(e, 4, func(v *observe.View) *model.Plan { return decide(f, v) })
			rec = f.records["default/train"]
			if len(f.running()) != 3 || rec.Sizes["w"] != 3 || len(rec.Resizes) != 2 || len(rec.Preempted) != 1 || !rec.Preempted[0].Returned {
				t.Errorf("%d run, sizes %v, resized %v, gave %+v", len(f.running()), rec.Sizes, rec.Resizes, rec.Preempted)
			}
			// The user's word counts.
			if !f.scale("w", 1) {
				t.Fatal("it cannot be scaled")
			}
			f.turns(e, 6, func(v *observe.View) *model.Plan { return decide(f, v) })
			if rec = f.records["default/train"]; len(f.running()) != 1 || len(rec.Members) != 1 || rec.Sizes != nil {
				t.Errorf("%d run, %d are recorded, sizes %v; want 1", len(f.running()), len(rec.Members), rec.Sizes)
			}
		})
	}
}

// TestSizeOutOfDate: a decision on another size than the gang has by now is not
// carried out.
func TestSizeOutOfDate(t *testing.T) {
	f := newFake(t, 5)
	f.submit(elasticJob("batch", "job", 2, 1, 4))
	e := apply.NewExecutor(f.client, f, options())
	run(t, f, e, "it runs", settledJob("train", 2))
	plan := grows(f, f.view(), 4)
	plan.Resizes[0].From = 3
	for _, r := range e.Execute(t.Context(), f.view(), plan) {
		if r.Changed || r.Err != nil {
			t.Errorf("%+v", r)
		}
	}
	if len(f.running()) != 2 {
		t.Errorf("%d run", len(f.running()))
	}
}

// TestGrowsStopsAnywhere lets the planner die at each of its writes, before or
// after Nomad has done it: the gang has its old size then or the new one, and
// what ran runs on.
func TestGrowsStopsAnywhere(t *testing.T) {
	for _, fits := range []bool{true, false} {
		for _, after := range []bool{false, true} {
			total := 1
			for n := 1; n <= total; n++ {
				t.Run(fmt.Sprintf("fits=%v/after=%v/write=%d", fits, after, n), func(t *testing.T) {
					total = max(total, growsAt(t, n, after, fits))
				})
			}
			if total < 3 {
				t.Errorf("the scenario has %d writes only", total)
			}
		}
	}
}

func growsAt(t *testing.T, n int, after, fits bool) (writes int) {
	f := newFake(t, 4)
	f.submit(elasticJob("batch", "job", 2, 1, 4))
	e := apply.NewExecutor(f.client, f, options())
	run(t, f, e, "it runs", settledJob("train", 2))
	before := f.running()
	if !fits {
		// Between Nomad's word and the pin somebody takes a GPU.
		f.planned = func() {
			f.planned = nil
			for _, node := range f.nodes {
				if !slices.ContainsFunc(f.allocs, func(a *api.AllocationListStub) bool { return a.NodeID == node }) {
					f.occupy("other", node, 0)
					return
				}
			}
		}
	}
	first, dead := f.writes, false
	f.fail = func(i int, _ string, late bool) int {
		writes = i - first
		if dead || i-first == n && late == after {
			dead = true
			return 500
		}
		return 0
	}
	for range 40 {
		v := f.view()
		e.Execute(t.Context(), v, grows(f, v, 4))
		if dead {
			dead = false
			e = apply.NewExecutor(f.client, f, options())
		}
		f.tick()
	}
	f.fail = nil
	now, want := f.running(), 4
	if !fits {
		want = 2
	}
	rec := f.records["default/train"]
	if len(now) != want || len(rec.Members) != want || rec.Phase != record.PhaseRunning || rec.Growth != nil || want == 2 && rec.Sizes != nil {
		t.Errorf("%d run, %d are recorded, it is %s; growth %+v, sizes %v; want %d; %v", len(now), len(rec.Members), rec.Phase, rec.Growth, rec.Sizes, want, f.log)
	}
	for id := range before {
		if now[id] == "" {
			t.Errorf("%s does not run on", id)
		}
	}
	return writes
}

// TestStartsShort: a gang that is placed with fewer members than its count runs with
// those, and that it gets some of the others is remembered; that it becomes whole is
// not.
func TestStartsShort(t *testing.T) {
	for _, gang := range []string{"job", "group"} {
		t.Run(gang, func(t *testing.T) {
			f := newFake(t, 4)
			f.submit(elasticJob("batch", gang, 4, 1, 4))
			e := apply.NewExecutor(f.client, f, options())
			place := func(n int) func(*observe.View) *model.Plan {
				return func(v *observe.View) *model.Plan {
					plan := decide(f, v)
					for i := range plan.Decisions {
						d := &plan.Decisions[i]
						m, _ := v.Job("default", d.Job)
						has := 0
						if m.Record != nil && m.Record.Phase != record.PhaseQueued {
							has = len(m.Record.Members)
						}
						d.Members = d.Members[:min(len(d.Members), max(0, n-has))]
					}
					plan.Decisions = slices.DeleteFunc(plan.Decisions, func(d model.Decision) bool { return len(d.Members) == 0 })
					return plan
				}
			}
			before := map[string]string{}
			for i, step := range []struct{ members, resizes int }{{2, 0}, {3, 1}, {4, 1}} {
				v := f.turns(e, 6, place(step.members))
				placed(t, f, v, "train", step.members)
				rec, now := f.records["default/train"], f.running()
				if rec.Phase != record.PhaseRunning || len(rec.Resizes) != step.resizes || rec.Growth != nil || rec.Sizes != nil {
					t.Errorf("step %d: %s, resized %v, growth %+v, sizes %v", i, rec.Phase, rec.Resizes, rec.Growth, rec.Sizes)
				}
				for id := range before {
					if now[id] == "" {
						t.Errorf("step %d: %s does not run on", i, id)
					}
				}
				before = now
			}
		})
	}
}
