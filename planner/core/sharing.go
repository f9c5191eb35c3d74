package core

import (
	"cmp"
	"fmt"
	"math/bits"
	"slices"
	"strings"

	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/core/together"
	"github.com/caravan-sched/caravan/planner/core/topo"
)

// What is told of GPUs that several tasks use in turn: with whom a task got its
// slice, and why others did not.

// sharedPlaced says on what shared GPU the first of some members is, and beside
// whom; "" if none is on any.
func (c *cycle) sharedPlaced(j *model.Job, members []model.Member) string {
	text, more := "", 0
	for i := range members {
		node, ok := c.tree.Find(members[i].Node)
		if !ok || len(c.tree.Nodes[node].Shape.Shared) == 0 {
			continue
		}
		mask := c.gpuMask(node, members[i].GPUs)
		for k := range c.tree.Nodes[node].Shape.Shared {
			s := &c.tree.Nodes[node].Shape.Shared[k]
			switch {
			case s.Mask&mask == 0:
			case text == "":
				text = c.onShared(j, node, s, mask)
			default:
				more++
			}
		}
	}
	if more > 0 {
		text += fmt.Sprintf("; %d more on shared GPUs", more)
	}
	return text
}

// onShared tells of one shared GPU, on which a job has the slices of mask.
func (c *cycle) onShared(j *model.Job, node int32, s *topo.SharedGPU, mask uint64) string {
	row := c.views[viewNow].State.Row(node)
	load := s.Load(row.UsersOf(s.Mask))
	text := fmt.Sprintf("; on %s of %d of GPU %s", plural(bits.OnesCount64(s.Mask&mask), "slice"), s.Slices, c.parentOf(node, s))
	beside := c.sharers(node, s.Mask&^mask, j)
	if len(beside) == 0 {
		return text + ", alone for now"
	}
	text += fmt.Sprintf(", beside %s: expected are %s", nameList(beside), expected(s, load))
	if u := j.Usage; u != nil {
		if rho := together.Worst(u, row.UsersOf(s.Mask&^mask)); rho > together.Coincide {
			text += fmt.Sprintf("; they are busy at the same times (correlation %.2f), but no other slice is free", rho)
		} else if rho != 0 {
			text += fmt.Sprintf("; they are not busy at the same times (correlation %.2f at most)", rho)
		}
	}
	return text
}

// expected says what a shared GPU is expected to be used.
func expected(s *topo.SharedGPU, l together.Load) string {
	memory := ""
	if s.MemoryMiB > 0 {
		memory = fmt.Sprintf("%d of %d MiB, and ", l.MemoryMiB, s.MemoryMiB)
	}
	return fmt.Sprintf("%s%d %% of the time busy", memory, l.Busy)
}

// parentOf names the GPU that slices are parts of.
func (c *cycle) parentOf(node int32, s *topo.SharedGPU) string {
	return c.tree.Nodes[node].Model.GPUs[bits.TrailingZeros64(s.Mask)].Parent
}

// sharers names who holds slices, by name: what is there, and what this plan has
// put there.
func (c *cycle) sharers(node int32, mask uint64, j *model.Job) []string {
	var names []string
	for _, h := range c.holders(node) {
		if h.gpus&mask != 0 {
			names = append(names, c.holderName(j, h.job, h.alloc))
		}
	}
	for _, i := range c.givenAt(node) {
		if c.given[i].gpus&mask != 0 {
			names = append(names, c.holderName(j, c.given[i].job, ""))
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// sharedWanted says why a gang that may have slices gets none of those that are
// free; "" if there are none.
func (c *cycle) sharedWanted(g *gang) string {
	for i := range g.unit.Parts {
		r := g.unit.Parts[i].Request
		if !r.Shares() || g.unit.Parts[i].Count == 0 {
			continue
		}
		near := c.nearestShared(g, i)
		if near.gpu == nil {
			continue
		}
		usage := "of it nothing is known yet, so it counts as an equal part"
		if u := r.Usage(); u != nil {
			usage = fmt.Sprintf("it is expected to take %d MiB and to be busy %d %% of the time, by %s", u.MemoryMiB, u.Busy, plural(u.Samples, "measurement"))
		}
		return fmt.Sprintf("; %s has %s of GPU %s free, but with it expected are %s; %s", nodeName(c.tree.Nodes[near.node].Model),
			plural(near.free, "slice"), c.parentOf(near.node, near.gpu), expected(near.gpu, near.load), usage)
	}
	return ""
}

// nearShared is a shared GPU that is nearly enough for one more task.
type nearShared struct {
	node int32
	gpu  *topo.SharedGPU
	free int
	load together.Load
}

// nearestShared finds the shared GPU with free slices that would be overloaded
// least by one more member of a part; none if it would not fit for another reason.
func (c *cycle) nearestShared(g *gang, part int) (best nearShared) {
	r, view := g.unit.Parts[part].Request, c.views[viewNow]
	over := func(n nearShared) int {
		too := max(0, n.load.Busy-together.MaxBusy)
		if n.gpu.MemoryMiB > 0 {
			too += 100 * max(0, n.load.MemoryMiB-n.gpu.MemoryMiB) / n.gpu.MemoryMiB
		}
		return too
	}
	for node := range int32(len(c.tree.Nodes)) {
		row := view.State.Row(node)
		if len(c.tree.Nodes[node].Shape.Shared) == 0 || row.Closed || !r.Verdicts.Eligible(int(node)) {
			continue
		}
		usable := c.catalog.Usable(r, node)
		for k := range c.tree.Nodes[node].Shape.Shared {
			s := &c.tree.Nodes[node].Shape.Shared[k]
			n := nearShared{node, s, bits.OnesCount64(s.Mask & row.GPUs & usable), together.Load{}}
			if n.free == 0 {
				continue
			}
			if n.load = s.Load(append(row.UsersOf(s.Mask), r.Usage())); s.Fits(n.load) {
				continue
			}
			if best.gpu == nil || cmp.Or(cmp.Compare(over(n), over(best)), strings.Compare(c.parentOf(node, s), c.parentOf(best.node, best.gpu))) < 0 {
				best = n
			}
		}
	}
	return best
}
