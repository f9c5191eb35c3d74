package place

import (
	"math"
	"slices"

	"github.com/caravan-sched/caravan/planner/core/topo"
)

// quota is a distinct_property constraint during an attempt.
type quota struct {
	part int // -1: all
	// ids is the value of every node, left how many members more each value
	// takes.
	ids  []int32
	left []int
	// room is scratch, by value, all 0 between uses.
	room []int
}

// quotaUse is members counted on a node.
type quotaUse struct {
	part  int
	node  int32
	count int
}

func (q *quota) applies(part int) bool { return q.part < 0 || q.part == part }

// openQuotas makes the unit's quotas ready for an attempt.
func (a *attempt) openQuotas() {
	for i := range a.unit.Quotas {
		q := &a.unit.Quotas[i]
		ids, values := a.Catalog.Nodes.Values(q.Target)
		left := make([]int, len(values))
		for k, text := range values {
			left[k] = max(0, q.Limit-q.Used[text])
		}
		a.quotas = append(a.quotas, quota{q.Part, ids, left, make([]int, len(values))})
	}
}

// hasQuota reports whether a part has a distinct_property constraint.
func (a *attempt) hasQuota(part int) bool {
	return slices.ContainsFunc(a.quotas, func(q quota) bool { return q.applies(part) })
}

// leftOn is how many members of a part the quotas still let onto a node.
func (a *attempt) leftOn(part int, node int32) int {
	left := math.MaxInt
	for i := range a.quotas {
		if q := &a.quotas[i]; q.applies(part) {
			left = min(left, q.left[q.ids[node]])
		}
	}
	return left
}

// useQuota counts members on a node against the quotas of their part, which
// must let them.
func (a *attempt) useQuota(part int, node int32, count int) {
	for i := range a.quotas {
		if q := &a.quotas[i]; q.applies(part) {
			q.left[q.ids[node]] -= count
		}
	}
	a.counted = append(a.counted, quotaUse{part, node, count})
}

// freeQuotas takes back what was counted since a.counted was that long.
func (a *attempt) freeQuotas(mark int) {
	for _, u := range a.counted[mark:] {
		for i := range a.quotas {
			if q := &a.quotas[i]; q.applies(u.part) {
				q.left[q.ids[u.node]] += u.count
			}
		}
	}
	a.counted = a.counted[:mark]
}

// quotasLet reports whether each quota by itself lets the members that it
// counts into [lo, hi), where summaries say for each part in order what the
// nodes take. For one part with one quota that is all there is to it.
func (a *attempt) quotasLet(summaries []*topo.Summary, lo, hi int32, island bool) bool {
	for i := range a.quotas {
		q, need := &a.quotas[i], 0
		var counted []*topo.Summary
		for k, part := range a.order {
			if q.applies(part) {
				counted, need = append(counted, summaries[k]), need+a.unit.Parts[part].Count
			}
		}
		if need > 0 && q.lets(counted, lo, hi, island) < need {
			return false
		}
	}
	return true
}

// lets is how many members at most fit into [lo, hi) under the quota.
func (q *quota) lets(summaries []*topo.Summary, lo, hi int32, island bool) int {
	total := 0
	for node := lo; node < hi; node++ {
		n := 0
		for _, s := range summaries {
			if f := s.Fit(node); island {
				n += int(f.Island)
			} else {
				n += int(f.Members)
			}
		}
		if n == 0 {
			continue
		}
		id := q.ids[node]
		n = min(n, q.left[id]-q.room[id])
		q.room[id] += n
		total += n
	}
	for node := lo; node < hi; node++ {
		q.room[q.ids[node]] = 0
	}
	return total
}

// spreadByQuota distributes n members over [lo, hi) one node after the other,
// best node first, as far as the quotas let it, and counts them; false if not
// all find a place. It is exact where one quota applies.
func (a *attempt) spreadByQuota(p *profile, part, n int, lo, hi int32) (out []share, ok bool) {
	var nodes []uint64 // by score, then by number
	for node := lo; node < hi; node++ {
		if f := p.summary.Fit(node); f.Members > 0 && a.leftOn(part, node) > 0 {
			nodes = append(nodes, uint64(f.Score)<<32|uint64(node))
		}
	}
	slices.Sort(nodes)
	for _, key := range nodes {
		node := int32(key & math.MaxUint32)
		take := min(int(p.summary.Fit(node).Members), n, a.leftOn(part, node))
		if take <= 0 {
			continue
		}
		a.useQuota(part, node, take)
		out = append(out, share{node, take})
		if n -= take; n == 0 {
			return out, true
		}
	}
	return out, false
}

// taken reports whether distinct_hosts forbids the node to the part.
func (a *attempt) taken(part int, node int32) bool {
	return part < len(a.unit.TakenByPart) && slices.Contains(a.unit.TakenByPart[part], node)
}
