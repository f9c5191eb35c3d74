// Package recording holds what a planner decided on and what came of it, so
// that anyone can decide again elsewhere: for a bug report, or to see what
// another policy would have done. Scrub takes the names out of it.
package recording

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

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

// Difference is a job, or a running gang, about which two plans differ.
type Difference struct {
	Namespace string `json:"namespace,omitempty"`
	Job       string `json:"job"`
	// What differs: "action", "members", "reason", "detail", "preemption", "order".
	What string `json:"what"`
	Then string `json:"then,omitempty"`
	Now  string `json:"now,omitempty"`
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

// Compare lists what differs between two plans on one snapshot, by the order of
// the first.
func Compare(then, now *model.Plan) []Difference {
	var out []Difference
	after := make(map[model.JobName]*model.Decision, len(now.Decisions))
	for i := range now.Decisions {
		d := &now.Decisions[i]
		after[model.JobName{Namespace: d.Namespace, ID: d.Job}] = d
	}
	for i := range then.Decisions {
		a := &then.Decisions[i]
		name := model.JobName{Namespace: a.Namespace, ID: a.Job}
		b := after[name]
		delete(after, name)
		out = append(out, compareDecision(a, b)...)
		if b != nil && now.Decisions[min(i, len(now.Decisions)-1)].Job != a.Job && a.Action == b.Action && sameJSON(a, b) {
			out = append(out, Difference{Namespace: a.Namespace, Job: a.Job, What: "order"})
		}
	}
	for i := range now.Decisions {
		d := &now.Decisions[i]
		if after[model.JobName{Namespace: d.Namespace, ID: d.Job}] != nil {
			out = append(out, Difference{Namespace: d.Namespace, Job: d.Job, What: "action", Now: string(d.Action)})
		}
	}
	return append(out, comparePreemptions(then.Preemptions, now.Preemptions)...)
}

func compareDecision(a, b *model.Decision) []Difference {
	diff := func(what, then, now string) []Difference {
		return []Difference{{Namespace: a.Namespace, Job: a.Job, What: what, Then: then, Now: now}}
	}
	switch {
	case b == nil:
		return diff("action", string(a.Action), "")
	case a.Action != b.Action:
		return diff("action", string(a.Action), string(b.Action))
	case !sameJSON(a.Members, b.Members):
		return diff("members", text(a.Members), text(b.Members))
	case a.Reason != b.Reason:
		return diff("reason", a.Reason, b.Reason)
	case !sameJSON(a.Detail, b.Detail):
		return diff("detail", text(a.Detail), text(b.Detail))
	}
	return nil
}

func comparePreemptions(then, now []model.Preemption) []Difference {
	var out []Difference
	for i := range max(len(then), len(now)) {
		switch {
		case i >= len(then):
			out = append(out, Difference{Namespace: now[i].Namespace, Job: now[i].Job, What: "preemption", Now: now[i].Reason})
		case i >= len(now):
			out = append(out, Difference{Namespace: then[i].Namespace, Job: then[i].Job, What: "preemption", Then: then[i].Reason})
		case !sameJSON(then[i], now[i]):
			out = append(out, Difference{Namespace: then[i].Namespace, Job: then[i].Job, What: "preemption", Then: then[i].Reason, Now: now[i].Reason})
		}
	}
	return out
}

func sameJSON(a, b any) bool { return slices.Equal(encode(a), encode(b)) }

func text(v any) string { return string(encode(v)) }

// encode is a value's JSON; the plan's types always have one.
func encode(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		return []byte(err.Error())
	}
	return b
}
