package sim

import (
	"maps"
	"slices"

	"github.com/caravan-sched/caravan/planner/core/model"
)

// dividing is what the planner of a simulation knows of the nodes whose GPUs are
// offered in parts, as their device plugins tell the daemon.
type dividing struct {
	// modes are by node, turns count how often each GPU was divided.
	modes map[int][]gpuMode
	turns map[int][]int
	// told are the last divisions of each node, by GPU.
	told map[int]map[string]model.Division
	down map[int]bool
}

func newDividing(c *Cluster) dividing {
	d := dividing{modes: map[int][]gpuMode{}, turns: map[int][]int{}, told: map[int]map[string]model.Division{}, down: map[int]bool{}}
	for node := range c.modes {
		if c.modes[node] != nil {
			d.modes[node], d.turns[node], d.told[node] = slices.Clone(c.modes[node]), make([]int, len(c.modes[node])), map[string]model.Division{}
		}
	}
	return d
}

// node is a node as it is now, and where its devices are is noted.
func (p *planner) node(i int) model.Node {
	n := p.cluster.Nodes[i]
	if p.dividing.modes[i] != nil {
		var at map[string]device
		n, at = asPlanner(n, p.dividing.modes[i], p.dividing.turns[i])
		maps.Copy(p.gpus, at)
		for _, gpu := range slices.Sorted(maps.Keys(p.dividing.told[i])) {
			n.Divisions = append(n.Divisions, p.dividing.told[i][gpu])
		}
	} else {
		for k := range n.GPUs {
			p.gpus[n.GPUs[k].UUID] = device{gpu: int8(k)}
		}
	}
	if p.dividing.down[i] {
		n.Unschedulable = "down"
	}
	return n
}

// putNode tells the core of a node as it is now.
func (p *planner) putNode(i int) {
	n := p.node(i)
	p.change.PutNodes = slices.DeleteFunc(p.change.PutNodes, func(m model.Node) bool { return m.ID == n.ID })
	p.change.PutNodes = append(p.change.PutNodes, n)
}

// repartition has a GPU divided. Until that is done nobody is given it.
func (p *planner) repartition(now float64, v *model.Repartition) Action {
	node := p.nodes[v.Node]
	gpu := slices.IndexFunc(p.cluster.Nodes[node].GPUs, func(g model.GPU) bool { return g.UUID == v.GPU })
	p.dividing.told[node][v.GPU] = model.Division{GPU: v.GPU, Profiles: v.To, At: clock(now), State: model.DivisionPending}
	p.putNode(node)
	return Action{Act: Divide, Pieces: []Piece{{Node: node, GPUs: []int8{int8(gpu)}}}, Profiles: v.To, Reason: v.Reason}
}

// Divided implements divider.
func (p *planner) Divided(now float64, node, gpu int, profiles []string) error {
	uuid := p.cluster.Nodes[node].GPUs[gpu].UUID
	mode := &p.dividing.modes[node][gpu]
	for k := range mode.profiles {
		delete(p.gpus, instanceID(uuid, p.dividing.turns[node][gpu], k))
	}
	mode.profiles = slices.Clone(profiles)
	p.dividing.turns[node][gpu]++
	p.stirred = now
	p.dividing.told[node][uuid] = model.Division{GPU: uuid, Profiles: profiles, At: clock(now), State: model.DivisionDone}
	p.putNode(node)
	return nil
}
