package core

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/core/preempt"
	"github.com/caravan-sched/caravan/planner/core/queue"
)

var (
	easy         = Policy{Backfill: queue.Backfill{Mode: queue.BackfillEasy}}
	conservative = Policy{Backfill: queue.Backfill{Mode: queue.BackfillConservative}}
)

// starts tells of each job of a plan when it starts, from now on: "H 2h", "S now",
// "L ?" if it is not known.
func starts(s *model.Snapshot, plan *model.Plan) string {
	var out []string
	for _, d := range plan.Decisions {
		at := "?"
		switch {
		case d.Action == model.ActionAdmit && d.Backfill != nil:
			at = "now, before " + d.Backfill.For.ID
		case d.Action == model.ActionAdmit:
			at = "now"
		case !d.Detail.Start.IsZero():
			at = span(d.Detail.Start.Sub(s.Now))
		}
		out = append(out, d.Job+" "+at)
	}
	return strings.Join(out, "; ")
}

// The examples are figures as in Mu'alem and Feitelson, TPDS 12(6), 2001, worked
// by hand: nodes are of one GPU, time goes to the right.
func TestBackfillByHand(t *testing.T) {
	// a has two of six nodes for 2h, b one for 4h; three are free.
	six := "b1 r1 n1 a\nb1 r1 n2 a\nb1 r1 n3 b\nb1 r1 n4 .\nb1 r1 n5 .\nb1 r1 n6 ."
	// a has four of six nodes for 2h.
	four := "b1 r1 n1 a\nb1 r1 n2 a\nb1 r1 n3 a\nb1 r1 n4 a\nb1 r1 n5 .\nb1 r1 n6 ."
	racks := "b1 r1 n1 a\nb1 r1 n2 .\nb1 r2 n3 b\nb1 r2 n4 c"
	tests := map[string]struct {
		cluster, running, jobs string
		policy                 Policy
		want                   string
	}{
		// Five are free at 2h, so H starts then and leaves none over: only what has
		// ended by then may pass.
		"no extra nodes": {six, "a 50 0s runs:2h\nb 50 0s runs:4h", "H 5x1 runs:3h\nL 1x1 runs:3h\nS 1x1 runs:2h", easy, "H 2h; L 4h; S now, before H"},
		// H needs four of those five: one may be used for longer.
		"one extra node":                           {six, "a 50 0s runs:2h\nb 50 0s runs:4h", "H 4x1 runs:3h\nL 1x1 runs:3h\nM 1x1 runs:3h\nS 1x1 runs:1h", easy, "H 2h; L now; M 3h; S now, before H"},
		"who does not say how long ends never":     {six, "a 50 0s runs:2h\nb 50 0s runs:4h", "H 5x1 runs:3h\nU 1x1", easy, "H 2h; U 4h"},
		"who does not say how long uses extra too": {six, "a 50 0s runs:2h\nb 50 0s runs:4h", "H 4x1 runs:3h\nU 1x1", easy, "H 2h; U now"},
		"what runs and does not say": {six, "a 50 0s\nb 50 0s runs:4h", "H 5x1 runs:3h\nS 1x1 runs:1h\nT 3x1 runs:1h", easy,
			"H ?; S 4h; T ?"},
		// H starts at 2h and leaves two. J takes them for 10h, and K, which needs all
		// six, waits for J instead of H.
		"EASY delays the second":        {four, "a 50 0s runs:2h", "H 4x1 runs:3h\nK 6x1 runs:2h\nJ 2x1 runs:10h", easy, "H 2h; K 5h; J now"},
		"conservative delays none":      {four, "a 50 0s runs:2h", "H 4x1 runs:3h\nK 6x1 runs:2h\nJ 2x1 runs:10h", conservative, "H 2h; K 5h; J 7h"},
		"conservative fills both holes": {four, "a 50 0s runs:2h", "H 4x1 runs:3h\nK 6x1 runs:2h\nJ 2x1 runs:5h\nI 1x1 runs:1h", conservative, "H 2h; K 5h; J now, before K; I 7h"},
		"a depth of two":                {four, "a 50 0s runs:2h", "H 4x1 runs:3h\nK 6x1 runs:2h\nJ 2x1 runs:10h", Policy{Backfill: queue.Backfill{Mode: queue.BackfillEasy, Depth: 2}}, "H 2h; K 5h; J 7h"},
		// The default order reserves for one, but for several that need more than a quarter.
		"two wide ones by default":  {four, "a 50 0s runs:2h", "H 4x1 runs:5h\nK 6x1 runs:5h\nJ 2x1 runs:10h", Policy{Order: queue.OrderCaravan}, "H 2h; K 7h; J 12h"},
		"one where a depth says so": {four, "a 50 0s runs:2h", "H 4x1 runs:5h\nK 6x1 runs:5h\nJ 2x1 runs:10h", Policy{Order: queue.OrderCaravan, Backfill: queue.Backfill{Depth: 1}}, "H 2h; K 7h; J now"},
		// Three nodes are free at 2h, but the first rack with two is r1 at 2h: n2 is
		// not for who runs for longer, though it is one of two that H leaves over.
		"topology in the reservation": {racks, "a 50 0s runs:2h\nb 50 0s runs:1h\nc 50 0s runs:5h", "H 2x1 require:rack runs:1h\nL 1x1 runs:3h\nS 1x1 runs:2h", easy, "H 2h; L 1h; S now, before H"},
		"it has run for a while":      {six, "a 50 90m runs:2h\nb 50 1h runs:4h", "H 5x1 runs:3h\nS 1x1 runs:30m\nL 1x1 runs:31m", easy, "H 30m; S now, before H; L 3h"},
		// a should have ended after 1h and has run for 90m: 2h are expected now.
		"it has outlived its estimate": {six, "a 50 90m runs:1h\nb 50 0s runs:4h", "H 5x1 runs:3h", easy, "H 30m"},
		"default duration":             {six, "a 50 0s\nb 50 0s", "H 5x1\nS 1x1 runs:1h", Policy{Backfill: queue.Backfill{Mode: queue.BackfillEasy, DefaultDuration: 2 * time.Hour}}, "H 2h; S now"},
		"starts of two are estimated":  {six, "a 50 0s runs:2h\nb 50 0s runs:4h", "H 5x1 runs:3h\nL 1x1 runs:3h\nM 1x1 runs:3h", Policy{Forecasts: 2, Backfill: easy.Backfill}, "H 2h; L 4h; M ?"},
		"order backfill is EASY":       {six, "a 50 0s runs:2h\nb 50 0s runs:4h", "H 5x1 runs:3h\nL 1x1 runs:3h\nS 1x1 runs:2h", Policy{Order: queue.OrderBackfill}, "H 2h; L 4h; S now, before H"},
		"with another order":           {six, "a 50 0s runs:2h\nb 50 0s runs:4h", "H 5x1 runs:1h\nL 1x1 runs:3h\nS 1x1 runs:2h", Policy{Order: queue.OrderSJF, Backfill: queue.Backfill{Mode: queue.BackfillEasy}}, "H 2h; S now, before H; L 3h"},
		"off: kept from now on":        {six, "a 50 0s runs:2h\nb 50 0s runs:4h", "H 5x1 runs:3h\nS 1x1 runs:1h", Policy{}, "H 2h; S 4h"},
		"groups that differ":           {"b1 r1 n1 aa..\nb1 r1 n2 bbbb", "a 50 0s runs:1h\nb 50 0s runs:2h", "H 1x3+1x4 runs:1h\nS 1x2 runs:2h\nL 1x2 runs:3h", easy, "H 2h; S now, before H; L 3h"},
		"in one island":                {"b1 r1 n1 aa|.b\nb1 r1 n2 cccc", "a 50 0s runs:2h\nb 50 0s runs:3h\nc 50 0s runs:4h", "H 2x1 require:island runs:1h\nL 1x1 runs:9h", easy, "H 2h; L now"},
		"the first placed ends first":  {"b1 r1 n1 ..", "", "A 1x1 runs:1h\nH 1x2 runs:1h\nS 1x1 runs:1h\nL 1x1 runs:2h", easy, "A now; H 1h; S now, before H; L 2h"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			s := draw(t, tt.cluster)
			describe(t, s, tt.running)
			submit(t, s, tt.jobs)
			plan := mustDecide(t, s, tt.policy)
			checkPlan(t, s, plan)
			if diff := cmp.Diff(tt.want, starts(s, plan)); diff != "" {
				t.Errorf("starts (-want +got):\n%s", diff)
				for _, d := range plan.Decisions {
					t.Log(d.Job, d.Reason, d.Detail.Basis)
				}
			}
		})
	}
}

// A gang that has waited for too long trusts no estimate: nobody passes it onto the
// nodes that it is nearest to. It is one gang at a time.
func TestNobodyBackfillsForEver(t *testing.T) {
	six := "b1 r1 n1 a\nb1 r1 n2 a\nb1 r1 n3 b\nb1 r1 n4 .\nb1 r1 n5 .\nb1 r1 n6 ."
	racks := "b1 r1 n1 a\nb1 r1 n2 .\nb1 r2 n3 b\nb1 r2 n4 ."
	running := "a 50 0s runs:2h\nb 50 0s runs:4h"
	tests := map[string]struct {
		cluster, jobs string
		wait          time.Duration
		set           func(*model.Snapshot)
		want          string
		depth         int
	}{
		"beyond the depth": {cluster: racks, depth: 1, jobs: "K 2x1 require:rack runs:9h\nH 2x1 require:rack runs:1h\nS 1x1 runs:3h", wait: time.Hour, set: func(s *model.Snapshot) {
			s.Jobs[2].Priority, s.Jobs[2].Submitted = 60, s.Now
		}, want: "K 2h; H 4h; S 5h"},
		"not yet":      {cluster: six, jobs: "H 5x1 runs:3h\nS 1x1 runs:2h", wait: 100 * time.Hour, want: "H 2h; S now, before H"},
		"a short one":  {cluster: six, jobs: "H 5x1 runs:3h\nS 1x1 runs:30m", wait: time.Hour, want: "H 2h; S now, before H"},
		"not so short": {cluster: six, jobs: "H 5x1 runs:3h\nS 1x1 runs:31m", wait: time.Hour, want: "H 2h; S 4h"},
		"it outlives": {cluster: six, jobs: "H 5x1 runs:3h\nS 1x1 runs:11m\nT 1x1 runs:9m", wait: time.Hour, set: func(s *model.Snapshot) {
			s.Jobs[0].Started = s.Now.Add(-230 * time.Minute) // of twice two hours ten minutes are left
		}, want: "H 10m; S 3h10m; T now, before H"},
		// Of the two hours 20 minutes are left, and it is taken to run for half of them once more.
		"it ends soon": {cluster: six, jobs: "H 5x1 runs:3h\nS 1x1 runs:16m\nT 1x1 runs:15m", wait: time.Hour, set: func(s *model.Snapshot) {
			s.Jobs[0].Started = s.Now.Add(-100 * time.Minute)
		}, want: "H 20m; S 3h20m; T now, before H"},
		"it stops": {cluster: six, jobs: "H 5x1 runs:3h\nS 1x1 runs:30s", wait: time.Hour, set: func(s *model.Snapshot) {
			s.Jobs[0].State = model.StateStopping
		}, want: "H 1m; S 3h1m"},
		// H has the rest of a node beside b.
		"nobody knows of who stays beside it": {cluster: "b1 r1 n1 ab..", jobs: "H 1x3 runs:3h\nS 1x1 runs:31m\nT 1x1 runs:30m", wait: time.Hour, set: func(s *model.Snapshot) {
			s.Jobs[1].Duration = 0
		}, want: "H 2h; S 5h; T now, before H"},
		"who stays beside it does for long": {cluster: "b1 r1 n1 ab..", jobs: "H 1x3 runs:3h\nS 1x1 runs:2h\nT 1x1 runs:119m", wait: time.Hour, set: func(s *model.Snapshot) {
			s.Jobs[1].Duration = 40 * time.Hour
		}, want: "H 2h; S 5h; T now, before H"},
		// a has run for so long that who runs for 28 minutes would be let in, but has ten left.
		"who outlives ends before": {cluster: six, jobs: "H 6x1 runs:3h\nS 1x1 runs:16m\nT 1x1 runs:15m", wait: time.Hour, set: func(s *model.Snapshot) {
			s.Jobs[0].Started, s.Jobs[1].Duration = s.Now.Add(-230*time.Minute), time.Hour
		}, want: "H 1h; S 4h; T now, before H"},
		"it was let in before that": {cluster: six, jobs: "H 5x1 runs:3h\nS 1x1 runs:30m", wait: time.Hour, set: func(s *model.Snapshot) {
			s.Jobs[0].Backfilled = &model.Backfill{For: model.JobName{ID: "H"}}
		}, want: "H 2h; S now, before H"},
		"it was let in": {cluster: six, jobs: "H 5x1 runs:3h\nS 1x1 runs:30m", wait: time.Hour, set: func(s *model.Snapshot) {
			s.Jobs[0].Backfilled = &model.Backfill{For: model.JobName{ID: "H"}, Drained: true}
		}, want: "H 2h; S 4h"},
		"for another one": {cluster: six, jobs: "H 5x1 runs:3h\nS 1x1 runs:30m", wait: time.Hour, set: func(s *model.Snapshot) {
			s.Jobs[0].Backfilled = &model.Backfill{For: model.JobName{ID: "K"}, Drained: true}
		}, want: "H 2h; S now, before H"},
		"it has waited":   {cluster: six, jobs: "H 5x1 runs:3h\nS 1x1 runs:2h", wait: time.Hour, want: "H 2h; S 4h"},
		"another one not": {cluster: racks, jobs: "H 2x1 require:rack runs:9h\nK 2x1 require:rack runs:1h\nS 1x1 runs:3h", wait: time.Hour, want: "H 2h; K 4h; S now, before K"},
		"it ran meanwhile": {cluster: six, jobs: "H 5x1 runs:3h\nS 1x1 runs:2h", wait: time.Hour, set: func(s *model.Snapshot) {
			s.Jobs[2].Preempted = []model.Preempted{{At: s.Now.Add(-10 * time.Minute), By: "x"}}
		}, want: "H 2h; S now, before H"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			s := draw(t, test.cluster)
			describe(t, s, running)
			submit(t, s, test.jobs)
			if test.set != nil {
				test.set(s)
			}
			policy := conservative
			policy.Backfill.MaxWait, policy.Backfill.Depth = test.wait, test.depth
			plan := mustDecide(t, s, policy)
			checkPlan(t, s, plan)
			if diff := cmp.Diff(test.want, starts(s, plan)); diff != "" {
				t.Errorf("starts (-want +got):\n%s", diff)
			}
		})
	}
}

func TestForecastReasons(t *testing.T) {
	tests := map[string]struct {
		cluster, running, jobs string
		set                    func(s *model.Snapshot)
		policy                 Policy
		want, basis            string
	}{
		"its author says so": {
			"b1 r1 n1 aa..", "a 50 1h runs:2h", "H 1x4 runs:1h", nil, easy,
			"needs 1 member with 4 GPUs; node b1/r1/n1 comes nearest with 2 GPUs free; reserved for it from its start on: n1; starts about 04:04 UTC in node b1/r1/n1 when a (est. 2h, by its author) has ended",
			"when a (est. 2h, by its author) has ended",
		},
		"as others like it": {
			"b1 r1 n1 aa..", "a 50 1h", "H 1x4 runs:1h", func(s *model.Snapshot) { s.Jobs[0].Estimate = 90 * time.Minute }, Policy{},
			"needs 1 member with 4 GPUs; node b1/r1/n1 comes nearest with 2 GPUs free; it can start when n1 has room (a holds 2 GPUs); kept for it: n1; starts about 03:34 UTC in node b1/r1/n1 when a (est. 1h30m, as others like it) has ended",
			"when a (est. 1h30m, as others like it) has ended",
		},
		"tomorrow, outlived": {
			"b1 r1 n1 aa\nb1 r1 n2 bb", "a 50 25h runs:24h\nb 50 1h runs:24h", "H 2x2 runs:1h", nil, easy,
			"needs 2 members with 2 GPUs each (4 GPUs); rack b1/r1 has room for 0 of 2 now; reserved for it from its start on: n1, n2; starts about Jan 3 02:04 UTC in rack b1/r1 when a (est. 24h, by its author, outlived), b (est. 24h, by its author) have ended",
			"",
		},
		"it has waited": {
			"b1 r1 n1 aa\nb1 r1 n2 bb", "a 50 1h runs:9h\nb 50 1h runs:4h", "H 2x2 runs:1h", func(s *model.Snapshot) { s.Jobs[2].Submitted = s.Now.Add(-12 * time.Hour) }, easy,
			"needs 2 members with 2 GPUs each (4 GPUs); rack b1/r1 has room for 0 of 2 now; kept for it from all who do not end within 2h: n1, n2; starts about 11:04 UTC in rack b1/r1 when a (est. 9h, by its author) has ended",
			"",
		},
		"others were let in": {
			"b1 r1 n1 aa\nb1 r1 n2 bb", "a 50 1h runs:9h\nb 50 1h runs:4h", "H 2x2 runs:1h", func(s *model.Snapshot) {
				s.Jobs[2].Submitted = s.Now.Add(-12 * time.Hour)
				for i := range s.Jobs[:2] {
					s.Jobs[i].Backfilled = &model.Backfill{For: model.JobName{ID: "H"}, Drained: true}
				}
			}, easy,
			"needs 2 members with 2 GPUs each (4 GPUs); rack b1/r1 has room for 0 of 2 now; kept for it: n1, n2; starts about 11:04 UTC in rack b1/r1 when a (est. 9h, by its author) has ended",
			"",
		},
		"nobody says": {
			"b1 r1 n1 aa..", "a 50 1h", "H 1x4 runs:1h", nil, easy, "",
			"unknown: nobody says how long a will run; set caravan_duration in it",
		},
		"a service": {
			"b1 r1 n1 AA..", "", "H 1x4 runs:1h", nil, easy, "",
			"unknown: nothing says when what it waits for ends",
		},
		"stopping": {
			"b1 r1 n1 aa..", "a 50 1h", "H 1x4 runs:1h", func(s *model.Snapshot) { s.Jobs[0].State = model.StateStopping }, easy, "",
			"when a (stopping) has ended",
		},
		"not so many": {
			"b1 r1 n1 aa..", "a 50 1h runs:2h", "K 1x4 runs:1h\nH 1x4 runs:1h", nil, Policy{Forecasts: 1}, "",
			"not estimated: it is for the first 1 that wait",
		},
		"ahead of it": {
			"b1 r1 n1 aa..", "a 50 1h runs:2h", "K 1x4 runs:1h\nH 1x4 runs:1h", nil, Policy{}, "",
			"when K (ahead of it, est. 1h, by its author) has ended",
		},
		"nobody says of who is ahead": {
			"b1 r1 n1 aa..", "a 50 1h runs:2h", "K 1x4\nH 1x4 runs:1h", nil, Policy{}, "",
			"unknown: nobody says how long K, ahead of it, will run; set caravan_duration in it",
		},
		"nobody says of who starts now": {
			"b1 r1 n1 ....", "", "K 1x4\nL 1x4 runs:1h\nH 1x4 runs:1h", nil, Policy{}, "",
			"unknown: nobody says how long K, ahead of it, will run; set caravan_duration in it",
		},
		"behind one whose start is not known": {
			"b1 r1 n1 AA..", "", "K 1x4 runs:1h\nH 1x4 runs:1h", nil, Policy{}, "",
			"unknown: nothing says when what it waits for ends",
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			s := draw(t, tt.cluster)
			describe(t, s, tt.running)
			submit(t, s, tt.jobs)
			if tt.set != nil {
				tt.set(s)
			}
			plan := mustDecide(t, s, tt.policy)
			d := plan.Decisions[slices.IndexFunc(plan.Decisions, func(d model.Decision) bool { return d.Job == "H" })]
			if tt.want != "" && d.Reason != tt.want {
				t.Errorf("reason (-want +got):\n%s", cmp.Diff(tt.want, d.Reason))
			}
			if tt.basis != "" && d.Detail.Basis != tt.basis {
				t.Errorf("basis (-want +got):\n%s", cmp.Diff(tt.basis, d.Detail.Basis))
			}
			if tt.want == "" && tt.basis == "" {
				t.Error(fmt.Sprint(d))
			}
		})
	}
}

// What overstays gives way to whom it was to have ended for, and to nobody else.
func TestOverstayed(t *testing.T) {
	reclaim := Policy{Backfill: queue.Backfill{Mode: queue.BackfillEasy, Reclaim: true}, Preempt: preempt.Policy{Enabled: true}}
	kept := reclaim
	kept.Backfill.Reclaim = false
	off := reclaim
	off.Preempt.Enabled = false
	tests := map[string]struct {
		cluster, running, jobs string
		policy                 Policy
		backfilled             map[string]model.Backfill
		want                   []string
	}{
		"it is late": {
			"b1 r1 n1 aa..", "a 50 2h", "H 1x4", reclaim,
			map[string]model.Backfill{"a": {For: model.JobName{ID: "H"}, Start: testNow, Until: testNow.Add(-time.Minute)}}, []string{"a to H"},
		},
		"its time has not come": {
			"b1 r1 n1 aa..", "a 50 2h", "H 1x4", reclaim,
			map[string]model.Backfill{"a": {For: model.JobName{ID: "H"}, Start: testNow.Add(time.Second), Until: testNow.Add(-time.Minute)}}, []string{},
		},
		"for another one": {
			"b1 r1 n1 aa..", "a 50 2h", "H 1x4", reclaim,
			map[string]model.Backfill{"a": {For: model.JobName{ID: "K"}, Start: testNow, Until: testNow}}, []string{},
		},
		"never": {
			"b1 r1 n1 aa..", "a 50 2h never", "H 1x4", reclaim,
			map[string]model.Backfill{"a": {For: model.JobName{ID: "H"}, Start: testNow, Until: testNow}}, []string{},
		},
		"others hold it too": {
			"b1 r1 n1 aabb", "a 50 2h\nb 50 2h", "H 1x4", reclaim,
			map[string]model.Backfill{"a": {For: model.JobName{ID: "H"}, Start: testNow, Until: testNow}}, []string{},
		},
		"no more than it needs": {
			"b1 r1 n1 aabb", "a 50 2h\nb 50 1h", "H 1x2", reclaim,
			map[string]model.Backfill{
				"a": {For: model.JobName{ID: "H"}, Start: testNow, Until: testNow}, "b": {For: model.JobName{ID: "H"}, Start: testNow, Until: testNow},
			}, []string{"b to H"},
		},
		"not configured": {
			"b1 r1 n1 aa..", "a 50 2h", "H 1x4", kept,
			map[string]model.Backfill{"a": {For: model.JobName{ID: "H"}, Start: testNow, Until: testNow}}, []string{},
		},
		"nobody gives way": {
			"b1 r1 n1 aa..", "a 50 2h", "H 1x4", off,
			map[string]model.Backfill{"a": {For: model.JobName{ID: "H"}, Start: testNow, Until: testNow}}, []string{},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			s := draw(t, tt.cluster)
			describe(t, s, tt.running)
			submit(t, s, tt.jobs)
			for i := range s.Jobs {
				if b, any := tt.backfilled[s.Jobs[i].ID]; any {
					s.Jobs[i].Backfilled = &b
				}
			}
			plan := mustDecide(t, s, tt.policy)
			if diff := cmp.Diff(tt.want, gaveWay(plan)); diff != "" {
				t.Errorf("gave way (-want +got):\n%s", diff)
			}
			for _, p := range plan.Preemptions {
				if !strings.Contains(p.Reason, "it was to have ended at 03:0") {
					t.Errorf("reason %q", p.Reason)
				}
			}
		})
	}
}

// The cheapest way to make room is found whoever has a right to it.
func TestUnblock(t *testing.T) {
	tests := map[string]struct {
		cluster, running, jobs string
		want                   string
	}{
		"the cheaper of two": {"b1 r1 n1 aa..\nb1 r1 n2 bb..", "a 50 2h\nb 90 1h", "H 1x4",
			"stopping b would make room in island b1/r1/n2/0; that costs 2 GPU-hours since checkpoints or starts, 2 GPU-minutes to start again, 20 GPU-seconds for a place that was good"},
		"in its domain": {"b1 r1 n1 a\nb1 r1 n2 .\nb1 r2 n3 b\nb1 r2 n4 !.", "a 50 2h\nb 50 1h always", "H 2x1 require:rack",
			"stopping a would make room in rack b1/r1; that costs 2 GPU-hours since checkpoints or starts, 60 GPU-seconds to start again"},
		"never":         {"b1 r1 n1 aa..", "a 50 2h never", "H 1x4", ""},
		"a service too": {"b1 r1 n1 AA..", "", "H 1x4", "stopping A would make room in island b1/r1/n1/0; that costs nothing of its work, 2 GPU-minutes to start again, 20 GPU-seconds for a place that was good"},
		"it fits":       {"b1 r1 n1 ....", "", "H 1x4", ""},
		"too large":     {"b1 r1 n1 a...", "a 50 2h", "H 1x5", ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			s := draw(t, tt.cluster)
			describe(t, s, tt.running)
			submit(t, s, tt.jobs)
			got, ok, err := Unblock(s, Policy{}, model.JobName{ID: "H"})
			if err != nil || ok != (tt.want != "") {
				t.Fatalf("%v, %v", ok, err)
			}
			if diff := cmp.Diff(tt.want, got.Reason); diff != "" {
				t.Errorf("unblock (-want +got):\n%s", diff)
			}
		})
	}
}
