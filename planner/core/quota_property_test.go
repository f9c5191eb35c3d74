package core

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/caravan-sched/caravan/planner/core/model"
)

// anyQueues draws queues and puts the jobs into them.
func anyQueues(t *rapid.T, s *model.Snapshot) {
	paths := []string{"a", "b", "b/x", "b/y", "c"}
	for _, path := range paths {
		q := model.Queue{Path: path, Weight: float64(rapid.IntRange(0, 3).Draw(t, "weight"))}
		if n := rapid.IntRange(0, 3).Draw(t, "guarantee"); n > 0 && path != "b" {
			q.Guarantee = gpusOf(n)
			if rapid.IntRange(0, 3).Draw(t, "model") == 0 {
				q.Guarantee["gpu/A"] = rapid.IntRange(0, n).Draw(t, "of a model")
			}
		}
		switch rapid.IntRange(0, 3).Draw(t, "limit") {
		case 0:
			q.Borrow = gpusOf(rapid.IntRange(0, 3).Draw(t, "borrow"))
		case 1:
			q.Borrow = map[string]int{"gpu/B": rapid.IntRange(0, 2).Draw(t, "borrow B"), "cpu_mhz": 3000}
		}
		if rapid.IntRange(0, 3).Draw(t, "users") == 0 {
			q.PerUser = gpusOf(rapid.IntRange(0, 3).Draw(t, "per user"))
		}
		s.Queues = append(s.Queues, q)
	}
	for i := range s.Jobs {
		s.Jobs[i].Queue = rapid.SampledFrom([]string{"a", "a/u", "a/v", "b", "b/x", "b/y", "b/z", "c", "else", ""}).Draw(t, "queue")
		s.Jobs[i].Preempt = rapid.SampledFrom([]string{"", "", "never"}).Draw(t, "preempt")
		s.Jobs[i].Duration = time.Duration(rapid.IntRange(0, 2).Draw(t, "duration")) * time.Hour
	}
}

func anyOrder(t *rapid.T) Policy {
	return Policy{Order: rapid.SampledFrom([]string{"fifo", "besteffort", "sjf", "fairshare"}).Draw(t, "order"), Strict: rapid.IntRange(0, 4).Draw(t, "strict") == 0}
}

// Plans with queues are legal, do not depend on the order of lists, and never
// take a queue beyond what it may use, that was not there before.
func TestQuotaProperties(t *testing.T) {
	quota := 0
	rapid.Check(t, func(t *rapid.T) {
		s := anySnapshot(t)
		anyQueues(t, s)
		policy := anyOrder(t)
		plan := mustDecide(t, s, policy)
		for _, fault := range planFaults(s, plan) {
			t.Error(fault)
		}
		shuffled := *s
		shuffled.Nodes = rapid.Permutation(s.Nodes).Draw(t, "nodes")
		shuffled.Jobs = rapid.Permutation(s.Jobs).Draw(t, "jobs")
		shuffled.Allocs = rapid.Permutation(s.Allocs).Draw(t, "allocs")
		shuffled.Queues = rapid.Permutation(s.Queues).Draw(t, "queues")
		if diff := cmp.Diff(plan, mustDecide(t, &shuffled, policy)); diff != "" {
			t.Fatalf("plans differ (-given +shuffled):\n%s", diff)
		}
		now, added := gpusInUse(s, nil), gpusInUse(s, plan)
		for _, q := range s.Queues {
			most, limited := q.Borrow["gpu"]
			if most += guaranteed(s, q.Path); limited && added[q.Path] > now[q.Path] && added[q.Path] > most {
				t.Fatalf("queue %s uses %d GPUs, may %d", q.Path, added[q.Path], most)
			}
		}
		for _, d := range plan.Decisions {
			if d.Detail.Code == codeQuota {
				quota++
			}
		}
	})
	if quota == 0 {
		t.Error("no quota was ever in the way")
	}
}

// guaranteed is what a queue is guaranteed, or those below it.
func guaranteed(s *model.Snapshot, path string) int {
	n := 0
	for _, q := range s.Queues {
		if q.Path == path && q.Guarantee != nil {
			return q.Guarantee["gpu"]
		}
		if strings.HasPrefix(q.Path, path+"/") {
			n += q.Guarantee["gpu"]
		}
	}
	return n
}

// gpusInUse counts GPUs by queue, those below too.
func gpusInUse(s *model.Snapshot, plan *model.Plan) map[string]int {
	out := map[string]int{}
	add := func(queue string, n int) {
		for _, q := range s.Queues {
			if queue == q.Path || strings.HasPrefix(queue, q.Path+"/") {
				out[q.Path] += n
			}
		}
	}
	for i := range s.Jobs {
		j := &s.Jobs[i]
		for _, m := range j.Members {
			if holdsMembers(j) && !m.Ended {
				add(j.Queue, len(m.GPUs))
			}
		}
		if plan == nil {
			continue
		}
		for _, d := range plan.Decisions {
			if d.Job == j.ID {
				for _, m := range d.Members {
					add(j.Queue, len(m.GPUs))
				}
			}
		}
	}
	return out
}

// A prepared cluster with queues that is kept up to date decides as a fresh
// one does.
func TestApplyIsPrepareWithQueues(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := anySnapshot(t)
		anyQueues(t, s)
		policy := anyOrder(t)
		p, err := Prepare(s, policy)
		if err != nil {
			t.Fatal(err)
		}
		for round := range 3 {
			plan := p.Decide(s.Now)
			if diff := cmp.Diff(mustDecide(t, s, policy), plan); diff != "" {
				t.Fatalf("round %d: plans (-fresh +kept):\n%s", round, diff)
			}
			ch := anyChange(t, s, plan, round)
			if err := p.Apply(ch); err != nil {
				t.Fatalf("round %d: %v", round, err)
			}
			s = ch.apply(s)
		}
	})
}
