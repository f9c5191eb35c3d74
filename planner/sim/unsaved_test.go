package sim

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/caravan-sched/caravan/planner/core"
	"github.com/caravan-sched/caravan/planner/sim/trace"
)

// displacing is a policy under which jobs with deadlines displace those without one at once.
func displacing(savedOnly bool) core.Policy {
	p := core.Policy{Order: "deadline"}
	p.Preempt.Enabled, p.Preempt.SavedOnly = true, savedOnly
	return p
}

// losses is a story with speeds and what is lost, without GPUs.
func losses(t *testing.T, s Setup) (string, *Outcome) {
	t.Helper()
	var b strings.Builder
	s.Log = func(e Event) {
		fmt.Fprintf(&b, "%g %s %s %g", e.At, e.Event, e.Job, e.Speed)
		if e.Lost != 0 {
			fmt.Fprintf(&b, " lost %g", e.Lost)
		}
		b.WriteString("\n")
	}
	out, err := Run(t.Context(), s)
	if err != nil {
		t.Fatalf("run: %v\n%s", err, b.String())
	}
	return b.String(), out
}

// Worked by hand: a, of all eight GPUs, has run for 40 of its 100 s when b comes, which
// takes 10 s and has to end by 60 s. c ends the trace at 400 s. To save or to load takes 2 s.
func TestUnsavedWorkIsLost(t *testing.T) {
	jobs := []trace.Job{{ID: "a", Duration: 100, GPUs: 8}, {ID: "b", Submit: 40, Duration: 10, GPUs: 8, Deadline: 60}, {ID: "c", Submit: 400, Duration: 10, GPUs: 8}}
	last := "400 submit c 0\n400 start c 1\n410 finish c 0\n"
	tests := map[string]struct {
		unsaved   []bool
		savedOnly bool
		want      string
		stops     int
		lost      float64
	}{
		"all save": {want: `0 submit a 0
0 start a 1
40 submit b 0
40 resize a 0
42 stop a 0
42 start b 1
52 finish b 0
52 start a 0
54 resize a 1
114 finish a 0
`, savedOnly: true, stops: 1},
		"a saves nothing and is stopped": {unsaved: []bool{true, false, false}, want: `0 submit a 0
0 start a 1
40 submit b 0
40 stop a 0 lost 40
40 start b 1
50 finish b 0
50 start a 1
150 finish a 0
`, stops: 1, lost: 40},
		"a saves nothing and stays": {unsaved: []bool{true, false, false}, savedOnly: true, want: `0 submit a 0
0 start a 1
40 submit b 0
100 finish a 0
100 start b 1
110 finish b 0
`},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			c := small(t)
			got, out := losses(t, Setup{Cluster: c, Jobs: jobs, Estimates: []float64{100, 10, 10}, Unsaved: test.unsaved, Scheduler: planned(t, c, displacing(test.savedOnly)), Restart: Restart{Base: 2}})
			if diff := cmp.Diff(test.want+last, got); diff != "" {
				t.Errorf("story (-want +got):\n%s", diff)
			}
			m := out.Metrics()
			near(t, "GPU-hours lost", m.GPUHoursLost, 8*test.lost/3600)
			near(t, "productive", m.UtilisationProductive, (100+10)/400.0)
			if m.Preemptions != test.stops {
				t.Errorf("preemptions: %d, want %d", m.Preemptions, test.stops)
			}
		})
	}
}

// A job that saves nothing begins again after each failure: it ends as long after its
// last start as it runs, and has lost all that it did before.
func TestUnsavedWorkIsLostByFailures(t *testing.T) {
	jobs := []trace.Job{{ID: "a", Duration: 9000, GPUs: 8}}
	c := small(t)
	for _, unsaved := range []bool{true, false} {
		var started, lost, worked float64
		fails := 0
		out, err := Run(t.Context(), Setup{
			Cluster: c, Jobs: jobs, Unsaved: []bool{unsaved}, Scheduler: planned(t, c, displacing(true)), Restart: Restart{Base: 2}, Checkpoints: DefaultCheckpoints, Failures: Failures{PerNodeDay: 10, Repair: 60}, Seed: 5,
			Log: func(e Event) {
				switch e.Event {
				case EventStart:
					started = e.At
				case EventFail:
					fails++
					lost += e.Lost
					worked += e.At - started
				case EventFinish:
					if off := e.At - started - 9000; unsaved && math.Abs(off) > 1e-6 {
						t.Errorf("it ends %g s after its last start: want 9000", e.At-started)
					}
				}
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		if fails < 2 {
			t.Fatalf("failures: %d: want several", fails)
		}
		if all := math.Abs(lost-worked) < 1e-6; all != unsaved {
			t.Errorf("saves nothing: %t: %g s are lost of %g", unsaved, lost, worked)
		}
		near(t, "GPU-hours lost", out.Metrics().GPUHoursLost, 8*lost/3600)
	}
}

// So large a part of the jobs saves nothing, the same ones for the same seed, those of a
// smaller part among those of a larger one, and no elastic job.
func TestUnsavedShare(t *testing.T) {
	jobs := make([]trace.Job, 400)
	for i := range jobs {
		if jobs[i] = (trace.Job{ID: fmt.Sprint(i), GPUs: 8, Duration: 1}); i%4 == 0 {
			jobs[i].Min, jobs[i].Max = 8, 16
		}
	}
	if got := Unsaved(jobs, 0, 1); got != nil {
		t.Errorf("none is to save nothing: %v", got)
	}
	before := make([]bool, len(jobs))
	for _, test := range []struct {
		share       float64
		least, most int // of 300
	}{{0.25, 55, 95}, {0.5, 130, 170}, {0.75, 205, 245}, {1, 300, 300}} {
		got, some := Unsaved(jobs, test.share, 1), 0
		for i := range got {
			if got[i] {
				some++
			}
			if got[i] && jobs[i].Max > 0 || before[i] && !got[i] {
				t.Errorf("a part of %g: job %d of at most %d GPUs saves nothing: %t, of a smaller part: %t", test.share, i, jobs[i].Max, got[i], before[i])
			}
		}
		if some < test.least || some > test.most {
			t.Errorf("a part of %g: %d jobs of 300: want %d to %d", test.share, some, test.least, test.most)
		}
		if diff := cmp.Diff(got, Unsaved(jobs, test.share, 1)); diff != "" {
			t.Error(diff)
		}
		before = got
	}
	if cmp.Equal(Unsaved(jobs, 0.5, 1), Unsaved(jobs, 0.5, 2)) {
		t.Error("another seed draws the same jobs")
	}
}

// What a row says of saving is what its jobs have and what the planner is told.
func TestUnsavedRows(t *testing.T) {
	jobs, err := trace.Synthetic{Jobs: 60, Days: 1, GPUsPerNode: 4, MaxNodes: 2, Small: 0.5, Seed: 1}.Make()
	if err != nil {
		t.Fatal(err)
	}
	cluster, err := Regular(16, 4)
	if err != nil {
		t.Fatal(err)
	}
	c := Comparison{Cluster: cluster, Jobs: jobs, Policies: []string{"sjf", "sjf@unsaved50", "las@unsaved100", "sjf@elastic100@unsaved100"}, Load: 1, Seeds: 1, Sigma: 1}
	prepared, err := c.prepareRows(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	for k, share := range []float64{0, 0.5, 1, 1} {
		p := prepared[k]
		if diff := cmp.Diff(Unsaved(p.Jobs, share, 1), p.Unsaved); diff != "" {
			t.Errorf("%s: who saves nothing (-want +got):\n%s", c.Policies[k], diff)
		}
	}
	s := planned(t, cluster, core.Policy{}).(*planner)
	for i, unsaved := range []bool{true, false} {
		if err := s.Submit(0, Ask{Job: i, ID: fmt.Sprint(i), GPUs: 1, Unsaved: unsaved}); err != nil {
			t.Fatal(err)
		}
		if s.jobs[i].Saves == unsaved {
			t.Errorf("a job that saves nothing: %t: the planner is told that it saves: %t", unsaved, s.jobs[i].Saves)
		}
	}
}

// Where all are stopped by turns, those who save nothing end too: each turn is as long as all
// before it together, so that a few of them are enough.
func TestUnsavedWorkEndsInTurns(t *testing.T) {
	const day = 86400.0
	jobs := []trace.Job{{ID: "a", Duration: 4 * day, GPUs: 8}, {ID: "b", Submit: 1, Duration: 4 * day, GPUs: 8}, {ID: "c", Submit: 2, Duration: 600, GPUs: 8}}
	for _, order := range []string{"timeslice", "ftf", "maxmin"} {
		p := core.Policy{Order: order}
		p.Preempt.Enabled = true
		c := small(t)
		out, err := Run(t.Context(), Setup{Cluster: c, Jobs: jobs, Unsaved: []bool{true, true, true}, Scheduler: planned(t, c, p), Interval: 10, Restart: DefaultRestart})
		if err != nil {
			t.Errorf("%s: %v", order, err)
			continue
		}
		// Of an order in which nobody is stopped the test would say nothing.
		if m := out.Metrics(); m.Preemptions < 2 || m.Preemptions > 40 || m.MakespanS > 4*8*day {
			t.Errorf("%s: %d stops, all done after %.1f days: want some stops, 40 at most, and four times the 8 days of work at most", order, m.Preemptions, m.MakespanS/day)
		}
	}
}

// A job that never comes to its end, since it loses in each failure all that it has done, is
// told and not played for ever.
func TestUnsavedWorkThatNeverEnds(t *testing.T) {
	jobs := []trace.Job{{ID: "a", Duration: 30 * 86400, GPUs: 8}}
	c := small(t)
	for _, unsaved := range []bool{true, false} {
		_, err := Run(t.Context(), Setup{Cluster: c, Jobs: jobs, Unsaved: []bool{unsaved}, Scheduler: planned(t, c, displacing(true)), Interval: 10, Restart: Restart{Base: 2}, Checkpoints: DefaultCheckpoints, Failures: Failures{PerNodeDay: 4, Repair: 60}, Seed: 1})
		if !unsaved && err != nil {
			t.Errorf("who saves comes to an end: %v", err)
		}
		if want := "of 8 GPUs for 720h0m0s, saves nothing and has begun again 1000 times"; unsaved && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("all is lost four times a day: %v: want %q", err, want)
		}
	}
}
