package burst

import (
	"math"
	"time"
)

// never is the time of what does not come.
const never = time.Duration(math.MaxInt64)

// Billed is for how long a node is paid that is there for d.
func Billed(d, least, period time.Duration) time.Duration {
	d = max(d, least, 0)
	if period <= 0 {
		return d
	}
	if rest := d % period; rest > 0 && d < never-period {
		d += period - rest
	}
	return d
}

// Bill is what nodes cost that are there for d, each at a price for an hour.
func Bill(nodes int, price float64, d, least, period time.Duration) float64 {
	return float64(nodes) * price * Billed(d, least, period).Hours()
}

// PeriodEnd is the end of the billing period in which a node is, by how long it has
// been paid for: giving it back sooner saves nothing. A clock that is behind counts
// as its beginning.
func PeriodEnd(been, least, period time.Duration) time.Duration {
	return Billed(max(been, 1), least, period)
}

// GiveBack says when a node is paid for anyway that has been there for so long,
// from now on, and whether it is to be given back now, so that it is gone by then.
func GiveBack(been, least, period, lead time.Duration) (in time.Duration, now bool) {
	in = PeriodEnd(been, least, period) - max(been, 0)
	return in, in <= lead
}

// Expected is how long it takes on nodes that are taken away now and then until so
// much work is done (Daly, A higher order estimate of the optimum checkpoint
// interval for restart dumps, FGCS'06, section 2: the time between failures is
// exponential, work since the last checkpoint is done again, and restart passes
// before it goes on). A gang loses the work of all when one of its nodes goes, so
// they fail so many times as often as one. Without checkpoints all of it is done
// again.
func Expected(work, checkpoint, restart, lifetime time.Duration, nodes int) time.Duration {
	if work <= 0 {
		return 0
	}
	if lifetime <= 0 {
		return work
	}
	if checkpoint <= 0 || checkpoint > work {
		checkpoint = work
	}
	mean := lifetime.Seconds() / float64(max(nodes, 1))
	segments := work.Seconds() / checkpoint.Seconds()
	took := (mean + restart.Seconds()) * math.Expm1(checkpoint.Seconds()/mean) * segments
	// The restart of the first run is none.
	if took = max(took, work.Seconds()); !(took < never.Seconds()/2) {
		return never
	}
	return time.Duration(took * float64(time.Second))
}

// Progress is how a job with a deadline is doing, for Wu et al., Can't Be Late:
// Optimizing Spot Instance Savings under Deadlines, NSDI'24.
type Progress struct {
	// Total is all of its work, Left what is left of it.
	Total, Left time.Duration
	// Since is how long ago it was submitted, and Rest how long it has.
	Since, Rest time.Duration
	// Change is what it takes to begin on other nodes: booting and starting again.
	Change time.Duration
}

// Behind reports whether less is done than if it were done evenly from the
// beginning to the deadline: the uniform progress of the paper,
// c(t) < t·C(0)/R(0).
func (p Progress) Behind() bool {
	span := p.Since + p.Rest
	if span <= 0 {
		return true
	}
	return (p.Total - p.Left).Seconds() < p.Since.Seconds()*p.Total.Seconds()/span.Seconds()
}

// MustStay reports whether there is too little time left for anything but nodes
// that stay: the paper's safety net, R(t) < C(t) + 2d.
func (p Progress) MustStay() bool { return p.Rest < p.Left+2*p.Change }
