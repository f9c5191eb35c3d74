package sim

import (
	"errors"
	"fmt"

	"github.com/caravan-sched/caravan/planner/core/model"
)

// ErrSetup is the error for a simulation that cannot be.
var ErrSetup = errors.New("invalid simulation")

// The layout of a regular cluster: racks of four nodes, and blocks of eight
// racks, as in an NVIDIA DGX SuperPOD, whose scalable unit has 32 nodes.
const (
	nodesPerRack  = 4
	racksPerBlock = 8
)

// Cluster is what is simulated on.
type Cluster struct {
	Levels []string
	Nodes  []model.Node
	// GPUs counts all GPUs, PerNode the most that a node has to be had as a whole, at
	// least 1.
	GPUs, PerNode int
	// Burst is where nodes can be bought; see WithPools. home is how many of Nodes
	// are not bought, 0: all.
	Burst model.Burst
	home  int
	// named: the models of its GPUs are those that somebody has said, and jobs may name
	// them.
	named bool
	// modes are how GPUs are offered, by node; nil: all as a whole.
	modes [][]gpuMode
}

// most counts all GPUs that there can be, those of nodes that can be bought
// included.
func (c *Cluster) most() int {
	n := 0
	for i := range c.Nodes {
		n += len(c.Nodes[i].GPUs)
	}
	return n
}

// Holds reports whether a gang of so many GPUs has a place while nothing else runs: as
// many of the largest nodes as it fills, and one more for the rest.
func (c *Cluster) Holds(gpus int) bool { return c.holds(gpus, c.PerNode) }

// holds is Holds of a gang that is cut into members of so many GPUs.
func (c *Cluster) holds(gpus, perNode int) bool {
	if perNode < 1 {
		return false
	}
	whole, rest := members(gpus, perNode)
	full, other := 0, false
	for i := range c.Nodes {
		switch n := c.wholes(i); {
		case n >= perNode:
			full++
		case n >= rest:
			other = true
		}
	}
	return full > whole || full == whole && (rest == 0 || other)
}

// maxClusterGPUs bounds a cluster.
const maxClusterGPUs = 1 << 20

// Regular is a cluster of equal nodes, each one NVLink island.
func Regular(gpus, perNode int) (Cluster, error) {
	if gpus < 1 || perNode < 1 || perNode > 64 || gpus > maxClusterGPUs || gpus%perNode != 0 {
		return Cluster{}, fmt.Errorf("%w: %d GPUs with %d per node: want a multiple, of 1 to 64 per node and at most %d together", ErrSetup, gpus, perNode, maxClusterGPUs)
	}
	c := Cluster{Levels: []string{model.LevelBlock, model.LevelRack}, GPUs: gpus, PerNode: perNode}
	for i := range gpus / perNode {
		rack := i / nodesPerRack
		n := model.Node{
			ID: fmt.Sprintf("n%05d", i), Datacenter: "dc1", Pool: "default",
			Levels: map[string]string{
				model.LevelBlock: fmt.Sprintf("b%03d", rack/racksPerBlock), model.LevelRack: fmt.Sprintf("r%d", rack%racksPerBlock),
			},
			Capacity: model.Resources{CPUMHz: 1 << 20, MemoryMiB: 1 << 21, DiskMiB: 1 << 24},
		}
		for g := range perNode {
			n.GPUs = append(n.GPUs, model.GPU{UUID: fmt.Sprintf("%s.%d", n.ID, g), Vendor: "nvidia", Type: "gpu", Model: "H100", NUMA: -1})
		}
		c.Nodes = append(c.Nodes, n)
	}
	return c, nil
}
