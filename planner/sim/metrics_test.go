package sim

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/caravan-sched/caravan/planner/core"
	"github.com/caravan-sched/caravan/planner/sim/trace"
)

// Worked by hand: two nodes of four GPUs. a and b take three GPUs of a node each
// until 100 s; c, of two, finds two GPUs free, but on two nodes, and waits for
// nothing else; d, of eight, waits for GPUs that others have.
func TestWaitsByReason(t *testing.T) {
	jobs := []trace.Job{
		{ID: "a", Submit: 0, Duration: 100, GPUs: 3, Queue: "x"}, {ID: "b", Submit: 0, Duration: 100, GPUs: 3, Queue: "x"},
		{ID: "c", Submit: 40, Duration: 50, GPUs: 2, Queue: "y"}, {ID: "d", Submit: 60, Duration: 10, GPUs: 8, Queue: "y"},
		{ID: "e", Submit: 100, Duration: 1, GPUs: 1},
	}
	c := small(t)
	_, out := story(t, Setup{Cluster: c, Jobs: jobs, Scheduler: planned(t, c, core.Policy{Order: "fifo", Strict: true})})
	m := out.Metrics()
	// The cohort is submitted in [25, 75]: c waits 60 s, all of it scattered, and d
	// from 60 until c is done at 150. From 100 to 150 six GPUs are free: too few.
	near(t, "queue", m.QueueMean, (60+90)/2.0)
	near(t, "fragmentation", m.QueueFragmentation, 60/2.0)
	near(t, "fair share", m.QueueFairShare, 90/2.0)
	near(t, "requeue", m.RequeueMean, 0)
	// Until T = 100 one GPU of each node is free. Of the members (3, 3, 2, 4, 4, 1)
	// five of six ask for more.
	near(t, "FGD", m.FreeFGD, 2*5/6.0/8)
	// c is there from 40 to 150 with a and b until 100, d from 60, and e from 100.
	// (60 + 60 + 90 + 110 + 50) / 110 jobs, of which each would have 8/3.36 GPUs of
	// its own: enough for c, but not for d.
	near(t, "ρ of c", out.jobs[2].fairness(8), 110/50.0)
	// d is there from 60 to 160: a and b for 40 s, c for 90 s, e from 100 until it
	// has run behind d, from 160.
	jobsThere := (100 + 40 + 40 + 90 + 60) / 100.0
	near(t, "ρ of d", out.jobs[3].fairness(8), 100/(10*jobsThere))
	want := []Part{{Name: "y", Jobs: 2, JCTMean: (110 + 100) / 2, JCTP99: 110, QueueP95: 90, QueueMean: (60 + 90) / 2, GPUHours: (2*50 + 8*10) / 3600.0, FairnessMean: (110/50.0 + 100/(10*jobsThere)) / 2}}
	if diff := cmp.Diff(want, m.Queues, cmpopts.EquateApprox(0, 1e-9)); diff != "" {
		t.Errorf("queues (-want +got):\n%s", diff)
	}
}

// One machine of ten GPUs. By hand: the first task has 100 GPU-seconds, the second
// 20 that come after 2 s.
func TestBoundsByHand(t *testing.T) {
	list := []*job{
		{Job: &trace.Job{Submit: 0, Duration: 10, GPUs: 10}},
		{Job: &trace.Job{Submit: 2, Duration: 2, GPUs: 10}},
	}
	got := boundsOf(list, 10)
	// Least left first: the second from 2 to 4, the first until 12: 12 and 2.
	near(t, "mean", got.mean, (12+2)/2.0)
	// In order: 10, then until 12, so 10 s: 100·10 + 20·10 of a weight of 120.
	near(t, "weighted", got.weighted, (100*10+20*10)/120.0)
	// Both are to be done: 12 s of work from 0, the last of it came at 2.
	near(t, "P99", got.p99, 10)
	near(t, "max", got.max, 10)
	near(t, "P50", got.p50, 2)
	// An elastic job can be done in less time than it says.
	near(t, "elastic", boundsOf([]*job{{Job: &trace.Job{Duration: 10, GPUs: 2, Min: 1, Max: 8}}}, 10).mean, 2.5)
	if diff := cmp.Diff(bounds{}, boundsOf(nil, 10), cmp.AllowUnexported(bounds{})); diff != "" {
		t.Error(diff)
	}
}

// After a year the time in seconds is rounded to 3.7e-9: what is left of a task
// may be less than that, and is done all the same.
func TestBoundsOfWhatIsTooShortToSee(t *testing.T) {
	year := 365 * 86400.0
	tasks := []task{{release: year, work: 2e-8}, {release: year, work: 4e-8}, {release: 2 * year, work: 100}}
	near(t, "sum", srpt(tasks, 10), 2e-9+6e-9+10)
}

// No run is better than its bounds.
func TestNothingBeatsTheBounds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := small(t)
		jobs := someJobs(t, 8)
		order := rapid.SampledFrom([]string{"besteffort", "fifo", "sjf", "backfill"}).Draw(t, "order")
		out, err := Run(t.Context(), Setup{Cluster: c, Jobs: jobs, Estimates: Estimates(jobs, 0, 1), Scheduler: planned(t, c, core.Policy{Order: order})})
		if err != nil {
			t.Fatal(err)
		}
		m := out.Metrics()
		for name, pair := range map[string][2]float64{"mean": {m.JCTMean, m.JCTMeanBound}, "P50": {m.JCTP50, m.JCTP50Bound}, "P99": {m.JCTP99, m.JCTP99Bound}, "P99.9": {m.JCTP999, m.JCTP999Bound}, "max": {m.JCTMax, m.JCTMaxBound}, "weighted": {m.JCTWeighted, m.JCTWeightedBound}} {
			if pair[0] < pair[1]-1e-6 {
				t.Errorf("%s is %g, and cannot be below %g", name, pair[0], pair[1])
			}
		}
		if m.QueueFragmentation < -1e-9 || m.QueueFairShare < -1e-6 {
			t.Errorf("waits of %g s for others and %g s for places", m.QueueFairShare, m.QueueFragmentation)
		}
	})
}

// someJobs draws a small trace.
func someJobs(t *rapid.T, most int) []trace.Job {
	jobs := make([]trace.Job, rapid.IntRange(1, 25).Draw(t, "jobs"))
	for i := range jobs {
		jobs[i] = trace.Job{
			ID: string(rune('a' + i)), Submit: float64(rapid.IntRange(0, 300).Draw(t, "submit")), Duration: float64(rapid.IntRange(1, 200).Draw(t, "duration")),
			GPUs: rapid.IntRange(1, most).Draw(t, "gpus"), Queue: rapid.SampledFrom([]string{"", "x", "y"}).Draw(t, "queue"),
		}
	}
	trace.Sort(jobs)
	return jobs
}
