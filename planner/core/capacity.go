package core

import (
	"cmp"
	"fmt"
	"math/bits"
	"slices"
	"time"

	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/core/queue"
	"github.com/caravan-sched/caravan/planner/core/topo"
)

// Capacity for queues. Which GPUs count for which reservation is found out once,
// for all of them together, so that no GPU counts for two that hold at the same
// time.

// share is what counts for one reservation of capacity.
type share struct {
	r           *model.Reservation
	from, until time.Duration
	nodes       []int32
	// used is, by node, what its queue holds already, and kept what is kept
	// besides; free counts those of the latter that are free, left how many are
	// not to be had.
	used, kept map[int32]uint64
	free, left int
}

// meets reports whether two hold at the same time.
func (s *share) meets(o *share) bool { return s.from < o.until && o.from < s.until }

// keepCapacity keeps GPUs for queues: beside those that they use, free ones, or
// what becomes free.
func (a *ahead) keepCapacity(shares map[int]*share) {
	var order []int
	for i := range a.c.apart {
		if shares[i] != nil {
			order = append(order, i)
		}
	}
	a.assign(order, shares)
	for _, i := range order {
		s, use := shares[i], &a.c.uses[i]
		use.GPUs, use.Used = s.r.GPUs, count(s.used)
		for _, node := range s.nodes {
			if mask := s.kept[node] | s.keptAgain(node); mask != 0 {
				a.book(node, booking{from: s.from, until: s.until, claim: topo.Claim{GPUs: mask}, name: "what is kept for " + queueWords(s.r.Queue), queue: s.r.Queue})
			}
		}
		use.Reason = fmt.Sprintf("queue %s uses %d of them, %d are free for it", s.r.Queue, use.Used, s.free)
		if s.r.Queue == interactiveQueue {
			use.Reason = fmt.Sprintf("interactive jobs use %d of them, %d are free for them", use.Used, s.free)
		}
		switch missing := s.r.GPUs - use.Used - s.free; {
		case s.left > 0:
			use.Reason += fmt.Sprintf("; %d of %d are not there: keep fewer, or on more nodes", s.left, s.r.GPUs)
		case missing > 0:
			use.Reason += fmt.Sprintf(", %d more as soon as others have ended", missing)
		}
		a.c.queuesApart = append(a.c.queuesApart, s.r.Queue)
		if s.from <= 0 && s.r.Queue != interactiveQueue {
			a.c.inShares = append(a.c.inShares, inShare{queue: s.r.Queue, used: s.used, nodes: s.nodes, left: s.r.GPUs - use.Used})
		}
	}
	for _, i := range order {
		for _, node := range shares[i].nodes {
			if shares[i].kept[node]|shares[i].keptAgain(node) != 0 {
				a.c.keepClear(node)
			}
		}
	}
}

// keptAgain is what of a node the queue uses: when that is left it is kept for the
// queue once more, so nobody else gets it. What is kept for interactive jobs goes
// where nodes are in pieces by then.
func (s *share) keptAgain(node int32) uint64 {
	if s.r.Queue == interactiveQueue {
		return 0
	}
	return s.used[node]
}

func count(masks map[int32]uint64) (n int) {
	for _, mask := range masks {
		n += bits.OnesCount64(mask)
	}
	return n
}

// assign finds what counts for each reservation. Those with the least to choose
// from go first; where some find too little, these go first once more.
func (a *ahead) assign(order []int, shares map[int]*share) {
	slack := map[int]int{}
	for _, i := range order {
		for _, node := range shares[i].nodes {
			slack[i] += bits.OnesCount64(a.usable(node))
		}
		slack[i] -= shares[i].r.GPUs
	}
	narrow := func(i int) int {
		if r := shares[i].r; r.Level != "" && r.Domain == "" {
			return 0
		}
		return 1
	}
	try := slices.Clone(order)
	slices.SortStableFunc(try, func(x, y int) int {
		return cmp.Or(cmp.Compare(narrow(x), narrow(y)), cmp.Compare(slack[x], slack[y]), cmp.Compare(len(shares[y].r.Queue), len(shares[x].r.Queue)))
	})
	var best []share
	least := -1
	for range len(order) + 1 {
		short, left := map[int]bool{}, 0
		found := make([]share, 0, len(try))
		for _, i := range try {
			s := *shares[i]
			s.used, s.kept = map[int32]uint64{}, map[int32]uint64{}
			a.fill(&s, found)
			found, left, short[i] = append(found, s), left+s.left, s.left > 0
		}
		if least < 0 || left < least {
			best, least = found, left
		}
		if left == 0 {
			break
		}
		slices.SortStableFunc(try, func(x, y int) int { return queue.Before(short[x], short[y]) })
	}
	for k := range best {
		for _, i := range order {
			if shares[i].r == best[k].r {
				*shares[i] = best[k]
			}
		}
	}
}

// usable are the GPUs of a node that can be kept.
func (a *ahead) usable(node int32) uint64 {
	if a.c.views[viewTrue].State.Row(node).Closed {
		return 0
	}
	return a.c.emptyRow(node).GPUs
}

// fill finds what counts for one reservation beside what counts for others: what
// its queue uses, then whole nodes where they can be had, those first where the
// most is free or its own.
func (a *ahead) fill(s *share, others []share) {
	state := a.c.views[viewTrue].State
	counted := func(node int32) (mask uint64) {
		for i := range others {
			if o := &others[i]; o.meets(s) {
				mask |= o.used[node] | o.kept[node]
			}
		}
		return mask
	}
	mine := func(node int32) uint64 { return a.maskOf(node, s.r.Queue) &^ counted(node) }
	free := func(node int32) uint64 { return state.Row(node).GPUs & a.usable(node) &^ counted(node) }
	if s.r.Level != "" && s.r.Domain == "" {
		s.nodes = a.bestForQueue(s.r, s.nodes, func(node int32) (int, int) {
			own := mine(node)
			return bits.OnesCount64(own | a.usable(node)&^counted(node)), 2*bits.OnesCount64(own) + bits.OnesCount64(free(node))
		})
	}
	s.left = s.r.GPUs
	var order []int32
	for _, node := range s.nodes {
		if mask := lowestOf(mine(node), s.left); mask != 0 {
			s.used[node] = mask
			s.left -= bits.OnesCount64(mask)
		}
		order = append(order, node)
	}
	slices.SortStableFunc(order, func(x, y int32) int {
		inX, inY := bits.OnesCount64(s.used[x]), bits.OnesCount64(s.used[y])
		if s.r.Queue == interactiveQueue {
			return cmp.Compare(bits.OnesCount64(free(x)), bits.OnesCount64(free(y)))
		}
		return cmp.Or(cmp.Compare(bits.OnesCount64(free(y))+inY, bits.OnesCount64(free(x))+inX), cmp.Compare(inY, inX))
	})
	take := func(node int32, mask uint64) int {
		mask = lowestOf(mask, s.left)
		s.kept[node] |= mask
		s.left -= bits.OnesCount64(mask)
		return bits.OnesCount64(mask)
	}
	if s.r.Queue == interactiveQueue {
		for _, node := range order {
			s.free += take(node, free(node))
		}
	}
	for _, spare := range []bool{true, false} {
		for _, node := range order {
			s.free += take(node, free(node)&^s.kept[node])
			rest := a.usable(node) &^ counted(node) &^ s.used[node] &^ s.kept[node]
			if spare {
				rest &^= a.ownersOn(node)
			}
			take(node, rest)
		}
	}
}

// ownersOn is what of a node is held by jobs of any queue that capacity is kept
// for: it counts for theirs rather than for another's.
func (a *ahead) ownersOn(node int32) (mask uint64) {
	for i := range a.c.apart {
		if r := &a.c.apart[i]; r.Kind == model.ReserveCapacity && a.c.uses[i].State != "over" {
			mask |= a.maskOf(node, r.Queue)
		}
	}
	return mask
}

// bestForQueue are the nodes of the domain with the most that may count for a
// reservation, and of those alike in that, in which its queue has, or could have,
// most. of says both of a node.
func (a *ahead) bestForQueue(r *model.Reservation, nodes []int32, of func(int32) (all, has int)) (best []int32) {
	level, most, having := a.c.tree.LevelIndex(r.Level), -1, -1
	byDomain := map[int32][]int32{}
	for _, node := range nodes {
		if d := a.c.tree.DomainAt(node, level); d >= 0 {
			byDomain[d] = append(byDomain[d], node)
		}
	}
	for _, d := range a.c.tree.ByLevel[level] {
		all, has := 0, 0
		for _, node := range byDomain[d] {
			n, m := of(node)
			all, has = all+n, has+m
		}
		if all = min(all, r.GPUs); len(byDomain[d]) > 0 && (all > most || all == most && has > having) {
			best, most, having = byDomain[d], all, has
		}
	}
	return best
}

// lowestOf are the lowest bits of a mask, at most n.
func lowestOf(mask uint64, n int) (out uint64) {
	for ; mask != 0 && n > 0; n-- {
		bit := mask & -mask
		out, mask = out|bit, mask&^bit
	}
	return out
}

// maskOf is what jobs of a queue hold of a node.
func (a *ahead) maskOf(node int32, queue string) (mask uint64) {
	for i := range a.c.held[node] {
		h := &a.c.held[node][i]
		if j := a.c.jobs[h.job]; j != nil && (below(j.Queue, queue) || queue == interactiveQueue && a.c.policy.Interactive.Is(j)) {
			mask |= h.gpus
		}
	}
	return mask
}

// keptFor is what of a node is kept, now, for a queue that capacity is kept for,
// and keptFrom what is kept from it for others.
func (a *ahead) keptFor(node int32, queue string) (mask uint64) {
	for i := range a.on[node] {
		if b := &a.on[node][i]; b.queue != "" && b.from <= 0 && below(queue, b.queue) {
			mask |= b.claim.GPUs
		}
	}
	return mask
}

func (c *cycle) keptFrom(node int32, queue string) (mask uint64) {
	if len(c.queuesApart) == 0 {
		return 0
	}
	for i := range c.ahead.on[node] {
		if b := &c.ahead.on[node][i]; b.queue != "" && b.from <= 0 && !below(queue, b.queue) {
			mask |= b.claim.GPUs
		}
	}
	return mask
}

// beyondHold is what of a node is kept for a queue, although a gang that waits
// keeps the node: the gang has no right to that.
func (a *ahead) beyondHold(node int32, queue string, holder jobKey) uint64 {
	if queue == "" {
		return 0
	}
	own := a.keptFor(node, queue)
	if j := a.c.jobs[holder]; own != 0 && j != nil {
		own &^= a.keptFor(node, a.c.apartFor(j))
	}
	return own
}

// ownerFor is who keeps a node from a queue.
func (a *ahead) ownerFor(node, owner int32, queue string) int32 {
	if owner > 0 && int(owner) <= len(a.c.holds) && a.beyondHold(node, queue, a.c.holds[owner-1].job) != 0 {
		return 0
	}
	return owner
}

// sight is what a gang that is to keep nodes was shown of one.
type sight struct{ before, shown topo.Row }

// lookFor shows a gang that is to keep nodes what is kept for its queue, and in a
// later view nothing of what is kept for others. What it returns undoes that, but
// for what the gang has kept since.
func (c *cycle) lookFor(g *gang, view int) (undo func()) {
	if len(c.queuesApart) == 0 {
		return func() {}
	}
	a, now, later := c.ahead, c.views[viewNow].State, c.views[view].State
	mark, seen := later.Mark(), map[int32]sight{}
	for _, node := range a.given {
		if others := c.keptFrom(node, g.queue); others != 0 {
			row := *later.Row(node)
			row.GPUs &^= others
			later.Try(node, row)
		}
		if a.keptFor(node, g.queue) != 0 {
			s := sight{before: *now.Row(node)}
			s.shown = a.row(node, 0, eternity, who{queue: g.queue})
			s.shown.Owner = a.ownerFor(node, s.before.Owner, g.queue)
			now.Try(node, s.shown)
			seen[node] = s
		}
	}
	return func() {
		later.Revert(mark)
		for node, s := range seen {
			row := *now.Row(node)
			if row.Owner == s.shown.Owner {
				row.Owner = s.before.Owner
			}
			row.GPUs &= s.before.GPUs
			now.Try(node, row)
		}
	}
}
