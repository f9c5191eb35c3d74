package queue

import (
	"errors"
	"fmt"
	"time"
)

// The modes of backfill.
const (
	// BackfillEasy gives a reservation to the first gang that waits: others pass it
	// if they do not delay it (Lifka, The ANL/IBM SP scheduling system, JSSPP'95).
	BackfillEasy = "easy"
	// BackfillConservative gives one to each: nobody delays any of those ahead
	// (Mu'alem and Feitelson, TPDS 12(6), 2001).
	BackfillConservative = "conservative"
	// BackfillOff keeps nodes for those who wait, whatever others are expected to
	// run.
	BackfillOff = "off"
)

// BackfillModes are all of them.
var BackfillModes = [...]string{BackfillOff, BackfillEasy, BackfillConservative}

// Backfill says how gangs that wait reserve their time.
type Backfill struct {
	// Mode is one of BackfillModes; "" means off, with OrderBackfill easy, and with
	// OrderCaravan conservative.
	Mode string `json:"mode,omitempty"`
	// Depth is how many gangs have a reservation at once, the first ones in order;
	// 0 means one with easy, and as many as may keep nodes with conservative, but
	// caravanDepth, and wideDepth of wide gangs, with OrderCaravan where no mode is set.
	Depth int `json:"depth,omitempty"`
	// DefaultDuration is how long a batch job is expected to run of which nobody
	// says it; 0 means that nothing is expected of it.
	DefaultDuration time.Duration `json:"default_duration_ns,omitempty"`
	// MaxWait is how long a gang waits for a start that estimates have told; then
	// it keeps its nodes from all who would be placed there, until they are empty. 0
	// means DefaultMaxWait.
	MaxWait time.Duration `json:"max_wait_ns,omitempty"`
	// Reclaim: what was placed on an estimate where another one is to start, and
	// has not ended when it should have, gives way to that one, if jobs give way
	// at all.
	Reclaim bool `json:"reclaim,omitempty"`
}

// DefaultMaxWait is long beside what most jobs wait: a gang that keeps nodes from
// everybody makes others wait.
const DefaultMaxWait = 12 * time.Hour

// Trust is how long a gang trusts estimates.
func (b Backfill) Trust() time.Duration {
	if b.MaxWait > 0 {
		return b.MaxWait
	}
	return DefaultMaxWait
}

// caravanDepth is how many gangs have a reservation under OrderCaravan unless the policy
// says otherwise. Estimates of run times are far off: each reservation more keeps GPUs from
// those behind for a start that seldom comes when it was told.
const caravanDepth = 1

// wideDepth is up to how many have one there if they need more than WidePart of the GPUs.
const wideDepth = 4

// WidePart is the part of all GPUs beyond which a gang is wide: it hardly ever fits by
// chance, and its nodes are emptied whenever its turn comes.
const WidePart = 0.25

// DefaultForecasts bounds the work that estimates cost.
const DefaultForecasts = 64

// Validate reports every fault.
func (b Backfill) Validate() error {
	var faults []error
	switch b.Mode {
	case "", BackfillOff, BackfillEasy, BackfillConservative:
	default:
		faults = append(faults, fmt.Errorf("%w: backfill.mode %q: want one of %q", ErrPolicy, b.Mode, BackfillModes))
	}
	if b.Depth < 0 {
		faults = append(faults, fmt.Errorf("%w: backfill.depth %d: want 0 or more", ErrPolicy, b.Depth))
	}
	if b.MaxWait < 0 {
		faults = append(faults, fmt.Errorf("%w: backfill.max_wait %s: want 0 or more", ErrPolicy, b.MaxWait))
	}
	if b.DefaultDuration < 0 {
		faults = append(faults, fmt.Errorf("%w: backfill.default_duration %s: want 0 or more", ErrPolicy, b.DefaultDuration))
	}
	return errors.Join(faults...)
}

// Backfills reports whether gangs reserve a time.
func (p Policy) Backfills() bool { return p.mode() != BackfillOff }

func (p Policy) mode() string {
	switch {
	case p.Backfill.Mode != "":
		return p.Backfill.Mode
	case p.Order == OrderBackfill:
		return BackfillEasy
	case p.Order == OrderCaravan:
		return BackfillConservative
	default:
		return BackfillOff
	}
}

// reservations is how many gangs have one at once.
func (p Policy) reservations() int {
	switch {
	case p.Backfill.Depth > 0:
		return p.Backfill.Depth
	case p.mode() == BackfillEasy:
		return 1
	case p.Backfill.Mode == "": // with OrderCaravan, as others do not backfill then
		return caravanDepth
	case p.MaxHolds > 0:
		return p.MaxHolds
	default:
		return DefaultMaxHolds
	}
}

// WideHolds is Holds for a gang that needs more than WidePart of the GPUs.
func (p Policy) WideHolds() int {
	if p.Order == OrderCaravan && p.Backfill.Mode == "" && p.Backfill.Depth == 0 {
		return wideDepth
	}
	return p.Holds()
}

// MaxForecasts is for how many waiting gangs a start is estimated.
func (p Policy) MaxForecasts() int {
	if p.Forecasts == 0 {
		return DefaultForecasts
	}
	return p.Forecasts
}
