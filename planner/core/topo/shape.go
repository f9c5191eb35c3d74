package topo

import (
	"encoding/binary"
	"math"
	"math/bits"
	"slices"
	"strconv"
	"strings"

	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/core/together"
)

// Shape is how the GPUs of a node are joined.
type Shape struct {
	// ID numbers the cluster's shapes.
	ID int
	// GPUs is how many there are.
	GPUs int
	// Islands are the NVLink islands' GPUs, by the lowest GPU in each. The
	// instances or slices of a GPU are one: together they are the whole of it.
	Islands []uint64
	// Divided is set if some are instances or slices of a GPU.
	Divided bool
	// Shared are the GPUs of which the node's devices are time slices; none on most
	// nodes.
	Shared []SharedGPU
	// IslandOf is every GPU's index in Islands.
	IslandOf []int
	// NUMA is every GPU's NUMA node, -1 if unknown.
	NUMA []int
	// Bandwidth is in GB/s per direction between each pair, the weaker
	// direction counting; estimated from the link's kind where not measured.
	Bandwidth [][]float64
	// Even is set for islands all of whose pairs have the same bandwidth: any
	// set of their GPUs is as good as any other.
	Even []bool
}

// SharedGPU is a GPU that is offered in time slices.
type SharedGPU struct {
	together.GPU
	// Mask are its slices, which are one of the Islands.
	Mask uint64
}

// Estimates in GB/s per direction, for links whose bandwidth nobody measured.
// Only their order matters; they are a fourth-generation PCIe slot's and a
// third-generation NVLink's.
const (
	nvlinkGBs = 25
	pixGBs    = 22
	pxbGBs    = 20
	phbGBs    = 16
	nodeGBs   = 12
	sysGBs    = 8
)

// linkGBs is a link's bandwidth.
func linkGBs(l model.Link) float64 {
	if l.GBs > 0 {
		return l.GBs
	}
	for _, prefix := range []string{"NV", "XGMI"} {
		if count, ok := strings.CutPrefix(l.Kind, prefix); ok {
			if n, err := strconv.Atoi(count); err == nil && n > 0 && n <= 1024 {
				return float64(n * nvlinkGBs)
			}
			return nvlinkGBs
		}
	}
	switch l.Kind {
	case "PIX":
		return pixGBs
	case "PXB":
		return pxbGBs
	case "PHB":
		return phbGBs
	case "NODE":
		return nodeGBs
	default:
		return sysGBs
	}
}

// shape finds or makes the node's shape.
func (in *interner) shape(node *model.Node) *Shape {
	if in.of.Shape != nil && joinedAlike(node, in.of.Model) {
		return in.of.Shape
	}
	in.key = shapeKey(in.key[:0], node)
	key := in.key
	if s := in.shapes[string(key)]; s != nil {
		return s
	}
	s := newShape(node)
	s.ID = len(in.shapes)
	in.shapes[string(key)] = s
	return s
}

// joinedAlike reports whether the GPUs of two nodes are joined in the same way. It
// may say no where they are.
func joinedAlike(a, b *model.Node) bool {
	if len(a.GPUs) != len(b.GPUs) || len(a.Links) != len(b.Links) {
		return false
	}
	for i := range a.GPUs {
		x, y := &a.GPUs[i], &b.GPUs[i]
		if x.Island != y.Island || x.NUMA != y.NUMA || x.Parent != "" || y.Parent != "" || x.Slices > 0 || y.Slices > 0 {
			return false
		}
	}
	for i := range a.Links {
		if !slices.Equal(a.Links[i], b.Links[i]) {
			return false
		}
	}
	return true
}

func shapeKey(key []byte, node *model.Node) []byte {
	for i := range node.GPUs {
		key = binary.LittleEndian.AppendUint64(key, uint64(node.GPUs[i].Island))
		key = binary.LittleEndian.AppendUint64(key, uint64(node.GPUs[i].NUMA))
		if parent := node.GPUs[i].Parent; parent != "" {
			first := slices.IndexFunc(node.GPUs, func(g model.GPU) bool { return g.Parent == parent })
			key = append(key, 'p', byte(first))
		}
		if g := &node.GPUs[i]; g.Slices > 0 {
			key = append(key, 's', byte(g.Slices))
			key = binary.LittleEndian.AppendUint64(key, uint64(g.SharedMiB))
		}
	}
	for _, row := range node.Links {
		for _, l := range row {
			key = binary.LittleEndian.AppendUint64(key, math.Float64bits(linkGBs(l)))
		}
	}
	return key
}

func newShape(node *model.Node) *Shape {
	n := len(node.GPUs)
	s := &Shape{GPUs: n, IslandOf: make([]int, n), NUMA: make([]int, n), Bandwidth: make([][]float64, n)}
	type part struct {
		island int
		parent string
	}
	index := map[part]int{}
	for i := range node.GPUs {
		g := &node.GPUs[i]
		of := part{island: g.Island}
		if g.Parent != "" {
			of, s.Divided = part{parent: g.Parent}, true
		}
		at, known := index[of]
		if !known {
			at = len(s.Islands)
			index[of] = at
			s.Islands = append(s.Islands, 0)
		}
		s.Islands[at] |= 1 << i
		s.IslandOf[i], s.NUMA[i] = at, g.NUMA
	}
	for _, island := range s.Islands {
		if g := &node.GPUs[bits.TrailingZeros64(island)]; g.Slices > 0 {
			s.Shared = append(s.Shared, SharedGPU{together.GPU{Slices: g.Slices, MemoryMiB: g.SharedMiB}, island})
		}
	}
	for i := range n {
		s.Bandwidth[i] = make([]float64, n)
		for j := range n {
			if i != j {
				s.Bandwidth[i][j] = s.bandwidth(node, i, j)
			}
		}
	}
	s.Even = make([]bool, len(s.Islands))
	for k, island := range s.Islands {
		s.Even[k] = s.even(island)
	}
	return s
}

func (s *Shape) bandwidth(node *model.Node, i, j int) float64 {
	switch {
	case node.Links != nil:
		return min(linkGBs(node.Links[i][j]), linkGBs(node.Links[j][i]))
	case s.IslandOf[i] == s.IslandOf[j]:
		return nvlinkGBs
	case s.NUMA[i] == s.NUMA[j]:
		return nodeGBs
	default:
		return sysGBs
	}
}

func (s *Shape) even(island uint64) bool {
	first, even := -1.0, true
	Each(island, func(i int) {
		Each(island, func(j int) {
			if i == j {
				return
			}
			if first < 0 {
				first = s.Bandwidth[i][j]
			}
			even = even && s.Bandwidth[i][j] == first
		})
	})
	return even
}
