package core

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/caravan-sched/caravan/planner/core/model"
)

// benchContest is benchCluster with the jobs that run there, one in four nodes
// its own, of a low priority.
func benchContest(nodes int) *model.Snapshot {
	s := benchCluster(nodes)
	jobs := map[string]int{}
	for i := range s.Allocs {
		a := &s.Allocs[i]
		a.Job = fmt.Sprint("old-", i/4)
		if _, ok := jobs[a.Job]; !ok {
			jobs[a.Job] = len(s.Jobs)
			s.Jobs = append(s.Jobs, model.Job{Namespace: "default", ID: a.Job, Type: "batch", State: model.StateRunning, Gang: model.GangJob, Priority: 20,
				Started: testNow.Add(-time.Duration(1+i*7%500) * time.Minute)})
		}
	}
	return s
}

// BenchmarkPreempt: /preempt finds victims for one gang, /cycle is one of many
// gangs for which nobody gives way.
func BenchmarkPreempt(b *testing.B) {
	gang := func(nodes int, job model.Job) func(*testing.B) {
		return func(b *testing.B) {
			s := benchContest(nodes)
			s.Jobs = append(s.Jobs, job)
			policy := preempting
			policy.Preempt.MaxAtOnce, policy.Preempt.MaxPerHour = 1000, 1000
			p, err := Prepare(s, policy)
			if err != nil {
				b.Fatal(err)
			}
			plan := p.Decide(s.Now)
			if len(plan.Preemptions) == 0 {
				b.Fatalf("nobody gives way: %s", plan.Decisions[0].Reason)
			}
			b.ReportMetric(float64(len(plan.Preemptions)), "victims")
			b.ReportAllocs()
			for b.Loop() {
				p.Decide(s.Now)
			}
		}
	}
	rack, block := model.Topology{Mode: "require", Level: "rack"}, model.Topology{Mode: "require", Level: "block"}
	b.Run("preempt/gang=16/gpus=4096", gang(512, benchJob(0, 16, 8, rack)))
	b.Run("preempt/gang=16/gpus=131072", gang(16384, benchJob(0, 16, 8, rack)))
	b.Run("preempt/gang=200/gpus=131072", gang(16384, benchJob(0, 200, 8, block)))
	b.Run("preempt/gang=12000/gpus=131072", gang(16384, benchJob(0, 12000, 8, model.Topology{})))
	b.Run("cycle/jobs=10000/gpus=131072", func(b *testing.B) {
		s := benchContest(16384)
		for i := range 10000 {
			s.Jobs = append(s.Jobs, benchJob(i, 1, 1, model.Topology{}))
		}
		slices.Reverse(s.Jobs)
		for b.Loop() {
			if _, err := Decide(s, preempting); err != nil {
				b.Fatal(err)
			}
		}
	})
}
