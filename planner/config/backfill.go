package config

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/caravan-sched/caravan/planner/core/queue"
)

type fileBackfill struct {
	Mode            *string `hcl:"mode,optional"`
	Depth           *int    `hcl:"depth,optional"`
	DefaultDuration *string `hcl:"default_duration,optional"`
	MaxWait         *string `hcl:"max_wait,optional"`
	Reclaim         *bool   `hcl:"reclaim,optional"`
}

// The bounds of policy.backfill and policy.forecasts.
const (
	maxDefaultDuration = 366 * 24 * time.Hour
	maxForecasts       = 10000
)

func (l *loader) mergeBackfill(b *queue.Backfill, f *fileBackfill) {
	if f == nil {
		return
	}
	set(&b.Mode, f.Mode)
	set(&b.Depth, f.Depth)
	l.duration(&b.DefaultDuration, f.DefaultDuration, "policy.backfill.default_duration")
	l.duration(&b.MaxWait, f.MaxWait, "policy.backfill.max_wait")
	set(&b.Reclaim, f.Reclaim)
}

func (l *loader) checkBackfill(p *queue.Policy) {
	if modes := queue.BackfillModes[:]; p.Backfill.Mode != "" && !slices.Contains(modes, p.Backfill.Mode) {
		l.fault("policy.backfill.mode", p.Backfill.Mode, fmt.Sprintf("want one of %s; leave it out for %s with the order %s, %s with %s, and off with others",
			strings.Join(modes, ", "), queue.BackfillConservative, queue.OrderCaravan, queue.BackfillEasy, queue.OrderBackfill))
	}
	if p.Backfill.Depth < 0 || p.Backfill.Depth > maxMaxHolds {
		l.fault("policy.backfill.depth", p.Backfill.Depth, fmt.Sprintf("want 1 to %d, or 0 for the mode's own", maxMaxHolds))
	}
	if p.Backfill.Reclaim && !p.Preempt.Enabled {
		l.fault("policy.backfill.reclaim", true, "want policy.preempt.enabled beside it: without that nobody gives way who was backfilled and overstays", "policy.preempt.enabled")
	}
	if p.Backfill.Reclaim && !p.Backfills() {
		l.fault("policy.backfill.reclaim", true, "want policy.backfill.mode "+queue.BackfillEasy+" or "+queue.BackfillConservative+" beside it: without that nobody is backfilled", "policy.backfill.mode", "policy.order")
	}
	l.between("policy.backfill.max_wait", p.Backfill.MaxWait, time.Minute, maxDefaultDuration)
	l.between("policy.backfill.default_duration", p.Backfill.DefaultDuration, 0, maxDefaultDuration)
	if p.Forecasts < 1 || p.Forecasts > maxForecasts {
		l.fault("policy.forecasts", p.Forecasts, fmt.Sprintf("want 1 to %d", maxForecasts))
	}
}
