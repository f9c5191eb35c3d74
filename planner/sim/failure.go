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
	r.down[node] = down
	if down {
		victims = slices.Sorted(maps.Keys(r.holders[node]))
		for _, i := range victims {
			r.crash(i)
		}
		r.ledger.set(node, 0)
		r.calendar.add(event{at: r.now + r.rng.ExpFloat64()*r.Failures.Repair, what: repaired, of: node})
	} else {
		r.ledger.set(node, 1<<len(r.Cluster.Nodes[node].GPUs)-1)
		r.failLater(node)
	}
	r.ask(r.now)
	return r.Scheduler.Fail(r.now, node, down, victims)
}

// crash stops a job without a checkpoint: it goes on from its last one.
func (r *run) crash(i int) {
	j := &r.jobs[i]
	if j.phase == running {
		j.advance(r.now)
		every := r.Checkpoints.interval(j.GPUs, r.nodesOf(j.pieces), r.Restart, r.Failures)
		back := j.saved
		if worked := r.now - j.begins; worked > 0 && every > 0 {
			back = max(j.left, j.saved-math.Floor(worked/every)*every*j.speed)
		}
		j.lost += (back - j.left) * float64(j.GPUs)
		j.left = back
	}
	r.log(i, EventFail, j.pieces, j.speed)
	r.release(i)
	r.wait(i)
}
