package core

import (
	"testing"

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
