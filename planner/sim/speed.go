package sim

import (
	"fmt"
	"maps"
	"math"
	"slices"

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

// Oversubscription is by how much the network above the racks, and above the blocks, has
// less than all adapters below it could send at once: 1 is nothing less. The zero value
// stands for DefaultOversubscription.
type Oversubscription struct{ Rack, Block float64 }

// DefaultOversubscription is that of blocks within which any adapter can send at its full
// rate, as in an NVIDIA DGX SuperPOD's scalable units, and above which two share a port.
var DefaultOversubscription = Oversubscription{Rack: 1, Block: 2}

// maxOversubscription is the most that can be said.
const maxOversubscription = 1000

// fault says what is wrong with it; "" if nothing is.
func (o Oversubscription) fault() string {
	if o == (Oversubscription{}) || o.Rack >= 1 && o.Block >= o.Rack && o.Block <= maxOversubscription {
		return ""
	}
	return fmt.Sprintf("oversubscription %g above racks, %g above blocks: want 1 or more, no less above blocks than above racks, and at most %d", o.Rack, o.Block, maxOversubscription)
}

// H100NDR are nodes of H100 joined by NDR InfiniBand, one adapter for each GPU: NVLink
// 4 has 450 GB/s, an adapter 50, and what is above racks and blocks a part of that.
func H100NDR(o Oversubscription) Links {
	if o == (Oversubscription{}) {
		o = DefaultOversubscription
	}
	const adapter = 50
	return Links{Node: 450, Rack: adapter, Block: adapter / o.Rack, Cluster: adapter / o.Block, Alpha: 5e-6}
}

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

// ByPlace is the Speed by placement: an iteration takes
//
//	T = (T_compute^γ + T_reduce^γ)^(1/γ)
//	T_reduce = 2(n−1)/n · bytes / worst link + 2(n−1) · α
//
// (Pollux, and for the ring Patarasuk and Yuan, Bandwidth optimal all-reduce
// algorithms, JPDC 69, 2009), and the speed is what it takes on the best place for
// the size, inside a node or a rack, by what it takes here.
type ByPlace struct {
	links   Links
	blocks  []string
	racks   []string
	perNode int
	// room are all racks, and all blocks, that are not bought; known are the best links
	// of sizes, as they are found.
	roomRacks, roomBlocks []room
	known                 map[int]float64
}

// room is what a rack or a block has: how many of the largest nodes, and how many GPUs
// the largest of the others.
type room struct{ full, other int }

func (r room) holds(gpus, perNode int) bool {
	whole, rest := members(gpus, perNode)
	return r.full > whole || r.full == whole && r.other >= rest
}

// NewSpeed is the Speed by placement on a cluster.
func NewSpeed(c *Cluster, links Links) ByPlace {
	s := ByPlace{links: links, perNode: c.PerNode, known: map[int]float64{}}
	racks, blocks := map[string]*room{}, map[string]*room{}
	add := func(to map[string]*room, name string, gpus int) {
		if to[name] == nil {
			to[name] = &room{}
		}
		if gpus >= c.PerNode {
			to[name].full++
		} else {
			to[name].other = max(to[name].other, gpus)
		}
	}
	for i := range c.Nodes {
		block := c.Nodes[i].Levels[model.LevelBlock]
		s.blocks = append(s.blocks, block)
		s.racks = append(s.racks, block+"/"+c.Nodes[i].Levels[model.LevelRack])
		if i < c.homes() {
			add(blocks, block, c.wholes(i))
			add(racks, s.racks[i], c.wholes(i))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(racks)) {
		s.roomRacks = append(s.roomRacks, *racks[name])
	}
	for _, name := range slices.Sorted(maps.Keys(blocks)) {
		s.roomBlocks = append(s.roomBlocks, *blocks[name])
	}
	return s
}

// Of implements Speed.
func (s ByPlace) Of(j *JobShape, pieces []Piece) float64 {
	if j.GPUs == 1 || len(pieces) == 0 {
		return 1
	}
	kind := kindOf(j.Class)
	link := s.link(pieces)
	best := max(link, s.best(j.GPUs)) // bought nodes may be closer together
	return s.iteration(kind, j.GPUs, best) / s.iteration(kind, j.GPUs, link)
}

// Grows is a Growth by the same model: of an iteration that takes its time on the GPUs
// asked for, the computing is divided among those that there are, and the reducing is not.
// Fewer GPUs than asked for are never worth more than their part, so that no schedule does
// more work than the bounds allow for.
func (s ByPlace) Grows(class string, asked, has int) float64 {
	kind := kindOf(class)
	took := s.iteration(kind, asked, s.best(asked))
	kind.Compute *= float64(asked) / float64(has)
	return min(linear(class, asked, has), took/s.iteration(kind, has, s.best(has)))
}

func kindOf(class string) Kind {
	if kind, known := kinds[class]; known {
		return kind
	}
	return kinds["finetune"]
}

// link is the worst link of a ring through all pieces.
func (s ByPlace) link(pieces []Piece) float64 {
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

// best is the worst link of the best place that the cluster has for a size.
func (s ByPlace) best(gpus int) float64 {
	if link, seen := s.known[gpus]; seen {
		return link
	}
	holds := func(r room) bool { return r.holds(gpus, s.perNode) }
	link := s.links.Cluster
	switch {
	case gpus <= s.perNode:
		link = s.links.Node
	case slices.ContainsFunc(s.roomRacks, holds):
		link = s.links.Rack
	case slices.ContainsFunc(s.roomBlocks, holds):
		link = s.links.Block
	}
	s.known[gpus] = link
	return link
}

func (s ByPlace) iteration(k Kind, gpus int, link float64) float64 {
	n := float64(gpus)
	reduce := 2*(n-1)/n*k.Bytes/link + 2*(n-1)*s.links.Alpha
	return math.Pow(math.Pow(k.Compute, k.Overlap)+math.Pow(reduce, k.Overlap), 1/k.Overlap)
}
