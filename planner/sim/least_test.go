package sim

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/caravan-sched/caravan/planner/core"
)

// No run that keeps the conditions has a smaller P99 than the bounds: those that
// hold for all, and, since nobody is stopped, the one for such runs.
func TestNoRunBeatsLeastP99(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := small(t)
		jobs := someJobs(t, 8)
		play := func(order string) *Outcome {
			out, err := Run(t.Context(), Setup{Cluster: c, Jobs: jobs, Estimates: Estimates(jobs, 0, 1), Scheduler: planned(t, c, core.Policy{Order: order})})
			if err != nil {
				t.Fatal(err)
			}
			return out
		}
		const slack = 1.3
		base := play("fifo")
		was := base.Metrics()
		least := base.LeastP99(slack)
		if least.Alone > least.Limited || least.Limited > least.Unstopped || least.Limited > least.Fair || least.Unstopped > was.JCTP99 {
			t.Errorf("%+v: want the bounds with more conditions no smaller, and none above the %g of the run itself", least, was.JCTP99)
		}
		if least.Found < least.Limited-1e-6 || least.Found > was.JCTP99+1e-6 {
			t.Errorf("found %g: want it between the bound %g and the run's own %g", least.Found, least.Limited, was.JCTP99)
		}
		for _, order := range []string{"besteffort", "sjf", "backfill", "caravan"} {
			is := play(order).Metrics()
			if is.JCTP99 < least.Alone-1e-6 {
				t.Errorf("%s: P99 %g, and cannot be below %g", order, is.JCTP99, least.Alone)
			}
			if is.JCTP999 <= slack*was.JCTP999 && is.JCTMax <= slack*was.JCTMax && is.JCTWeighted <= slack*was.JCTWeighted && is.JCTP99 < least.Unstopped-1e-6 {
				t.Errorf("%s: P99 %g, and cannot be below %g with these limits", order, is.JCTP99, least.Unstopped)
			}
		}
	})
}
