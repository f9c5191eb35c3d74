package config

import (
	"fmt"
	"slices"
	"time"

	"github.com/caravan-sched/caravan/planner/core/queue"
)

// The bounds of policy.elastic, policy.replace and policy.spares.
const (
	minInterval = time.Second
	maxInterval = 24 * time.Hour
	maxGrowths  = 100000
	maxKeepFor  = 24 * time.Hour
	maxSpares   = 1000
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
	if !(e.MinGain > 0 && e.MinGain <= queue.MaxMinGain) {
		l.fault("policy.elastic.min_gain", e.MinGain, fmt.Sprintf("want more than 0, at most %g: 0.05 is 5 %% faster; to let no gang grow, set policy.elastic.enabled to false", queue.MaxMinGain))
	}
}

func defaultReplace() queue.Replace { return queue.Replace{}.WithDefaults() }

func (l *loader) mergeReplace(r *queue.Replace, f *filePolicy) {
	if f.Replace != nil {
		l.duration(&r.KeepFor, f.Replace.KeepFor, "policy.replace.keep_for")
	}
	if f.Spares != nil {
		set(&r.SparesPer, f.Spares.Per)
		set(&r.Spares, f.Spares.Nodes)
	}
}

func (l *loader) checkReplace(r queue.Replace, levels []string) {
	l.between("policy.replace.keep_for", r.KeepFor, time.Second, maxKeepFor)
	if r.Spares < 0 || r.Spares > maxSpares {
		l.fault("policy.spares.nodes", r.Spares, fmt.Sprintf("want 0 to %d idle nodes", maxSpares))
	}
	if r.SparesPer != "" && !slices.Contains(levels, r.SparesPer) {
		l.fault("policy.spares.per", r.SparesPer, suggest(r.SparesPer, levels)+"; or leave it out, for the whole cluster", "levels")
	}
}
