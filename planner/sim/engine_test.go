package sim

import (
	"bytes"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/caravan-sched/caravan/planner/core"
	"github.com/caravan-sched/caravan/planner/core/queue"
	"github.com/caravan-sched/caravan/planner/sim/trace"
)

// small is a cluster of two nodes with four GPUs each.
func small(t interface{ Fatal(...any) }) Cluster {
	c, err := Regular(8, 4)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func planned(t interface{ Fatal(...any) }, c Cluster, policy core.Policy) Scheduler {
	s, err := NewPlanner(c, policy, nil)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// story writes what happened, an event per line.
func story(t *testing.T, s Setup) (string, *Outcome) {
	t.Helper()
	var b strings.Builder
	s.Log = func(e Event) { fmt.Fprintf(&b, "%g %s %s %s\n", e.At, e.Event, e.Job, strings.Join(e.GPUs, " ")) }
	out, err := Run(t.Context(), s)
	if err != nil {
		t.Fatalf("run: %v\n%s", err, b.String())
	}
	return b.String(), out
}

// Worked by hand: two nodes of four GPUs. a has six GPUs for 100 s. b, of four,
// does not fit beside it; c, of two, does, and ends before a.
func TestFirstComeFirstServed(t *testing.T) {
	jobs := []trace.Job{{ID: "a", Submit: 0, Duration: 100, GPUs: 6}, {ID: "b", Submit: 10, Duration: 50, GPUs: 4}, {ID: "c", Submit: 20, Duration: 30, GPUs: 2}}
	c := small(t)
	got, out := story(t, Setup{Cluster: c, Jobs: jobs, Scheduler: planned(t, c, core.Policy{Order: "besteffort"})})
	want := `0 submit a 
0 start a n00000:0 n00000:1 n00000:2 n00000:3 n00001:0 n00001:1
10 submit b 
20 submit c 
20 start c n00001:2 n00001:3
50 finish c n00001:2 n00001:3
100 finish a n00000:0 n00000:1 n00000:2 n00000:3 n00001:0 n00001:1
100 start b n00000:0 n00000:1 n00000:2 n00000:3
150 finish b n00000:0 n00000:1 n00000:2 n00000:3
`
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("story (-want +got):\n%s", diff)
	}
	m := out.Metrics()
	// Until 20 s, when the last job is submitted: a's six GPUs, of eight. From 10 s
	// on b waits, and the two free GPUs are too few for it in any arrangement.
	near(t, "allocated", m.UtilisationAllocated, 6.0/8)
	near(t, "bound", m.UtilisationBound, (6*10+8*10)/(8.0*20))
	near(t, "indivisible", m.FreeIndivisible, 2*10/(8.0*20))
	near(t, "fillable", m.FreeFillable, 0)
	near(t, "decided cohort", float64(m.Cohort), 1) // b alone is in [5, 15]
	near(t, "JCT", m.JCTMean, 140)
	near(t, "cost", m.CostPerRun, 8*150/3600.0/3)
}

func near(t *testing.T, what string, got, want float64) {
	t.Helper()
	if math.Abs(got-want) > 1e-9 {
		t.Errorf("%s: %g, want %g", what, got, want)
	}
}

// Two gangs of two pods each, on four nodes of which two are taken by a third:
// the default scheduler gives each of them... one node too few, and both hold
// what they have until the time-out.
func TestPartialGangsHoldGPUs(t *testing.T) {
	c, err := Regular(12, 4) // three nodes
	if err != nil {
		t.Fatal(err)
	}
	jobs := []trace.Job{{ID: "a", Duration: 1000, GPUs: 4}, {ID: "b", Submit: 1, Duration: 100, GPUs: 12}, {ID: "c", Submit: 2, Duration: 10, GPUs: 4}}
	got, out := story(t, Setup{Cluster: c, Jobs: jobs, Scheduler: NewKube(c, nil, nil)})
	// b's two pods keep c from starting until they are given up at 601 s.
	if !strings.Contains(got, "601 stop b") || !strings.Contains(got, "601 start c") {
		t.Errorf("story:\n%s", got)
	}
	if m := out.Metrics(); m.UtilisationAllocated <= m.UtilisationBusy {
		t.Errorf("allocated %g, busy %g: want the held GPUs to be idle", m.UtilisationAllocated, m.UtilisationBusy)
	}
}

// anyTrace draws jobs for a cluster of 8 GPUs.
func anyTrace(t *rapid.T) []trace.Job {
	jobs := make([]trace.Job, rapid.IntRange(1, 12).Draw(t, "jobs"))
	for i := range jobs {
		jobs[i] = trace.Job{ID: fmt.Sprint("j", i), Submit: float64(rapid.IntRange(0, 500).Draw(t, "submit")), Duration: float64(rapid.IntRange(1, 400).Draw(t, "duration")), GPUs: rapid.IntRange(1, 8).Draw(t, "gpus")}
	}
	jobs[0].Submit = 0
	trace.Sort(jobs)
	return jobs
}

func anyScheduler(t *rapid.T, c Cluster) Scheduler {
	switch rapid.IntRange(0, 3).Draw(t, "scheduler") {
	case 0:
		return NewKube(c, nil, nil)
	case 1:
		return planned(t, c, core.Policy{Strict: true})
	case 2:
		p := core.Policy{Order: "sjf"}
		p.Preempt.Enabled = true
		return planned(t, c, p)
	}
	return planned(t, c, core.Policy{Order: rapid.SampledFrom(queue.Orders()).Draw(t, "order")})
}

// Whatever is drawn: no GPU has two jobs at once, every job ends, and the work
// done is the work submitted plus the work lost.
func TestConservation(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := small(t)
		jobs := anyTrace(t)
		s := Setup{Cluster: c, Jobs: jobs, Scheduler: anyScheduler(t, c), Interval: float64(rapid.SampledFrom([]int{0, 30}).Draw(t, "interval")), Restart: Restart{Base: 3, Growth: 0.5}, Checkpoints: Checkpoints{Every: 60}, Speed: NewSpeed(&c, H100NDR(DefaultOversubscription)), Seed: rapid.Uint64().Draw(t, "seed")}
		if rapid.Bool().Draw(t, "failing") {
			s.Failures = Failures{PerNodeDay: 100, Repair: 200}
		}
		s.Estimates = make([]float64, len(jobs))
		for i := range jobs {
			s.Estimates[i] = float64(rapid.IntRange(0, 800).Draw(t, "estimate"))
		}
		owner := map[string]string{}
		s.Log = func(e Event) {
			for _, g := range e.GPUs {
				switch {
				case e.Event == EventStart || e.Event == EventResize:
					if owner[g] != "" && owner[g] != e.Job {
						t.Errorf("%g s: %s is given to %s and held by %s", e.At, g, e.Job, owner[g])
					}
					owner[g] = e.Job
				case e.Event == EventFinish || e.Event == EventFail:
					delete(owner, g)
				}
			}
			if e.Event == EventStop { // it leaves when its state is saved
				for _, g := range e.GPUs {
					delete(owner, g)
				}
			}
		}
		out, err := Run(t.Context(), s)
		if err != nil {
			t.Fatal(err)
		}
		m := out.Metrics()
		if m.Unfinished != 0 || len(owner) != 0 {
			t.Errorf("%d jobs unfinished, GPUs still held: %v", m.Unfinished, owner)
		}
		for i := range out.jobs {
			j := &out.jobs[i]
			if j.ended-j.Submit < j.Duration-1e-6 {
				t.Errorf("%s took %g s: it runs for %g", j.ID, j.ended-j.Submit, j.Duration)
			}
			if j.held < j.Work()-1e-6 {
				t.Errorf("%s had %g GPU-seconds: it needs %g", j.ID, j.held, j.Work())
			}
		}
		if m.UtilisationProductive > m.UtilisationBound+1e-9 || m.UtilisationProductive > m.UtilisationBusy+1e-9 || m.UtilisationBusy > m.UtilisationAllocated+1e-9 {
			t.Errorf("productive %g, busy %g, allocated %g, bound %g", m.UtilisationProductive, m.UtilisationBusy, m.UtilisationAllocated, m.UtilisationBound)
		}
	})
}

// The same seed gives the same events.
func TestDeterministic(t *testing.T) {
	jobs, err := trace.Synthetic{Jobs: 200, Days: 1, GPUsPerNode: 8, MaxNodes: 4, Small: 0.5, Seed: 3}.Make()
	if err != nil {
		t.Fatal(err)
	}
	c, err := Regular(64, 8)
	if err != nil {
		t.Fatal(err)
	}
	var logs [2]bytes.Buffer
	for i := range logs {
		p := core.Policy{Order: "sjf"}
		p.Preempt.Enabled = true
		l := NewLogger(&logs[i])
		if _, err := Run(t.Context(), Setup{Cluster: c, Jobs: jobs, Estimates: Estimates(jobs, 1, 5), Scheduler: planned(t, c, p), Interval: 30, Restart: DefaultRestart, Failures: Failures{PerNodeDay: 1, Repair: 3600}, Seed: 9, Log: l.Log}); err != nil {
			t.Fatal(err)
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(logs[0].Bytes(), logs[1].Bytes()) {
		t.Error("two runs differ")
	}
}

// Free GPUs while something waits, by hand.
func TestSplit(t *testing.T) {
	tests := map[string]struct {
		free    []int // by node, of four
		waiting []int
		want    [3]int
	}{
		"nobody waits":              {free: []int{4, 4}},
		"one fits":                  {free: []int{4, 1}, waiting: []int{4}, want: [3]int{4, 0, 1}},
		"it would fit if compacted": {free: []int{2, 2}, waiting: []int{4}, want: [3]int{0, 4, 0}},
		"too few":                   {free: []int{2, 1}, waiting: []int{4}, want: [3]int{0, 0, 3}},
		"a gang of nodes":           {free: []int{4, 4, 1}, waiting: []int{9}, want: [3]int{9, 0, 0}},
		"the small ones fill":       {free: []int{2, 2}, waiting: []int{4, 1, 1}, want: [3]int{2, 2, 0}},
		"the better packing":        {free: []int{4}, waiting: []int{3, 2, 2}, want: [3]int{4, 0, 0}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			c, err := Regular(4*len(test.free), 4)
			if err != nil {
				t.Fatal(err)
			}
			l := newLedger(&c)
			for i, n := range test.free {
				l.set(i, 1<<n-1)
			}
			for _, gpus := range test.waiting {
				l.wait(gpus, 1)
			}
			var got [3]int
			got[0], got[1], got[2] = l.split()
			if got != test.want {
				t.Errorf("fillable, fragmented, indivisible %v: want %v", got, test.want)
			}
		})
	}
}

// The worst link of a placement, and the speed that follows.
func TestSpeed(t *testing.T) {
	c, err := Regular(8*64, 8)
	if err != nil {
		t.Fatal(err)
	}
	s := NewSpeed(&c, H100NDR(DefaultOversubscription))
	eight := []int8{0, 1, 2, 3, 4, 5, 6, 7}
	four := eight[:4]
	speed := func(class string, gpus int, pieces ...Piece) float64 {
		return s.Of(&JobShape{GPUs: gpus, Class: class}, pieces)
	}
	near(t, "one GPU", speed("finetune", 1, Piece{Node: 0, GPUs: eight[:1]}), 1)
	near(t, "one node", speed("finetune", 8, Piece{Node: 0, GPUs: eight}), 1)
	near(t, "one rack", speed("finetune", 16, Piece{Node: 0, GPUs: eight}, Piece{Node: 1, GPUs: eight}), 1)
	// 2·7/8·2.8/450 = 10.9 ms against 98 ms on 50 GB/s, beside 1 s of computing,
	// with γ = 2: √(1+0.0109²)/√(1+0.098²).
	want := math.Sqrt(1+math.Pow(2*7/8.0*2.8/450+14*5e-6, 2)) / math.Sqrt(1+math.Pow(2*7/8.0*2.8/50+14*5e-6, 2))
	near(t, "one node's worth on two", speed("finetune", 8, Piece{Node: 0, GPUs: four}, Piece{Node: 1, GPUs: four}), want)
	if apart := speed("finetune", 16, Piece{Node: 0, GPUs: eight}, Piece{Node: 63, GPUs: eight}); !(apart < 1) {
		t.Errorf("two blocks: speed %g", apart)
	}
}
