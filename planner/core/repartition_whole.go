package core

import (
	"cmp"
	"fmt"
	"math/bits"
	"slices"
	"time"

	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/core/topo"
)

// Who waits for whole GPUs has its turn, too: divided ones that nobody before it uses
// are made whole for it, and those that are not idle yet are kept for that.

// seatFor is where a member could have whole GPUs, some of which are divided now.
type seatFor struct {
	node int32
	mask uint64
	// joins are indexes in all of those to be made whole.
	joins []int
	at    time.Duration
	// busy counts those of its GPUs that somebody uses, soon those that its node is
	// making whole or is to be asked again for.
	busy, soon int
}

// piece is a GPU of a node.
type piece struct {
	mask uint64
	gpu  int // index in all if it is to be made whole, else -1
	at   time.Duration
	soon int
}

// seatsFor are where members of a gang could be once GPUs are whole and idle.
func (d *divider) seatsFor(j *model.Job, g *gang, a asked) []seatFor {
	divided := map[int32][]int{}
	for i := range d.all {
		if v := &d.all[i]; v.model == a.model && len(v.profiles) > 0 && (v.wholeSoon || !v.barred) && !d.isChosen(v.uuid) {
			divided[v.node] = append(divided[v.node], i)
		}
	}
	if len(divided) == 0 {
		return nil
	}
	var out []seatFor
	in := d.tree.Domains[g.unit.Within]
	for node := in.Lo; node < in.Hi; node++ {
		if d.mayBeOn(node, j, g) {
			out = append(out, d.seatsOn(node, j, g, a, divided[node])...)
		}
	}
	return out
}

// isChosen reports whether a GPU is divided otherwise in this plan.
func (d *divider) isChosen(uuid string) bool {
	_, chosen := d.at[uuid]
	return chosen
}

// mayBeOn reports whether a gang of equal members may be on a node at all.
func (d *divider) mayBeOn(node int32, j *model.Job, g *gang) bool {
	return !d.views[viewEmpty].State.Row(node).Closed && g.unit.Parts[0].Request.Verdicts.Eligible(int(node)) && d.mayUse(node, j)
}

// seatsOn are those on one node, the first to be had first.
func (d *divider) seatsOn(node int32, j *model.Job, g *gang, a asked, divided []int) []seatFor {
	w, healthy := who{queue: g.queue, self: keyOf(j)}, d.views[viewEmpty].State.Row(node).GPUs&^d.promisedOf(node)
	var list []piece
	for _, group := range d.tree.Nodes[node].Groups {
		if d.tree.Kinds[group.Kind].Model == a.model {
			topo.Each(group.Mask&healthy, func(i int) {
				list = append(list, piece{mask: 1 << i, gpu: -1, at: d.idleFrom(node, 1<<i, g, w)})
			})
		}
	}
	for _, i := range divided {
		if v := &d.all[i]; v.wholeSoon {
			list = append(list, piece{gpu: i, soon: 1})
		} else if v.mask&healthy == v.mask {
			list = append(list, piece{mask: v.mask, gpu: i, at: max(v.from, d.idleFrom(node, v.mask, g, w))})
		}
	}
	now := d.rowFor(node, g).GPUs
	busy := func(p *piece) int { return bits.OnesCount64(p.mask &^ now) }
	slices.SortStableFunc(list, func(x, y piece) int {
		return cmp.Or(cmp.Compare(x.at, y.at), cmp.Compare(busy(&x), busy(&y)), cmp.Compare(y.soon, x.soon), cmp.Compare(x.gpu, y.gpu))
	})
	var out []seatFor
	for ; len(list) >= a.count; list = list[a.count:] {
		s := seatFor{node: node}
		for i := range list[:a.count] {
			p := &list[i]
			s.mask, s.at, s.busy, s.soon = s.mask|p.mask, max(s.at, p.at), s.busy+min(1, busy(p)), s.soon+p.soon
			if p.gpu >= 0 {
				s.joins = append(s.joins, p.gpu)
			}
		}
		out = append(out, s)
	}
	return out[:min(len(out), g.roomFor(d.views[viewEmpty].State.Row(node)))]
}

// domainOf is the domain in which all of a gang has to be that has a member on a node;
// false if that is not to be told.
func (d *divider) domainOf(g *gang, node int32) (int32, bool) {
	t := g.unit.Topology
	switch {
	case t.Mode != model.TopologyRequire || g.members == 1 && g.unit.Parts[0].Request.GPUs == 1:
		return topo.Root, true
	case t.Level == model.LevelNode:
		return node, true
	case d.tree.LevelIndex(t.Level) < 0:
		return 0, false // an island may be another one when its GPUs are whole
	}
	in := d.tree.DomainAt(node, d.tree.LevelIndex(t.Level))
	return in, in >= 0
}

// chooseSeats chooses seats for a gang: in the domain where it can start first, and of
// those where the fewest GPUs are in use and have to be made whole.
func (d *divider) chooseSeats(g *gang, list []seatFor) []seatFor {
	groups := map[int32][]seatFor{}
	var order []int32
	for _, s := range list {
		key, ok := d.domainOf(g, s.node)
		if !ok {
			continue
		}
		if groups[key] == nil {
			order = append(order, key)
		}
		groups[key] = append(groups[key], s)
	}
	var best []seatFor
	var bestAt [3]int64
	for _, key := range order {
		in := groups[key]
		if len(in) < g.members {
			continue
		}
		slices.SortStableFunc(in, func(x, y seatFor) int {
			return cmp.Or(cmp.Compare(x.at, y.at), cmp.Compare(x.busy, y.busy), cmp.Compare(y.soon, x.soon), cmp.Compare(len(x.joins), len(y.joins)))
		})
		in = in[:g.members]
		at := [3]int64{}
		for i := range in {
			at[0], at[1], at[2] = max(at[0], int64(in[i].at)), at[1]+int64(in[i].busy), at[2]+int64(len(in[i].joins))
		}
		if at[2] > 0 && (best == nil || slices.Compare(at[:], bestAt[:]) < 0) {
			best, bestAt = in, at
		}
	}
	return best
}

// joinInTurn has divided GPUs made whole for a gang in its turn, if it then has all
// that it waits for.
func (d *divider) joinInTurn(j *model.Job, g *gang, a asked) bool {
	idle := slices.DeleteFunc(d.seatsFor(j, g, a), func(s seatFor) bool { return s.at > 0 || s.busy > 0 })
	chosen := d.chooseSeats(g, idle)
	joins := 0
	for i := range chosen {
		joins += len(chosen[i].joins)
	}
	if joins == 0 || len(d.plan)+joins > maxDivisions {
		return false
	}
	for i := range chosen {
		s := &chosen[i]
		d.take(s.node, topo.Claim{GPUs: s.mask, Resources: g.unit.Parts[0].Request.Resources})
		for _, k := range s.joins {
			d.makeWhole(j, g, &d.all[k])
		}
	}
	return true
}

// firstSeats are the seats with which a gang of whole GPUs starts first.
func (d *divider) firstSeats(j *model.Job, g *gang, a asked) laterPlaces {
	r := laterPlaces{at: eternity}
	if !d.mayHold(j) {
		return r
	}
	chosen := d.chooseSeats(g, slices.DeleteFunc(d.seatsFor(j, g, a), func(s seatFor) bool { return s.at == eternity }))
	at, on := time.Duration(0), map[int32]int{}
	for i := range chosen {
		at = max(at, chosen[i].at)
		on[chosen[i].node]++
	}
	for node, n := range on {
		if d.roomAt(g, node, at) < n {
			return r
		}
	}
	for i := range chosen {
		if s := &chosen[i]; d.openAhead().freeFrom(s.node, s.mask, at, dividedFor(g), who{queue: g.queue, self: keyOf(j)}) > at {
			return r // somebody else is to have it then
		}
	}
	if len(chosen) > 0 {
		r.at, r.seats = at, chosen
	}
	return r
}

// makeWhole plans that a GPU is made whole for a gang.
func (d *divider) makeWhole(j *model.Job, g *gang, v *divisible) {
	at := slices.IndexFunc(d.gpus, func(o idleGPU) bool { return o.uuid == v.uuid })
	d.add(at, model.Repartition{
		Node: d.tree.Nodes[v.node].Model.ID, GPU: v.uuid, From: v.profiles, For: model.JobName{Namespace: j.Namespace, ID: j.ID},
		Reason: fmt.Sprintf("%s of job %s for whole GPUs, and nobody before it for its instances", waitFor(g.members), jobName(keyOf(j))),
	})
}
