package burst

import (
	"time"

	"github.com/caravan-sched/caravan/planner/core/model"
)

// How long a gang can wait until nodes are bought for it.

// urgent reports whether it has a deadline that is not over.
func (g *Gang) urgent() bool { return g.HasDeadline && g.Deadline > 0 }

// mayWait is how long a gang without a deadline may wait; 0: for ever.
func (p *Policy) mayWait(g *Gang) time.Duration {
	if p.WaitGPUs > 0 && g.GPUs > p.WaitGPUs {
		return scale(p.WaitOver, float64(g.GPUs)/float64(p.WaitGPUs))
	}
	return p.WaitOver
}

// overdue reports whether a gang without a deadline has waited for longer than it may:
// what was said of when it starts, if anything, has not come.
func (p *Policy) overdue(g *Gang) bool {
	return p.WaitOver > 0 && !g.urgent() && g.Waited > p.mayWait(g)
}

// soonest is when the first nodes of a pool could be there, were they to be had.
func soonest(offers []Valued) time.Duration {
	best := never
	for i := range offers {
		if offers[i].Shares == "" {
			best = min(best, offers[i].Start)
		}
	}
	if best == never {
		return 0
	}
	return best
}

// hasTime reports whether a gang loses nothing that counts if an offer is taken only
// after a while.
func (p *Policy) hasTime(g *Gang, v *Valued, after time.Duration) bool {
	switch {
	case g.urgent():
		return plus(after, v.Late) <= g.Deadline-p.Margin
	case p.WaitOver > 0 && g.Mode != model.BurstOnly:
		return plus(g.Waited, plus(after, v.Start)) <= p.mayWait(g)
	}
	return true
}

// latestBuy is until when it is early enough to buy nodes that stay, at the best
// offer; below 0: it is too late.
func latestBuy(g *Gang, offers []Valued, p *Policy) time.Duration {
	best := never
	for i := range offers {
		if offers[i].Market == model.MarketOnDemand && offers[i].Shares == "" {
			best = min(best, offers[i].Late)
		}
	}
	if best == never { // there is nothing but spot
		for i := range offers {
			best = min(best, offers[i].Late)
		}
	}
	if best > never/2 {
		return -1
	}
	return g.Deadline - p.Margin - best
}
