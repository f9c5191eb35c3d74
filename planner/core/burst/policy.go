// Package burst is the arithmetic of buying nodes: what they cost, when a gang
// would be through on them, whether that is worth it, and when they are given back.
// It has no clock: times count from the moment of the decision.
package burst

import (
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/caravan-sched/caravan/planner/core/model"
)

// ErrPolicy is the error for a policy that cannot be.
var ErrPolicy = errors.New("invalid policy")

// Policy says when nodes are bought and given back. Its zero value buys for nobody
// who does not ask for it.
type Policy struct {
	// Default is model.BurstAllow or model.BurstNever, for jobs of which neither
	// they nor their queues say whether nodes are bought for them; "" is never.
	Default string `json:"default,omitempty"`
	// WaitOver is how long a gang of up to WaitGPUs GPUs may wait until nodes are
	// bought for it without a deadline; one with more may wait longer in proportion.
	// 0: nobody's wait is worth a price.
	WaitOver time.Duration `json:"wait_over_ns,omitempty"`
	// WaitGPUs is 0 where size does not count.
	WaitGPUs int `json:"wait_gpus,omitempty"`
	// WaitPrice is the most that it may cost, for each of its GPUs and each hour
	// that it is through sooner; 0 is any.
	WaitPrice float64 `json:"wait_price,omitempty"`
	// Margin is how long before its deadline a gang is to be through; 0 means
	// DefaultMargin. Safety is how many times as long as expected it is taken to run;
	// 0 means DefaultSafety.
	Margin time.Duration `json:"margin_ns,omitempty"`
	Safety float64       `json:"safety,omitempty"`
	// Hope is what part of the expected run time has to be in time where all of it is
	// too late whatever is done: run times are estimates, and most jobs take far less
	// than is asked for (Mu'alem and Feitelson, Utilization, Predictability, Workloads,
	// and User Runtime Estimates, IEEE TPDS 12, 2001). 1 is all of it, though without
	// Safety; 0 means DefaultHope.
	Hope float64 `json:"hope,omitempty"`
	// Ahead is how long before it would be too late nodes are bought for a gang of
	// which nobody knows when it starts on what there is; 0 means DefaultAhead.
	Ahead time.Duration `json:"ahead_ns,omitempty"`
	// Restart is what it takes to stop and start again, beside booting; 0 means
	// DefaultRestart.
	Restart time.Duration `json:"restart_ns,omitempty"`
	// Idle is for how long a node does nothing before it is given back, 0 means
	// DefaultIdle; Lead how long before the end of its billing period, 0 means
	// DefaultLead.
	Idle time.Duration `json:"idle_ns,omitempty"`
	Lead time.Duration `json:"lead_ns,omitempty"`
	// CoolDown is how long after nodes of a pool were given back nothing is bought
	// there for who has the time; 0 means DefaultCoolDown.
	CoolDown time.Duration `json:"cool_down_ns,omitempty"`
	// MaxNodes is how many nodes there may be in all pools together, and
	// MaxPricePerHour what they may cost in an hour; 0 is no limit.
	MaxNodes        int     `json:"max_nodes,omitempty"`
	MaxPricePerHour float64 `json:"max_price_per_hour,omitempty"`
	// CarbonPrice is what a kg of CO2 counts as, beside what is paid.
	CarbonPrice float64 `json:"carbon_price,omitempty"`
	// StayAway: what runs on bought nodes is not moved to others when those are free.
	StayAway bool `json:"stay_away,omitempty"`
}

// The defaults of a Policy.
const (
	DefaultMargin   = 10 * time.Minute
	DefaultSafety   = 1.1
	DefaultHope     = 0.25
	DefaultAhead    = 15 * time.Minute
	DefaultRestart  = 2 * time.Minute
	DefaultIdle     = 5 * time.Minute
	DefaultLead     = 5 * time.Minute
	DefaultCoolDown = 10 * time.Minute
)

const (
	maxTime   = 30 * 24 * time.Hour
	maxSafety = 10
	leastHope = 0.01
)

// WithDefaults is p with its zeros filled in.
func (p Policy) WithDefaults() Policy {
	fill := func(d *time.Duration, by time.Duration) {
		if *d == 0 {
			*d = by
		}
	}
	fill(&p.Margin, DefaultMargin)
	fill(&p.Ahead, DefaultAhead)
	fill(&p.Restart, DefaultRestart)
	fill(&p.Idle, DefaultIdle)
	fill(&p.Lead, DefaultLead)
	fill(&p.CoolDown, DefaultCoolDown)
	if p.Safety == 0 {
		p.Safety = DefaultSafety
	}
	if p.Hope == 0 {
		p.Hope = DefaultHope
	}
	if p.Default == "" {
		p.Default = model.BurstNever
	}
	return p
}

// Validate reports every fault.
func (p Policy) Validate() error {
	var faults []error
	add := func(format string, args ...any) {
		faults = append(faults, fmt.Errorf("%w: burst."+format, append([]any{ErrPolicy}, args...)...))
	}
	switch p.Default {
	case "", model.BurstAllow, model.BurstNever:
	default:
		add("default %q: want %q or %q", p.Default, model.BurstAllow, model.BurstNever)
	}
	for _, t := range []struct {
		name  string
		value time.Duration
	}{{"wait_over", p.WaitOver}, {"margin", p.Margin}, {"ahead", p.Ahead}, {"restart", p.Restart}, {"idle", p.Idle}, {"lead", p.Lead}, {"cool_down", p.CoolDown}} {
		if t.value < 0 || t.value > maxTime {
			add("%s %s: want 0 to %s", t.name, t.value, maxTime)
		}
	}
	if p.Safety != 0 && !(p.Safety >= 1 && p.Safety <= maxSafety) {
		add("safety %g: want 1 to %d", p.Safety, maxSafety)
	}
	if p.Hope != 0 && !(p.Hope >= leastHope && p.Hope <= 1) {
		add("hope %g: want %g to 1", p.Hope, leastHope)
	}
	for _, n := range []struct {
		name  string
		value int
	}{{"wait_gpus", p.WaitGPUs}, {"max_nodes", p.MaxNodes}} {
		if n.value < 0 {
			add("%s %d: want 0 or more", n.name, n.value)
		}
	}
	for _, n := range []struct {
		name  string
		value float64
	}{{"wait_price", p.WaitPrice}, {"max_price_per_hour", p.MaxPricePerHour}, {"carbon_price", p.CarbonPrice}} {
		if !(n.value >= 0 && n.value <= math.MaxFloat32) {
			add("%s %g: want 0 to 3.4e38", n.name, n.value)
		}
	}
	return errors.Join(faults...)
}
