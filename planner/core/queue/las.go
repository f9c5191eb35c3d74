package queue

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"time"
)

// Least attained service: who has had least goes first, when nobody knows how
// long jobs run. What counts is GPUs times time (two-dimensional), in K queues
// by thresholds (discretised), so that jobs alike do not take turns for ever:
// within a queue it is first come, first served, and across queues the lower
// one displaces the higher one (Gu et al., Tiresias, NSDI'19, section 3.3). A
// job that waits Starve times as long as it ran is put back into the first
// queue, and what it had until then is not held against it any more (the
// paper's PROMOTEKNOB).

// LAS are the parameters of las and gittins.
type LAS struct {
	// Thresholds are where the next queue begins, in GPU-seconds, rising; none
	// means DefaultThresholds.
	Thresholds []float64 `json:"thresholds_gpu_s,omitempty"`
	// Starve is how many times as long as it ran a job waits until it is put back
	// into the first queue; 0 means DefaultStarve.
	Starve float64 `json:"starve,omitempty"`
}

// DefaultStarve lets a job that ran for an hour wait for eight.
const DefaultStarve = 8

// The most that LAS may say.
const (
	MaxThresholds   = 16
	MaxStarve       = 1e9
	MaxThreshold    = 1 << 50
	secondsOfHour   = 3600
	firstThreshold  = 1 * secondsOfHour
	secondThreshold = 16 * secondsOfHour
)

// DefaultThresholds are those of Policy.LAS where it names none: 1 and 16
// GPU-hours.
func DefaultThresholds() []float64 { return []float64{firstThreshold, secondThreshold} }

// Validate reports every fault.
func (l LAS) Validate() error {
	var faults []error
	if len(l.Thresholds) > MaxThresholds {
		faults = append(faults, fmt.Errorf("%w: las.thresholds_gpu_s: %d of them: want at most %d", ErrPolicy, len(l.Thresholds), MaxThresholds))
	}
	for i, t := range l.Thresholds {
		if !(t > 0 && t <= MaxThreshold) || i > 0 && t <= l.Thresholds[i-1] {
			faults = append(faults, fmt.Errorf("%w: las.thresholds_gpu_s[%d] %g: want more than 0 and than the one before, at most %d", ErrPolicy, i, t, MaxThreshold))
		}
	}
	if !(l.Starve >= 0 && l.Starve <= MaxStarve) {
		faults = append(faults, fmt.Errorf("%w: las.starve %g: want 0 to %g", ErrPolicy, l.Starve, MaxStarve))
	}
	return errors.Join(faults...)
}

// WithDefaults is l with its zeros filled in.
func (l LAS) WithDefaults() LAS {
	if len(l.Thresholds) == 0 {
		l.Thresholds = DefaultThresholds()
	}
	if l.Starve == 0 {
		l.Starve = DefaultStarve
	}
	return l
}

// las is the Discipline.
type las struct{ LAS }

func newLAS(p Policy) Discipline { return las{p.LAS.WithDefaults()} }

// Stand implements Discipline.
func (l las) Stand(s Situation) []Standing {
	out := s.standings()
	for i := range s.Jobs {
		out[i] = l.standing(&s.Jobs[i])
	}
	return out
}

// standing is the queue of one job; those of a queue go by age.
func (l las) standing(e *Entry) Standing {
	had, ran := e.Attained-e.Job.ForgottenGPUs, e.Ran-e.Job.ForgottenRan
	if !e.Running && ran > 0 && e.Rest.Seconds() >= l.Starve*ran.Seconds() && l.class(had) > 0 {
		return Standing{Forgets: true, Why: fmt.Sprintf("queue 1 of %d again, since it has waited %g times as long as the %s that it ran, or longer",
			len(l.Thresholds)+1, l.Starve, ran.Round(time.Second))}
	}
	class := l.class(had)
	why := fmt.Sprintf("queue %d of %d, after %s", class+1, len(l.Thresholds)+1, gpuTime(had))
	if e.Job.ForgottenGPUs > 0 {
		why += " since it was put back to the first"
	}
	return Standing{Class: class, Why: why}
}

// class is the queue for so many GPU-seconds.
func (l las) class(had float64) int {
	at, _ := slices.BinarySearch(l.Thresholds, math.Nextafter(had, math.Inf(1)))
	return at
}

// gpuTime says a number of GPU-seconds.
func gpuTime(seconds float64) string {
	switch {
	case seconds < 120:
		return fmt.Sprintf("%.0f GPU-seconds", math.Floor(seconds))
	case seconds < 2*secondsOfHour:
		return fmt.Sprintf("%.1f GPU-minutes", seconds/60)
	default:
		return fmt.Sprintf("%.1f GPU-hours", seconds/secondsOfHour)
	}
}
