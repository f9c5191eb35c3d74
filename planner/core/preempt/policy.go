// Package preempt finds who is to give way to a gang that waits for room: the
// gangs inside a domain where it may land whose stop costs least, and no more
// of them than it needs.
package preempt

import (
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/caravan-sched/caravan/planner/core/model"
)

// Policy says whether and how jobs give way. Its zero value stops nothing.
type Policy struct {
	Enabled bool `json:"enabled,omitempty"`
	// SavedOnly: only jobs give way whose work outlasts a stop (see
	// model.Job.SavesWork).
	SavedOnly bool `json:"saved_only,omitempty"`
	// MinPriorityGap is by how much the priority of a job must be higher than
	// that of one that gives way to it; 0 means DefaultMinPriorityGap.
	MinPriorityGap int `json:"min_priority_gap,omitempty"`
	// MinRunTime is for how long a gang runs at least once it was admitted.
	MinRunTime time.Duration `json:"min_run_time_ns,omitempty"`
	// MaxAtOnce is how many gangs that save their checkpoints to one storage may be
	// stopping at once to give way, so that they do not overrun it; 0 means
	// DefaultMaxAtOnce. MaxGPUsAtOnce is how many GPUs they may have together, and
	// MaxGiBAtOnce how large their checkpoints may be together as far as that is
	// known, if it is more than one gang; 0 is no limit.
	MaxAtOnce     int `json:"max_at_once,omitempty"`
	MaxGPUsAtOnce int `json:"max_gpus_at_once,omitempty"`
	MaxGiBAtOnce  int `json:"max_gib_at_once,omitempty"`
	// Storages have limits of their own.
	Storages []Storage `json:"storages,omitempty"`
	// MaxPerHour is how many gangs may give way within an hour; 0 means
	// DefaultMaxPerHour.
	MaxPerHour int `json:"max_per_hour,omitempty"`
	// MaxPerJob is how often one job gives way; 0 means DefaultMaxPerJob.
	MaxPerJob int `json:"max_per_job,omitempty"`
	// RestartTime is what stopping and starting again takes, for each GPU; 0
	// means DefaultRestartTime.
	RestartTime time.Duration `json:"restart_time_ns,omitempty"`
	// MayReturn: who gave way may displace whom it gave way to. It is for the
	// caller to say of two jobs, not for an operator.
	MayReturn bool `json:"-"`
}

// The defaults of Policy. The gap is that of Nomad's own preemption.
const (
	DefaultMinPriorityGap = 10
	DefaultMaxAtOnce      = 16
	DefaultMaxPerHour     = 200
	DefaultMaxPerJob      = 5
	DefaultRestartTime    = time.Minute
)

// ErrPolicy is the error for a policy that cannot be.
var ErrPolicy = errors.New("invalid preemption policy")

// Validate reports every fault.
func (p Policy) Validate() error {
	var faults []error
	for _, q := range []struct {
		name  string
		value int
	}{{"min_priority_gap", p.MinPriorityGap}, {"max_at_once", p.MaxAtOnce}, {"max_gpus_at_once", p.MaxGPUsAtOnce}, {"max_gib_at_once", p.MaxGiBAtOnce}, {"max_per_hour", p.MaxPerHour}, {"max_per_job", p.MaxPerJob}} {
		if q.value < 0 {
			faults = append(faults, fmt.Errorf("%w: %s %d: want 0 or more", ErrPolicy, q.name, q.value))
		}
	}
	for _, q := range []struct {
		name  string
		value time.Duration
	}{{"min_run_time", p.MinRunTime}, {"restart_time", p.RestartTime}} {
		if q.value < 0 {
			faults = append(faults, fmt.Errorf("%w: %s %s: want 0 or more", ErrPolicy, q.name, q.value))
		}
	}
	return errors.Join(append(faults, p.validateStorages()...)...)
}

// WithDefaults is the policy with its zeros filled in.
func (p Policy) WithDefaults() Policy {
	fill := func(n *int, fallback int) {
		if *n == 0 {
			*n = fallback
		}
	}
	fill(&p.MinPriorityGap, DefaultMinPriorityGap)
	fill(&p.MaxAtOnce, DefaultMaxAtOnce)
	fill(&p.MaxPerHour, DefaultMaxPerHour)
	fill(&p.MaxPerJob, DefaultMaxPerJob)
	if p.RestartTime == 0 {
		p.RestartTime = DefaultRestartTime
	}
	return p
}

// GivesWay reports whether a job is one that gives way at all, sooner or later.
func (p Policy) GivesWay(j *model.Job) bool {
	return p.Enabled && j.Preempt != model.PreemptNever && (!p.SavedOnly || j.SavesWork())
}

// Rights say who may take room from whom.
type Rights interface {
	// MayDisplace reports whether victim must give way to preemptor if that
	// needs its room.
	MayDisplace(preemptor, victim *model.Job) bool
	// Why says why it must, or why not.
	Why(preemptor, victim *model.Job) string
}

// ByPriority are the rights of the higher priority.
type ByPriority struct {
	// Gap is by how much it must be higher, 1 or more.
	Gap int
}

// MayDisplace implements Rights.
func (r ByPriority) MayDisplace(preemptor, victim *model.Job) bool {
	return r.Beyond(preemptor.Priority, victim.Priority)
}

// Why implements Rights.
func (r ByPriority) Why(preemptor, victim *model.Job) string {
	return r.Words(preemptor.Priority, victim.Priority)
}

// Beyond reports whether one priority may displace the other.
func (r ByPriority) Beyond(preemptor, victim int) bool { return preemptor-victim >= max(1, r.Gap) }

// Words says why one priority may displace the other, or why not.
func (r ByPriority) Words(preemptor, victim int) string {
	text := fmt.Sprintf("priority %d against %d", preemptor, victim)
	if r.Beyond(preemptor, victim) {
		return text
	}
	return text + fmt.Sprintf("; a gap of %d is wanted", max(1, r.Gap))
}

// Exempt says why a job gives way to nobody at this time, or not to this one;
// "" if it may. No job gives way to one that gave way to it, unless MayReturn:
// nothing goes back and forth.
func (p Policy) Exempt(preemptor, victim *model.Job, now time.Time) string {
	switch p.exemption(preemptor, victim, now) {
	case exemptNever:
		return "it is never to be preempted"
	case exemptUnsaved:
		return "it saves nothing of what it has done, as far as is known"
	case exemptNew:
		return fmt.Sprintf("it has run for %s only; %s are granted", now.Sub(victim.Started).Round(time.Second), p.MinRunTime)
	case exemptOften:
		return fmt.Sprintf("it has given way %d times already", TimesGiven(victim))
	case exemptReturn:
		return "it displaced this one before"
	}
	return ""
}

// Exempts reports whether a job is exempt, without saying why.
func (p Policy) Exempts(preemptor, victim *model.Job, now time.Time) bool {
	return p.exemption(preemptor, victim, now) != exemptNot
}

// Stays reports whether a job is exempt as long as it runs, whatever limit is raised.
func (p Policy) Stays(preemptor, victim *model.Job) bool {
	p.MinRunTime, p.MaxPerJob = 0, math.MaxInt
	return p.exemption(preemptor, victim, victim.Started) != exemptNot
}

// Why a job is exempt.
const (
	exemptNot = iota
	exemptNever
	exemptUnsaved
	exemptNew
	exemptOften
	exemptReturn
)

func (p Policy) exemption(preemptor, victim *model.Job, now time.Time) int {
	switch {
	case victim.Preempt == model.PreemptNever:
		return exemptNever
	case p.SavedOnly && !victim.SavesWork():
		return exemptUnsaved
	case !victim.Started.IsZero() && now.Sub(victim.Started) < p.MinRunTime:
		return exemptNew
	case TimesGiven(victim) >= p.MaxPerJob:
		return exemptOften
	case p.MayReturn:
		return exemptNot
	}
	for _, gave := range preemptor.Preempted {
		if !gave.Returned && gave.By == victim.ID && gave.Namespace == victim.Namespace {
			return exemptReturn
		}
	}
	return exemptNot
}

// TimesGiven counts how often a job gave way, but for what it only gave back.
func TimesGiven(j *model.Job) int {
	n := 0
	for _, gave := range j.Preempted {
		if !gave.Returned {
			n++
		}
	}
	return n
}
