package core

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/core/preempt"
	"github.com/caravan-sched/caravan/planner/core/queue"
)

// withOrder is an order that may displace by class.
func withOrder(order string) Policy {
	return Policy{Order: order, Deadline: queue.Deadline{Safety: 1, Margin: 10 * time.Minute}, FTF: queue.FTF{Fairness: 0.5, Lease: 30 * time.Minute},
		MaxMin: queue.MaxMin{Round: 30 * time.Minute}, Preempt: preempt.Policy{Enabled: true}}
}

// takes says how long the named jobs take and by when they are to end, "a 1h 2h";
// "-" is no deadline.
func takes(t *testing.T, s *model.Snapshot, text string) {
	t.Helper()
	for line := range strings.Lines(text) {
		fields := strings.Fields(line)
		if len(fields) == 0 {
			continue
		}
		for i := range s.Jobs {
			if j := &s.Jobs[i]; j.ID == fields[0] {
				j.Duration, _ = time.ParseDuration(fields[1])
				if in, err := time.ParseDuration(fields[2]); err == nil {
					j.Deadline = s.Now.Add(in)
				}
			}
		}
	}
}

func TestOrdersByPlan(t *testing.T) {
	tests := map[string]struct {
		order, cluster, running, jobs, takes string
		set                                  func(*model.Snapshot)
		want                                 []string // who gives way
		placed                               string   // who is placed
		// said are parts of what is said of jobs, by name.
		said map[string]string
	}{
		// 2 hours of work by 2:05 from now; the margin is 10 minutes.
		"a job that would be late displaces one without a deadline": {
			order: queue.OrderDeadline, cluster: `b r n aabb`,
			running: `a 0 1h
			          b 0 2h`,
			jobs: `M 1x2`, takes: `M 2h 2h5m
			                      b 3h 1h30m`,
			want: []string{"a to M"},
			said: map[string]string{"a": "gives way to M (it has to begin now to meet its deadline of 2026-01-02T05:09:05Z, in 2h5m0s, or another would miss its own: it takes up to 2h0m0s against no deadline): "},
		},
		"one that still can wait does": {
			order: queue.OrderDeadline, cluster: `b r n aaaa`, running: `a 0 1h`, jobs: `M 1x2`, takes: `M 2h 3h`,
			want: []string{}, said: map[string]string{"M": "; its place in the order: it can meet its deadline of 2026-01-02T06:04:05Z, in 3h0m0s: it takes up to 2h0m0s"},
		},
		"one that cannot be in time is told, and displaces nobody": {
			order: queue.OrderDeadline, cluster: `b r n aaaa`, running: `a 0 1h`, jobs: `M 1x2`, takes: `M 2h 1h`,
			want: []string{}, said: map[string]string{"M": "it cannot meet its deadline of 2026-01-02T04:04:05Z, in 1h0m0s: it takes up to 2h0m0s even alone; a deadline of 2026-01-02T05:04:06Z or later could be met"},
		},
		// Both have promises, so the one that waits was none.
		"not one that runs and was promised its own": {
			order: queue.OrderDeadline, cluster: `b r n aaaa`, running: `a 0 1h`, jobs: `M 1x2`,
			takes: `M 2h 2h5m
			        a 3h 2h30m`,
			want: []string{}, said: map[string]string{"M": "it cannot meet its deadline of 2026-01-02T05:09:05Z, in 2h5m0s: beside those that were promised theirs before it ends in 4h0m0s at the earliest"},
		},
		"what nobody manages does not become free": {
			order: queue.OrderDeadline, cluster: `b r n ##aa`, running: `a 0 1h`, jobs: `M 1x4`, takes: `M 1h 9h`,
			want: []string{}, said: map[string]string{"M": "as far as is known its 4 GPUs do not become free; fewer GPUs would help"},
		},
		"what was promised goes before what came first": {
			order: queue.OrderDeadline, cluster: `b r n ....`, jobs: `old 1x3
			                                                      M 1x3`, takes: `M 1h 9h`,
			want: []string{}, placed: "M", said: map[string]string{"M": "it can meet its deadline", "old": "no deadline"},
		},
		// Beside small, big could begin in 30 minutes only, and mid behind it would
		// be late.
		"what is promised goes as the plan has it begin": {
			order: queue.OrderDeadline, cluster: `b r n ....`, jobs: `big 1x4
			                                                      mid 1x2
			                                                      small 1x1`,
			takes: `big 5m 95m
			        mid 100m 110m
			        small 30m 70m`,
			want: []string{}, placed: "big", said: map[string]string{"mid": "it has to begin now", "small": "it has to begin now"},
		},
		"a lease is kept": {
			order: queue.OrderFTF, cluster: `b r n aaaa`, running: `a 0 20m`, jobs: `M 1x4`,
			takes: `M 1h -
			        a 5h -`,
			want: []string{}, said: map[string]string{"M": "finish-time fairness 1.32: 2h39m0s from submission to end, 2h0m0s with 2 GPUs to itself; 1 of 1 by that, of which 1 are worst off, so it is offered GPUs first"},
		},
		// M: 99 minutes and 1 hour by 2 hours, 1.32. a: 5 hours by 10.
		"when it is over the worst off takes its place": {
			order: queue.OrderFTF, cluster: `b r n aaaa`, running: `a 0 40m`, jobs: `M 1x4`,
			takes: `M 1h -
			        a 5h -`,
			want: []string{"a to M"}, said: map[string]string{"a": "against finish-time fairness 0.50: 5h0m0s from submission to end, 10h0m0s with 2 GPUs to itself; 2 of 2 by that, of which 1 are worst off, and its lease is over"},
		},
		"also from whom it displaced": {
			order: queue.OrderFTF, cluster: `b r n aaaa`, running: `a 0 40m`, jobs: `M 1x4`,
			takes: `M 1h -
			        a 5h -`,
			set: func(s *model.Snapshot) {
				s.Jobs[0].Preempted = []model.Preempted{{At: testNow.Add(-time.Hour), By: "M"}}
			},
			want: []string{"a to M"},
		},
		"who had a round gives way to who had none": {
			order: queue.OrderMaxMin, cluster: `b r n aaaa`, running: `a 0 40m`, jobs: `M 1x4`, want: []string{"a to M"},
			said: map[string]string{"a": "gives way to M (to run 50 % on H100 of the time, 1 times an equal part; has run 0 %; chosen for the next round on H100 against to run 50 % on H100 of the time, 1 times an equal part; has run 100 %; not chosen for the next round, so it gets what others leave): "},
		},
		"but not before its end": {
			order: queue.OrderMaxMin, cluster: `b r n aaaa`, running: `a 0 20m`, jobs: `M 1x4`, want: []string{},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			s := draw(t, tt.cluster)
			describe(t, s, tt.running)
			submit(t, s, tt.jobs)
			takes(t, s, tt.takes)
			if tt.set != nil {
				tt.set(s)
			}
			plan := mustDecide(t, s, withOrder(tt.order))
			checkPlan(t, s, plan)
			if diff := cmp.Diff(tt.want, gaveWay(plan)); diff != "" {
				t.Errorf("who gives way (-want +got):\n%s\n%s", diff, plan.Decisions[0].Reason)
			}
			if tt.placed != "" && (plan.Decisions[0].Job != tt.placed || plan.Decisions[0].Action != model.ActionAdmit) {
				t.Errorf("first is %s: %s", plan.Decisions[0].Job, plan.Decisions[0].Reason)
			}
			for job, want := range tt.said {
				said := decisionOn(plan, job).Reason
				for _, p := range plan.Preemptions {
					if p.Job == job {
						said = p.Reason
					}
				}
				if !strings.Contains(said, want) {
					t.Errorf("said of %s: %q\nwant %q", job, said, want)
				}
			}
		})
	}
}

// Three jobs on one V100 and one K80 (the example of Gavel's section 4.1): the one
// that is twice as fast on the V100 runs on the K80, since the others gain more.
func TestMaxMinPlacesOnModels(t *testing.T) {
	s := draw(t, `b r n1 .
	              b r n2 .`)
	s.Nodes[0].GPUs[0].Model, s.Nodes[1].GPUs[0].Model = "V100", "K80"
	submit(t, s, `x 1x1
	              y 1x1
	              z 1x1`)
	for i, speeds := range [][2]float64{{40, 10}, {12, 4}, {100, 50}} {
		s.Jobs[i].Models = []model.ModelSpeed{{Name: "V100", Speed: speeds[0]}, {Name: "K80", Speed: speeds[1]}}
	}
	plan := mustDecide(t, s, withOrder(queue.OrderMaxMin))
	checkPlan(t, s, plan)
	if diff := cmp.Diff("b r n1 x\nb r n2 z\n", redraw(s, plan)); diff != "" {
		t.Errorf("placed (-want +got):\n%s", diff)
	}
	for job, want := range map[string]string{
		"x": "; on V100 at speed 40, the fastest of the 2 models that it takes; its place in the order: to run 45 % on V100 of the time, 1.1 times an equal part; has run 0 %; chosen for the next round on V100",
		"z": "; on K80 at speed 50, as the order would have it; its place in the order: to run 91 % on K80 and 9 % on V100 of the time",
		"y": "its place in the order: to run 9 % on K80 and 45 % on V100 of the time, 1.1 times an equal part; has run 0 %; not chosen for the next round, so it gets what others leave",
	} {
		if d := decisionOn(plan, job); !strings.Contains(d.Reason, want) {
			t.Errorf("%s: %s\nwant %s", job, d.Reason, want)
		}
	}
}

// A gang on GPUs of two models is on the same one for an order, however its
// members are listed.
func TestMembersOrderDoesNotMatter(t *testing.T) {
	s := draw(t, `b r n1 ..
	              b r n2 ..`)
	for i, name := range []string{"A", "B"} {
		for k := range s.Nodes[i].GPUs {
			s.Nodes[i].GPUs[k].Model = name
		}
	}
	submit(t, s, `gang 2x1
	              M 1x2
	              N 1x2`)
	s.Jobs[0].State, s.Jobs[0].Started = model.StateRunning, s.Now.Add(-2*time.Hour)
	s.Jobs[0].Members = []model.Member{
		{Group: "g0", Node: "n1", GPUs: []string{"n1.0"}}, {Group: "g0", Index: 1, Rank: 1, Node: "n2", GPUs: []string{"n2.0"}}}
	s.Jobs[0].Submitted = s.Now.Add(-20 * time.Hour)
	for i, name := range []string{"A", "B"} { // both have had more than the gang
		j := &s.Jobs[i+1]
		j.Models, j.Ran, j.Submitted = []model.ModelSpeed{{Name: name, Speed: 1}}, 19*time.Hour, s.Jobs[0].Submitted
	}
	plan := mustDecide(t, s, withOrder(queue.OrderMaxMin))
	slices.Reverse(s.Jobs[0].Members)
	if diff := cmp.Diff(plan, mustDecide(t, s, withOrder(queue.OrderMaxMin))); diff != "" {
		t.Errorf("plans differ (-given +reversed):\n%s", diff)
	}
}

// What a job is told by deadline fits: one that displaces others in time is not
// said to start too late, and who has no place in the order has no deadline.
func TestDeadlineWords(t *testing.T) {
	for _, order := range []string{queue.OrderDeadline, queue.OrderCaravan} {
		s := draw(t, `b r n aaaa`)
		describe(t, s, `a 0 1h`)
		submit(t, s, `M 1x4`)
		takes(t, s, `M 1h 3h
		             a 4h -`)
		d := decisionOn(mustDecide(t, s, withOrder(order)), "M")
		if !d.Detail.Start.IsZero() || !strings.Contains(d.Reason, "; starts by 05:04 UTC at the latest, to meet its deadline; its place") {
			t.Errorf("%s: starts %s: %s", order, d.Detail.Start, d.Reason)
		}
		s.Now = s.Now.Add(115 * time.Minute)
		if p := mustDecide(t, s, withOrder(order)).Preemptions; len(p) != 1 || !strings.Contains(p[0].Reason, " against no deadline): ") {
			t.Errorf("%s: %+v", order, p)
		}
	}
}

// An order that does not go by deadlines names what it goes by, whoever has one.
func TestNoDeadlineWords(t *testing.T) {
	s := draw(t, `b r n aaaa`)
	describe(t, s, `a 0 9h`)
	submit(t, s, `M 1x4`)
	takes(t, s, `M 1h 3h
	             a 4h -`)
	p := mustDecide(t, s, withOrder(queue.OrderLAS)).Preemptions
	if want := "gives way to M (queue 1 of 3, after 0 GPU-seconds against queue 3 of 3, after 36.0 GPU-hours): "; len(p) != 1 || !strings.HasPrefix(p[0].Reason, want) {
		t.Errorf("preemptions %+v, want one that %s", p, want)
	}
}

// A level that no node is in is no question of size.
func TestLevelOfNoNode(t *testing.T) {
	s := draw(t, `b r n ....`)
	s.Levels = append([]string{"zone"}, s.Levels...)
	submit(t, s, `M 2x1 require:zone`)
	d := decisionOn(mustDecide(t, s, Policy{}), "M")
	if want := "in one zone, but no node says in which zone it is; set the level's key in the nodes' meta (caravan_zone unless configured otherwise), or require another level"; d.Detail.Code != codeTooLarge || d.Detail.MembersFit != 0 || !strings.Contains(d.Reason, want) {
		t.Errorf("%s: %s, want %s", d.Detail.Code, d.Reason, want)
	}
}
