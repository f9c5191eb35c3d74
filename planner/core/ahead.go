package core

import (
	"math"
	"slices"
	"time"

	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/core/topo"
)

// The time to come: what is free on each node later, when what runs has ended as
// expected and those who are to start have started. Times count from the moment
// of the decision.

// eternity is the time of what never comes, and the run time of what never ends
// or does not say.
const eternity = time.Duration(math.MaxInt64)

// stopTime is within what time something that is told to stop has stopped.
const stopTime = time.Minute

// minOverdue is how much longer a job is expected to run at least that has
// outlived what was expected of it.
const minOverdue = 5 * time.Minute

// ahead is what a cycle knows of the time to come.
type ahead struct {
	c *cycle
	// base is, by node, what is free as what runs now ends. It is of this cycle where
	// seen has its number; made counts the times that one was made anew.
	base  []nodeSteps
	seen  []uint32
	cycle uint32
	made  uint64
	// since is how long it is since the first cycle, which was at began.
	since time.Duration
	began time.Time
	// ends are when jobs end.
	ends map[*model.Job]expiry
	// on is, by node, what is given away of its time; booked says where that is so,
	// and given lists those nodes. stamps grow with whatever is booked on each, in all
	// cycles.
	on     [][]booking
	booked []bool
	given  []int32
	stamps []uint64
	// lines are the nodes' times as who does not mind what is only expected has them,
	// and as others do; nil: nobody has asked.
	lines [2][]line
	// started is how many of the cycle's starts are booked.
	started int
	// bounds are when bookings begin that others keep clear of, in order, and
	// begins on which nodes.
	bounds []time.Duration
	begins map[time.Duration][]int32
	curves map[curveKey]*curve
	jumps  map[curveKey]*[2][]nodeJumps
	// taken is what nodes take at their steps, used curves that may be used again.
	taken map[takenKey][]nodeTaken
	used  []*curve
	// times, ending, gone, room and special are lists that are used again.
	times, ending, gone []time.Duration
	room                []int
	special             []jump
	// members is what each node takes by a time, for the gang that is looked at.
	members []int32
	// minded are when maintenances begin for which nothing is closed yet.
	minded []time.Duration
	// work is how many more times it is looked up what a node takes.
	work int
	// timed is set once some of the time given away comes back.
	timed bool
	// odd counts the gangs of unequal members looked at.
	odd int
	// why is why starts are not known.
	why map[unknownKey]string
	// told is for how many gangs a start has been looked for.
	told int
	// lent is what the view of those who end in time shows.
	lent lending
}

// booking is a part of a node's time that is given away, from a time on and until
// another.
type booking struct {
	from, until time.Duration
	claim       topo.Claim
	// lead is from how long before who does not say how long he runs keeps clear.
	lead time.Duration
	// closed: the whole node is.
	closed bool
	// kept: it is for a gang that waits, until it starts.
	kept bool
	// drained: the node is kept for the job already, but from who ends before.
	drained bool
	// foreseen: nobody keeps clear of it; it is expected.
	foreseen bool
	// job is whom it is for, ahead of time; name what else it is for.
	job  jobKey
	name string
	// queue may use it nevertheless; "" is no queue.
	queue string
}

// maxWork bounds what is looked up in one cycle: a tenth of a second or so.
const maxWork = 400_000

// looksAhead reports whether anything is known of the time to come.
func (p *Prepared) looksAhead() bool {
	if p.timed < 0 {
		p.timed = 0
		for j := range p.allJobs() {
			p.timed += countTimed(j)
		}
	}
	return p.timed+p.endings+len(p.apart) > 0 || p.policy.Backfill.DefaultDuration > 0
}

// countTimed counts the jobs that say how long they run, or of which it is known.
func countTimed(jobs ...*model.Job) (n int) {
	for _, j := range jobs {
		if j.Type != typeService && j.Duration+j.Estimate > 0 {
			n++
		}
	}
	return n
}

// setEnding notes whether anything on a node ends at a time that is known.
func (p *Prepared) setEnding(node int32) {
	known := slices.ContainsFunc(p.held[node], func(h holder) bool { return p.endIsKnown(&h) })
	if known == p.ending[node] {
		return
	}
	if p.ending[node] = known; known {
		p.endings++
	} else {
		p.endings--
	}
}

// start is what this plan places, or promises to somebody.
type start struct {
	job    jobKey
	claims []claimOn
	runs   time.Duration
}

type claimOn struct {
	node  int32
	claim topo.Claim
}

// sync books what has been placed since.
func (a *ahead) sync() {
	for ; a.started < len(a.c.starts); a.started++ {
		s := &a.c.starts[a.started]
		for _, on := range s.claims {
			a.book(on.node, booking{until: s.runs, claim: on.claim, job: s.job})
		}
	}
}

// touch notes that something else is given away of a node's time.
func (a *ahead) touch(node int32) { a.stamps[node]++ }

func (a *ahead) book(node int32, b booking) {
	if !a.booked[node] {
		a.booked[node] = true
		a.given = append(a.given, node)
	}
	a.on[node] = append(a.on[node], b)
	a.touch(node)
	a.timed = a.timed || b.until < eternity
	if b.foreseen || b.from <= 0 {
		return
	}
	a.begins[b.from] = append(a.begins[b.from], node)
	if at, known := slices.BinarySearch(a.bounds, b.from); !known {
		a.bounds = slices.Insert(a.bounds, at, b.from)
	}
}

// expiry is when a job ends, as far as is known.
type expiry struct {
	at time.Duration
	// runs is what is expected of it, declared that its author says so, overdue
	// that it has run for longer already.
	runs              time.Duration
	declared, overdue bool
}

// expected is how long a job runs: as its author says, else as others like it
// have run, else as the policy says; eternity if nobody does, or it is a service.
func (p *Prepared) expected(j *model.Job) (runs time.Duration, declared bool) {
	switch {
	case j.Type == typeService:
		return eternity, false
	case j.Duration > 0:
		return j.Duration, true
	case j.Estimate > 0:
		return j.Estimate, false
	case p.policy.Backfill.DefaultDuration > 0:
		return p.policy.Backfill.DefaultDuration, false
	}
	return eternity, false
}

const typeService = "service"

// endOf is when a job that runs ends. One that outlives what was expected of it
// is expected to run for as long again, and so on: the estimate is put right
// step by step as in Tsafrir, Etsion and Feitelson, Backfilling using
// system-generated predictions rather than user runtime estimates, TPDS'07,
// section 4.2, and stays the same between the steps.
func (a *ahead) endOf(j *model.Job) expiry {
	if e, known := a.ends[j]; known {
		return e
	}
	e := expiry{at: eternity, runs: eternity}
	if j != nil {
		e = a.c.expiryOf(j, a.c.now)
	}
	a.ends[j] = e
	return e
}

// expiryOf is that as of some moment.
func (c *cycle) expiryOf(j *model.Job, now time.Time) expiry {
	e := expiry{at: eternity, runs: eternity}
	if e.runs, e.declared = c.expected(j); e.runs == eternity {
		return e
	}
	begun := j.Started
	if begun.IsZero() {
		begun = j.Submitted
	}
	if j.State == model.StateRunning {
		e.runs = c.sizedRun(j, e.runs)
	}
	ran, lasts := max(0, now.Sub(begun)), e.runs
	if begun.IsZero() {
		ran = 0
	}
	for e.overdue = lasts <= ran; lasts <= ran; {
		lasts += max(lasts, minOverdue)
	}
	e.at = lasts - ran
	return e
}

// endIsKnown reports whether it is known when somebody who holds something of a
// node has gone.
func (p *Prepared) endIsKnown(h *holder) bool {
	j := h.of
	switch {
	case h.on != nil && h.on.Lost:
		return false
	case isLeaving(j, h):
		return true
	case j == nil || h.stays:
		return false
	}
	runs, _ := p.expected(j)
	return runs < eternity
}

// leaves is when somebody who holds something of a node has gone.
func (a *ahead) leaves(h *holder) time.Duration {
	switch {
	case !a.c.endIsKnown(h):
		return eternity
	case isLeaving(h.of, h):
		if h.on != nil && !h.on.Until.IsZero() {
			return max(stopTime, h.on.Until.Sub(a.c.now))
		}
		return stopTime
	}
	return a.endOf(h.of).at
}

// who looks at the time to come: a job of a queue, and whether it minds what is
// only expected.
type who struct {
	self     jobKey
	queue    string
	foreseen bool
}

func (w who) minds(b *booking) bool {
	return (w.foreseen || !b.foreseen) && (b.queue == "" || !below(w.queue, b.queue)) && !(b.kept && b.job == w.self)
}

// row is what of a node may be taken at a time by what then runs for so long:
// what is free all the while.
func (a *ahead) row(node int32, at, runs time.Duration, w who) topo.Row {
	row := *a.baseAt(node, at)
	if !a.booked[node] {
		return row
	}
	list, over := a.on[node], eternity
	if runs < eternity-at {
		over = at + runs
	}
	meets := func(b *booking) bool {
		if b.lead > 0 && runs == eternity && b.from-b.lead > at {
			return false
		}
		return w.minds(b) && b.from < over && b.until > at && b.from < b.until
	}
	for i := range list {
		b := &list[i]
		if !meets(b) {
			continue
		}
		// Who is there at that time counts on a shared GPU, before who comes later.
		users := b.claim.GPUs
		if b.from > at {
			users &= row.GPUs
		}
		row.SetUser(users, b.claim.Usage)
		row.GPUs &^= b.claim.GPUs
		if own := a.beyondHold(node, w.queue, b.job); b.closed && b.kept && own != 0 {
			row.GPUs &= own
		} else {
			row.Closed = row.Closed || b.closed
		}
		if len(b.claim.Ports) > 0 {
			row.Ports = topo.MergePorts(row.Ports, b.claim.Ports)
		}
	}
	// CPU and memory are not told apart, so their least counts: at the beginning,
	// and whenever something else begins.
	row.Free = a.freeAt(node, at, list, meets)
	for i := range list {
		if b := &list[i]; meets(b) && b.from > at {
			row.Free = least(row.Free, a.freeAt(node, b.from, list, meets))
		}
	}
	return row
}

// freeAt is what is free beside GPUs at one time.
func (a *ahead) freeAt(node int32, at time.Duration, list []booking, meets func(*booking) bool) model.Resources {
	free := a.baseAt(node, at).Free
	for i := range list {
		if b := &list[i]; b.from <= at && b.until > at && meets(b) {
			free.CPUMHz -= b.claim.Resources.CPUMHz
			free.Cores -= b.claim.Resources.Cores
			free.MemoryMiB -= b.claim.Resources.MemoryMiB
			free.DiskMiB -= b.claim.Resources.DiskMiB
		}
	}
	return free
}

func least(a, b model.Resources) model.Resources {
	return model.Resources{
		CPUMHz: min(a.CPUMHz, b.CPUMHz), Cores: min(a.Cores, b.Cores),
		MemoryMiB: min(a.MemoryMiB, b.MemoryMiB), DiskMiB: min(a.DiskMiB, b.DiskMiB),
	}
}
