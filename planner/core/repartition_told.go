package core

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/caravan-sched/caravan/planner/core/mig"
	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/core/topo"
)

// What nodes were told before: a GPU that one is dividing serves who waits as one
// that is divided now, and so does one of which it has said when it may be asked
// again soon. Else whoever waits would have one GPU after the other divided.

// beingDivided reports whether a GPU, or the one that an instance is a part of, is
// being divided: nobody is given it.
func beingDivided(n *model.Node, g *model.GPU) bool {
	return slices.ContainsFunc(n.Divisions, func(v model.Division) bool {
		return v.State == model.DivisionPending && v.GPU == cmp.Or(g.Parent, g.UUID)
	})
}

// pending reports whether its node has been told how to divide it.
func (g *idleGPU) pending() bool { return g.told != nil && g.told.State == model.DivisionPending }

// again is from when on a refused GPU may be tried again. What a node says of it
// counts, unless that is later than a GPU is left alone anyway.
func again(v *model.Division) time.Time {
	at := v.At.Add(divideRefused)
	if !v.Again.IsZero() && v.Again.Before(at) {
		return v.Again
	}
	return at
}

// byTold puts GPUs that are being divided first, then those that are to be asked
// again soon.
func byTold(x, y *idleGPU) int {
	rank := func(g *idleGPU) int {
		switch {
		case g.pending():
			return 0
		case g.told != nil:
			return 1
		}
		return 2
	}
	return cmp.Compare(rank(x), rank(y))
}

// addAsTold adds a GPU according to what its node was told of it last.
func (d *divider) addAsTold(n *model.Node, g idleGPU, busy bool) {
	var last *model.Division
	for i := range n.Divisions {
		if v := &n.Divisions[i]; v.GPU == g.uuid {
			last = v
			break
		}
	}
	v := divisible{idleGPU: g}
	switch {
	case last == nil:
	case last.State == model.DivisionDone:
		v.from = max(0, divideAgain-d.now.Sub(last.At))
	default:
		v.barred = last.State == model.DivisionPending || d.now.Before(again(last))
	}
	v.wholeSoon = v.barred && (last.State != model.DivisionPending && !busy && again(last).Sub(last.At) <= divideSoon || last.State == model.DivisionPending && len(last.Profiles) == 0)
	d.all = append(d.all, v)
	switch {
	case last != nil && last.State == model.DivisionPending:
		g.told = last
		d.gpus = append(d.gpus, g)
		if len(last.Profiles) > 0 {
			d.comes(len(d.gpus)-1, last)
		}
	case busy:
	case last == nil, last.State == model.DivisionDone && d.now.Sub(last.At) >= divideAgain:
		d.gpus = append(d.gpus, g)
	case last.State == model.DivisionDone:
	case !d.now.Before(again(last)):
		d.gpus = append(d.gpus, g)
	case again(last).Sub(last.At) <= divideSoon:
		g.told = last
		d.gpus = append(d.gpus, g)
	default:
		g.told = last
		d.barred = append(d.barred, g)
	}
}

// comes notes instances that a node is making.
func (d *divider) comes(gpu int, v *model.Division) {
	g := &d.gpus[gpu]
	at := len(d.plan)
	d.at[g.uuid] = at
	d.plan, d.of = append(d.plan, model.Repartition{Node: d.tree.Nodes[g.node].Model.ID, GPU: g.uuid, To: v.Profiles}), append(d.of, gpu)
	for _, p := range v.Profiles {
		name := g.model + mig.Mark + p
		d.spare[name] = append(d.spare[name], at)
	}
}

// add plans a division that serves the present gang.
func (d *divider) add(gpu int, p model.Repartition) {
	d.at[p.GPU] = len(d.plan)
	d.serving = append(d.serving, len(d.plan))
	d.plan, d.of = append(d.plan, p), append(d.of, gpu)
}

// takeSpare takes up to n instances that nodes are making, where a member has room,
// and returns how many.
func (d *divider) takeSpare(j *model.Job, g *gang, part int, a asked, n int) int {
	var rest []int
	taken := 0
	for _, at := range d.spare[a.instance()] {
		if node := d.gpus[d.of[at]].node; taken < n && (d.mayUse(node, j) || d.isAhead(node, j)) && d.hasRoom(node, j, g, part) {
			taken++
			d.take(node, topo.Claim{Resources: g.unit.Parts[part].Request.Resources})
			d.serving = append(d.serving, at)
			continue
		}
		rest = append(rest, at)
	}
	d.spare[a.instance()] = rest
	return taken
}

// finished are the divisions that nodes are to be told now, filled up.
func (d *divider) finished() []model.Repartition {
	var out []model.Repartition
	for i := range d.plan {
		if d.gpus[d.of[i]].told == nil {
			d.finish(&d.plan[i])
			out = append(out, d.plan[i])
		}
	}
	return out
}

// tellServing says which GPUs are divided for the present gang.
func (d *divider) tellServing() []string {
	var out []string
	for _, at := range d.serving {
		p, g := &d.plan[at], &d.gpus[d.of[at]]
		how := "divided"
		if len(p.To) == 0 {
			how = "made whole"
		}
		name := fmt.Sprintf("GPU %s of %s", p.GPU, nodeName(d.nodes[p.Node]))
		switch {
		case g.told == nil:
			out = append(out, fmt.Sprintf("%s is %s for it", name, how))
		case g.pending():
			out = append(out, fmt.Sprintf("%s is being %s for it", name, how))
		default:
			out = append(out, fmt.Sprintf("%s is to be %s for it: %s", name, how, tellRefused(g.told)))
		}
	}
	return out
}

// tellBarred says which idle GPUs a gang could have divided otherwise, or made
// whole, had that not been refused.
func (d *divider) tellBarred(g *gang) []string {
	var out []string
	for part, group := range g.groups {
		if len(g.indexes[part]) == 0 {
			continue
		}
		for i := range d.barred {
			b := &d.barred[i]
			a, ok := d.asks(group, b.model, b.geometry)
			if !ok || (a.profile == "") != (len(b.told.Profiles) == 0) || !g.unit.Parts[part].Request.Verdicts.Eligible(int(b.node)) {
				continue
			}
			how := "divided"
			if a.profile == "" {
				how = "made whole"
			}
			out = append(out, fmt.Sprintf("GPU %s of %s is not %s: %s", b.uuid, nodeName(d.present[b.node]), how, tellRefused(b.told)))
		}
	}
	return out
}

// tellRefused says why a node has refused, and when it is asked again.
func tellRefused(v *model.Division) string {
	why := ""
	if v.Why != "" {
		why = ": " + v.Why
	}
	return fmt.Sprintf("its node refused at %s%s; it is tried again at %s", v.At.UTC().Format(time.TimeOnly), why, again(v).UTC().Format(time.TimeOnly))
}

// tellSome joins sentences to a reason, each once, and no more than maxTold.
func tellSome(list []string) string {
	var told []string
	more := 0
	for i, text := range list {
		switch {
		case slices.Contains(list[:i], text):
		case len(told) < maxTold:
			told = append(told, text)
		default:
			more++
		}
	}
	if more > 0 {
		told = append(told, fmt.Sprintf("and so for %s more", plural(more, "GPU")))
	}
	if len(told) == 0 {
		return ""
	}
	return "; " + strings.Join(told, "; ")
}
