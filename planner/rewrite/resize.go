package rewrite

import (
	"slices"
	"strconv"
	"strings"

	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/gangspec"
)

// A job of which members run can have another count than what runs. Nomad
// restarts a member when the meta of its group changes, and not when a
// constraint does: so the user's count stands in a constraint that every node
// fulfils, behind the marker.

// countPrefix starts the value of that constraint.
const countPrefix = "count-"

func countIs(n int) *api.Constraint {
	return api.NewConstraint(GateAttribute, "!=", countPrefix+strconv.Itoa(n))
}

// userCount is the count that the user gave to the group of a rewritten job
// that this one belongs to; false where the group's own count says it.
func userCount(g *api.TaskGroup) (int, bool) {
	at := indexOf(g.Constraints, isMarker)
	for i := max(at, 0); at >= 0 && i < len(g.Constraints); i++ {
		c := g.Constraints[i]
		if c == nil || c.LTarget != GateAttribute || c.Operand != "!=" {
			continue
		}
		if text, ok := strings.CutPrefix(c.RTarget, countPrefix); ok {
			if n, err := strconv.Atoi(text); err == nil && n >= 0 {
				return n, true
			}
		}
	}
	n, err := strconv.Atoi(g.Meta[gangspec.KeyCount])
	return n, err == nil
}

// forms are the pinned groups of a job as it is in Nomad, by name: what runs
// there keeps its form.
func forms(cur *api.Job) map[string]*api.TaskGroup {
	out := map[string]*api.TaskGroup{}
	if cur == nil {
		return out
	}
	for _, g := range cur.TaskGroups {
		if g != nil && hasMarker(g.Constraints) {
			out[nameOf(g)] = g
		}
	}
	return out
}

// metaCount is what a member's task sees as the count of its group: what it
// was when the member was placed, since another value would restart it.
func (p *pinner) metaCount(split string, total int) string {
	if f := p.forms[split]; f != nil && f.Meta[gangspec.KeyCount] != "" {
		return f.Meta[gangspec.KeyCount]
	}
	return strconv.Itoa(total)
}

// alone says whether the first of a group's members that start one by one runs
// in the user's own group: it was the only one when it was placed.
func (p *pinner) alone(g *api.TaskGroup) bool {
	if p.gang != model.GangNone {
		return false
	}
	is := false
	for _, f := range p.forms {
		group, _, split := Origin(f)
		if group == nameOf(g) && !split {
			return true
		}
		is = is || group == nameOf(g)
	}
	return !is && gangspec.Count(g) == 1
}

// elastic are the bounds between which a group's gang may have another size
// than the user's count, and still be pinned without task groups of its own;
// false if it may not.
func (p *pinner) elastic(g *api.TaskGroup) (bounds gangspec.Bounds, ok bool) {
	if p.gang == model.GangNone {
		return bounds, false
	}
	at := slices.IndexFunc(p.bounds, func(b gangspec.Bounds) bool { return b.Group == nameOf(g) })
	if at < 0 || !p.bounds[at].Elastic() {
		return bounds, false
	}
	return p.bounds[at], true
}

// limit is one more than the highest index that a member of the group may have.
func (p *pinner) limit(g *api.TaskGroup) int {
	count := gangspec.Count(g)
	if b, ok := p.elastic(g); ok {
		return max(count, b.Max)
	}
	return count
}

// resized says whether so many members are a whole gang though the count is
// another one.
func (p *pinner) resized(g *api.TaskGroup, members []model.Member) bool {
	b, ok := p.elastic(g)
	return ok && b.Min <= len(members) && len(members) <= b.Max && !p.shares(members) && !p.lists(nameOf(g), members)
}

// shares says whether two of the members are on one node.
func (p *pinner) shares(members []model.Member) bool {
	nodes := map[string]bool{}
	for _, m := range members {
		if nodes[m.Node] {
			return true
		}
		nodes[m.Node] = true
	}
	return false
}

// lists says whether the pin of these members names their GPUs.
func (p *pinner) lists(group string, members []model.Member) bool {
	if is, known := p.listed[group]; known {
		return is
	}
	return slices.ContainsFunc(members, func(m model.Member) bool { return !p.whole(m) })
}

// size gives a pinned group the number of members that it has.
func (p *pinner) size(g *api.TaskGroup, n int) {
	count := gangspec.Count(g)
	if n == count {
		return
	}
	g.Count = &n
	if s := g.Scaling; s != nil && (s.Min != nil && int64(n) < *s.Min || s.Max != nil && int64(n) > *s.Max) {
		// Nomad refuses a count outside of the bounds.
		g.Scaling = nil
	}
	g.Constraints = append(g.Constraints, countIs(count))
}

// Resizable says whether the gang that these members of a group make can grow
// and shrink where it runs: each has a node of its own and all GPUs of it, of
// which it has some. cur is the job as it is in Nomad; see Repin.
func Resizable(cur *api.Job, group string, members []model.Member, c *Cluster) bool {
	p := &pinner{cluster: c, listed: listed(cur)}
	for _, m := range members {
		if m.Group != group || len(m.GPUs) == 0 || c.byID[m.Node] == nil {
			return false
		}
	}
	return len(members) > 0 && !p.shares(members) && !p.lists(group, members)
}

// Resize says what stays where it runs when a version of a job differs from
// the one before in counts only: kept, of the members in force, and anew, the
// groups whose gangs are placed as a whole once more. Members beyond the count
// of a gang stay for now: which of them Nomad stops, their allocations say. It
// is false if the whole job must be placed anew. cur is the job as it is in
// Nomad, levels are the operator's, as for gangspec.Parse.
func Resize(cur, before, next *api.Job, members []model.Member, c *Cluster, levels ...string) (kept []model.Member, anew []string, ok bool) {
	changes, ok := gangspec.Resizes(before, next, levels...)
	spec, err := gangspec.Parse(next, levels...)
	if !ok || err != nil || len(members) == 0 {
		return nil, nil, false
	}
	kept = slices.Clone(members)
	for _, change := range changes {
		of := func(m model.Member) bool { return m.Group == change.Group }
		inGroup := slices.DeleteFunc(slices.Clone(kept), func(m model.Member) bool { return !of(m) })
		elastic := slices.ContainsFunc(spec.Groups, func(b gangspec.Bounds) bool { return b.Group == change.Group && b.Elastic() })
		ended := slices.ContainsFunc(members, func(m model.Member) bool { return m.Ended && (spec.Gang == model.GangJob || of(m)) })
		switch {
		case spec.Gang == model.GangNone:
			kept = slices.DeleteFunc(kept, func(m model.Member) bool { return of(m) && m.Index >= change.To })
		case elastic && !ended && Resizable(cur, change.Group, inGroup, c):
		case spec.Gang == model.GangJob:
			return nil, nil, false
		default:
			kept = slices.DeleteFunc(kept, of)
			anew = append(anew, change.Group)
		}
	}
	return kept, anew, len(kept) > 0
}

// Close adds a gate to groups of a pinned job, by the user's names: what runs
// there runs on, and nothing more is placed.
func Close(pinned *api.Job, groups []string) {
	for _, g := range pinned.TaskGroups {
		if group, _, _ := Origin(g); MayPlace(g) && slices.Contains(groups, group) {
			g.Constraints = append(g.Constraints, gate())
		}
	}
}

// restMark stands behind the name of a group of the user's in the name of the
// group of its members that have no place yet.
const restMark = "-rest"

// restName is the name of the group of those members that have no place yet
// while the user's own group has a member: GROUP-rest, with underscores behind
// it if the job has a group of that name.
func restName(orig *api.Job, group string) string {
	name := group + restMark
	for lookup(orig, name) != nil {
		name += "_"
	}
	return name
}
