package preempt

import (
	"cmp"
	"math/bits"
	"slices"

	"github.com/caravan-sched/caravan/planner/core/topo"
)

// A gang of equal members fits into a place when its nodes take enough of them. Then
// branch and bound need not ask the whole state at each step: it counts on two copies
// of the nodes, one without those who are taken, one with those who are left.

// counter is a branch and bound that counts.
type counter struct {
	*search
	place Place
	order []int
	// gives is, by place in the order, how many GPUs each leaves behind, and ranked are
	// those who leave any, the cheapest by the GPU first.
	gives  []int
	ranked []ranked
	// chosen is without those taken, rest without all who are not left.
	chosen, rest tally
}

type ranked struct {
	offer
	at int
}

// tally is how many members some nodes of a place take, and all of it.
type tally struct {
	rows  []topo.Row
	takes []int
	total int
	// was is how nodes were before each change, the last one last.
	was []before
}

// before is how a node was.
type before struct {
	slot, takes int
	row         topo.Row
}

// newCounter is nil where counting does not say whether the gang fits: members
// differ, victims go in an order, or hold something that others hold too.
func (s *search) newCounter(place Place, order []int) *counter {
	if s.Count == nil {
		return nil
	}
	b := &counter{search: s, place: place, order: order, gives: make([]int, len(order))}
	if s.slots == nil {
		s.slots = make([]int, s.State.Len())
	}
	for node := place.Lo; node < place.Hi; node++ {
		if len(s.on(node)) > 0 {
			s.slots[node] = len(b.rest.rows)
			row := *s.State.Row(node)
			b.rest.rows, b.rest.takes = append(b.rest.rows, row), append(b.rest.takes, s.Count(node, &row))
		}
	}
	b.rest.total = s.Room(place)
	b.chosen = tally{rows: slices.Clone(b.rest.rows), takes: slices.Clone(b.rest.takes), total: b.rest.total}
	for i, v := range order {
		if s.Victims[v].After >= 0 {
			return nil
		}
		for _, h := range s.Victims[v].Holds {
			if h.Node < place.Lo || h.Node >= place.Hi {
				continue
			}
			row := &b.rest.rows[s.slots[h.Node]]
			if row.GPUs&h.Claim.GPUs != 0 || len(h.Claim.Ports) > 0 || h.Claim.Usage != nil || row.Users != nil {
				return nil
			}
			row.Give(h.Claim)
			b.gives[i] += bits.OnesCount64(h.Claim.GPUs)
		}
		if b.gives[i] > 0 {
			b.ranked = append(b.ranked, ranked{offer{s.Victims[v].Cost, b.gives[i]}, i})
		}
	}
	for node := place.Lo; node < place.Hi; node++ {
		if len(s.on(node)) > 0 {
			b.rest.count(b, node)
		}
	}
	slices.SortFunc(b.ranked, func(a, b ranked) int { return cmp.Compare(a.cost*int64(b.gpus), b.cost*int64(a.gpus)) })
	return b
}

// count counts again what a node takes.
func (t *tally) count(b *counter, node int32) {
	slot := b.slots[node]
	now := b.Count(node, &t.rows[slot])
	t.total, t.takes[slot] = t.total+now-t.takes[slot], now
}

// change lets a victim go, or come back, until revert with what it returns.
func (t *tally) change(b *counter, v int, goes bool) (undo int) {
	undo = len(t.was)
	for _, h := range b.Victims[v].Holds {
		if h.Node < b.place.Lo || h.Node >= b.place.Hi {
			continue
		}
		slot := b.slots[h.Node]
		t.was = append(t.was, before{slot, t.takes[slot], t.rows[slot]})
		if goes {
			t.rows[slot].Give(h.Claim)
		} else {
			t.rows[slot].Take(h.Claim)
		}
		t.count(b, h.Node)
	}
	return undo
}

func (t *tally) revert(undo int) {
	for _, w := range slices.Backward(t.was[undo:]) {
		t.total += w.takes - t.takes[w.slot]
		t.rows[w.slot], t.takes[w.slot] = w.row, w.takes
	}
	t.was = t.was[:undo]
}

// least is the least that so many GPUs cost of those from i on, as fraction says it:
// equals in price may come in any order.
func (b *counter) least(i, lacking int) (int64, bool) {
	if lacking <= 0 {
		return 0, true
	}
	var cost int64
	for _, o := range b.ranked {
		if o.at < i {
			continue
		}
		if o.gpus >= lacking {
			return cost + o.cost*int64(lacking)/int64(o.gpus), true
		}
		cost, lacking = cost+o.cost, lacking-o.gpus
	}
	return cost, false
}

// at does what brancher.at does, and spends as much of the budget.
func (b *counter) at(i int, chosen []int, cost int64, free int) bool {
	if b.budget <= 0 {
		return false
	}
	least, ok := b.least(i, b.GPUs-free)
	if !ok || b.worse(chosen, cost+least) {
		return true
	}
	if len(chosen) > 0 {
		if b.spend(len(chosen)); b.chosen.total >= b.Members {
			b.offer(b.place, slices.Clone(chosen))
			return true
		}
	}
	if i == len(b.order) {
		return true
	}
	v, done := b.order[i], true
	b.spend(len(chosen) + len(b.order) - i - 1)
	undo := b.rest.change(b, v, false)
	if b.rest.total >= b.Members {
		done = b.at(i+1, chosen, cost, free)
	}
	b.rest.revert(undo)
	undo = b.chosen.change(b, v, true)
	taken := b.at(i+1, append(chosen[:len(chosen):len(chosen)], v), cost+b.Victims[v].Cost, free+b.gives[i])
	b.chosen.revert(undo)
	return taken && done
}
