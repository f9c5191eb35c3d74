package sim

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/caravan-sched/caravan/planner/core"
	"github.com/caravan-sched/caravan/planner/sim/trace"
)

// By hand, on eight GPUs: two interactive jobs of 100 s come at 400 s, when one of 1,000 s
// has all of them. Until 1,000 s, when the last comes, the GPUs do 6,000 GPU-seconds for the
// long one if two are kept, and 200 for those two.
func TestSoonByHand(t *testing.T) {
	jobs := []trace.Job{{ID: "long", Duration: 1000, GPUs: 8, Class: "finetune"}, {ID: "a", Submit: 400, Duration: 100, GPUs: 1}, {ID: "b", Submit: 400, Duration: 100, GPUs: 1}, {ID: "last", Submit: 1000, Duration: 10, GPUs: 8}}
	out, err := Run(t.Context(), Setup{Cluster: small(t), Jobs: jobs, Scheduler: planned(t, small(t), core.Policy{Order: "fifo"})})
	if err != nil {
		t.Fatal(err)
	}
	s := out.Soon(60)
	if s.Jobs != 2 || s.AtOnce != 2 {
		t.Errorf("%+v: want two jobs on two GPUs at once", s)
	}
	near(t, "used", s.Used, 0.2)
	near(t, "kept", s.Kept, 6200.0/8000)
	// The long one begins behind them, at 500 s, and has done 500 s of 8 GPUs.
	near(t, "planned", s.Planned, 4200.0/8000)
	near(t, "planned P95", s.PlannedP95, 0)
	near(t, "in time", out.StartedWithin(60), 0)
	near(t, "in much time", out.StartedWithin(700), 1)
}

// No run that starts nearly all in time has fewer GPUs for them at once than there have
// to be, and no bound is above that without conditions.
func TestNoRunNeedsFewerAtOnce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		jobs, within := someJobs(t, 3), float64(rapid.IntRange(0, 60).Draw(t, "within"))
		for _, order := range []string{"sjf", "caravan"} {
			out, err := Run(t.Context(), Setup{Cluster: small(t), Jobs: jobs, Estimates: Estimates(jobs, 0, 1), Scheduler: planned(t, small(t), core.Policy{Order: order})})
			if err != nil {
				t.Fatal(err)
			}
			s, m := out.Soon(within), out.Metrics()
			if s.Kept > m.UtilisationBound+1e-9 || s.Planned > m.UtilisationBound+1e-9 {
				t.Errorf("%+v: nothing exceeds %g", s, m.UtilisationBound)
			}
			if s.Jobs == 0 || out.StartedWithin(within) < soonPart {
				continue
			}
			most := 0
			for _, j := range out.cohort() {
				here := 0
				for _, other := range out.cohort() {
					if other.interactive() && other.first <= j.first && j.first < other.ended {
						here++
					}
				}
				most = max(most, here)
			}
			if most < s.AtOnce {
				t.Errorf("%s has %d GPUs for them at once, and cannot have fewer than %d", order, most, s.AtOnce)
			}
		}
	})
}
