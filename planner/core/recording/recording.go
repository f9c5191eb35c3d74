// Package recording holds what a planner decided on and what came of it, so
// that anyone can decide again elsewhere: for a bug report, or to see what
// another policy would have done. Scrub takes the names out of it.
package recording

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/caravan-sched/caravan/planner/core"
	"github.com/caravan-sched/caravan/planner/core/model"
)

// Version is the version of the JSON form.
const Version = 1

// ErrRecording is the error for a document that is no recording.
var ErrRecording = errors.New("invalid recording")

// Recording is one decision: its input and, where it is known, its result.
type Recording struct {
	// Recording is Version. It tells a recording from a bare snapshot.
	Recording int `json:"recording"`
	// Planner is the version of the program that decided.
	Planner string `json:"planner,omitempty"`
	// Policy is how the queue was worked.
	Policy   core.Policy     `json:"policy"`
	Snapshot *model.Snapshot `json:"snapshot"`
	// Plan is what was decided; nil where that is not known, or was scrubbed.
	Plan *model.Plan `json:"plan,omitempty"`
	// Scrubbed is set where names were taken out; Reproduced then says whether
	// deciding again gave the same plan before they were.
	Scrubbed   bool  `json:"scrubbed,omitempty"`
	Reproduced *bool `json:"reproduced,omitempty"`
}

// Decode reads a recording, or a bare snapshot, whose policy is then the zero
// one. bare tells which. All faults of the snapshot are in the error.
func Decode(data []byte) (r *Recording, bare bool, err error) {
	var head struct {
		Recording *int `json:"recording"`
	}
	// Broken JSON, and what else is no recording, is for the snapshot's decoder
	// to tell of, with its place.
	if json.Unmarshal(data, &head) != nil || head.Recording == nil {
		s, err := model.DecodeSnapshot(bytes.NewReader(data))
		if err != nil {
			return nil, true, err
		}
		return &Recording{Recording: Version, Snapshot: s}, true, nil
	}
	if *head.Recording != Version {
		return nil, false, fmt.Errorf("%w: recording %d: want %d; use the caravan of the version that wrote it", ErrRecording, *head.Recording, Version)
	}
	var body struct {
		Recording
		Snapshot json.RawMessage `json:"snapshot"`
	}
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&body); err != nil {
		return nil, false, fmt.Errorf("%w: %w", ErrRecording, err)
	}
	r = &body.Recording
	if err := r.Policy.Validate(); err != nil {
		return nil, false, fmt.Errorf("%w: %w", ErrRecording, err)
	}
	if r.Snapshot, err = model.DecodeSnapshot(bytes.NewReader(body.Snapshot)); err != nil {
		return nil, false, err
	}
	return r, false, nil
}

// Replay decides again, and compares with the plan recorded, where there is
// one.
func Replay(r *Recording, policy core.Policy) (*model.Plan, []Difference, error) {
	plan, err := core.Decide(r.Snapshot, policy)
	if err != nil {
		return nil, nil, fmt.Errorf("decide again: %w", err)
	}
	if r.Plan == nil {
		return plan, nil, nil
	}
	return plan, Compare(r.Plan, plan), nil
}
