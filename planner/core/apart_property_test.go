package core

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/core/queue"
)

// anyTimes draws how long jobs run, and what is set apart.
func anyTimes(t *rapid.T, s *model.Snapshot) Policy {
	for i := range s.Jobs {
		j := &s.Jobs[i]
		j.Duration = time.Duration(rapid.IntRange(0, 4).Draw(t, "runs")) * time.Hour
		j.Queue = rapid.SampledFrom([]string{"", "a", "a/b", "c"}).Draw(t, "queue")
		if rapid.IntRange(0, 3).Draw(t, "known") == 0 {
			j.Estimate = time.Hour
		}
	}
	anyReservations(t, s)
	p := Policy{Order: rapid.SampledFrom(queue.Orders()).Draw(t, "order")}
	p.Backfill.Mode = rapid.SampledFrom(queue.BackfillModes[:]).Draw(t, "mode")
	p.Backfill.Reclaim, p.Preempt.Enabled = rapid.Bool().Draw(t, "reclaim"), rapid.Bool().Draw(t, "preempt")
	return p
}

// anyReservations draws what is set apart.
func anyReservations(t *rapid.T, s *model.Snapshot) {
	for i := range rapid.IntRange(0, 3).Draw(t, "reservations") {
		r := model.Reservation{Name: fmt.Sprintf("r%d", i), Kind: rapid.SampledFrom([]string{model.ReserveMaintenance, model.ReserveCapacity, model.ReserveStart}).Draw(t, "kind")}
		from := s.Now.Add(time.Duration(rapid.IntRange(-3, 3).Draw(t, "from")) * time.Hour)
		switch r.Kind {
		case model.ReserveMaintenance:
			r.From, r.Until = from, from.Add(time.Duration(rapid.IntRange(1, 3).Draw(t, "lasts"))*time.Hour)
			r.Lead, r.Evict = time.Duration(rapid.IntRange(0, 2).Draw(t, "lead"))*time.Hour, rapid.Bool().Draw(t, "evict")
			r.Nodes = []string{rapid.SampledFrom([]string{"*", "n0", "n1", "n2*"}).Draw(t, "nodes")}
		case model.ReserveCapacity:
			r.Queue, r.GPUs = rapid.SampledFrom([]string{"a", "c"}).Draw(t, "for"), rapid.IntRange(1, 5).Draw(t, "gpus")
			r.Level = rapid.SampledFrom([]string{"", "rack", "block"}).Draw(t, "level")
			if rapid.Bool().Draw(t, "later") {
				r.From = from
			}
		case model.ReserveStart:
			r.For.ID = fmt.Sprintf("j%d", rapid.IntRange(0, 4).Draw(t, "job"))
		}
		s.Reservations = append(s.Reservations, r)
	}
}

// Whatever is set apart and whoever backfills: nothing is given twice, no gang is
// partial, the order of the lists does not matter, deciding changes nothing, and
// nothing is placed that would still run when a maintenance begins.
func TestTimesAndReservations(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := anySnapshot(t)
		policy := anyTimes(t, s)
		p, err := Prepare(s, policy)
		if err != nil {
			t.Fatal(err)
		}
		plan := p.Decide(s.Now)
		if faults := planFaults(s, plan); len(faults) > 0 {
			t.Fatalf("faults: %q", faults)
		}
		if diff := cmp.Diff(plan, p.Decide(s.Now)); diff != "" {
			t.Fatalf("second plan (-first +second):\n%s", diff)
		}
		shuffled := *s
		shuffled.Nodes = rapid.Permutation(s.Nodes).Draw(t, "nodes")
		shuffled.Jobs = rapid.Permutation(s.Jobs).Draw(t, "jobs")
		shuffled.Allocs = rapid.Permutation(s.Allocs).Draw(t, "allocs")
		shuffled.Reservations = rapid.Permutation(s.Reservations).Draw(t, "set apart")
		if diff := cmp.Diff(plan, mustDecide(t, &shuffled, policy)); diff != "" {
			t.Fatalf("plans differ (-given +shuffled):\n%s", diff)
		}
		for _, d := range plan.Decisions {
			for _, m := range d.Members {
				if text := overruns(s, d.Job, m.Node); text != "" {
					t.Fatalf("%s: %s", text, d.Reason)
				}
			}
		}
	})
}

// overruns says which maintenance a job that is placed now would run into.
func overruns(s *model.Snapshot, job, node string) string {
	for i := range s.Jobs {
		j := &s.Jobs[i]
		if j.ID != job {
			continue
		}
		runs := j.Duration
		if runs == 0 {
			runs = j.Estimate
		}
		for k := range s.Reservations {
			r := &s.Reservations[k]
			for n := range s.Nodes {
				if r.Kind != model.ReserveMaintenance || s.Nodes[n].ID != node || !r.Covers(&s.Nodes[n], s.Levels) || !r.Until.After(s.Now) {
					continue
				}
				least := runs
				if runs == 0 || j.Type == "service" {
					least = r.Lead
				}
				if r.From.Before(s.Now.Add(least)) || !r.From.After(s.Now) {
					return fmt.Sprintf("%s is placed on %s for %s, and %s begins at %s", job, node, runs, r.Name, r.From)
				}
			}
		}
	}
	return ""
}
