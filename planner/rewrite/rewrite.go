// Package rewrite turns a job and a placement into the job that Nomad must be
// given so that it does exactly that: gate, pin, release, and back to what the
// user wrote. It is pure, and everything that it returns is a copy.
//
// What is Caravan's in a job can be told from what is the user's, so that it
// can be taken out again: the gate is a constraint on a key of its own, and
// within a list of constraints everything from the marker on is Caravan's (or
// Nomad's, which appends what a job implies).
package rewrite

import (
	"errors"
	"slices"

	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/planner/gangspec"
)

// GateAttribute is what the gate looks at. No node may have this meta key: a
// node that has it with GateValue opens every gate.
const (
	GateAttribute = "${meta.caravan_gate}"
	GateValue     = "open"
)

const (
	nodeIDAttribute   = "${node.unique.id}"
	deviceIDAttribute = "${device.ids}"
	// deviceMarker stands first among the GPUs that a device block is pinned
	// to. No GPU is called so; it tells our constraint from a user's.
	deviceMarker = "caravan,"
)

// gate is the constraint that no node fulfils.
func gate() *api.Constraint { return api.NewConstraint(GateAttribute, "=", GateValue) }

// marker is a constraint that every node fulfils; what follows it in a list is
// Caravan's.
func marker() *api.Constraint {
	return api.NewConstraint(GateAttribute, api.ConstraintAttributeIsNotSet, "")
}

func isGate(c *api.Constraint) bool {
	if c == nil || c.LTarget != GateAttribute || c.RTarget != GateValue {
		return false
	}
	switch c.Operand {
	case "", "=", "==", "is":
		return true
	}
	return false
}

func isMarker(c *api.Constraint) bool {
	return c != nil && c.LTarget == GateAttribute && c.Operand == api.ConstraintAttributeIsNotSet
}

// IsGated says whether the job as a whole is gated: nothing of it is placed
// any more, though what runs may run on. A job of which only some groups are
// gated is not.
func IsGated(job *api.Job) bool {
	if job == nil {
		return false
	}
	if hasGate(job.Constraints) {
		return true
	}
	for _, g := range job.TaskGroups {
		if g != nil && !hasGate(g.Constraints) {
			return false
		}
	}
	return len(job.TaskGroups) > 0
}

// IsPinned says whether any of the job's groups carries pins of Caravan's.
func IsPinned(job *api.Job) bool {
	if job == nil {
		return false
	}
	for _, g := range job.TaskGroups {
		if g != nil && hasMarker(g.Constraints) {
			return true
		}
	}
	return false
}

// GatedWhole says whether the gate is on the job itself.
func GatedWhole(job *api.Job) bool { return job != nil && hasGate(job.Constraints) }

// MayPlace says whether Nomad may place members of a task group of a rewritten
// job: it is pinned and has no gate of its own.
func MayPlace(g *api.TaskGroup) bool {
	return g != nil && hasMarker(g.Constraints) && !hasGate(g.Constraints)
}

// Hold adds a gate to the groups of a pinned job that these members are in:
// what runs there runs on, and is not placed again. A group that has other
// members, too, is left as it is.
func Hold(pinned *api.Job, members []Place) {
	running := map[Place]bool{}
	inGroup := map[string]int{}
	for _, m := range members {
		running[m] = true
		inGroup[m.Group]++
	}
	for _, g := range pinned.TaskGroups {
		if group, index, split := Origin(g); split && running[Place{group, index}] {
			inGroup[group]--
		}
	}
	for _, g := range pinned.TaskGroups {
		group, index, split := Origin(g)
		whole := !split && inGroup[group] > 0 && inGroup[group] == gangspec.Count(g)
		if MayPlace(g) && (whole || split && running[Place{group, index}]) {
			g.Constraints = append(g.Constraints, gate())
		}
	}
}

// SamePins says whether two rewritten jobs place the same members in the same
// places; which of them are held does not matter.
func SamePins(a, b *api.Job) bool {
	x, errX := unheld(a)
	y, errY := unheld(b)
	return errX == nil && errY == nil && gangspec.Hash(x) == gangspec.Hash(y)
}

// unheld returns a copy without the gates of Hold.
func unheld(job *api.Job) (*api.Job, error) {
	out, err := submitted(job)
	if err != nil {
		return nil, err
	}
	for _, g := range out.TaskGroups {
		if hasMarker(g.Constraints) {
			g.Constraints = slices.DeleteFunc(g.Constraints, isGate)
		}
	}
	return out, nil
}

func hasGate(in []*api.Constraint) bool   { return indexOf(in, isGate) >= 0 }
func hasMarker(in []*api.Constraint) bool { return indexOf(in, isMarker) >= 0 }

func indexOf(in []*api.Constraint, match func(*api.Constraint) bool) int {
	for i, c := range in {
		if match(c) {
			return i
		}
	}
	return -1
}

// Gate returns the user's job with the gate, for a job of which nothing runs
// that must go on: a new one, or one that is rolled back.
func Gate(orig *api.Job) (*api.Job, error) {
	job, err := Strip(orig, nil)
	if err != nil {
		return nil, err
	}
	job.Constraints = append(job.Constraints, gate())
	identify(job.TaskGroups, nil)
	calmUpdates(job)
	return job, nil
}

// GateCurrent returns the job as it is in Nomad now with the gate added and
// nothing else changed, so that what runs of it runs on undisturbed.
func GateCurrent(cur *api.Job) (*api.Job, error) {
	job, err := submitted(cur)
	if err != nil {
		return nil, err
	}
	if !hasGate(job.Constraints) {
		job.Constraints = append(job.Constraints, gate())
	}
	return job, nil
}

// submitted is gangspec.Submitted of a job that must be there.
func submitted(job *api.Job) (*api.Job, error) {
	if job == nil {
		return nil, errors.New("rewrite a job: there is none")
	}
	return gangspec.Submitted(job)
}

// calmUpdates keeps Nomad from rolling a service job out step by step, which
// would take a gang apart. The user's own update blocks stay in the original.
func calmUpdates(job *api.Job) {
	if gangspec.Type(job) != api.JobTypeService {
		return
	}
	job.Update = &api.UpdateStrategy{MaxParallel: new(0)}
	// Nobody but Caravan rolls; see watchHealth for what the block says.
	for _, g := range job.TaskGroups {
		g.Update = nil
	}
}

func orEmpty(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

func nameOf(g *api.TaskGroup) string { return orEmpty(g.Name) }

func lookup(job *api.Job, name string) *api.TaskGroup {
	for _, g := range job.TaskGroups {
		if g != nil && nameOf(g) == name {
			return g
		}
	}
	return nil
}
