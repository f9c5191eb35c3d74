package sim

import (
	"maps"
	"math"
	"slices"
)

// failLater draws when a node fails next.
func (r *run) failLater(node int) {
	if r.Failures.PerNodeDay > 0 {
		r.calendar.add(event{at: r.now + r.rng.ExpFloat64()*86400/r.Failures.PerNodeDay, what: failed, of: node})
	}
}

// fail takes a node down, with all that runs on it, or brings it back.
func (r *run) fail(node int, down bool) error {
	var victims []int
	r.down[node], r.parts.current = down, false
	if down {
		victims = slices.Sorted(maps.Keys(r.holders[node]))
		for _, i := range victims {
			r.crash(i)
		}
		r.ledger.set(node, 0)
		r.logNode(node, EventDown)
		r.calendar.add(event{at: r.now + r.rng.ExpFloat64()*r.Failures.Repair, what: repaired, of: node})
	} else {
		r.ledger.set(node, r.parts.wholeMask(node, len(r.Cluster.Nodes[node].GPUs)))
		r.failLater(node)
		r.logNode(node, EventUp)
	}
	r.ask(r.now)
	return r.Scheduler.Fail(r.now, node, down, victims)
}

// crash stops a job without a checkpoint: it goes on from its last one, or begins again.
func (r *run) crash(i int) {
	j := &r.jobs[i]
	if j.phase == running || j.phase == leaving {
		j.advance(r.now) // who leaves works no more, and had not saved its state yet
		every := r.Checkpoints.interval(j.GPUs, r.nodesOf(j.pieces), r.Restart, r.Failures)
		back := j.saved
		if worked := j.since - j.begins; worked > 0 && every > 0 && !j.unsaved {
			back = max(j.left, j.saved-math.Floor(worked/every)*every*j.speed)
		}
		r.lose(j, back)
	}
	r.log(i, EventFail, j.pieces, 0)
	r.release(i)
	asked := j.asked
	held := j.phase == holding
	if r.wait(i); held {
		j.asked = asked // it has not run since
	}
}

// lose takes a job back to where so much was still to be done.
func (r *run) lose(j *job, left float64) {
	j.lately = left - j.left
	j.lost += j.lately * j.Width()
	j.left = left
	if j.unsaved {
		j.anew++
		r.meter.anew = max(r.meter.anew, j.anew)
	}
}
