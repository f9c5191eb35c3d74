package core

import (
	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/core/preempt"
	"github.com/caravan-sched/caravan/planner/core/queue"
)

// scratch is memory that one decision after the other uses. Nothing in it
// outlives a decision.
type scratch struct {
	// nodes is a list of nodes, byNode a number for each, which is 0.
	nodes  []int32
	byNode []int32
	claims map[possibleKey]claim
	waits  map[possibleKey]*answered
	// forgotten is how often all of these were forgotten.
	forgotten int
	shares    map[possibleKey]sharedWait
	// epoch and asks are those of the last decision, order and inLine memory for those who
	// wait, line those who waited in it, in their order.
	epoch  int
	asks   int
	line   []placeInLine
	order  []*model.Job
	inLine []*waiter
	hopes  map[toldKey]possibility
	given  []given
	// givenOn are indexes in given, by node.
	givenOn [][]int
	givenTo map[jobKey]bool
	// fits and places are where a gang may land for which others give way.
	fits   []domainFit
	places []preempt.Place
	// stands are how jobs stand, entries what disciplines see of them.
	stands  standings
	entries []queue.Entry
	// running are the gangs that run, found the same by what they are of, holds and
	// members what they hold and are made of, yielders those that may give way.
	running  []yielder
	found    map[runKey]*yielder
	holds    []preempt.Hold
	members  []model.Member
	yielders []yielder
	// leaving are those that were leaving.
	leaving []leaver
	// postponed are those who keep later what they are to keep.
	postponed []postponed
	// ahead is the time to come; nil if nobody has asked yet.
	ahead *ahead
}

// maxAnswers is for how many kinds of gangs it is kept where they find what they were
// answered.
const maxAnswers = 4096

// counts is a number for each of n nodes, all 0. Whoever changes one sets it
// back.
func (s *scratch) counts(n int) []int32 {
	if len(s.byNode) != n {
		s.byNode = make([]int32, n)
	}
	return s.byNode
}

// lend gives a decision what it may use.
func (s *scratch) lend(c *cycle) {
	if s.claims == nil {
		s.claims, s.waits, s.shares = map[possibleKey]claim{}, map[possibleKey]*answered{}, map[possibleKey]sharedWait{}
		s.hopes, s.givenTo, s.found = map[toldKey]possibility{}, map[jobKey]bool{}, map[runKey]*yielder{}
	}
	if n := len(c.tree.Nodes); len(s.givenOn) != n {
		s.givenOn = make([][]int, n)
	}
	c.claims, c.waits, c.shares, c.hopes, c.epoch = s.claims, s.waits, s.shares, s.hopes, s.epoch+1
	c.given, c.givenOn, c.givenTo, c.postponed = s.given[:0], s.givenOn, s.givenTo, s.postponed[:0]
}

// takeBack makes what a decision was lent ready for the next one.
func (s *scratch) takeBack(c *cycle) {
	if c.ahead != nil {
		c.ahead.close()
		s.ahead = c.ahead
	}
	if c.yield != nil {
		clear(c.yield.gangs)
		clear(c.yield.leaving)
		s.yielders, s.leaving = c.yield.gangs[:0], c.yield.leaving[:0]
		s.running, s.holds, s.members = cleared(s.running), cleared(s.holds), cleared(s.members)
	}
	if s.epoch = c.epoch; len(s.waits) > maxAnswers {
		c.forgetAnswers()
	}
	clear(s.entries)
	clear(s.stands.list)
	clear(s.claims)
	clear(s.shares)
	clear(s.hopes)
	clear(s.givenTo)
	for i := range c.given[:c.indexed] {
		s.givenOn[c.given[i].node] = s.givenOn[c.given[i].node][:0]
	}
	clear(c.given)
	s.given = c.given[:0]
	// Who has caught up was taken off its front, so another one is longer only if the
	// memory did not suffice.
	clear(s.postponed[:min(c.late+len(c.postponed), cap(s.postponed))])
	if cap(c.postponed) > cap(s.postponed) {
		clear(c.postponed)
		s.postponed = c.postponed[:0]
	}
}

// carve takes room for n out of memory that is used again: an empty list. Where there
// is too little there is more the next time.
func carve[T any](memory *[]T, n int) []T {
	from := len(*memory)
	if from+n > cap(*memory) {
		*memory, from = make([]T, 0, max(2*cap(*memory), n, 64)), 0
	}
	*memory = (*memory)[:from+n]
	return (*memory)[from : from : from+n]
}

// cleared is memory to be carved anew.
func cleared[T any](memory []T) []T {
	clear(memory)
	return memory[:0]
}
