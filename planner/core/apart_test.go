package core

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/core/queue"
)

func maintenance(from, lasts, lead time.Duration, nodes ...string) model.Reservation {
	return model.Reservation{Name: "m", Kind: model.ReserveMaintenance, Nodes: nodes, From: testNow.Add(from), Until: testNow.Add(from + lasts), Lead: lead}
}

func TestMaintenance(t *testing.T) {
	two := "b1 r1 n1 ..\nb1 r2 n2 .."
	tests := map[string]struct {
		cluster, running, jobs string
		reserve                model.Reservation
		policy                 Policy
		// want is when each job starts, use what is said of the reservation.
		want, state, use string
		where            map[string]string
	}{
		"who ends before it is placed": {two, "", "S 1x2 runs:1h\nL 1x2 runs:3h", maintenance(2*time.Hour, time.Hour, time.Hour, "n1"), Policy{},
			"S now; L now", "planned", "1 node will be empty by then", map[string]string{"L": "n2"}},
		"who does not waits": {"b1 r1 n1 ..", "", "S 1x1 runs:2h\nL 1x1 runs:121m", maintenance(2*time.Hour, time.Hour, time.Hour, "n1"), Policy{},
			"S now; L 3h", "planned", "1 node will be empty by then", nil},
		"who does not say, before the lead time": {"b1 r1 n1 ..", "", "U 1x1", maintenance(2*time.Hour, time.Hour, time.Hour, "n*"), Policy{},
			"U now", "planned", "1 node will be empty by then", nil},
		"who does not say, within it": {"b1 r1 n1 ..", "", "U 1x1\nS 1x1 runs:30m", maintenance(time.Hour, time.Hour, time.Hour, "n*"), Policy{},
			"U 2h; S now", "draining", "1 node will be empty by then", nil},
		"while it lasts": {"b1 r1 n1 ..", "", "U 1x1\nS 1x1 runs:30m", maintenance(-time.Hour, 2*time.Hour, time.Hour, "n*"), Policy{},
			"U 1h; S 1h", "active", "1 node empty", nil},
		"when it is over": {"b1 r1 n1 ..", "", "U 1x1", maintenance(-3*time.Hour, 2*time.Hour, time.Hour, "n*"), Policy{},
			"U now", "over", "it is over; take it out of the configuration", nil},
		"a rack": {two, "", "L 1x2 runs:3h\nM 1x2 runs:3h", model.Reservation{Name: "m", Kind: model.ReserveMaintenance, Level: "rack", Domain: "r1", From: testNow.Add(time.Hour), Until: testNow.Add(2 * time.Hour)}, Policy{},
			"L now; M 2h", "planned", "1 node will be empty by then", map[string]string{"L": "n2"}},
		"who is still there": {"b1 r1 n1 a.", "a 50 1h runs:3h", "", maintenance(time.Hour, time.Hour, 0, "n1"), Policy{},
			"", "planned", "still there when it begins, or nobody knows: a; stop them, or set evict", nil},
		"who will have gone": {"b1 r1 n1 a.", "a 50 1h runs:90m", "", maintenance(time.Hour, time.Hour, 0, "n1"), Policy{},
			"", "planned", "1 node will be empty by then", nil},
		"nothing is named": {two, "", "", maintenance(time.Hour, time.Hour, 0, "x"), Policy{}, "", "planned", `it names no node that there is; correct its nodes or its domain: no node has the name or ID "x"; there are n1, n2`, nil},
		"a reservation of a gang keeps clear of it": {"b1 r1 n1 a.\nb1 r1 n2 ..", "a 50 0s runs:1h", "H 2x2 runs:2h\nS 1x1 runs:4h", maintenance(2*time.Hour, time.Hour, time.Hour, "n1"), easy,
			"H 3h; S 5h", "planned", "1 node will be empty by then", nil},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			s := draw(t, tt.cluster)
			describe(t, s, tt.running)
			submit(t, s, tt.jobs)
			s.Reservations = []model.Reservation{tt.reserve}
			plan := mustDecide(t, s, tt.policy)
			checkPlan(t, s, plan)
			if diff := cmp.Diff(tt.want, starts(s, plan)); diff != "" {
				t.Errorf("starts (-want +got):\n%s", diff)
				for _, d := range plan.Decisions {
					t.Log(d.Job, d.Reason, d.Detail.Basis)
				}
			}
			if use := plan.Reservations[0]; use.State != tt.state || use.Reason != tt.use {
				t.Errorf("it is %s: %q, want %s: %q", use.State, use.Reason, tt.state, tt.use)
			}
			for job, node := range tt.where {
				d := plan.Decisions[slices.IndexFunc(plan.Decisions, func(d model.Decision) bool { return d.Job == job })]
				if len(d.Members) == 0 || d.Members[0].Node != node {
					t.Errorf("%s is on %v, want %s", job, d.Members, node)
				}
			}
		})
	}
}

// What runs when a maintenance begins is stopped only where that is configured,
// and whole; never what is never to be preempted.
func TestEvict(t *testing.T) {
	s := draw(t, "b1 r1 n1 ab\nb1 r1 n2 ac\nb1 r1 n3 dd")
	describe(t, s, "a 50 1h runs:9h\nb 50 1h\nc 50 1h\nd 50 1h")
	s.Jobs[1].Preempt = model.PreemptNever
	s.Reservations = []model.Reservation{maintenance(-time.Minute, time.Hour, 0, "n1")}
	if plan := mustDecide(t, s, Policy{}); len(plan.Preemptions) > 0 {
		t.Errorf("stopped without evict: %v", gaveWay(plan))
	}
	s.Reservations[0].Evict = true
	plan := mustDecide(t, s, Policy{})
	if diff := cmp.Diff([]string{"a to maintenance m"}, gaveWay(plan)); diff != "" {
		t.Fatalf("stopped (-want +got):\n%s", diff)
	}
	if n := len(plan.Preemptions[0].Members); n != 2 {
		t.Errorf("%d members of a stop, want both", n)
	}
	if want := "leaves its nodes for maintenance m, which has begun: 2 GPU-hours since its start, 2 GPU-minutes"; !strings.HasPrefix(plan.Preemptions[0].Reason, want) {
		t.Errorf("reason %q", plan.Preemptions[0].Reason)
	}
}

func TestCapacity(t *testing.T) {
	capacity := func(gpus int, more ...func(*model.Reservation)) model.Reservation {
		r := model.Reservation{Name: "c", Kind: model.ReserveCapacity, Queue: "org/a", GPUs: gpus}
		for _, f := range more {
			f(&r)
		}
		return r
	}
	tests := map[string]struct {
		cluster, running, jobs string
		queues                 map[string]string
		reserve                model.Reservation
		want, use              string
		used                   int
	}{
		"others keep off": {"b1 r1 n1 ....", "", "X 1x3 runs:1h\nY 1x2 runs:1h\nA 1x2 runs:9h", map[string]string{"A": "org/a/team"}, capacity(2),
			"X ?; Y now; A now", "queue org/a uses 0 of them, 2 are free for it", 0},
		"what it uses counts": {"b1 r1 n1 a...", "a 50 1h", "X 1x2\nY 1x1", map[string]string{"a": "org/a"}, capacity(2),
			"X now; Y ?", "queue org/a uses 1 of them, 1 are free for it", 1},
		"it uses more": {"b1 r1 n1 aaa.", "a 50 1h", "X 1x1", map[string]string{"a": "org/a"}, capacity(2), "X now", "queue org/a uses 2 of them, 0 are free for it", 2},
		"when others have ended": {"b1 r1 n1 bbb.", "b 50 1h runs:2h", "X 1x1 runs:1h\nA 1x2 runs:1h", map[string]string{"A": "org/a"}, capacity(2),
			"X 1h; A 1h", "queue org/a uses 0 of them, 1 are free for it, 1 more as soon as others have ended", 0},
		"there are too few": {"b1 r1 n1 ..", "", "X 1x1", nil, capacity(3), "X ?", "queue org/a uses 0 of them, 2 are free for it; 1 of 3 are not there: keep fewer, or on more nodes", 0},
		"in one rack": {"b1 r1 n1 ..\nb1 r2 n2 ..", "", "X 2x1 require:rack\nY 1x1", nil, capacity(2, func(r *model.Reservation) { r.Level = "rack" }),
			"X now; Y ?", "queue org/a uses 0 of them, 2 are free for it", 0},
		"later": {"b1 r1 n1 ..", "", "S 1x1 runs:1h\nL 1x1 runs:3h", nil, capacity(2, func(r *model.Reservation) { r.From = testNow.Add(2 * time.Hour) }),
			"S now; L ?", "queue org/a uses 0 of them, 2 are free for it", 0},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			s := draw(t, tt.cluster)
			describe(t, s, tt.running)
			submit(t, s, tt.jobs)
			for i := range s.Jobs {
				s.Jobs[i].Queue = tt.queues[s.Jobs[i].ID]
			}
			s.Reservations = []model.Reservation{tt.reserve}
			plan := mustDecide(t, s, Policy{})
			checkPlan(t, s, plan)
			if diff := cmp.Diff(tt.want, starts(s, plan)); diff != "" {
				t.Errorf("starts (-want +got):\n%s", diff)
				for _, d := range plan.Decisions {
					t.Log(d.Job, d.Reason, d.Detail.Basis)
				}
			}
			if use := plan.Reservations[0]; use.Reason != tt.use || use.Used != tt.used {
				t.Errorf("%d are used: %q, want %d: %q", use.Used, use.Reason, tt.used, tt.use)
			}
		})
	}
}

// A gang whose start is guaranteed goes first and is delayed by nobody, also
// without backfill.
func TestStartGuarantee(t *testing.T) {
	s := draw(t, "b1 r1 n1 aa\nb1 r1 n2 ..")
	describe(t, s, "a 50 0s runs:2h")
	submit(t, s, "X 1x2 runs:3h\nS 1x1 runs:1h\nBig 2x2 runs:1h")
	plan := mustDecide(t, s, Policy{})
	if got := starts(s, plan); got != "X now; S 2h; Big 3h" {
		t.Fatalf("without it: %s", got)
	}
	s.Reservations = []model.Reservation{{Name: "launch", Kind: model.ReserveStart, For: model.JobName{ID: "Big"}}}
	plan = mustDecide(t, s, Policy{})
	if got := starts(s, plan); got != "Big 2h; X 3h; S now, before Big" {
		t.Errorf("with it: %s", got)
	}
	use := plan.Reservations[0]
	if use.State != "draining" || !use.Start.Equal(testNow.Add(2*time.Hour)) || !strings.Contains(use.Reason, "starts about 05:04 UTC") {
		t.Errorf("use %+v", use)
	}
	for _, order := range []string{queue.OrderFIFO, queue.OrderSJF} {
		reason := decisionOn(mustDecide(t, s, Policy{Order: order}), "Big").Reason
		if !strings.HasSuffix(reason, "; its place in the order: reservation launch lets it go first") {
			t.Errorf("with %s: %s", order, reason)
		}
	}
}

// A gang that grows does not do so where it would run into a maintenance.
func TestGrowthKeepsClearOfMaintenance(t *testing.T) {
	for runs, want := range map[time.Duration]string{3 * time.Hour: "n3", time.Hour: "n2"} {
		s := draw(t, "b1 r1 n1 a\nb1 r1 n2 .\nb1 r2 n3 .")
		describe(t, s, "a 50 1h elastic:1")
		s.Jobs[0].Duration = runs
		s.Jobs[0].Groups[0].Count, s.Jobs[0].Groups[0].Max = 2, 4
		s.Reservations = []model.Reservation{maintenance(2*time.Hour, time.Hour, 0, "n2")}
		plan := mustDecide(t, s, Policy{})
		if len(plan.Decisions) != 1 || len(plan.Decisions[0].Members) != 1 {
			t.Fatalf("runs %s: %+v", runs, plan.Decisions)
		}
		if got := plan.Decisions[0].Members[0].Node; got != want {
			t.Errorf("runs %s: grows on %s, want %s", runs, got, want)
		}
	}
}

// Where all is taken that is said first; that what is kept leaves too little for
// ever is said of either.
func TestBehindWhatIsKeptSaysWhatIsFree(t *testing.T) {
	kept := model.Reservation{Name: "nb", Kind: model.ReserveCapacity, Queue: "nb", GPUs: 2}
	for name, tt := range map[string]struct{ cluster, running, want string }{
		"free":  {"b1 r1 n1 ....", "", "needs 1 member with 3 GPUs, which would fit, but not beside 2 GPUs kept for queue nb; it cannot start as long as that is so, whoever ends: keep less by the reservation nb, or ask for fewer GPUs"},
		"taken": {"b1 r1 n1 aaaa", "a 50 1h", "has 0 GPUs free now; and with all of it free it would not fit beside 2 GPUs kept for queue nb: it cannot start as long as that is so"},
	} {
		t.Run(name, func(t *testing.T) {
			s := draw(t, tt.cluster)
			describe(t, s, tt.running)
			submit(t, s, "J 1x3 runs:1h")
			s.Queues = []model.Queue{{Path: "nb"}}
			s.Reservations = []model.Reservation{kept}
			plan := mustDecide(t, s, Policy{})
			if got := plan.Decisions[0].Reason; !strings.Contains(got, tt.want) {
				t.Errorf("%q: want %q in it", got, tt.want)
			}
		})
	}
}
