package sim

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/caravan-sched/caravan/planner/sim/trace"
)

// Worked by hand: two nodes of four GPUs, exact estimates, restarts that take
// nothing. a has six GPUs from 0 to 100. b wants all eight at 10, so it cannot start
// before 100. c wants two at 20 for 60 s, d two at 30 for 200 s.
//
//   - gang: nobody passes b. It runs from 100 to 150, and then c and d start.
//   - backfill: c would end at 80, before b starts, so it passes it (the rule of EASY:
//     Lifka, JSSPP'95). At 80 d fits, but would run until 280, so it waits for b.
//   - k8s-default: b's pods of four fit nowhere, so c's passes them at 20 and d's at
//     80, when c has ended. At 100 one of b's pods has a node, and holds it; the other
//     one's is half d's until 280. Only then b starts, and four GPUs were idle.
//   - caravan+no-preempt: all are short, and it stops nobody. b is to start at 100, when a ends;
//     c fits before that and d does not.
//   - caravan: all are short. c and d run where b cannot yet: c from 20 to 80, and d
//     from 80 on. At 100 b takes 50 s and d has 180 left, more than twice as much, so
//     b displaces it. d goes on at 150 for the 180 s that it has left.
func TestBaselinesByHand(t *testing.T) {
	jobs := []trace.Job{
		{ID: "a", Submit: 0, Duration: 100, GPUs: 6}, {ID: "b", Submit: 10, Duration: 50, GPUs: 8},
		{ID: "c", Submit: 20, Duration: 60, GPUs: 2}, {ID: "d", Submit: 30, Duration: 200, GPUs: 2},
	}
	estimates := []float64{100, 50, 60, 200}
	for policy, want := range map[string]string{
		PolicyGang: "a 0-100, b 100-150, c 150-210, d 150-350",
		"backfill": "a 0-100, b 100-150, c 20-80, d 150-350",
		PolicyKube: "a 0-100, b 280-330, c 20-80, d 80-280",
		"caravan":  "a 0-100, b 100-150, c 20-80, d 80-330",

		"caravan+no-preempt": "a 0-100, b 100-150, c 20-80, d 150-350",
	} {
		t.Run(policy, func(t *testing.T) {
			c := small(t)
			var scheduler Scheduler
			if policy == PolicyKube {
				scheduler = NewKube(c, nil, nil)
			} else {
				p, err := PolicyOf(policy)
				if err != nil {
					t.Fatal(err)
				}
				p.Preempt.MinRunTime = 0
				scheduler = planned(t, c, p)
			}
			_, out := story(t, Setup{Cluster: c, Jobs: jobs, Estimates: estimates, Scheduler: scheduler})
			var got []string
			for _, d := range out.Done() {
				got = append(got, fmt.Sprintf("%s %g-%g", d.ID, d.First, d.Ended))
			}
			if diff := cmp.Diff(want, strings.Join(got, ", ")); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
