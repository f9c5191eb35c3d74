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
		policy := quietPolicy(t)
		p := anyTheatre(t, policy, rapid.IntRange(0, 3).Draw(t, "right") > 0)
		late := anyTheatre(t, policy, false).s.Jobs
		p.s.Jobs = append(p.s.Jobs, more(t, p, policy)...)
		quietJobs(t, p)
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
			if diff := cmp.Diff(want.Promises, got.Promises); diff != "" {
				t.Fatalf("at %s other promises (-whole +kept):\n%s", p.s.Now, diff)
			}
			return len(starts)
		}
		p.decided = func(plan *model.Plan) {
			for i := range plan.Promises {
				p.job(plan.Promises[i].Job).Promised = plan.Promises[i].Promised
			}
			if len(late) > 0 && rapid.IntRange(0, 3).Draw(t, "one comes") == 0 {
				j := late[0]
				j.ID, j.Submitted, late = "late "+j.ID, p.s.Now, late[1:]
				p.s.Jobs = append(p.s.Jobs, j)
				p.really[j.ID] = j.Duration
			}
			if len(p.s.History.Demands) > 0 && rapid.IntRange(0, 3).Draw(t, "more has ended") == 0 {
				past()
			}
			now := p.s.Now
			for nobody := look() == 0; nobody && rapid.IntRange(0, 9).Draw(t, "another look") > 0; {
				p.s.Now = p.s.Now.Add(time.Duration(rapid.SampledFrom([]int{1, 10, 30, 60, 120}).Draw(t, "minutes")) * time.Minute)
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
	if still == 0 || !testing.Short() && (lasts == 0 || through == 0) { // a short test draws few
		t.Error("want some that are not looked into again, and some in an order that is kept, and let through")
	}
}

// quietPolicy draws a policy by which plans may stand still, or those who wait be passed over.
func quietPolicy(t *rapid.T) Policy {
	hours := func(name string) time.Duration {
		return rapid.SampledFrom([]time.Duration{0, time.Hour, 3 * time.Hour, 10 * time.Hour}).Draw(t, name)
	}
	policy := Policy{Order: queue.OrderCaravan, Forecasts: 1}
	if rapid.Bool().Draw(t, "another order") {
		policy.Order = rapid.SampledFrom(append(queue.Orders(), queue.OrderFTF, queue.OrderFTF)).Draw(t, "order")
	}
	policy.Backfill.Mode = rapid.SampledFrom([]string{queue.BackfillEasy, queue.BackfillConservative, queue.BackfillConservative, queue.BackfillOff}).Draw(t, "mode")
	policy.Backfill.Depth = rapid.SampledFrom([]int{0, 0, 3}).Draw(t, "depth")
	policy.Backfill.MaxWait = hours("patience")
	policy.Caravan.StuckAfter, policy.Caravan.Short = hours("stuck after"), hours("short")
	policy.Caravan.Patience = rapid.SampledFrom([]float64{0, 1, 2}).Draw(t, "due")
	return policy
}

// quietJobs makes most jobs of a theatre ask for the same as others, and gives some a
// deadline, another estimate, none, or a time to be tried again.
func quietJobs(t *rapid.T, p *theatre) {
	shapes, due := rapid.SampledFrom([]int{1, 2, 3, len(p.s.Jobs)}).Draw(t, "shapes"), rapid.IntRange(0, 3).Draw(t, "deadlines") == 0
	priorities := rapid.SampledFrom([]int{0, 0, 2}).Draw(t, "priorities")
	waits, odd := rapid.IntRange(0, 3).Draw(t, "retries") == 0, rapid.IntRange(0, 2).Draw(t, "odd") == 0
	for i := range p.s.Jobs {
		j, like := &p.s.Jobs[i], p.s.Jobs[i%min(shapes, len(p.s.Jobs))]
		if j.Groups, j.Topology = like.Groups, like.Topology; !odd {
			j.Groups = j.Groups[:1]
		}
		j.Priority = 10 * rapid.IntRange(0, priorities).Draw(t, "priority")
		j.Submitted = j.Submitted.Add(-time.Duration(rapid.IntRange(0, 10).Draw(t, "older")) * time.Hour)
		switch rapid.IntRange(0, 9).Draw(t, "kind") {
		case 0:
			j.Duration, j.Estimate = 0, j.Duration
		case 1:
			if odd {
				j.Duration = 0
			}
		case 2:
			j.Preempted = []model.Preempted{{At: p.s.Now.Add(-30 * time.Minute), By: "x"}}
		case 3, 4:
			if due {
				j.Deadline = p.s.Now.Add(time.Duration(rapid.IntRange(1, 40).Draw(t, "by")) * time.Hour)
			}
		case 5:
			if waits {
				j.RetryAfter = p.s.Now.Add(time.Duration(rapid.IntRange(1, 300).Draw(t, "again")) * time.Minute)
			}
		}
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
