package core

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/core/preempt"
)

// Who goes before others that run, and yet does not displace them, is told what holds
// them back, with numbers and what to do; and only if room could be made by them.
func TestHeldBack(t *testing.T) {
	const full = "b1 r1 n1 aaaa\nb1 r2 n2 bbbb"
	gave := func(s *model.Snapshot, job string, times int, by string) {
		for i := range s.Jobs {
			for range times {
				if s.Jobs[i].ID == job {
					s.Jobs[i].Preempted = append(s.Jobs[i].Preempted, model.Preempted{At: s.Now.Add(-50 * time.Minute), By: by})
				}
			}
		}
	}
	tests := map[string]struct {
		cluster, running, jobs string
		set                    func(*model.Snapshot)
		policy                 preempt.Policy
		// want is what is added for M, after "; it goes before ".
		want string
	}{
		"they have run too short": {running: "a 50 10m\nb 50 5m", jobs: "M 1x4 priority:80", policy: preempt.Policy{MinRunTime: 30 * time.Minute},
			want: "a, but not all may be stopped for it now (a: runs for 30m at least (preempt.min_run_time), until 00:20 UTC)"},
		"both, for a gang that needs both": {running: "a 50 10m\nb 50 5m", jobs: "M 2x4 priority:80", policy: preempt.Policy{MinRunTime: 30 * time.Minute},
			want: "a, b, but not all may be stopped for it now (a: runs for 30m at least (preempt.min_run_time), until 00:20 UTC; b: runs for 30m at least (preempt.min_run_time), until 00:25 UTC)"},
		"one of the two": {running: "a 50 1h\nb 50 5m", jobs: "M 2x4 priority:80", policy: preempt.Policy{MinRunTime: 30 * time.Minute}, want: "a, b, but not all may be stopped for it now (b: runs for 30m at least (preempt.min_run_time), until 00:25 UTC)"},
		"it is never to": {running: "a 50 1h never\nb 90 1h", jobs: "M 1x4 priority:80", want: "a, but not all may be stopped for it now (a: never to be preempted (caravan_preempt); stop it yourself if this job matters more)"},
		"it saves nothing": {running: "a 50 1h\nb 90 1h", jobs: "M 1x4 priority:80", policy: preempt.Policy{SavedOnly: true},
			want: "a, but not all may be stopped for it now (a: has told of no checkpoint, so a stop would lose all that it has done (preempt.unsaved = false); have it save its work (caravan_checkpoint), or stop it yourself)"},
		"what passes by itself comes first": {running: "a 50 1h never\nb 50 5m", jobs: "M 1x4 priority:80", policy: preempt.Policy{MinRunTime: 30 * time.Minute},
			want: "b, but not all may be stopped for it now (b: runs for 30m at least (preempt.min_run_time), until 00:25 UTC)"},
		"it gave way too often": {running: "a 50 1h\nb 90 1h", jobs: "M 1x4 priority:80", set: func(s *model.Snapshot) { gave(s, "a", 5, "x") },
			want: "a, but not all may be stopped for it now (a: has given way 5 times, and may 5 (preempt.max_per_job); raise that, or stop it yourself)"},
		"it has displaced this one": {running: "a 50 1h\nb 90 1h", jobs: "M 1x4 priority:80", set: func(s *model.Snapshot) { gave(s, "M", 1, "a") },
			want: "a, but not all may be stopped for it now (a: has displaced this job before, and nothing goes back and forth; stop it yourself if this job matters more)"},
		"its queue grants a time": {running: "a 50 10m\nb 90 1h", jobs: "M 1x4 priority:80", set: func(s *model.Snapshot) {
			s.Queues = []model.Queue{{Path: "q", Default: true, MinRun: time.Hour, Guarantee: map[string]int{"gpu": 9}, Borrow: map[string]int{"gpu": 9}}}
		}, want: "a, but not all may be stopped for it now (a: runs for 1h at least (min_run of its queue), until 00:50 UTC)"},
		"its queue grants a number": {running: "a 50 1h\nb 90 1h", jobs: "M 1x4 priority:80", set: func(s *model.Snapshot) {
			s.Queues = []model.Queue{{Path: "q", Default: true, MaxPreemptedPerHour: 2, Guarantee: map[string]int{"gpu": 9}, Borrow: map[string]int{"gpu": 9}}}
			gave(s, "b", 2, "x")
		}, want: "a, but not all may be stopped for it now (a: of queue q 2 have given way within the hour, all that its max_preempted_per_hour allows; raise that, or wait)"},
		"nobody goes before": {running: "a 50 1m\nb 75 1m", jobs: "M 1x4 priority:59", policy: preempt.Policy{MinRunTime: time.Hour}},
		"it would not help":  {running: "a 50 1m\nb 90 1m", jobs: "M 2x4 priority:80", policy: preempt.Policy{MinRunTime: time.Hour}},
		"there is room":      {cluster: "b1 r1 n1 aaaa\nb1 r2 n2 ....", running: "a 50 1m", jobs: "M 1x4 priority:80", policy: preempt.Policy{MinRunTime: time.Hour}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if tt.cluster == "" {
				tt.cluster = full
			}
			s := draw(t, tt.cluster)
			s.Now = time.Date(2026, 1, 2, 0, 0, 0, 0, time.UTC)
			describe(t, s, tt.running)
			submit(t, s, tt.jobs)
			if tt.set != nil {
				tt.set(s)
			}
			tt.policy.Enabled = true
			plan := mustDecide(t, s, Policy{Preempt: tt.policy})
			if len(plan.Preemptions) > 0 {
				t.Fatalf("gives way: %s", plan.Preemptions[0].Reason)
			}
			reason := decisionOn(plan, "M").Reason
			_, got, _ := strings.Cut(reason, "; it goes before ")
			got, _, _ = strings.Cut(got, "; its place")
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("held back (-want +got):\n%s\n%s", diff, reason)
			}
		})
	}
}

// Limits for all together are told too, and who is alike is told the same.
func TestHeldBackByTheHour(t *testing.T) {
	s := draw(t, "b1 r1 n1 aaaa\nb1 r2 n2 bbbb")
	describe(t, s, "a 50 1h\nb 50 1h")
	submit(t, s, "M 2x4 priority:80\nN 2x4 priority:80\nO 2x4 priority:80")
	plan := mustDecide(t, s, Policy{Preempt: preempt.Policy{Enabled: true, MaxPerHour: 1}})
	want := "; room could be made for it, but 2 gangs would have to give way, and only 1 more may within the hour (preempt.max_per_hour = 1): raise that, or wait"
	for i := range plan.Decisions {
		if d := &plan.Decisions[i]; !strings.Contains(d.Reason, want) {
			t.Errorf("%s is told: %s", d.Job, d.Reason)
		}
	}
}

// What is told of it is the same a second later.
func TestHeldBackStaysAsItIs(t *testing.T) {
	s := draw(t, "b1 r1 n1 aaaa\nb1 r2 n2 bbbb")
	describe(t, s, "a 50 10m\nb 50 5m")
	submit(t, s, "M 2x4 priority:80")
	policy := Policy{Preempt: preempt.Policy{Enabled: true, MinRunTime: 30 * time.Minute}}
	before := decisionOn(mustDecide(t, s, policy), "M").Reason
	s.Now = s.Now.Add(time.Second)
	if diff := cmp.Diff(before, decisionOn(mustDecide(t, s, policy), "M").Reason); diff != "" {
		t.Errorf("a second later (-before +then):\n%s", diff)
	}
}

// A time by which something has ended is not before it.
func TestClockBy(t *testing.T) {
	at := func(day, hour, minute, second int) time.Time {
		return time.Date(2026, 1, day, hour, minute, second, 0, time.UTC)
	}
	tests := map[string]struct {
		at   time.Time
		want string
	}{
		"on the minute":       {at(1, 12, 3, 0), "12:03 UTC"},
		"within one":          {at(1, 12, 3, 1), "12:04 UTC"},
		"at the end of one":   {at(1, 12, 3, 59), "12:04 UTC"},
		"into the next day":   {at(1, 23, 59, 30), "Jan 2 00:00 UTC"},
		"in another timezone": {at(1, 12, 3, 1).In(time.FixedZone("east", 3600)), "12:04 UTC"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if got := clockBy(tt.at, at(1, 12, 0, 0)); got != tt.want {
				t.Errorf("clockBy = %q, want %q", got, tt.want)
			}
		})
	}
}
