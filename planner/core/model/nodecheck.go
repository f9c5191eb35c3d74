package model

import (
	"maps"
	"math"
	"time"

	"github.com/caravan-sched/caravan/planner/core/beside"
)

// validateEachNode checks every node by itself, and returns what is wrong with
// those with which something is, by their indexes. It hashes their UUIDs.
func (s *Snapshot) validateEachNode(f *faults, levels map[string]bool, owner *owners) map[int]*faults {
	var wrong [2]map[int]*faults
	check := func(part, from, to int) {
		var own faults
		own.silent = f.silent
		for i := from; i < to; i++ {
			owner.hash(i)
			if s.Nodes[i].validate(&own, i, levels); len(own.told) == 0 {
				continue
			}
			if wrong[part] == nil {
				wrong[part] = map[int]*faults{}
			}
			of := own
			wrong[part][i], own.told, own.more = &of, nil, 0
		}
	}
	half := len(s.Nodes) / 2
	wait := beside.DoIf(len(s.Nodes) >= manyNodes, func() { check(0, 0, half) })
	check(1, half, len(s.Nodes))
	wait()
	if wrong[0] == nil {
		return wrong[1]
	}
	maps.Copy(wrong[0], wrong[1])
	return wrong[0]
}

// manyNodes is how many are worth two who check at the same time. What has happened
// since the last decision is about few.
const manyNodes = 256

// numberNodes finds nodes by ID: the first of each.
func (s *Snapshot) numberNodes() map[string]int {
	nodes := make(map[string]int, len(s.Nodes))
	for i := range s.Nodes {
		if _, dup := nodes[s.Nodes[i].ID]; !dup {
			nodes[s.Nodes[i].ID] = i
		}
	}
	return nodes
}

// validateNames tells what is wrong with each node by itself, and which IDs and
// UUIDs are not unique.
func (s *Snapshot) validateNames(f *faults, nodes map[string]int, owner *owners, wrong map[int]*faults) {
	for i := range s.Nodes {
		n := &s.Nodes[i]
		if first := nodes[n.ID]; first != i && n.ID != "" {
			f.add("nodes[%d].id: %q: is nodes[%d]'s too; want unique IDs", i, n.ID, first)
		}
		if of := wrong[i]; of != nil {
			f.take(of)
		}
		for k := range n.GPUs {
			if n.GPUs[k].UUID == "" {
				continue
			}
			if first, dup := owner.add(i, k); dup {
				f.add("nodes[%d].gpus[%d].uuid: %q: is on node %q too; want UUIDs unique in the cluster", i, k, n.GPUs[k].UUID, s.Nodes[first.node].ID)
			}
		}
	}
}

// knowsOnly reports whether a node has no level but those.
func (n *Node) knowsOnly(levels map[string]bool) bool {
	known := 0
	for level := range levels {
		if _, has := n.Levels[level]; has {
			known++
		}
	}
	return known == len(n.Levels)
}

// validate checks one node by itself.
func (n *Node) validate(f *faults, i int, levels map[string]bool) {
	if n.ID == "" {
		f.add("nodes[%d].id: empty: want the node's ID", i)
	}
	if !n.knowsOnly(levels) {
		for level := range n.Levels {
			if !levels[level] {
				f.add("nodes[%d] (%s).levels: %q: is none of the snapshot's levels", i, n.ID, level)
			}
		}
	}
	if !n.Capacity.possible() {
		n.Capacity.faults(f, "nodes[%d] (%s).capacity", i, n.ID)
	}
	for k, p := range n.ReservedPorts {
		if p < 1 || p > maxPort {
			f.add("nodes[%d] (%s).reserved_ports[%d]: %d: want 1 to %d", i, n.ID, k, p, maxPort)
		}
	}
	if len(n.GPUs) > MaxGPUsPerNode {
		f.add("nodes[%d] (%s).gpus: %d GPUs: want at most %d", i, n.ID, len(n.GPUs), MaxGPUsPerNode)
	}
	for k := range n.GPUs {
		g := &n.GPUs[k]
		if g.UUID == "" {
			f.add("nodes[%d] (%s).gpus[%d].uuid: empty: want the device's ID", i, n.ID, k)
		}
		if g.Island < 0 || g.Island > MaxCount {
			f.add("nodes[%d] (%s).gpus[%d].island: %d: want 0 to %d", i, n.ID, k, g.Island, MaxCount)
		}
		if g.NUMA < -1 || g.NUMA > MaxCount {
			f.add("nodes[%d] (%s).gpus[%d].numa: %d: want -1 (unknown) to %d", i, n.ID, k, g.NUMA, MaxCount)
		}
	}
	n.validateLinks(f, i)
	n.validateSlices(f, i)
	if n.Bought != nil && n.Bought.Pool == "" {
		f.add("nodes[%d] (%s).bought.pool: empty: want the pool's name", i, n.ID)
	}
	for k := range n.Divisions {
		d := &n.Divisions[k]
		if d.GPU == "" {
			f.add("nodes[%d] (%s).divisions[%d].gpu: empty: want the GPU's UUID", i, n.ID, k)
		}
		switch d.State {
		case DivisionPending, DivisionDone, DivisionRefused:
		default:
			f.add("nodes[%d] (%s).divisions[%d].state: %q: want %q, %q or %q", i, n.ID, k, d.State, DivisionPending, DivisionDone, DivisionRefused)
		}
		if !d.Again.IsZero() && d.Again.Before(d.At) {
			f.add("nodes[%d] (%s).divisions[%d].again: %s: want no time before at, %s", i, n.ID, k, d.Again.Format(time.RFC3339), d.At.Format(time.RFC3339))
		}
	}
}

func (n *Node) validateLinks(f *faults, i int) {
	if n.Links == nil {
		return
	}
	if len(n.Links) != len(n.GPUs) {
		f.add("nodes[%d] (%s).links: %d rows: want one for each of %d GPUs", i, n.ID, len(n.Links), len(n.GPUs))
	}
	for k, row := range n.Links {
		if len(row) != len(n.GPUs) {
			f.add("nodes[%d] (%s).links[%d]: %d columns: want one for each of %d GPUs", i, n.ID, k, len(row), len(n.GPUs))
		}
		for m := range row {
			if gbs := row[m].GBs; !(gbs >= 0 && gbs <= math.MaxFloat32) { // NaN too
				f.add("nodes[%d] (%s).links[%d][%d].gb_s: %g: want 0 (unknown) or more", i, n.ID, k, m, gbs)
			}
		}
	}
}
