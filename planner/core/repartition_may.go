package core

import (
	"slices"

	"github.com/caravan-sched/caravan/planner/core/mig"
	"github.com/caravan-sched/caravan/planner/core/model"
)

// Which GPUs may be divided for whom.

// mayDivide reports whether a GPU is still to be had: it is not divided in this plan,
// and nobody waits for the instances that it has; in a gang's turn, nobody before it.
func (d *divider) mayDivide(g *idleGPU) bool {
	_, chosen := d.at[g.uuid]
	return !chosen && (g.pending() || len(d.plan) < maxDivisions && (d.turn || !d.wantsInstances(g)))
}

// byWanted puts GPUs last for whose instances somebody waits.
func (d *divider) byWanted(x, y *idleGPU) int {
	switch wx, wy := d.wantsInstances(x), d.wantsInstances(y); {
	case wx == wy:
		return 0
	case wx:
		return 1
	}
	return -1
}

// wantsInstances reports whether somebody waits for the instances that a GPU has.
func (d *divider) wantsInstances(g *idleGPU) bool {
	return slices.ContainsFunc(g.profiles, func(p string) bool { return d.wanted[g.model+mig.Mark+p] })
}

// isIdle reports whether nobody has been given any of a GPU that a gang could have.
func (d *divider) isIdle(v *idleGPU, g *gang) bool {
	row := d.rowFor(v.node, g)
	return v.pending() || row.GPUs&v.mask == v.mask
}

// mayUse reports whether a node is kept for nobody else than a job.
func (d *divider) mayUse(node int32, j *model.Job) bool {
	return d.isFor(d.views[viewNow].State.Row(node).Owner, j)
}

// isFor reports whether a job may use a node that is kept.
func (d *divider) isFor(owner int32, j *model.Job) bool {
	return owner == 0 || owner > 0 && int(owner) <= len(d.holds) && d.holds[owner-1].job == keyOf(j)
}

// isAhead reports whether a node is kept for a gang that comes after a job in the order.
// A whole GPU would have been the job's before anything was kept; and a queue that
// always keeps all idle GPUs would have none divided ever.
func (d *divider) isAhead(node int32, j *model.Job) bool {
	owner := int(d.views[viewNow].State.Row(node).Owner)
	if owner <= 0 || owner > len(d.holds) {
		return false
	}
	after, known := d.places[d.holds[owner-1].job]
	return known && d.places[keyOf(j)] < after
}

// hasRoom reports whether a member could be on a node but for its GPUs, and for whom it
// is kept.
func (d *divider) hasRoom(node int32, j *model.Job, g *gang, part int) bool {
	r := g.unit.Parts[part].Request
	row := d.rowFor(node, g)
	free, want := row.Free, r.Resources
	return r.Verdicts.Eligible(int(node)) && row.PortsFree(r.Ports) && free.CPUMHz >= want.CPUMHz && free.Cores >= want.Cores && free.MemoryMiB >= want.MemoryMiB && free.DiskMiB >= want.DiskMiB
}
