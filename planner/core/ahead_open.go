package core

import (
	"time"

	"github.com/caravan-sched/caravan/planner/core/model"
)

func (c *cycle) openAhead() *ahead {
	if c.ahead == nil {
		if c.ahead = c.scratch.ahead; c.ahead == nil {
			c.ahead = newAhead(len(c.tree.Nodes))
		}
		c.scratch.ahead = nil
		if c.ahead.c = c; c.ahead.cycle == 0 {
			c.ahead.began = c.now
		}
		c.ahead.cycle++
		c.ahead.since = c.now.Sub(c.ahead.began)
	}
	c.ahead.sync()
	return c.ahead
}

func newAhead(n int) *ahead {
	return &ahead{
		base: make([]nodeSteps, n), seen: make([]uint32, n), ends: map[*model.Job]expiry{}, begins: map[time.Duration][]int32{},
		on: make([][]booking, n), booked: make([]bool, n), stamps: make([]uint64, n),
		curves: map[curveKey]*curve{}, jumps: map[curveKey]*[2][]nodeJumps{}, taken: map[takenKey][]nodeTaken{}, why: map[unknownKey]string{}, work: maxWork,
	}
}

// maxJumps is of how many requests it is remembered what nodes take.
const maxJumps = 16

// close makes it ready for another cycle. The memory is used again.
func (a *ahead) close() {
	for _, node := range a.given {
		clear(a.on[node])
		a.on[node], a.booked[node] = a.on[node][:0], false
	}
	a.given, a.bounds, a.minded = a.given[:0], a.bounds[:0], nil
	clear(a.ends)
	clear(a.begins)
	for _, known := range a.curves {
		if len(a.used) < maxJumps {
			a.used = append(a.used, known)
		}
	}
	clear(a.curves)
	clear(a.why)
	if len(a.taken) > maxJumps {
		clear(a.taken)
	}
	if len(a.jumps) > maxJumps {
		clear(a.jumps)
	}
	a.c, a.started, a.work, a.timed, a.odd, a.told, a.lent = nil, 0, maxWork, false, 0, 0, lending{}
}
