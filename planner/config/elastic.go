package config

import (
	"fmt"
	"time"

	"github.com/caravan-sched/caravan/planner/core/queue"
)

// The bounds of policy.elastic.
const (
	minInterval    = time.Second
	maxInterval    = 24 * time.Hour
	maxGrowths     = 100000
	maxMinimalGain = 10.0
)

// defaultElastic lets gangs grow that ask for it: whoever sets caravan_max has
// agreed.
func defaultElastic() queue.Elastic { return queue.Elastic{}.WithDefaults() }

func (l *loader) mergeElastic(e *queue.Elastic, f *fileElastic) {
	if f == nil {
		return
	}
	if f.Enabled != nil {
		e.Disabled = !*f.Enabled
	}
	l.duration(&e.MinInterval, f.MinInterval, "policy.elastic.min_interval")
	set(&e.MaxPerHour, f.MaxPerHour)
	set(&e.MinGain, f.MinGain)
}

func (l *loader) checkElastic(e queue.Elastic) {
	l.between("policy.elastic.min_interval", e.MinInterval, minInterval, maxInterval)
	if e.MaxPerHour < 1 || e.MaxPerHour > maxGrowths {
		l.fault("policy.elastic.max_per_hour", e.MaxPerHour, fmt.Sprintf("want 1 to %d; to let no gang grow, set policy.elastic.enabled to false", maxGrowths))
	}
	if !(e.MinGain > 0 && e.MinGain <= maxMinimalGain) {
		l.fault("policy.elastic.min_gain", e.MinGain, fmt.Sprintf("want more than 0, at most %g: 0.05 is 5 %% faster", maxMinimalGain))
	}
}
