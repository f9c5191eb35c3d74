package core

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/core/preempt"
)

// capacityFor draws reservations of capacity, as "queue:GPUs", with "@level" or
// "@node" for where.
func capacityFor(text string) (out []model.Reservation) {
	for i, one := range strings.Fields(text) {
		where := ""
		one, where, _ = strings.Cut(one, "@")
		queue, gpus, _ := strings.Cut(one, ":")
		r := model.Reservation{Name: string(rune('a' + i)), Kind: model.ReserveCapacity, Queue: queue}
		for _, digit := range gpus {
			r.GPUs = 10*r.GPUs + int(digit-'0')
		}
		switch {
		case slices.Contains([]string{"block", "rack"}, where):
			r.Level = where
		case where != "":
			r.Nodes = []string{where}
		}
		out = append(out, r)
	}
	return out
}

// queued puts each job into the queue of its ID in lower case, without what
// follows the first letter.
func queued(s *model.Snapshot) {
	for i := range s.Jobs {
		s.Jobs[i].Queue = strings.ToLower(s.Jobs[i].ID[:1])
	}
}

// Reservations of several queues count no GPU twice, each owner gets what is kept
// for it, and what waits for others keeps nothing of it.
func TestCapacityOfSeveral(t *testing.T) {
	tests := map[string]struct {
		cluster, running, jobs, reserve string
		policy                          Policy
		// want is the cluster with the placements, held who keeps nodes.
		want, held string
		use        []string
	}{
		"each owner has its own": {
			cluster: "b1 r1 n1 ....\nb1 r1 n2 ....", jobs: "x1 1x4\ny1 1x4", reserve: "x:4 y:4",
			want: "b1 r1 n1 xxxx\nb1 r1 n2 yyyy",
			use:  []string{"queue x uses 0 of them, 4 are free for it", "queue y uses 0 of them, 4 are free for it"},
		},
		"others have what is left": {
			cluster: "b1 r1 n1 ....\nb1 r1 n2 ....\nb1 r2 n3 ....", jobs: "z1 1x4\nz2 1x4\nx1 1x4\ny1 1x4", reserve: "x:4 y:4",
			want: "b1 r1 n1 xxxx\nb1 r1 n2 yyyy\nb1 r2 n3 zzzz", held: "z2 n3",
			use: []string{"queue x uses 0 of them, 4 are free for it", "queue y uses 0 of them, 4 are free for it"},
		},
		"a whole rack first": {
			cluster: "b1 r1 n1 ....\nb1 r1 n2 ....\nb1 r2 n3 ....\nb1 r2 n4 ....", jobs: "q1 1x4\nr1 1x2\nx1 2x4 require:rack\ny1 1x4", reserve: "y:4 x:8@rack",
			want: "b1 r1 n1 xxxx\nb1 r1 n2 xxxx\nb1 r2 n3 yyyy\nb1 r2 n4 qqqq", held: "r1 n4",
			use: []string{"queue y uses 0 of them, 4 are free for it", "queue x uses 0 of them, 8 are free for it"},
		},
		"who may be on one node only goes before who may be anywhere": {
			cluster: "b1 r1 n1 ....\nb1 r1 n2 ....", jobs: "y1 1x4\nx1 1x4", reserve: "y:4 x:4@n1",
			want: "b1 r1 n1 xxxx\nb1 r1 n2 yyyy",
			use:  []string{"queue y uses 0 of them, 4 are free for it", "queue x uses 0 of them, 4 are free for it"},
		},
		"two racks for two": {
			cluster: "b1 r1 n1 ..\nb1 r1 n2 ..\nb1 r2 n3 ..\nb1 r2 n4 ..", jobs: "x1 2x2 require:rack\ny1 2x2 require:rack", reserve: "x:4@rack y:4@rack",
			want: "b1 r1 n1 xx\nb1 r1 n2 xx\nb1 r2 n3 yy\nb1 r2 n4 yy",
			use:  []string{"queue x uses 0 of them, 4 are free for it", "queue y uses 0 of them, 4 are free for it"},
		},
		"what an owner uses is not kept for another": {
			cluster: "b1 r1 n1 vvvv\nb1 r1 n2 z...\nb1 r1 n3 ....", running: "v 50 1h\nz 50 1h", jobs: "y1 1x4\nv1 1x1\nz1 1x3", reserve: "y:4 v:4",
			want: "b1 r1 n1 vvvv\nb1 r1 n2 zv..\nb1 r1 n3 yyyy", held: "z1 n2",
			use: []string{"queue y uses 0 of them, 4 are free for it", "queue v uses 4 of them, 0 are free for it"},
		},
		"beside its own first": {
			cluster: "b1 r1 n1 ....\nb1 r1 n2 vv..", running: "v 50 1h", jobs: "z1 1x4\nv1 1x2", reserve: "v:4",
			want: "b1 r1 n1 zzzz\nb1 r1 n2 vvvv",
			use:  []string{"queue v uses 2 of them, 2 are free for it"},
		},
		"a foreign job keeps nothing of it": {
			cluster: "b1 r1 n1 ....\nb1 r1 n2 ....\nb1 r2 n3 ....", jobs: "z1 1x4\nz2 1x4\ny1 2x4 require:rack", reserve: "y:8",
			want: "b1 r1 n1 yyyy\nb1 r1 n2 yyyy\nb1 r2 n3 zzzz", held: "z2 n3",
			use: []string{"queue y uses 0 of them, 8 are free for it"},
		},
		"an owner sees through what a foreign job keeps": {
			cluster: "b1 r1 n1 z...", running: "z 50 1h", jobs: "z1 1x2\ny1 1x2", reserve: "y:2",
			want: "b1 r1 n1 zyy.", held: "z1 n1",
			use: []string{"queue y uses 0 of them, 2 are free for it"},
		},
		"an owner keeps its own until the others have ended": {
			cluster: "b1 r1 n1 zz..\nb1 r2 n2 qq..", running: "z 50 1h\nq 50 1h", jobs: "y1 1x4\ny2 1x2", reserve: "y:4@n1",
			want: "b1 r1 n1 zz..\nb1 r2 n2 qqyy", held: "y1 n1",
			use: []string{"queue y uses 0 of them, 2 are free for it, 2 more as soon as others have ended"},
		},
		// n1 has 2 GPUs beside the 6 of the queue, whoever of it ends: z1 can start on
		// n2 only, and keeps nothing of n1 from z2.
		"what an owner uses is kept again when he ends": {
			cluster: "b1 r1 n1 yy......\nb1 r2 n2 qqqqqqqq", running: "y 50 1h\nq 50 1h", jobs: "z1 1x4\nz2 1x2", reserve: "y:6@n1",
			want: "b1 r1 n1 yy....zz\nb1 r2 n2 qqqqqqqq", held: "z1 n2",
			use: []string{"queue y uses 2 of them, 4 are free for it"},
		},
		"nobody gives way for what is another's": {
			cluster: "b1 r1 n1 zz\nb1 r1 n2 y.", running: "z 10 1h\ny 10 1h", jobs: "q1 1x2 priority:90", reserve: "y:2@n1",
			policy: Policy{Preempt: preempt.Policy{Enabled: true}},
			want:   "b1 r1 n1 zz\nb1 r1 n2 y.", held: "q1 n2",
			use: []string{"queue y uses 0 of them, 0 are free for it, 2 more as soon as others have ended"},
		},
		"for an owner others give way beside what is kept": {
			cluster: "b1 r1 n1 zz..", running: "z 10 1h", jobs: "y1 1x4 priority:90", reserve: "y:4",
			policy: Policy{Preempt: preempt.Policy{Enabled: true}},
			want:   "b1 r1 n1 zz..", held: "y1 n1",
			use: []string{"queue y uses 0 of them, 2 are free for it, 2 more as soon as others have ended"},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			s := draw(t, tt.cluster)
			describe(t, s, tt.running)
			submit(t, s, tt.jobs)
			queued(s)
			s.Reservations = capacityFor(tt.reserve)
			plan := mustDecide(t, s, tt.policy)
			checkPlan(t, s, plan)
			if diff := cmp.Diff(trimLines(tt.want), redraw(s, plan)); diff != "" {
				t.Errorf("placements (-want +got):\n%s", diff)
			}
			var held, use []string
			for _, d := range plan.Decisions {
				if d.Action == model.ActionWait && len(d.Detail.Held) > 0 {
					held = append(held, d.Job+" "+strings.Join(d.Detail.Held, ","))
				}
				t.Log(d.Job, d.Reason)
			}
			for _, u := range plan.Reservations {
				use = append(use, u.Reason)
			}
			if got := strings.Join(held, "; "); got != tt.held {
				t.Errorf("kept: %q, want %q", got, tt.held)
			}
			if diff := cmp.Diff(tt.use, use); diff != "" {
				t.Errorf("uses (-want +got):\n%s", diff)
			}
		})
	}
}

// Who is of two queues for which capacity is kept, one below the other, has both,
// and what it uses counts once.
func TestCapacityOfNested(t *testing.T) {
	s := draw(t, "b1 r1 n1 v...\nb1 r1 n2 ....")
	submit(t, s, "w 1x4\nz 1x1")
	s.Jobs[0].Queue, s.Jobs[1].Queue = "v/w", "v/w"
	s.Reservations = capacityFor("v:6 v/w:2")
	plan := mustDecide(t, s, Policy{})
	if got := starts(s, plan); got != "w now; z ?" {
		t.Errorf("starts %s", got)
	}
	var use []string
	for _, u := range plan.Reservations {
		use = append(use, u.Reason)
	}
	want := []string{"queue v uses 1 of them, 5 are free for it", "queue v/w uses 0 of them, 2 are free for it"}
	if diff := cmp.Diff(want, use); diff != "" {
		t.Errorf("uses (-want +got):\n%s", diff)
	}
}

// What counts for a reservation that has ended may count for one that begins.
func TestCapacityInTurn(t *testing.T) {
	s := draw(t, "b1 r1 n1 ....")
	s.Reservations = capacityFor("x:4 y:4")
	s.Reservations[0].Until, s.Reservations[1].From = testNow.Add(time.Hour), testNow.Add(time.Hour)
	for _, u := range mustDecide(t, s, Policy{}).Reservations {
		if !strings.HasSuffix(u.Reason, "4 are free for it") {
			t.Errorf("%s: %s", u.Name, u.Reason)
		}
	}
}

// Who holds what counts for his queue's capacity gives way to nobody of another
// queue, guaranteed or of a higher priority: what he left would be kept for his queue
// again. What he holds beyond that is claimed back, and his own queue's jobs go first.
func TestCapacityIsNotClaimed(t *testing.T) {
	z := []model.Queue{{Path: "q"}, {Path: "z", Guarantee: map[string]int{"gpu": 8}}}
	tests := map[string]struct {
		jobs, reserve string
		queues        []model.Queue
		want          []string
	}{
		"guaranteed to others":      {"z1 1x4", "q:4", z, []string{}},
		"too little beyond it":      {"z1 1x4", "q:2", z, []string{}},
		"enough beyond it":          {"z1 1x2", "q:2", z, []string{"q to z1"}},
		"nothing is kept":           {"z1 1x4", "", z, []string{"q to z1"}},
		"a higher priority":         {"z1 1x4", "q:4", nil, []string{}},
		"a higher one of the queue": {"q1 1x4", "q:4", nil, []string{"q to q1"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			s := draw(t, "b1 r1 n1 qqqq\nb1 r1 n2 zzzz")
			describe(t, s, "q 50 3h\nz 95 3h")
			submit(t, s, tt.jobs)
			queued(s)
			s.Queues = tt.queues
			s.Reservations = capacityFor(tt.reserve)
			s.Jobs[len(s.Jobs)-1].Priority = 70
			got := []string{}
			for _, p := range mustDecide(t, s, Policy{Preempt: preempt.Policy{Enabled: true}}).Preemptions {
				got = append(got, p.Job+" to "+p.For.ID)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("preemptions (-want +got):\n%s", diff)
			}
		})
	}
}

// Who is placed beyond his queue's guarantee hears that others may claim it back only
// of what is not kept for his queue, for which earlier ones of it count too.
func TestCapacityBorrowedIsTold(t *testing.T) {
	beyond := "placed 1 member with 4 GPUs in island b1/r1/n1/0; 4 GPUs of it beyond what queue q is guaranteed"
	tests := map[string]struct{ jobs, reserve, want string }{
		"nothing is kept":         {"q1 1x4", "", beyond + ", so others may claim it back"},
		"for another queue":       {"q1 1x4", "z:4", beyond + ", so others may claim it back"},
		"elsewhere":               {"q1 1x4", "q:4@n2", beyond + ", so others may claim it back"},
		"all of it":               {"q1 1x4", "q:4@n1", beyond + ", but in capacity kept for it, so no other queue claims it back"},
		"a part of it":            {"q1 1x4", "q:3@n1", "placed 1 member with 4 GPUs in island b1/r1/n1/0; 1 GPU of it beyond what queue q is guaranteed and what is kept for it, so others may claim it back"},
		"all of it is used by q1": {"q1 1x4\nq2 1x4", "q:4@n1", beyond + ", so others may claim it back"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			s := draw(t, "b1 r1 n1 ........\nb1 r2 n2 aaaaaaaa")
			submit(t, s, tt.jobs)
			queued(s)
			s.Queues = []model.Queue{{Path: "q"}, {Path: "a", Guarantee: map[string]int{"gpu": 8}}, {Path: "z"}}
			s.Reservations = capacityFor(tt.reserve)
			if diff := cmp.Diff(tt.want, decision(t, s, s.Jobs[len(s.Jobs)-1].ID).Reason); diff != "" {
				t.Errorf("reason (-want +got):\n%s", diff)
			}
		})
	}
}

// What is said of those whom a maintenance finds is what becomes of them.
func TestEvictIsTold(t *testing.T) {
	for cluster, want := range map[string]string{
		"b1 r1 n1 ab": "it has begun, and still there: a, b; they are stopped now and queued again, but for b: evict leaves alone what may never be preempted or is not managed, so stop that yourself",
		"b1 r1 n1 a.": "it has begun, and still there: a; they are stopped now and queued again",
		"b1 r1 n1 .b": "it has begun, and still there: b; evict leaves them alone, since they may never be preempted or are not managed: stop them yourself",
	} {
		s := draw(t, cluster)
		for i := range s.Jobs {
			if s.Jobs[i].ID == "b" {
				s.Jobs[i].Preempt = model.PreemptNever
			}
		}
		s.Reservations = []model.Reservation{maintenance(-time.Minute, time.Hour, 0, "n1")}
		s.Reservations[0].Evict = true
		plan := mustDecide(t, s, Policy{})
		if got := plan.Reservations[0].Reason; got != want {
			t.Errorf("%s: %q, want %q", cluster, got, want)
		}
		if stopped := gaveWay(plan); slices.ContainsFunc(stopped, func(text string) bool { return strings.HasPrefix(text, "b ") }) {
			t.Errorf("%s: stopped %q", cluster, stopped)
		}
	}
}
