package place

import (
	"math/bits"

	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/core/topo"
)

// Why a node takes no member of a request.
const (
	whyFits uint8 = iota
	whyRefused
	whyClosed
	whyKept
	whyDevice
	whyGPUs
	whyCPU
	whyCores
	whyMemory
	whyDisk
	whyPorts
	whyShared
)

// whyText are the words for Detail.Filtered; refused nodes have their own.
var whyText = [...]string{
	whyClosed: "unschedulable",
	whyKept:   "kept for a job ahead",
	whyDevice: "no such device",
	whyGPUs:   "too few free GPUs",
	whyCPU:    "cpu",
	whyCores:  "cores",
	whyMemory: "memory",
	whyDisk:   "disk",
	whyPorts:  "port in use",
	whyShared: "shared GPUs expected to be too full",
}

// maxPerNode bounds how many members one node is said to take.
const maxPerNode = 1 << 20

// fit says what a node can do for a request when row is what is free.
func (c *Catalog) fit(r *Request, node int32, row *topo.Row) topo.Fit {
	f, usable, free := c.takes(r, node, row)
	if f.Members == 0 {
		return f
	}
	members := int(f.Members)
	f.Room = topo.RoomOf(row.Free.CPUMHz/members, row.Free.MemoryMiB/members, row.Free.DiskMiB/members)
	if r.GPUs == 0 {
		// Without GPUs it goes where the fewest are left to be stranded.
		f.Score = uint32(bits.OnesCount64(row.GPUs))
		return f
	}
	f.Score = score(&c.Tree.Nodes[node], usable, free, row.GPUs, r.GPUs, f.Island > 0)
	if r.shares {
		f.Score = c.sharedScore(r, node, row, free, f.Score)
	}
	return f
}

// takes says how many members a node takes when row is what is free, or why none, but
// not how well: that costs as much again. usable are the GPUs that the request could
// use, free those of them that are.
func (c *Catalog) takes(r *Request, node int32, row *topo.Row) (f topo.Fit, usable, free uint64) {
	if !r.Verdicts.Eligible(int(node)) {
		return topo.Fit{Why: whyRefused}, 0, 0
	}
	n := &c.Tree.Nodes[node]
	want, usable := c.usable(r, node)
	open := c.open(r, node, row)
	free = usable & open
	f.GPUs = int32(bits.OnesCount64(free))
	switch {
	case row.Closed:
		return topo.Fit{Why: whyClosed}, 0, 0
	case row.Owner != 0:
		return topo.Fit{Why: whyKept}, 0, 0
	case !want:
		return topo.Fit{Why: whyDevice}, 0, 0
	case !row.PortsFree(r.Ports):
		f.Why = whyPorts
		return f, usable, free
	}
	claim := c.claim(r, node)
	members, why := plainFit(claim.Resources, row.Free)
	if len(r.Ports) > 0 || r.OnePerNode {
		members = min(members, 1)
	}
	if r.GPUs > 0 {
		// GPUs come first: a node that lacks them and CPU too lacks GPUs.
		gpuMembers := min(maxPerNode, c.capacity(r, node, open))
		if gpuMembers == 0 {
			f.Why = whyGPUs
			if open != row.GPUs && c.capacity(r, node, row.GPUs) > 0 {
				f.Why = whyShared
			}
			return f, usable, free
		}
		members = min(members, gpuMembers)
	}
	if members == 0 {
		f.Why = why
		return f, usable, free
	}
	f.Members, f.Island = int32(members), int32(members)
	if r.GPUs > 0 && n.Shape.Islands[0] != n.All { // else all of the node is one
		inIsland := 0
		for _, island := range n.Shape.Islands {
			inIsland = max(inIsland, c.capacity(r, node, open&island))
		}
		f.Island = min(f.Members, int32(inIsland))
	}
	return f, usable, free
}

// plainFit is how many members fit by resources, and what stops the next one.
// A node on which more is held than it has takes nobody, as in Nomad, whatever
// is asked for.
func plainFit(ask, free model.Resources) (members int, why uint8) {
	members = maxPerNode
	limit := func(ask, free int, reason uint8) {
		n := maxPerNode
		switch {
		case free < 0:
			n = 0
		case ask > 0:
			n = free / ask
		}
		if n < members {
			members, why = n, reason
		}
	}
	limit(ask.CPUMHz, free.CPUMHz, whyCPU)
	limit(ask.Cores, free.Cores, whyCores)
	limit(ask.MemoryMiB, free.MemoryMiB, whyMemory)
	limit(ask.DiskMiB, free.DiskMiB, whyDisk)
	return members, why
}

// usable is the union of what the node's device groups offer to the request,
// busy or not; want is false if some ask finds nothing at all.
func (c *Catalog) usable(r *Request, node int32) (want bool, mask uint64) {
	groups := c.Tree.Nodes[node].Groups
	for i := range r.asks {
		var offered uint64
		if a := &r.asks[i]; len(groups) == 1 && !a.perNode {
			if a.kinds[groups[0].Kind] {
				offered = groups[0].Mask
			}
		} else {
			for _, g := range groups {
				offered |= c.mask(a, node, g)
			}
		}
		if offered == 0 {
			return false, 0
		}
		mask |= offered
	}
	return true, mask
}

// capacity is how many members the free GPUs of a node suffice for. Every ask
// is served out of one device group, as Nomad does it.
func (c *Catalog) capacity(r *Request, node int32, free uint64) int {
	if free == 0 {
		return 0
	}
	groups := c.Tree.Nodes[node].Groups
	if len(groups) == 1 && !r.perNode() {
		for i := range r.asks {
			if !r.asks[i].kinds[groups[0].Kind] {
				return 0
			}
		}
		return bits.OnesCount64(groups[0].Mask&free) / r.GPUs
	}
	if len(r.asks) == 1 {
		total := 0
		for _, g := range groups {
			total += bits.OnesCount64(c.mask(&r.asks[0], node, g)&free) / r.GPUs
		}
		return total
	}
	n := 0
	for most := bits.OnesCount64(free) / r.GPUs; n < most; n++ {
		if !c.packs(r, node, free, n+1, nil) {
			break
		}
	}
	return n
}

func (r *Request) perNode() bool {
	for i := range r.asks {
		if r.asks[i].perNode {
			return true
		}
	}
	return false
}

// packs reports whether count members fit into the free GPUs, and if out is
// not nil says which GPUs each ask of each member gets. It tries every way to
// spread the asks over the device groups.
func (c *Catalog) packs(r *Request, node int32, free uint64, count int, out *[]uint64) bool {
	groups := c.Tree.Nodes[node].Groups
	offers := make([]uint64, len(r.asks)*len(groups))
	for i := range r.asks {
		for k, g := range groups {
			offers[i*len(groups)+k] = c.mask(&r.asks[i], node, g)
		}
	}
	steps := maxPackSteps
	picked := make([]uint64, 0, count*len(r.asks))
	var place func(at int, free uint64) bool
	place = func(at int, free uint64) bool {
		if at == count*len(r.asks) {
			return true
		}
		if steps--; steps < 0 {
			return false
		}
		i := at % len(r.asks)
		need := r.asks[i].device.Count
		for k := range groups {
			can := offers[i*len(groups)+k] & free
			if bits.OnesCount64(can) < need {
				continue
			}
			set := c.sparing(r, node, can, need, offers, i*len(groups)+k)
			picked = append(picked[:at], set)
			if place(at+1, free&^set) {
				return true
			}
		}
		return false
	}
	if !place(0, free) {
		return false
	}
	if out != nil {
		*out = append(*out, picked...)
	}
	return true
}

// maxPackSteps bounds the search within one node.
const maxPackSteps = 4096

// sparing picks GPUs, first those that no other ask could use.
func (c *Catalog) sparing(r *Request, node int32, can uint64, need int, offers []uint64, self int) uint64 {
	var contested uint64
	for i, offer := range offers {
		if i != self && offer != offers[self] {
			contested |= offer
		}
	}
	own := can &^ contested
	if n := bits.OnesCount64(own); n < need {
		rest := c.chooserFor(r).choose(c.Tree.Nodes[node].Shape, can&contested, need-n)
		for _, g := range rest {
			own |= 1 << g
		}
		return own
	}
	var set uint64
	for _, g := range c.chooserFor(r).choose(c.Tree.Nodes[node].Shape, own, need) {
		set |= 1 << g
	}
	return set
}

// score orders nodes for one more member of k GPUs, lower first: inside an
// island rather than across; not breaking a whole island; not breaking a whole
// node; leaving little over in the island; leaving little over in the node. A
// whole island counts for more than a whole node because NVLink is what is
// scarce: a node without it loses little by being shared. all is what is free,
// of use or not: a GPU that is divided into several profiles is whole while all
// of its instances are free.
func score(n *topo.Node, usable, free, all uint64, k int, islandFits bool) uint32 {
	var s uint32
	if !islandFits {
		s |= acrossBit
	}
	left := bits.OnesCount64(free) - k
	if free == usable && left > 0 {
		s |= 1 << 18
	}
	if islandFits {
		least, breaks := topo.MaxGPUs, true
		for _, island := range n.Shape.Islands {
			over := bits.OnesCount64(island&free) - k
			if over < 0 {
				continue
			}
			whole := island&all == island && bits.OnesCount64(island) > k
			if breaks && !whole || whole == breaks && over < least {
				least, breaks = over, whole
			}
		}
		if breaks {
			s |= 1 << 19
		}
		s |= uint32(least) << 8
	}
	return s | uint32(max(left, 0))
}
