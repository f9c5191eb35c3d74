package sim

import (
	"fmt"
	"math"
	"slices"
)

// Parts of GPUs: time slices of those that are shared, and instances of those that
// are divided. A GPU is had by one job as a whole, or in parts by several, and no
// more than all of it by all of them. Only an idle one is divided otherwise, and that
// takes a while in which nobody has it.

// DefaultDivide is how long dividing a GPU takes, in seconds: the device plugin asks
// every 5 s what it is to do, looks for the new devices every second while it does it,
// and the planner is told of them within seconds.
const DefaultDivide = 10.0

// parts are the GPUs of a run that are not whole, or may not stay so.
type parts struct {
	nodes map[int][]partGPU
	// waiting counts the jobs that wait for a part.
	waiting int
	free    int
	current bool
	order   []int
}

// partGPU is one GPU.
type partGPU struct {
	mode gpuMode
	// held are the units of each part that somebody has, and of whom.
	held []int
	by   []int
	// dividing: it is being divided into these.
	dividing bool
	to       []string
}

func newParts(c *Cluster) *parts {
	p := &parts{nodes: map[int][]partGPU{}}
	for node := range c.modes {
		for _, m := range c.modes[node] {
			g := partGPU{mode: m}
			g.empty()
			p.nodes[node] = append(p.nodes[node], g)
		}
		if len(p.nodes[node]) > 0 {
			p.order = append(p.order, node)
		}
	}
	return p
}

// empty makes room for the parts that there are.
func (g *partGPU) empty() {
	n := g.mode.slices + len(g.mode.profiles)
	g.held, g.by = make([]int, n), make([]int, n)
}

// used is how much of it somebody has.
func (g *partGPU) used() (units int) {
	for _, n := range g.held {
		units += n
	}
	return units
}

// wholeMask are the GPUs of a node that are whole now.
func (p *parts) wholeMask(node, gpus int) uint64 {
	mask := uint64(1)<<gpus - 1
	for i := range p.nodes[node] {
		if g := &p.nodes[node][i]; !g.mode.isWhole() || g.dividing {
			mask &^= 1 << uint(i)
		}
	}
	return mask
}

// take gives a job one part.
func (p *parts) take(job int, profile string, at Piece, units int) error {
	list := p.nodes[at.Node]
	if len(at.GPUs) != 1 || int(at.GPUs[0]) >= len(list) {
		return fmt.Errorf("part %d of %v: want one of one GPU that is offered in parts", at.Part, at.GPUs)
	}
	g := &list[at.GPUs[0]]
	switch k := at.Part - 1; {
	case g.dividing || k < 0 || k >= len(g.held):
		return fmt.Errorf("there is no part %d of GPU %d of node %d", at.Part, at.GPUs[0], at.Node)
	case g.held[k] > 0:
		return fmt.Errorf("part %d of GPU %d of node %d is not free", at.Part, at.GPUs[0], at.Node)
	case g.used()+units > unit:
		return fmt.Errorf("GPU %d of node %d would be used to %.3g of it", at.GPUs[0], at.Node, float64(g.used()+units)/unit)
	case len(g.mode.profiles) > 0 && g.mode.profiles[k] != profile || g.mode.slices > 0 && profile != "":
		return fmt.Errorf("part %d of GPU %d of node %d is no %q", at.Part, at.GPUs[0], at.Node, profile)
	default:
		g.held[k], g.by[k], p.current = units, job, false
	}
	return nil
}

func (p *parts) give(at Piece) {
	p.nodes[at.Node][at.GPUs[0]].held[at.Part-1] = 0
	p.current = false
}

// beside are the other jobs on a GPU that is shared.
func (p *parts) beside(at Piece) (jobs []int) {
	g := &p.nodes[at.Node][at.GPUs[0]]
	if g.mode.slices == 0 {
		return nil // instances do not disturb each other
	}
	for k, units := range g.held {
		if units > 0 && k != at.Part-1 {
			jobs = append(jobs, g.by[k])
		}
	}
	return jobs
}

// idle is how much is free of the GPUs that are in parts, in units, while somebody
// waits for a part.
func (p *parts) idle(down []bool) int {
	if p.waiting == 0 {
		return 0
	}
	if !p.current {
		p.free, p.current = 0, true
		for _, node := range p.order {
			for i := range p.nodes[node] {
				if g := &p.nodes[node][i]; !down[node] && !g.mode.isWhole() && !g.dividing {
					p.free += unit - g.used()
				}
			}
		}
	}
	return p.free
}

// units are how much of each of its GPUs a job has that has them in such pieces.
func (j *job) units(pieces []Piece) int {
	if len(pieces) == 1 && pieces[0].Part > 0 {
		return max(1, int(math.Round(j.Share*unit)))
	}
	return unit
}

// inParts reports whether a job asks for a part of a GPU.
func (j *job) inParts() bool { return j.Share > 0 }

// divide begins to divide an idle GPU otherwise.
func (r *run) divide(a Action) error {
	p := a.Pieces
	if len(p) != 1 || len(p[0].GPUs) != 1 || p[0].Node < 0 || p[0].Node >= len(r.holders) || int(p[0].GPUs[0]) >= len(r.parts.nodes[p[0].Node]) {
		return fmt.Errorf("divide %v: want one GPU of a node that divides its GPUs", p)
	}
	node, at := p[0].Node, p[0].GPUs[0]
	g := &r.parts.nodes[node][at]
	switch {
	case !g.mode.auto || g.dividing:
		return fmt.Errorf("divide GPU %d of node %d: it cannot be divided, or is being divided", at, node)
	case r.down[node]:
		return fmt.Errorf("divide GPU %d of node %d: the node is down", at, node)
	case g.used() > 0 || g.mode.isWhole() && !r.ledger.take(p):
		return fmt.Errorf("divide GPU %d of node %d: somebody uses it", at, node)
	}
	g.dividing, g.to, r.parts.current = true, slices.Clone(a.Profiles), false
	r.logDivision(node, at, EventDivide, g.to)
	r.calendar.add(event{at: r.now + r.Divide, what: divided, of: node, turn: int(at)})
	return nil
}

// divided is told when that is done.
type divider interface {
	Divided(now float64, node, gpu int, profiles []string) error
}

// divided gives a GPU the form that it was to have.
func (r *run) divided(node, gpu int) error {
	g := &r.parts.nodes[node][gpu]
	g.mode.profiles, g.dividing, g.to = g.to, false, nil
	g.empty()
	r.parts.current = false
	if g.mode.isWhole() && !r.down[node] {
		r.ledger.give([]Piece{{Node: node, GPUs: []int8{int8(gpu)}}})
	}
	r.logDivision(node, int8(gpu), EventDivided, g.mode.profiles)
	r.ask(r.now)
	return r.Scheduler.(divider).Divided(r.now, node, gpu, g.mode.profiles)
}

// disturb brings the speed of those beside a slice up to date, since somebody came
// there or left.
func (r *run) disturb(pieces []Piece) {
	if r.Interference <= 0 || len(pieces) != 1 || pieces[0].Part == 0 {
		return
	}
	for _, i := range r.parts.beside(pieces[0]) {
		if j := &r.jobs[i]; j.phase == running {
			j.advance(r.now)
			r.pace(i)
			r.logSpeed(i, EventResize)
		}
	}
}

// slowed is by how much a job is slowed down by those that use the same GPU.
func (r *run) slowed(j *job) float64 {
	if r.Interference <= 0 || len(j.pieces) != 1 || j.pieces[0].Part == 0 {
		return 1
	}
	return 1 / (1 + r.Interference*float64(len(r.parts.beside(j.pieces[0]))))
}
