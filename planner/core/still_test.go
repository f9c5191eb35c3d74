package core

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/core/queue"
)

// Where only time passes, a plan that is not looked into again would start nobody. A
// cluster is played in time, with looks in between, and each plan is compared with one on
// the whole snapshot.
func TestPlansThatStartNobodyStandStill(t *testing.T) {
	still, woken, lasts, through := 0, 0, 0, 0
	rapid.Check(t, func(t *rapid.T) {
		policy := Policy{Order: rapid.SampledFrom([]string{queue.OrderCaravan, queue.OrderCaravan, queue.OrderBackfill, queue.OrderSJF, queue.OrderLAS, queue.OrderFTF, queue.OrderDeadline}).Draw(t, "order"), Forecasts: 1}
		policy.Backfill.Mode = rapid.SampledFrom([]string{queue.BackfillEasy, queue.BackfillConservative, queue.BackfillConservative}).Draw(t, "mode")
		policy.Backfill.Depth = rapid.SampledFrom([]int{0, 0, 3}).Draw(t, "depth")
		policy.Backfill.MaxWait = rapid.SampledFrom([]time.Duration{0, time.Hour, 5 * time.Hour}).Draw(t, "patience")
		policy.Caravan.StuckAfter = rapid.SampledFrom([]time.Duration{0, time.Hour, 5 * time.Hour}).Draw(t, "stuck after")
		p := anyTheatre(t, policy, rapid.IntRange(0, 3).Draw(t, "right") > 0)
		late := anyTheatre(t, policy, false).s.Jobs
		p.s.Jobs = append(p.s.Jobs, more(t, p, policy)...)
		due, priorities := rapid.Bool().Draw(t, "some are due"), rapid.SampledFrom([]int{0, 0, 2}).Draw(t, "priorities")
		shapes := rapid.SampledFrom([]int{1, 2, len(p.s.Jobs)}).Draw(t, "shapes")
		for i := range p.s.Jobs {
			like := p.s.Jobs[i%min(shapes, len(p.s.Jobs))]
			p.s.Jobs[i].Groups, p.s.Jobs[i].Topology = like.Groups, like.Topology
			if due && rapid.IntRange(0, 9).Draw(t, "due") == 0 {
				p.s.Jobs[i].Deadline = p.s.Now.Add(30 * time.Hour)
			}
			p.s.Jobs[i].Priority = 10 * rapid.IntRange(0, priorities).Draw(t, "priority")
		}
		past := func() {
			p.s.History.Demands = rapid.SliceOfN(rapid.SampledFrom([]float64{3600, 7200, 30000, 1e5, 1e6}), 10, 12).Draw(t, "past")
		}
		if rapid.IntRange(0, 2).Draw(t, "known past") > 0 {
			past()
		}
		was := copyOf(p.s)
		kept, err := Prepare(was, policy)
		if err != nil {
			t.Fatal(err)
		}
		kept.Terse()
		look := func() (started int) {
			ch, ok := kept.difference(was, p.s)
			if !ok {
				t.Fatal("the snapshots cannot be compared")
			}
			if err := kept.Apply(ch); err != nil {
				t.Fatal(err)
			}
			was = copyOf(p.s)
			got, want := kept.Decide(p.s.Now), mustDecide(t, was, policy)
			if len(got.Decisions) == 0 && len(want.Decisions) > 0 {
				still++
			}
			if kept.lasting != nil {
				lasts++
				for _, d := range want.Decisions {
					if strings.Contains(d.Detail.Standing, "so none passes it now") {
						through++
					}
				}
			}
			starts := startsOf(want)
			if diff := cmp.Diff(starts, startsOf(got)); diff != "" {
				t.Fatalf("at %s another plan (-whole +kept):\n%s", p.s.Now, diff)
			}
			return len(starts)
		}
		p.decided = func(*model.Plan) {
			if len(late) > 0 && rapid.Bool().Draw(t, "one comes") {
				j := late[0]
				j.ID, j.Submitted, late = "late "+j.ID, p.s.Now, late[1:]
				p.s.Jobs = append(p.s.Jobs, j)
				p.really[j.ID] = j.Duration
			}
			if len(p.s.History.Demands) > 0 && rapid.IntRange(0, 3).Draw(t, "more has ended") == 0 {
				past()
			}
			now := p.s.Now
			for nobody := look() == 0; nobody && rapid.IntRange(0, 5).Draw(t, "another look") > 0; {
				p.s.Now = p.s.Now.Add(time.Duration(rapid.IntRange(1, 300).Draw(t, "minutes")) * time.Minute)
				if look() > 0 {
					nobody = false
					woken++
				}
			}
			p.s.Now = now
		}
		p.play(t)
	})
	t.Logf("%d plans were not looked into again; %d times somebody starts though only time has passed; %d were made in an order that was kept, %d with somebody let through", still, woken, lasts, through)
	if still == 0 || lasts == 0 || through == 0 {
		t.Error("want some that are not looked into again, and some in an order that is kept, and let through")
	}
}

// more are other jobs for a theatre.
func more(t *rapid.T, p *theatre, policy Policy) []model.Job {
	jobs := anyTheatre(t, policy, false).s.Jobs
	for i := range jobs {
		jobs[i].ID = "more " + jobs[i].ID
		p.really[jobs[i].ID] = jobs[i].Duration
	}
	return jobs
}

// a has the first of two nodes, as it seems for 50 minutes more, and then for another 80. H
// needs both, and C one of them for an hour.
func TestWhatStandsStillByHand(t *testing.T) {
	tests := map[string]struct {
		looks []time.Duration
		jobs  string
		want  []string
	}{
		"only time passes":             {[]time.Duration{0, 1, 49}, "H 2x1 runs:3h\nC 1x1 runs:1h", []string{"H ?; C ?", "", ""}},
		"an estimate is outlived":      {[]time.Duration{0, 49, 50}, "H 2x1 runs:3h\nC 1x1 runs:1h", []string{"H ?; C ?", "", "H ?; C now, before H"}},
		"the first look is after that": {[]time.Duration{0, 50}, "H 2x1 runs:3h\nC 1x1 runs:1h", []string{"H ?; C ?", "H ?; C now, before H"}},
		"somebody has started":         {[]time.Duration{0, 1}, "H 2x1 runs:3h\nC 1x1 runs:45m", []string{"H ?; C now, before H", "H ?; C now, before H"}},
		"who needs unequal nodes":      {[]time.Duration{0, 1}, "H 1x0+2x1 runs:3h\nC 1x1 runs:1h", []string{"H ?; C ?", "H ?; C ?"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			s := draw(t, "b1 r1 n1 a\nb1 r1 n2 .")
			describe(t, s, "a 50 30m runs:80m")
			submit(t, s, tt.jobs)
			a := s.Allocs[0]
			s.Jobs[0].Groups = []model.TaskGroup{{Name: "g", Count: 1, Devices: []model.DeviceAsk{{Name: "gpu", Count: 1}}}}
			s.Jobs[0].Gang, s.Jobs[0].Members, s.Allocs = model.GangJob, []model.Member{{Group: "g", Node: a.Node, GPUs: a.GPUs}}, nil
			p, err := Prepare(s, easy)
			if err != nil {
				t.Fatal(err)
			}
			p.Terse()
			var got []string
			for _, look := range tt.looks {
				plan := p.Decide(s.Now.Add(look * time.Minute))
				for i := range plan.Decisions {
					plan.Decisions[i].Detail.Start = time.Time{}
				}
				got = append(got, starts(s, plan))
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("starts (-want +got):\n%s", diff)
			}
		})
	}
}

// startsOf are the members that a plan places, by job, and what is said of its place in
// the order.
func startsOf(plan *model.Plan) map[string][]string {
	out := map[string][]string{}
	for i := range plan.Decisions {
		d := &plan.Decisions[i]
		if d.Action != model.ActionAdmit {
			continue
		}
		for _, m := range d.Members {
			out[d.Job] = append(out[d.Job], fmt.Sprint(m.Group, m.Index, m.Node, m.GPUs))
		}
		out[d.Job] = append(out[d.Job], d.Detail.Standing)
	}
	return out
}

// copyOf is a snapshot whose jobs may be changed.
func copyOf(s *model.Snapshot) *model.Snapshot {
	out := *s
	out.Jobs = append([]model.Job(nil), s.Jobs...)
	return &out
}
