package sim

import (
	"math"

	"github.com/caravan-sched/caravan/planner/core/model"
)

// Links are the bandwidths between GPUs in GB/s, per direction and GPU, and the
// time that one hop takes.
type Links struct {
	// Node is inside a node, Rack between nodes of a rack, Block between racks, and
	// Cluster between blocks.
	Node, Rack, Block, Cluster float64
	// Alpha is the time of one hop in seconds.
	Alpha float64
}

// H100NDR are nodes of H100 joined by NDR InfiniBand, one adapter for each GPU: NVLink
// 4 has 450 GB/s, an adapter 50, and above the block two share one port.
var H100NDR = Links{Node: 450, Rack: 50, Block: 50, Cluster: 25, Alpha: 5e-6}

// Kind is a kind of training, by what one iteration takes on one GPU.
type Kind struct {
	// Compute is the time of an iteration's computing in seconds, and Bytes what
	// each GPU has to reduce with the others, in GB.
	Compute, Bytes float64
	// Overlap is the power γ by which computing and reducing overlap: 1 is one
	// after the other (Qiao et al., Pollux, OSDI'21, equation 11).
	Overlap float64
}

// kinds are by class of work. Small models reduce all their gradients; large ones
// are sharded, and reduce their part of them.
var kinds = map[string]Kind{
	"foundation":  {Compute: 4, Bytes: 14, Overlap: 2.5},
	"finetune":    {Compute: 1, Bytes: 2.8, Overlap: 2},
	"sweep":       {Compute: 0.3, Bytes: 0.22, Overlap: 1.6},
	"interactive": {Compute: 0.3, Bytes: 0.1, Overlap: 1.6},
}

// placed is the Speed by placement: an iteration takes
//
//	T = (T_compute^γ + T_reduce^γ)^(1/γ)
//	T_reduce = 2(n−1)/n · bytes / worst link + 2(n−1) · α
//
// (Pollux, and for the ring Patarasuk and Yuan, Bandwidth optimal all-reduce
// algorithms, JPDC 69, 2009), and the speed is what it takes on the best place for
// the size, inside a node or a rack, by what it takes here.
type placed struct {
	links   Links
	blocks  []string
	racks   []string
	perNode int
}

// NewSpeed is the Speed by placement on a cluster.
func NewSpeed(c *Cluster, links Links) Speed {
	s := placed{links: links, perNode: c.PerNode}
	for i := range c.Nodes {
		block := c.Nodes[i].Levels[model.LevelBlock]
		s.blocks = append(s.blocks, block)
		s.racks = append(s.racks, block+"/"+c.Nodes[i].Levels[model.LevelRack])
	}
	return s
}

// Of implements Speed.
func (s placed) Of(j *JobShape, pieces []Piece) float64 {
	if j.GPUs == 1 || len(pieces) == 0 {
		return 1
	}
	kind, known := kinds[j.Class]
	if !known {
		kind = kinds["finetune"]
	}
	return s.iteration(kind, j.GPUs, s.best(j.GPUs)) / s.iteration(kind, j.GPUs, s.link(pieces))
}

// link is the worst link of a ring through all pieces.
func (s placed) link(pieces []Piece) float64 {
	first := pieces[0].Node
	worst := s.links.Node
	for _, p := range pieces[1:] {
		switch {
		case s.blocks[p.Node] != s.blocks[first]:
			return s.links.Cluster
		case s.racks[p.Node] != s.racks[first]:
			worst = min(worst, s.links.Block)
		default:
			worst = min(worst, s.links.Rack)
		}
	}
	return worst
}

// best is the worst link of the best place for a size.
func (s placed) best(gpus int) float64 {
	switch nodes := (gpus + s.perNode - 1) / s.perNode; {
	case nodes <= 1:
		return s.links.Node
	case nodes <= nodesPerRack:
		return s.links.Rack
	case nodes <= nodesPerRack*racksPerBlock:
		return s.links.Block
	}
	return s.links.Cluster
}

func (s placed) iteration(k Kind, gpus int, link float64) float64 {
	n := float64(gpus)
	reduce := 2*(n-1)/n*k.Bytes/link + 2*(n-1)*s.links.Alpha
	return math.Pow(math.Pow(k.Compute, k.Overlap)+math.Pow(reduce, k.Overlap), 1/k.Overlap)
}
