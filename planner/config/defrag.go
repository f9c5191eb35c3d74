package config

import (
	"fmt"
	"time"

	"github.com/caravan-sched/caravan/planner/core/preempt"
)

// The bounds of policy.defrag.
const (
	maxMoves = 100000
	maxAgain = 30 * 24 * time.Hour
)

// defaultDefrag moves nobody: that work which runs may be stopped so that other
// work fits is for an operator to say.
func defaultDefrag() preempt.Defrag { return preempt.Defrag{}.WithDefaults() }

func (l *loader) mergeDefrag(d *preempt.Defrag, f *fileDefrag) {
	if f == nil {
		return
	}
	set(&d.Enabled, f.Enabled)
	set(&d.MinBenefitRatio, f.MinBenefitRatio)
	set(&d.MaxPerHour, f.MaxPerHour)
	set(&d.MaxPerGang, f.MaxPerGang)
	set(&d.MaxPerJob, f.MaxPerJob)
	l.duration(&d.MinRunTime, f.MinRunTime, "policy.defrag.min_run_time")
	l.duration(&d.Again, f.Again, "policy.defrag.again")
}

func (l *loader) checkDefrag(d preempt.Defrag) {
	if r := d.MinBenefitRatio; !(r >= 1 && r <= preempt.MaxBenefitRatio) { // NaN too
		l.fault("policy.defrag.min_benefit_ratio", r, fmt.Sprintf("want 1 to %d: what the moves save, over what they lose", preempt.MaxBenefitRatio))
	}
	for _, q := range []struct {
		key   string
		value int
	}{{"max_per_hour", d.MaxPerHour}, {"max_per_gang", d.MaxPerGang}, {"max_per_job", d.MaxPerJob}} {
		if q.value < 1 || q.value > maxMoves {
			l.fault("policy.defrag."+q.key, q.value, fmt.Sprintf("want 1 to %d; to move nobody, set policy.defrag.enabled to false", maxMoves))
		}
	}
	l.between("policy.defrag.min_run_time", d.MinRunTime, time.Second, maxRunTime)
	l.between("policy.defrag.again", d.Again, time.Second, maxAgain)
}
