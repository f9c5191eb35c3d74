package place

import (
	"encoding/binary"
	"slices"

	"github.com/caravan-sched/caravan/planner/core/feasible"
	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/core/topo"
)

// Request is what one member of a task group needs, compiled for one tree.
// Groups that need the same share one Request.
type Request struct {
	Resources model.Resources
	Ports     []uint16
	// GPUs is how many one member needs, all its asks together.
	GPUs int
	// Verdicts are the nodes that the group may use at all.
	Verdicts *feasible.Verdicts
	// OnePerNode: the group's members must be on distinct hosts.
	OnePerNode bool

	// key is what it was compiled from.
	key string
	// shares: some of its asks may be served by time slices; usage is what is known
	// of how much a member uses of one, nil if nothing.
	shares bool
	usage  *model.Usage
	// allToAll: see chooser.
	allToAll bool
	asks     []ask
	// counts are the asks' GPUs.
	counts []int
	// plain is the same request without CPU, memory and disk, nil if there is
	// nothing to leave out. Where GPUs are what is scarce its summary is this
	// request's too, and so that of all sizes alike.
	plain *Request
}

// GPUsOnly is the request without CPU, memory and disk, if there is one that is
// kept.
func (r *Request) GPUsOnly() *Request {
	if r.plain != nil {
		return r.plain
	}
	return r
}

// ask is one device block.
type ask struct {
	device model.DeviceAsk
	// kinds says which of the tree's kinds match; perNode means that their
	// instances must be looked at too.
	kinds   []bool
	perNode bool
}

// Catalog compiles task groups for one tree, and knows what is fixed about its
// nodes. Not safe for concurrent use.
type Catalog struct {
	Tree     *topo.Tree
	Nodes    *feasible.Nodes
	requests map[string]*Request
	kinds    map[string][]bool
	choosers [2]chooser
	reach    map[*Request][]int
	levels   map[model.Topology][]int
	key      []byte
}

// NewCatalog makes a catalog for a tree.
func NewCatalog(t *topo.Tree) *Catalog {
	nodes := make([]*model.Node, len(t.Nodes))
	for i := range t.Nodes {
		nodes[i] = t.Nodes[i].Model
	}
	return &Catalog{Tree: t, Nodes: feasible.NewNodes(nodes), requests: map[string]*Request{}, kinds: map[string][]bool{}, reach: map[*Request][]int{}, levels: map[model.Topology][]int{}}
}

// Key is the same for requests alike.
func (r *Request) Key() string { return r.key }

// chooserFor picks the GPUs of a request's members.
func (c *Catalog) chooserFor(r *Request) *chooser {
	if r.allToAll {
		c.choosers[1].allToAll = true
		return &c.choosers[1]
	}
	return &c.choosers[0]
}

// maxRequests bounds the compiled requests kept.
const maxRequests = 4096

// Compile compiles a job's task group.
func (c *Catalog) Compile(job *model.Job, group *model.TaskGroup) *Request {
	c.key = requestKey(c.key[:0], job, group)
	if r := c.requests[string(c.key)]; r != nil {
		return r
	}
	key := string(c.key)
	if len(c.requests) >= maxRequests {
		clear(c.requests)
		clear(c.reach)
	}
	r := &Request{
		key:       key,
		Resources: group.Resources,
		Verdicts: c.Nodes.Verdicts(feasible.Filter{
			Region: job.Region, Datacenters: job.Datacenters, Pool: job.Pool,
			Constraints: job.Constraints, Group: group.Constraints,
		}),
		OnePerNode: feasible.DistinctHosts(job.Constraints) || feasible.DistinctHosts(group.Constraints),
	}
	if r.shares = shares(group); r.shares {
		r.usage = job.Usage
	}
	r.allToAll = job.Collective == model.CollectiveAllToAll
	for _, p := range group.Ports {
		r.Ports = append(r.Ports, uint16(p))
	}
	slices.Sort(r.Ports)
	for _, d := range group.Devices {
		if d.Count == 0 {
			continue
		}
		r.GPUs += d.Count
		r.counts = append(r.counts, d.Count)
		r.asks = append(r.asks, ask{device: d, kinds: c.matchingKinds(d), perNode: feasible.PerNode(d)})
	}
	if g := *group; r.GPUs > 0 && g.Resources.Cores == 0 && g.Resources != (model.Resources{}) {
		g.Resources = model.Resources{}
		r.plain = c.Compile(job, &g)
	}
	c.requests[key] = r
	return r
}

// shares reports whether a member may be given time slices.
func shares(group *model.TaskGroup) bool {
	return slices.ContainsFunc(group.Devices, func(d model.DeviceAsk) bool { return d.Shared != "" && d.Count == 1 })
}

// requestKey appends everything that Compile looks at.
func requestKey(key []byte, job *model.Job, group *model.TaskGroup) []byte {
	text := func(s string) {
		key = binary.AppendUvarint(key, uint64(len(s)))
		key = append(key, s...)
	}
	number := func(n int) { key = binary.AppendVarint(key, int64(n)) }
	constraints := func(list []model.Constraint) {
		number(len(list))
		for _, c := range list {
			text(c.Left)
			text(c.Operand)
			text(c.Right)
		}
	}
	text(job.Region)
	text(job.Pool)
	if job.Collective == model.CollectiveAllToAll {
		text(job.Collective)
	} else {
		text("")
	}
	number(len(job.Datacenters))
	for _, dc := range job.Datacenters {
		text(dc)
	}
	constraints(job.Constraints)
	constraints(group.Constraints)
	for _, n := range []int{group.Resources.CPUMHz, group.Resources.Cores, group.Resources.MemoryMiB, group.Resources.DiskMiB, len(group.Ports)} {
		number(n)
	}
	for _, p := range group.Ports {
		number(p)
	}
	for _, d := range group.Devices {
		text(d.Name)
		number(d.Count)
		constraints(d.Constraints)
		text(d.Shared)
	}
	if u := job.Usage; u != nil && shares(group) {
		number(u.MemoryMiB)
		number(u.Busy)
		for _, m := range u.Minutes {
			number(m)
		}
	}
	return key
}

// matchingKinds evaluates an ask on every kind of device group, instance IDs
// and unique attributes left aside: those are looked at node by node.
func (c *Catalog) matchingKinds(d model.DeviceAsk) []bool {
	like := model.DeviceAsk{Name: d.Name, Count: 1, Constraints: d.Constraints, Shared: d.Shared}
	if d.Count != 1 && d.Shared != "" {
		like.Count = 2 // several slices are not several GPUs
	}
	group := model.TaskGroup{Devices: []model.DeviceAsk{like}}
	key := string(requestKey(nil, &model.Job{}, &group))
	if kinds := c.kinds[key]; kinds != nil {
		return kinds
	}
	kinds := make([]bool, len(c.Tree.Kinds))
	shared := d
	if feasible.PerNode(d) {
		shared.Constraints = nil
	}
	for i := range kinds {
		k := &c.Tree.Kinds[i]
		kinds[i] = c.Nodes.Checker().MatchesDevice(shared, &feasible.DeviceGroup{Vendor: k.Vendor, Type: k.Type, Model: k.Model, Attributes: k.Attributes, Shared: k.Shared})
	}
	c.kinds[key] = kinds
	return kinds
}

// mask is the part of a node's device group that an ask may be given, busy or
// not.
func (c *Catalog) mask(a *ask, node int32, g topo.Group) uint64 {
	if !a.kinds[g.Kind] {
		return 0
	}
	if !a.perNode {
		return g.Mask
	}
	m := c.Tree.Nodes[node].Model
	device := feasible.DeviceGroup{Shared: c.Tree.Kinds[g.Kind].Shared}
	topo.Each(g.Mask, func(i int) {
		gpu := &m.GPUs[i]
		device.Vendor, device.Type, device.Model, device.Attributes = gpu.Vendor, gpu.Type, gpu.Model, gpu.Attributes
		device.IDs = append(device.IDs, gpu.UUID)
	})
	if !c.Nodes.Checker().MatchesDevice(a.device, &device) {
		return 0
	}
	var mask uint64
	topo.Each(g.Mask, func(i int) {
		if c.Nodes.Checker().MatchesID(a.device, &device, m.GPUs[i].UUID) {
			mask |= 1 << i
		}
	})
	return mask
}

// claim is what a member takes of a node besides GPUs. Cores take their share
// of the node's MHz with them, as in Nomad.
func (c *Catalog) claim(r *Request, node int32) topo.Claim {
	res := r.Resources
	if capacity := c.Tree.Nodes[node].Model.Capacity; res.Cores > 0 && capacity.Cores > 0 {
		res.CPUMHz += res.Cores * capacity.CPUMHz / capacity.Cores
	}
	return topo.Claim{Resources: res, Ports: r.Ports, Usage: r.usage}
}
