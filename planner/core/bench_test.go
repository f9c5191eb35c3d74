package core

import (
	"fmt"
	"testing"
	"time"

	"github.com/caravan-sched/caravan/internal/budget/drawn"
	"github.com/caravan-sched/caravan/planner/core/model"
)

// What the planner may cost is measured in internal/budget. Here are the cases
// that have no budget.

// apartByKernel lets a job have one member for each kernel.
func apartByKernel(j model.Job) model.Job {
	j.Constraints = []model.Constraint{{Left: "${attr.kernel.name}", Operand: "distinct_property", Right: "1"}}
	return j
}

func BenchmarkDecide(b *testing.B) {
	b.Run("event/gpus=2048/waiting=50", func(b *testing.B) {
		s := drawn.Cluster(256)
		for i := range 50 {
			s.Jobs = append(s.Jobs, drawn.Job(i, 1+i%40, 8, model.Topology{}))
		}
		p, err := Prepare(s, Policy{})
		if err != nil {
			b.Fatal(err)
		}
		b.ReportAllocs()
		for i := 0; b.Loop(); i++ {
			// An allocation ends, another one starts.
			a := s.Allocs[i/2%len(s.Allocs)]
			ch := Change{DropAllocs: []string{a.ID}}
			if i%2 == 1 {
				ch = Change{PutAllocs: []model.Alloc{a}}
			}
			if err := p.Apply(ch); err != nil {
				b.Fatal(err)
			}
			p.Decide(s.Now)
		}
	})
	b.Run("distinct_property/jobs=1000/gpus=131072", func(b *testing.B) {
		s := drawn.Cluster(16384)
		for i := range 1000 {
			s.Jobs = append(s.Jobs, apartByKernel(drawn.Job(i, 1+i%8, 1, model.Topology{})))
		}
		p, err := Prepare(s, Policy{})
		if err != nil {
			b.Fatal(err)
		}
		for b.Loop() {
			p.Decide(s.Now)
		}
	})
	b.Run("preempt/gang=12000/gpus=131072", func(b *testing.B) {
		s := drawn.Contest(16384)
		s.Jobs = append(s.Jobs, drawn.Job(0, 12000, 8, model.Topology{}))
		policy := preempting
		policy.Preempt.MaxAtOnce, policy.Preempt.MaxPerHour = 1000, 1000
		p, err := Prepare(s, policy)
		if err != nil {
			b.Fatal(err)
		}
		b.ReportAllocs()
		for b.Loop() {
			if len(p.Decide(s.Now).Preemptions) == 0 {
				b.Fatal("nobody gives way")
			}
		}
	})
}

// BenchmarkPrepare is what it costs to make everything ready, and difference
// what it costs to find out that little has changed.
func BenchmarkPrepare(b *testing.B) {
	s := drawn.Contest(16384)
	drawn.Singles(s, 10000)
	b.Run("prepare", func(b *testing.B) {
		for b.Loop() {
			if _, err := Prepare(s, Policy{}); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("difference", func(b *testing.B) {
		p, err := Prepare(s, Policy{})
		if err != nil {
			b.Fatal(err)
		}
		for i := 0; b.Loop(); i++ {
			next := *s
			next.Allocs = append(s.Allocs[:i:i], s.Allocs[i+1:]...)
			if _, ok := p.difference(s, &next); !ok {
				b.Fatal("a list has something twice")
			}
		}
	})
}

// timedCluster is a drawn cluster with the jobs of its allocations, which say how
// long they run: each rack ends at another time.
func timedCluster(nodes, jobs int) *model.Snapshot {
	s := drawn.Cluster(nodes)
	seen := map[string]bool{}
	for _, a := range s.Allocs {
		if !seen[a.Job] {
			seen[a.Job] = true
			s.Jobs = append(s.Jobs, model.Job{Namespace: "default", ID: a.Job, Type: "batch", State: model.StateRunning, Gang: model.GangJob,
				Started: s.Now.Add(-time.Hour), Submitted: s.Now.Add(-time.Hour), Duration: time.Duration(2+len(seen)%97) * time.Hour})
		}
	}
	for i := range jobs {
		// Every tenth is a large gang that waits; the others are of five sizes and
		// nine run times.
		j := drawn.Job(i, 1, 1<<(i%4), model.Topology{})
		if i%10 == 0 {
			j = drawn.Job(i, 128+i%128, 8, model.Topology{Mode: "require", Level: "block"})
		}
		j.Duration = time.Duration(1+i%9) * time.Hour
		s.Jobs = append(s.Jobs, j)
	}
	return s
}

// A whole cycle in which gangs that wait reserve a time, and others are placed
// until then.
func BenchmarkBackfill(b *testing.B) {
	for _, size := range []struct{ nodes, jobs int }{{100, 500}, {2048, 2000}, {16384, 10000}} {
		for name, policy := range map[string]Policy{"off": {}, "easy": easy, "conservative": conservative} {
			b.Run(fmt.Sprintf("nodes=%d/jobs=%d/%s", size.nodes, size.jobs, name), func(b *testing.B) {
				s := timedCluster(size.nodes, size.jobs)
				p, err := Prepare(s, policy)
				if err != nil {
					b.Fatal(err)
				}
				lent := 0
				for _, d := range p.Decide(s.Now).Decisions {
					if d.Backfill != nil {
						lent++
					}
				}
				b.ReportAllocs()
				for b.Loop() {
					p.Decide(s.Now)
				}
				b.ReportMetric(float64(lent), "lent")
			})
		}
	}
}
