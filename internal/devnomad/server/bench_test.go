package server

import (
	"fmt"
	"strings"
	"testing"

	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/internal/devnomad/clock"
	"github.com/caravan-sched/caravan/internal/devnomad/state"
)

// BenchmarkPinnedGang registers a gang that is pinned to half of the nodes of
// one class, one member each, and stops it.
func BenchmarkPinnedGang(b *testing.B) {
	for _, size := range []int{16, 128} {
		b.Run(fmt.Sprintf("members=%d", size), func(b *testing.B) {
			s := New(Config{Clock: clock.NewManual(epoch), Seed: 1})
			var ids []string
			for i := range 2 * size {
				n := fmt.Sprintf("%08x", i)
				if err := s.Connect(node(n, "v1:same")); err != nil {
					b.Fatal(err)
				}
				if i%2 == 0 {
					ids = append(ids, n)
				}
			}
			for b.Loop() {
				j := job("gang", api.JobTypeBatch, size, 8)
				j.TaskGroups[0].Constraints = []*api.Constraint{
					{LTarget: "${node.unique.id}", Operand: "regexp", RTarget: "^(" + strings.Join(ids, "|") + ")"},
					{Operand: api.ConstraintDistinctHosts, RTarget: "true"},
				}
				if _, err := s.Register(&api.JobRegisterRequest{Job: j}, ""); err != nil {
					b.Fatal(err)
				}
				s.Step()
				if n := s.placed("gang"); n != size {
					b.Fatalf("%d members placed, want %d", n, size)
				}
				if _, err := s.Deregister(jobKey("gang"), true, 0); err != nil {
					b.Fatal(err)
				}
				s.Step()
				if err := s.UpdateAllocs(s.ended("gang")); err != nil {
					b.Fatal(err)
				}
				s.Step()
				if err := s.GC(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func jobKey(id string) state.Key { return state.Key{Namespace: "default", ID: id} }

// placed counts the members of a job that are to run.
func (s *Server) placed(id string) (n int) {
	s.store.View(func(v *state.View) {
		for _, a := range v.AllocsOfJob(jobKey(id)) {
			if !state.Terminal(a) {
				n++
			}
		}
	})
	return n
}

// ended are the reports that all members of a job are over.
func (s *Server) ended(id string) (out []*api.Allocation) {
	s.store.View(func(v *state.View) {
		for _, a := range v.AllocsOfJob(jobKey(id)) {
			out = append(out, &api.Allocation{ID: a.ID, ClientStatus: api.AllocClientStatusComplete})
		}
	})
	return out
}
