package model

import (
	"strings"
	"time"
)

// What Job.Move may be, beside "".
const (
	// MoveNever: no other gang is worth a move of this one.
	MoveNever = "never"
)

// Moving is a place that is kept for a gang that was stopped to start again
// there. It is kept from the moment the gang is told to stop until it has been
// admitted there.
type Moving struct {
	// At is when it was decided, and Until when nobody waits for the gang there
	// any longer: then it takes its turn as others do.
	At    time.Time `json:"at"`
	Until time.Time `json:"until"`
	// Namespace and For name the job that the gang made room for.
	Namespace string `json:"namespace,omitempty"`
	For       string `json:"for"`
	// Group and Index name the gang as in Preempted.
	Group string `json:"group,omitempty"`
	Index int    `json:"index,omitempty"`
	// Members are where it is to start.
	Members []Member `json:"members"`
}

// Compaction is what a move of others would do for one gang that waits: see
// package core, Survey.
type Compaction struct {
	For JobName `json:"for"`
	// GPUs is how many it asks for; without any, its members.
	GPUs int `json:"gpus"`
	// WaitSeconds is how much longer it is expected to wait without the moves,
	// and Basis says what that rests on.
	WaitSeconds int64  `json:"wait_s"`
	Basis       string `json:"basis"`
	// Benefit is what the moves save, in GPU-seconds, and Cost what they lose.
	Benefit int64 `json:"benefit"`
	Cost    Cost  `json:"cost"`
	// Moves are the gangs that would be moved; none if that cannot be or is not
	// worth its cost.
	Moves []Preemption `json:"moves"`
	// Done: the plan moves them, or would if moving were enabled.
	Done bool `json:"done"`
	// Why is a sentence for people: what would be done, or why nothing is.
	Why string `json:"why"`
}

// validateMoving checks the places that are kept for a job. Nothing depends on
// them being there: one that is not any more is not kept.
func (j *Job) validateMoving(f *faults, i int, groups map[string]*TaskGroup) {
	switch j.Move {
	case "", MoveNever:
	default:
		f.add("jobs[%d] (%s).move: %q: want \"\" or %q", i, j.ID, j.Move, MoveNever)
	}
	for k := range j.Moving {
		m := &j.Moving[k]
		if strings.TrimSpace(m.For) == "" {
			f.add("jobs[%d] (%s).moving[%d].for: empty: want the job that it made room for", i, j.ID, k)
		}
		if m.Until.Before(m.At) {
			f.add("jobs[%d] (%s).moving[%d].until: %s: want no time before at, %s", i, j.ID, k, m.Until.Format(time.RFC3339), m.At.Format(time.RFC3339))
		}
		for n := range m.Members {
			to := &m.Members[n]
			if groups[to.Group] == nil {
				f.add("jobs[%d] (%s).moving[%d].members[%d].group: %q: is none of the job's groups", i, j.ID, k, n, to.Group)
			}
			if to.Index < 0 || to.Index > MaxCount {
				f.add("jobs[%d] (%s).moving[%d].members[%d].index: %d: want 0 to %d", i, j.ID, k, n, to.Index, MaxCount)
			}
		}
	}
}
