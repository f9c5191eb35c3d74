package preempt

import (
	"errors"
	"fmt"
	"time"

	"github.com/caravan-sched/caravan/planner/core/model"
)

// Defrag says whether gangs that run are moved so that one that waits fits: what
// is free suffices for it, but lies where it is of no use to it. Its zero value
// moves nobody.
type Defrag struct {
	Enabled bool `json:"enabled,omitempty"`
	// MinBenefitRatio is how many times the GPU-seconds that the moves save must
	// be those that they lose; 0 means DefaultMinBenefitRatio.
	MinBenefitRatio float64 `json:"min_benefit_ratio,omitempty"`
	// MaxPerHour is how many gangs may be moved within an hour, and MaxPerGang how
	// many for one that waits; 0 means DefaultMovesPerHour and
	// DefaultMovesPerGang.
	MaxPerHour int `json:"max_per_hour,omitempty"`
	MaxPerGang int `json:"max_per_gang,omitempty"`
	// MaxPerJob is how often one job is moved; 0 means DefaultMovesPerJob.
	MaxPerJob int `json:"max_per_job,omitempty"`
	// MinRunTime is for how long a gang runs at least before it is moved, and
	// Again for how long after a move it is not moved another time; 0 means
	// DefaultMoveAfter and DefaultMoveAgain.
	MinRunTime time.Duration `json:"min_run_time_ns,omitempty"`
	Again      time.Duration `json:"again_ns,omitempty"`
}

// The defaults of Defrag.
const (
	DefaultMinBenefitRatio = 2
	DefaultMovesPerHour    = 12
	DefaultMovesPerGang    = 4
	DefaultMovesPerJob     = 3
	DefaultMoveAfter       = 10 * time.Minute
	DefaultMoveAgain       = time.Hour
)

// MaxBenefitRatio bounds Defrag.MinBenefitRatio.
const MaxBenefitRatio = 1000

// Validate reports every fault.
func (d Defrag) Validate() error {
	var faults []error
	if r := d.MinBenefitRatio; r != 0 && !(r >= 1 && r <= MaxBenefitRatio) { // NaN too
		faults = append(faults, fmt.Errorf("%w: defrag.min_benefit_ratio %g: want 1 to %d: moves are to save more than they lose", ErrPolicy, r, MaxBenefitRatio))
	}
	for _, q := range []struct {
		name  string
		value int
	}{{"max_per_hour", d.MaxPerHour}, {"max_per_gang", d.MaxPerGang}, {"max_per_job", d.MaxPerJob}} {
		if q.value < 0 {
			faults = append(faults, fmt.Errorf("%w: defrag.%s %d: want 0 or more", ErrPolicy, q.name, q.value))
		}
	}
	for _, q := range []struct {
		name  string
		value time.Duration
	}{{"min_run_time", d.MinRunTime}, {"again", d.Again}} {
		if q.value < 0 {
			faults = append(faults, fmt.Errorf("%w: defrag.%s %s: want 0 or more", ErrPolicy, q.name, q.value))
		}
	}
	return errors.Join(faults...)
}

// WithDefaults is the policy with its zeros filled in.
func (d Defrag) WithDefaults() Defrag {
	if d.MinBenefitRatio == 0 {
		d.MinBenefitRatio = DefaultMinBenefitRatio
	}
	for _, q := range []struct {
		value    *int
		fallback int
	}{{&d.MaxPerHour, DefaultMovesPerHour}, {&d.MaxPerGang, DefaultMovesPerGang}, {&d.MaxPerJob, DefaultMovesPerJob}} {
		if *q.value == 0 {
			*q.value = q.fallback
		}
	}
	if d.MinRunTime == 0 {
		d.MinRunTime = DefaultMoveAfter
	}
	if d.Again == 0 {
		d.Again = DefaultMoveAgain
	}
	return d
}

// Exempt says why a job's gangs are not moved at this time, or not for this job;
// "" if they may be. Nothing goes back and forth: a gang that was moved stays for
// a while, and none is moved for a job that made room for it.
func (d Defrag) Exempt(waiting, victim *model.Job, now time.Time) string {
	switch {
	case victim.Move == model.MoveNever:
		return "it is never to be moved"
	case victim.Preempt == model.PreemptNever:
		return "it is never to be stopped"
	case victim.Priority > waiting.Priority:
		return fmt.Sprintf("its priority is higher, %d against %d", victim.Priority, waiting.Priority)
	case !victim.Deadline.IsZero():
		return "it has a deadline to meet"
	}
	if ran := now.Sub(victim.Started); !victim.Started.IsZero() && ran < d.MinRunTime {
		return fmt.Sprintf("it has run for %s only; %s are granted", ran.Round(time.Second), d.MinRunTime)
	}
	moved := 0
	for _, gave := range victim.Preempted {
		if !gave.Moved {
			continue
		}
		moved++
		if since := now.Sub(gave.At); since < d.Again {
			return fmt.Sprintf("it was moved %s ago; %s are granted", since.Round(time.Second), d.Again)
		}
	}
	if moved >= d.MaxPerJob {
		return fmt.Sprintf("it was moved %d times already", moved)
	}
	for _, gave := range waiting.Preempted {
		if gave.By == victim.ID && gave.Namespace == victim.Namespace {
			return "the one that waits made room for it before"
		}
	}
	return ""
}
