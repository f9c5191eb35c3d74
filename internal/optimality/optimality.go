// Package optimality measures how good decisions are: on random small clusters
// it compares what core.Decide does with what trying everything finds. The
// search shares no code with the planner.
package optimality

import (
	"fmt"
	"slices"

	"github.com/caravan-sched/caravan/planner/core"
	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/core/preempt"
)

// Report is how often, and by how much, decisions are worse than the best.
type Report struct {
	Seed uint64 `json:"seed"`
	// Clusters is how many were drawn, with one gang that waits in each.
	Clusters  int       `json:"clusters"`
	Placement Placement `json:"placement"`
	Victims   Victims   `json:"victims"`
	// Faults are the clusters on which a decision was worse, or not legal, the
	// first few of them.
	Faults []Fault `json:"faults"`
	decide decide
}

// Placement compares where gangs go, with nobody giving way.
type Placement struct {
	// Possible counts the gangs for which there is a place.
	Possible int `json:"possible"`
	// Placed counts those that were placed, Missed those left waiting although
	// there is a place, and Phantom those placed where there is none.
	Placed  int `json:"placed"`
	Missed  int `json:"missed"`
	Phantom int `json:"phantom"`
	// Same counts those in a domain that costs no more than the best one, by
	// level, islands and what is left in it.
	Same int `json:"same_domain_cost"`
	// WorseLevel counts those in a wider level than need be, and Spare is the room
	// that the others left over beyond the least, in members.
	WorseLevel int     `json:"worse_level"`
	Spare      int     `json:"worse_spare_members"`
	SameShare  float64 `json:"same_domain_cost_share"`
}

// Victims compares who gives way.
type Victims struct {
	// Possible counts the gangs for which others can make room.
	Possible int `json:"possible"`
	// Made counts those for which they do, Missed those left waiting, and Needless
	// those for which somebody gives way who need not, or in vain.
	Made     int `json:"made"`
	Missed   int `json:"missed"`
	Needless int `json:"needless"`
	// Cheapest counts those that cost no more than the cheapest set.
	Cheapest      int     `json:"cheapest"`
	CheapestShare float64 `json:"cheapest_share"`
	// ExtraCost is what the others cost beyond that, in GPU-seconds, and its part
	// of the cost of all.
	ExtraCost  int64   `json:"extra_cost"`
	ExtraShare float64 `json:"extra_cost_share"`
}

// Fault is one cluster on which a decision was worse than it could be.
type Fault struct {
	Cluster  uint64          `json:"cluster"`
	What     string          `json:"what"`
	Reason   string          `json:"reason"`
	Snapshot *model.Snapshot `json:"snapshot,omitempty"`
}

// maxFaults is how many clusters are told of.
const maxFaults = 20

// decide is core.Decide, or what a test has instead.
type decide func(*model.Snapshot, core.Policy) (*model.Plan, error)

// Measure draws n clusters and compares.
func Measure(n int, seed uint64) (*Report, error) { return measure(n, seed, core.Decide) }

func measure(n int, seed uint64, do decide) (*Report, error) {
	r := &Report{Seed: seed, Clusters: n, Faults: []Fault{}, decide: do}
	total := int64(0)
	for i := range uint64(n) {
		d := newDrawer(seed, i)
		s := d.cluster()
		s.Jobs = append(s.Jobs, d.gang())
		if err := r.place(i, s); err != nil {
			return nil, err
		}
		cost, err := r.displace(i, s)
		if err != nil {
			return nil, err
		}
		total += cost
	}
	r.Placement.SameShare = share(int64(r.Placement.Same), int64(r.Placement.Possible))
	r.Victims.CheapestShare = share(int64(r.Victims.Cheapest), int64(r.Victims.Possible))
	r.Victims.ExtraShare = 1 - share(total, total+r.Victims.ExtraCost)
	return r, nil
}

func share(part, of int64) float64 {
	if of == 0 {
		return 1
	}
	return float64(part) / float64(of)
}

func (r *Report) fault(i uint64, s *model.Snapshot, reason, format string, args ...any) {
	if len(r.Faults) < maxFaults {
		r.Faults = append(r.Faults, Fault{i, fmt.Sprintf(format, args...), reason, s})
	}
}

// place compares one placement.
func (r *Report) place(i uint64, s *model.Snapshot) error {
	j := &s.Jobs[len(s.Jobs)-1]
	plan, err := r.decide(s, core.Policy{})
	if err != nil {
		return fmt.Errorf("decide on cluster %d: %w", i, err)
	}
	d, free := decisionOn(plan, j.ID), rooms(s, nil)
	want, possible := best(s, free, j)
	placed := d.Action == model.ActionAdmit
	p := &r.Placement
	switch {
	case placed && !possible:
		p.Phantom++
		r.fault(i, s, d.Reason, "is placed where there is no place")
		return nil
	case !possible:
		return nil
	case !placed:
		p.Possible++
		p.Missed++
		r.fault(i, s, d.Reason, "waits although there is a place")
		return nil
	}
	p.Possible++
	p.Placed++
	got, legal := costAt(s, free, j, d.Members)
	switch {
	case !legal:
		p.Phantom++
		r.fault(i, s, d.Reason, "is placed where it must not be")
	case !got.worse(want):
		p.Same++
	default:
		if got.level > want.level {
			p.WorseLevel++
		} else {
			p.Spare += got.spare - want.spare
		}
		r.fault(i, s, d.Reason, "is in %v, where the best is %v", got, want)
	}
	return nil
}

// costAt is the cost of the tightest domain around some members; false if no
// legal one holds them.
func costAt(s *model.Snapshot, free []room, j *model.Job, members []model.Member) (cost, bool) {
	asks := asksOf(j)
	for level, list := range domains(s, free, j) {
		for _, d := range list {
			if holds(d, members) {
				c := costIn(d, level, j, asks)
				if c.across == 0 && len(j.Groups) == 1 && (d.level == model.LevelNode || d.level == model.LevelIsland) && anyAcross(s, members) {
					c.across = 1
				}
				return c, len(members) == len(asks)
			}
		}
	}
	return cost{}, false
}

// holds reports whether all members are in a domain, on GPUs that are free in it.
func holds(d domain, members []model.Member) bool {
	used := map[string][]int{}
	for _, m := range members {
		at := slices.IndexFunc(d.rooms, func(r room) bool { return r.node.ID == m.Node })
		if at < 0 {
			return false
		}
		r := &d.rooms[at]
		if used[m.Node] == nil {
			used[m.Node] = make([]int, len(r.islands))
		}
		for _, g := range r.node.GPUs {
			if slices.Contains(m.GPUs, g.UUID) {
				used[m.Node][g.Island]++
			}
		}
	}
	for _, r := range d.rooms {
		for k, n := range used[r.node.ID] {
			if n > r.islands[k] {
				return false
			}
		}
	}
	return true
}

// anyAcross reports whether a member's GPUs are in several islands.
func anyAcross(s *model.Snapshot, members []model.Member) bool {
	for _, m := range members {
		node := &s.Nodes[slices.IndexFunc(s.Nodes, func(n model.Node) bool { return n.ID == m.Node })]
		islands := map[int]bool{}
		for _, g := range node.GPUs {
			if slices.Contains(m.GPUs, g.UUID) {
				islands[g.Island] = true
			}
		}
		if len(islands) > 1 {
			return true
		}
	}
	return false
}

// displace compares who gives way, and returns what the cheapest set costs where
// somebody has to.
func (r *Report) displace(i uint64, s *model.Snapshot) (int64, error) {
	j := &s.Jobs[len(s.Jobs)-1]
	plan, err := r.decide(s, core.Policy{Preempt: preempt.Policy{Enabled: true, MaxAtOnce: 1000, MaxPerHour: 1000}})
	if err != nil {
		return 0, fmt.Errorf("decide on cluster %d: %w", i, err)
	}
	d, got := decisionOn(plan, j.ID), int64(0)
	gone := map[string]bool{}
	for _, p := range plan.Preemptions {
		got += p.Cost.Total()
		for _, a := range s.Allocs {
			if a.Job == p.Job && slices.ContainsFunc(p.Members, func(m model.Member) bool { return m.Group == a.Group && m.Index == a.Index }) {
				gone[a.ID] = true
			}
		}
	}
	made := len(gone) > 0
	_, fits := best(s, rooms(s, nil), j)
	_, helps := best(s, rooms(s, gone), j)
	if made && (fits || !helps) {
		r.Victims.Needless++
		r.fault(i, s, d.Reason, "others give way for nothing")
	}
	if fits {
		return 0, nil
	}
	want, possible := cheapest(s, j)
	if !possible {
		return 0, nil
	}
	v := &r.Victims
	v.Possible++
	switch {
	case !made:
		v.Missed++
		r.fault(i, s, d.Reason, "waits although others can make room for %d GPU-seconds", want)
		return want, nil
	case got <= want:
		v.Cheapest++
	default:
		v.ExtraCost += got - want
		r.fault(i, s, d.Reason, "costs %d GPU-seconds, the cheapest set costs %d", got, want)
	}
	v.Made++
	return want, nil
}

func decisionOn(plan *model.Plan, job string) model.Decision {
	return plan.Decisions[slices.IndexFunc(plan.Decisions, func(d model.Decision) bool { return d.Job == job })]
}
