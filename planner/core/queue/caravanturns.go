package queue

// Who should run now. In the order of the discipline each job takes its GPUs of
// those that the cluster has, as long as there are enough; one for which there are
// too few is passed by smaller ones. What cannot be stopped has its GPUs first.
// Those who should run displace the others, so nothing is emptied for a gang before
// its turn has come, and what is left over is used by whoever fits meanwhile.
//
// That there are GPUs enough does not say that they are together. So gangs that
// need whole nodes are placed first, and displace smaller ones, which find a place
// more easily; these displace others in turn. What that costs is counted, and it is
// done where no cheaper way is.
//
// The order of two jobs changes only when one becomes due or short, outlives what was
// expected of it, or what counts as little changes by a step; and nobody is displaced by one that he has displaced (see
// preempt.Policy), so nothing goes back and forth between two.

// The classes of those without a deadline that has to begin, after classUrgent:
// gangs of whole nodes, smaller ones, and those that run only where nobody else
// could.
const (
	classWhole = classCalm
	classPart  = classCalm + 1
	classLater = classCalm + 2
	classCount = classLater + 1
)

// giveTurns finds out who should run now.
func (c *caravan) giveTurns(s *Situation, out []Standing) {
	c.passTurns(s, out, c.turnsInOrder(s, out, nil))
	if stuck := c.stuck(s, out); len(stuck) > 0 {
		c.passTurns(s, out, c.turnsInOrder(s, out, stuck))
		for _, j := range stuck {
			if out[j.at].InTurn {
				c.putFirst(&s.Jobs[j.at], s, &out[j.at])
				out[j.at].Why += j.why
			}
		}
	}
	for i := range s.Jobs {
		e, st := &s.Jobs[i], &out[i]
		switch {
		case !st.InTurn:
			st.Class, st.Passed = classLater, !early(e, st)
			continue
		case st.Class != classUrgent && e.needs() < s.NodeGPUs:
			st.Class = classPart
		}
		// It is placed at once as a rule; where nobody gives way it must not starve.
		st.Passed = e.Waited < c.policy.Backfill.Trust()
	}
}

// placeInTurn is a job's place in the order of turns. Lower ranks come first, then lower keys.
type placeInTurn struct {
	rank int
	key  float64
	at   int32
}

// goesBefore is the order of turns.
func (p *placeInTurn) goesBefore(o *placeInTurn) bool {
	switch {
	case p.rank != o.rank:
		return p.rank < o.rank
	case p.key != o.key:
		return p.key < o.key
	}
	return p.at < o.at
}

// turns are those that are still to have theirs, a heap: mostly the GPUs are given away
// after few of them, so that the others need not be in order.
type turns []placeInTurn

func newTurns(list []placeInTurn) turns {
	t := turns(list)
	for i := len(t)/2 - 1; i >= 0; i-- {
		t.sink(i)
	}
	return t
}

// next is the first of them, which is taken out.
func (t *turns) next() placeInTurn {
	list := *t
	first, last := list[0], len(list)-1
	list[0] = list[last]
	*t = list[:last]
	t.sink(0)
	return first
}

// sink lets the one at a place go down to where it belongs.
func (t turns) sink(at int) {
	for {
		first := 2*at + 1
		if first+1 < len(t) && t[first+1].goesBefore(&t[first]) {
			first++
		}
		if first >= len(t) || !t[first].goesBefore(&t[at]) {
			return
		}
		t[at], t[first] = t[first], t[at]
		at = first
	}
}

// turnsInOrder are the jobs' numbers, in the order of the discipline. Those who are stuck
// come behind whoever is older and has his turn, and before all who are younger.
func (c *caravan) turnsInOrder(s *Situation, out []Standing, stuck []stuckJob) turns {
	list, any, last := make([]placeInTurn, len(s.Jobs)), c.policy.Interactive.Any(), -1
	if n := len(stuck); n > 0 {
		last = stuck[n-1].at
	}
	for i := range list {
		e := &s.Jobs[i]
		list[i] = placeInTurn{rank: rankInTurn(e.Priority, any && c.policy.Interactive.Is(e.Job), out[i].Class), key: out[i].Key, at: int32(i)}
		if i < last && out[i].InTurn {
			list[i].goFirst()
		}
	}
	for _, j := range stuck {
		if p := &list[j.at]; p.rank&1 != 0 {
			p.goFirst()
		}
	}
	return newTurns(list)
}

// rankInTurn is by priority, then interactive jobs go first, then it is by class. It is
// odd: who goes first of his kind has one less.
func rankInTurn(priority int, interactive bool, class int) int {
	rank := -2 * priority
	if !interactive {
		rank++
	}
	return (rank*classCount+class)*2 + 1
}

// goFirst puts a job before all others of its class but those older ones who go first too.
func (p *placeInTurn) goFirst() { p.rank, p.key = p.rank-1, 0 }

// passTurns says of each in an order whether he has his turn.
func (c *caravan) passTurns(s *Situation, out []Standing, order turns) {
	// What is kept for interactive jobs is only theirs.
	kept := c.keptOf(s)
	left := s.GPUs - kept
	take := func(e *Entry, gpus int) {
		if c.policy.Interactive.Is(e.Job) {
			own := min(kept, gpus)
			kept, gpus = kept-own, gpus-own
		}
		left -= gpus
	}
	for i := range s.Jobs {
		e := &s.Jobs[i]
		if out[i].InTurn = c.firm(e, s); out[i].InTurn {
			take(e, e.Held)
		}
	}
	for len(order) > 0 && left+kept > 0 {
		p := order.next()
		e, st := &s.Jobs[p.at], &out[p.at]
		if st.InTurn {
			continue
		}
		room := left
		if c.policy.Interactive.Is(e.Job) {
			room += kept
		}
		if st.InTurn = e.needs() <= room && !early(e, st); st.InTurn {
			take(e, e.needs())
		}
	}
}

// needs is how many GPUs a job has or asks for.
func (e *Entry) needs() int {
	if e.Running {
		return max(e.Held, 1)
	}
	return max(e.Asked, 1)
}

// early reports whether a job was promised his deadline and has not to begin yet: it
// displaces nobody before.
func early(e *Entry, st *Standing) bool {
	return e.Waiting && !st.Latest.IsZero() && st.Class != classUrgent
}

// keptOf is how many GPUs are kept for interactive jobs alone.
func (c *caravan) keptOf(s *Situation) int {
	if i := &c.policy.Interactive; i.Reserves() && !i.Lend {
		return min(i.Kept(s.GPUs), s.GPUs)
	}
	return 0
}

// firm reports whether nobody displaces a job that runs, whosever turn it is.
func (c *caravan) firm(e *Entry, s *Situation) bool {
	return e.Running && (!c.policy.Preempt.GivesWay(e.Job) || e.Turn < c.policy.Preempt.MinRunTime || c.policy.Interactive.Protects(e.Job, s.Now))
}
