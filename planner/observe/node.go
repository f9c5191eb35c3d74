package observe

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/devicegpu/topology"
	"github.com/caravan-sched/caravan/planner/config"
	"github.com/caravan-sched/caravan/planner/core/feasible"
	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/gangspec"
)

// maxAttribute is the longest attribute kept, in bytes. Longer ones are data
// for programs that nobody constrains on, and a hostile node could fill the
// planner's memory with them.
const maxAttribute = 4 << 10

// nodeReader turns Nomad's nodes into the model's. It depends on nothing but
// the configuration and the node, so that its results can be kept until the
// node changes.
type nodeReader struct {
	levels     []config.Level
	levelNames []string
	devices    []string
	topology   *config.Topology
	// region is Nomad's, where it is a level of the tree; "" where it is not.
	region string
	// words keeps one copy of the strings that all nodes have in common.
	words map[string]string
}

// nodeEntry is what is known of one node.
type nodeEntry struct {
	modifyIndex uint64
	createIndex uint64
	status      string
	// statusAt is when the status was last set.
	statusAt time.Time
	// cutOffAt is when the servers missed a node that is cut off.
	cutOffAt time.Time
	model    model.Node
	ref      NodeRef
	warnings []Warning
}

func (r *nodeReader) read(n *api.Node) *nodeEntry {
	e := &nodeEntry{modifyIndex: n.ModifyIndex, createIndex: n.CreateIndex, status: n.Status, statusAt: time.Unix(n.StatusUpdatedAt, 0), cutOffAt: time.Unix(n.StatusUpdatedAt, 0)}
	e.model = model.Node{
		ID: n.ID, Name: n.Name,
		Datacenter:    r.word(n.Datacenter),
		Pool:          r.word(n.NodePool),
		Class:         r.word(n.NodeClass),
		Attributes:    r.attributes(n),
		Unschedulable: unschedulable(n),
		Capacity:      capacity(n),
		Bought:        bought(n),
	}
	var bad []string
	e.model.ReservedPorts, bad = reservedPorts(n)
	for _, text := range bad {
		e.warn("the agent's reserved_ports cannot be read: %s", text)
	}
	matrix, ok := r.gpus(n, e)
	r.place(n, e, matrix, ok)
	soundNode(e, r.levelNames)
	e.ref.ID, e.ref.Name, e.ref.Levels = n.ID, n.Name, e.model.Levels
	for _, g := range e.model.GPUs {
		if gangspec.MatchesAny(g.Vendor+"/"+g.Type+"/"+g.Model, r.devices) {
			e.ref.GPUs++
		}
	}
	if ok || e.ref.GPUs == 0 {
		e.ref.TopologyFault = ""
	}
	return e
}

func (e *nodeEntry) warn(format string, args ...any) {
	name := e.model.Name
	if name == "" {
		name = e.model.ID
	}
	e.warnings = append(e.warnings, Warning{Subject: "node " + name, Text: fmt.Sprintf(format, args...)})
}

func (r *nodeReader) word(s string) string {
	if w, ok := r.words[s]; ok {
		return w
	}
	s = strings.Clone(s)
	r.words[s] = s
	return s
}

// attributes are all that Nomad's constraints can name, keyed as they do.
func (r *nodeReader) attributes(n *api.Node) map[string]string {
	out := make(map[string]string, len(n.Attributes)+len(n.Meta)+5)
	keep := func(prefix string, from map[string]string) {
		for k, v := range from {
			switch {
			case len(k)+len(v) > maxAttribute:
			case strings.Contains(k, "unique."):
				out[r.word(prefix+k)] = v
			default:
				out[r.word(prefix+k)] = r.word(v)
			}
		}
	}
	keep("attr.", n.Attributes)
	keep("meta.", n.Meta)
	r.volumes(n, out)
	out["node.unique.id"] = n.ID
	out["node.unique.name"] = n.Name
	out["node.datacenter"] = r.word(n.Datacenter)
	out["node.class"] = r.word(n.NodeClass)
	out["node.pool"] = r.word(n.NodePool)
	return out
}

// unschedulable says why Nomad would place nothing new on the node.
func unschedulable(n *api.Node) string {
	switch {
	case n.Status != api.NodeStatusReady:
		if n.Status == "" {
			return "status unknown"
		}
		return n.Status
	case n.Drain:
		return "draining"
	case n.SchedulingEligibility == api.NodeSchedulingIneligible:
		return "ineligible"
	}
	return ""
}

// capacity is what a node has for allocations: all but what it reserves.
func capacity(n *api.Node) model.Resources {
	var out model.Resources
	if res := n.NodeResources; res != nil {
		out.CPUMHz = int(res.Cpu.CpuShares)
		out.Cores = len(res.Cpu.ReservableCpuCores)
		out.MemoryMiB = int(res.Memory.MemoryMB)
		out.DiskMiB = int(res.Disk.DiskMB)
	}
	if res := n.ReservedResources; res != nil {
		out.CPUMHz -= int(res.Cpu.CpuShares)
		out.MemoryMiB -= int(res.Memory.MemoryMB)
		out.DiskMiB -= int(res.Disk.DiskMB)
	}
	out.CPUMHz, out.MemoryMiB, out.DiskMiB = max(out.CPUMHz, 0), max(out.MemoryMiB, 0), max(out.DiskMiB, 0)
	return out
}

// reservedPorts reads Nomad's form, "22,80,8000-8010"; bad are the parts that
// are no ports.
func reservedPorts(n *api.Node) (ports []int, bad []string) {
	if n.ReservedResources == nil {
		return nil, nil
	}
	for part := range strings.SplitSeq(n.ReservedResources.Networks.ReservedHostPorts, ",") {
		part = strings.TrimSpace(part)
		if part == "" {
			continue
		}
		low, high, isRange := strings.Cut(part, "-")
		if !isRange {
			high = low
		}
		from, err1 := strconv.Atoi(strings.TrimSpace(low))
		to, err2 := strconv.Atoi(strings.TrimSpace(high))
		if err1 != nil || err2 != nil || from < 1 || to > 65535 || from > to {
			bad = append(bad, strconv.Quote(part))
			continue
		}
		for p := from; p <= to; p++ {
			ports = append(ports, p)
		}
	}
	slices.Sort(ports)
	return slices.Compact(ports), bad
}

// gpus fills in the node's devices, in topology order where the topology is
// known, and returns the topology.
func (r *nodeReader) gpus(n *api.Node, e *nodeEntry) (topology.Matrix, bool) {
	if n.NodeResources == nil {
		return topology.Matrix{}, false
	}
	groups := slices.Clone(n.NodeResources.Devices)
	groups = slices.DeleteFunc(groups, func(d *api.NodeDeviceResource) bool { return d == nil })
	slices.SortFunc(groups, func(a, b *api.NodeDeviceResource) int { return strings.Compare(a.ID(), b.ID()) })

	byID := map[string]model.GPU{}
	var ids []string
	var matrix topology.Matrix
	known := false
	e.ref.TopologyFault = "the attribute " + topology.AttrTopology + " is missing"
	for _, d := range groups {
		attributes := r.deviceAttributes(d)
		if raw, ok := d.Attributes[topology.AttrTopology]; ok && !known {
			m, err := decodeTopology(raw)
			if err != nil {
				e.ref.TopologyFault = err.Error()
				e.warn("the topology of its %s devices is ignored, their NVLink islands are unknown: %v; check the device plugin's version with nomad-device-caravan check", d.ID(), err)
			} else {
				matrix, known = m, true
			}
		}
		for _, instance := range d.Instances {
			if instance == nil || instance.ID == "" {
				continue
			}
			if _, twice := byID[instance.ID]; twice {
				e.ref.Twice++
				e.warn("device %s is listed twice; the second is ignored", instance.ID)
				continue
			}
			ids = append(ids, instance.ID)
			byID[instance.ID] = model.GPU{
				UUID: instance.ID, Vendor: r.word(d.Vendor), Type: r.word(d.Type), Model: r.word(d.Name),
				Attributes: attributes, Unhealthy: unhealthy(instance), NUMA: -1,
			}
		}
		r.instances(d, e, byID)
		r.shares(d, e, byID)
		r.divisions(d, e)
	}
	if len(ids) == 0 {
		return topology.Matrix{}, false
	}
	divided(byID, matrix, e)
	e.model.GPUs, e.model.Links = arrange(ids, byID, matrix)
	return matrix, known
}

func decodeTopology(a *api.Attribute) (topology.Matrix, error) {
	if a == nil || a.StringVal == nil {
		return topology.Matrix{}, fmt.Errorf("attribute %s is not a string", topology.AttrTopology)
	}
	return topology.Decode(*a.StringVal)
}

// deviceAttributes are the group's attributes without those that only a
// program reads.
func (r *nodeReader) deviceAttributes(d *api.NodeDeviceResource) map[string]string {
	out := make(map[string]string, len(d.Attributes))
	for k, a := range d.Attributes {
		if k == topology.AttrTopology || k == topology.AttrInstances || k == topology.AttrShares || k == topology.AttrDivisions || a == nil {
			continue
		}
		v := a.String()
		if a.StringVal != nil {
			// The text "535.104" is not the number 535.104.
			v = feasible.QuoteAttribute(*a.StringVal)
		}
		if len(k)+len(v) <= maxAttribute {
			out[r.word(k)] = r.word(v)
		}
	}
	return out
}

func unhealthy(d *api.NodeDevice) string {
	switch {
	case d.Healthy:
		return ""
	case d.HealthDescription != "":
		return d.HealthDescription
	}
	return "unhealthy"
}

// arrange orders the devices as the matrix has them, those that it does not
// know last, by ID, each in an island of its own.
func arrange(ids []string, byID map[string]model.GPU, matrix topology.Matrix) ([]model.GPU, [][]model.Link) {
	var known []int // indexes into the matrix
	inMatrix := map[string]bool{}
	for i, g := range matrix.GPUs {
		if _, ok := byID[g.UUID]; ok {
			known = append(known, i)
			inMatrix[g.UUID] = true
		}
	}
	sub := matrix.Subset(known)
	gpus := make([]model.GPU, 0, len(ids))
	for _, g := range sub.GPUs {
		out := byID[g.UUID]
		if len(g.NUMA) > 0 {
			out.NUMA = g.NUMA[0]
		}
		gpus = append(gpus, out)
	}
	islands := sub.Islands()
	for island, members := range islands {
		for _, i := range members {
			gpus[i].Island = island
		}
	}
	next := len(islands)
	slices.Sort(ids)
	for _, id := range ids {
		if !inMatrix[id] {
			out := byID[id]
			out.Island = next
			next++
			gpus = append(gpus, out)
		}
	}
	if len(known) == 0 {
		return gpus, nil
	}
	links := make([][]model.Link, len(gpus))
	for i := range gpus {
		links[i] = make([]model.Link, len(gpus))
		for j := range gpus {
			switch {
			case i < len(known) && j < len(known):
				links[i][j] = model.Link{Kind: sub.Links[i][j].String(), GBs: sub.Links[i][j].GBs}
			case i == j:
				links[i][j] = model.Link{Kind: string(topology.KindSelf)}
			default:
				// Nothing is known of the path, so nothing good is assumed.
				links[i][j] = model.Link{Kind: string(topology.KindSys)}
			}
		}
	}
	return gpus, links
}
