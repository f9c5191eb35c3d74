package core

import (
	"fmt"
	"math/bits"
	"slices"

	"github.com/caravan-sched/caravan/planner/core/model"
)

// join makes divided GPUs whole for a gang, in the domain where it takes fewest;
// none if it would not fit all the same.
func (d *divider) join(j *model.Job, g *gang, a asked) bool {
	joinable := map[int32][]int{}
	for i := range d.gpus {
		if c := &d.gpus[i]; c.model == a.model && len(c.profiles) > 0 && d.mayDivide(c) && d.isIdle(c, g) && d.mayUse(c.node, j) && d.hasRoom(c.node, j, g, 0) {
			joinable[c.node] = append(joinable[c.node], i)
		}
	}
	for _, list := range joinable {
		slices.SortStableFunc(list, func(x, y int) int { return byTold(&d.gpus[x], &d.gpus[y]) })
	}
	if len(joinable) == 0 || len(g.unit.Quotas) > 0 {
		return false
	}
	var best []int
	c, forbidden := d.cycle, g.forbidden()
	c.eachDomain(g, func(f domainFit) {
		chosen, ok := d.joinsIn(j, g, a, f, joinable, forbidden)
		if ok && len(chosen) > 0 && (best == nil || len(chosen) < len(best)) {
			best = chosen
		}
	})
	if best == nil || len(d.plan)+len(best) > maxDivisions {
		return false
	}
	for _, i := range best {
		v := &d.gpus[i]
		d.add(i, model.Repartition{
			Node: d.tree.Nodes[v.node].Model.ID, GPU: v.uuid, From: v.profiles, For: model.JobName{Namespace: j.Namespace, ID: j.ID},
			Reason: fmt.Sprintf("%s of job %s for whole GPUs, and nobody for its instances", waitFor(g.members), jobName(keyOf(j))),
		})
	}
	return true
}

// joinsIn are the fewest GPUs of a domain to be made whole so that a gang of equal
// members fits into it; false if it does not.
func (d *divider) joinsIn(j *model.Job, g *gang, a asked, f domainFit, joinable map[int32][]int, forbidden map[int32]bool) ([]int, bool) {
	left := len(g.indexes[0])
	var gains [][]int // the GPUs to be made whole for one more member
	summary := d.views[viewNow].Summary(g.unit.Parts[0].Request)
	for node := f.lo; node < f.hi; node++ {
		if forbidden[node] || !d.isFor(d.views[viewNow].State.Row(node).Owner, j) {
			continue
		}
		fit := summary.Fit(node)
		left -= int(fit.Members)
		rest := d.wholeFree(node, a.model) - int(fit.Members)*a.count
		if g.unit.Parts[0].Request.OnePerNode && fit.Members > 0 {
			continue
		}
		for more := joinable[node]; rest+len(more) >= a.count; rest = 0 {
			need := max(0, a.count-rest)
			gains = append(gains, more[:need])
			if more = more[need:]; g.unit.Parts[0].Request.OnePerNode {
				break
			}
		}
	}
	slices.SortStableFunc(gains, func(x, y []int) int { return len(x) - len(y) })
	var out []int
	for _, n := range gains {
		if left <= 0 {
			break
		}
		out, left = append(out, n...), left-1
	}
	return out, left <= 0
}

// wholeFree counts a node's free whole GPUs of a model.
func (d *divider) wholeFree(node int32, name string) int {
	n := 0
	for _, group := range d.tree.Nodes[node].Groups {
		if d.tree.Kinds[group.Kind].Model == name {
			n += bits.OnesCount64(group.Mask & d.views[viewNow].State.Row(node).GPUs)
		}
	}
	return n
}
