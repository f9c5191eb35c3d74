package core

import (
	"fmt"
	"time"

	"github.com/caravan-sched/caravan/planner/core/mig"
)

// divisible is a GPU that its node can divide once nobody uses it.
type divisible struct {
	idleGPU
	// from is from when on it may be divided again; barred: its node is doing what it
	// was told, or has refused, and nobody knows whether it will again.
	from   time.Duration
	barred bool
	// wholeSoon: it is being made whole, or its node is to be asked again soon.
	wholeSoon bool
}

// neverCode reports whether a code says that it does not help to wait.
func neverCode(code string) bool { return code == codeNoNode || code == codeTooLarge }

// tellLater says that a gang of instances can have GPUs divided for it once they are
// idle, if that is ever enough.
func (d *divider) tellLater(g *gang) []string {
	n := d.later(g)
	if n == 0 {
		return nil
	}
	return []string{fmt.Sprintf("%s can be divided for it once idle", plural(n, "GPU"))}
}

// later counts the GPUs that can be divided for a gang of instances once they are
// idle; 0 if that is never enough.
func (d *divider) later(g *gang) int {
	out := 0
	for part, group := range g.groups {
		if len(g.indexes[part]) == 0 {
			continue
		}
		made := map[string]int{} // instances of a GPU, by its model
		gpus, instances := 0, 0
		for _, v := range d.all {
			each, known := made[v.model]
			if !known {
				geometry, _ := mig.Of(v.model)
				if a, ok := d.asked(group, v.model); ok && a.profile != "" && a.count == 1 {
					each = geometry.Most(nil, a.profile)
					instances += d.fixed(g, part, a)
				}
				made[v.model] = each
			}
			if each > 0 && g.unit.Parts[part].Request.Verdicts.Eligible(int(v.node)) {
				gpus, instances = gpus+1, instances+each
			}
		}
		if instances < len(g.indexes[part]) {
			return 0
		}
		out = max(out, gpus)
	}
	return out
}

// fixed counts the instances on nodes that divide none, where a member may be.
func (d *divider) fixed(g *gang, part int, a asked) (n int) {
	for _, v := range d.instancesOf(a.instance()) {
		if !d.divides[v.node] && g.unit.Parts[part].Request.Verdicts.Eligible(int(v.node)) {
			n++
		}
	}
	return n
}
