// Package topo holds the cluster's shape and what is free in it, apart from
// each other: a Tree never changes, a State is scratch whose every trial
// change can be undone.
//
// Nodes are numbered along the tree, so that every domain is a range of
// numbers and neighbours in the numbering are neighbours in the cluster.
package topo

import (
	"math/bits"

	"github.com/caravan-sched/caravan/planner/core/model"
)

// MaxGPUs is how many GPUs one node may have: they are kept as bits.
const MaxGPUs = 64

// Root is the index of the domain that holds every node.
const Root = 0

// Tree is the cluster's shape.
type Tree struct {
	// Levels are the levels above the node, outermost first.
	Levels []string
	Nodes  []Node
	// Domains are in the order of the tree, each after its parent.
	Domains []Domain
	// ByLevel lists the domains of every level, in order.
	ByLevel [][]int32
	// Kinds are the distinct device groups of the cluster, instance IDs and
	// unique attributes left aside.
	Kinds []Kind
	// MostGPUs is how many GPUs the largest node has.
	MostGPUs int

	byID map[string]int32
}

// Domain is a part of the cluster: all nodes in [Lo, Hi).
type Domain struct {
	// Level is an index into Tree.Levels, -1 for the root.
	Level int
	// Path is outer to inner, "b1/r7"; "" for the root.
	Path   string
	Parent int32 // -1 for the root
	Lo, Hi int32
	// Own is the end of the nodes directly below: [Lo, Own).
	Own int32
	// Kids are the domains directly below, which hold the nodes in [Own, Hi).
	Kids []int32
}

// Node is one node's fixed side.
type Node struct {
	Model *model.Node
	// Leaf is the innermost domain.
	Leaf int32
	// Groups are the node's device groups.
	Groups []Group
	// Shape is how the GPUs are joined; nodes built alike share one.
	Shape *Shape
	// All has a bit for every GPU.
	All uint64
}

// Group is one device group of a node.
type Group struct {
	Kind int32
	Mask uint64
}

// Kind is a device group as constraints see it.
type Kind struct {
	Vendor, Type, Model string
	Attributes          map[string]string
	// Shared: its devices are time slices of GPUs.
	Shared bool
}

// Find returns the number of a node by its ID.
func (t *Tree) Find(id string) (int32, bool) {
	n, ok := t.byID[id]
	return n, ok
}

// LevelIndex returns a level's index in Levels, -1 if there is none.
func (t *Tree) LevelIndex(name string) int {
	for i, level := range t.Levels {
		if level == name {
			return i
		}
	}
	return -1
}

// DomainAt returns the node's domain of a level, -1 if it has none.
func (t *Tree) DomainAt(node int32, level int) int32 {
	for d := t.Nodes[node].Leaf; d >= 0; d = t.Domains[d].Parent {
		if t.Domains[d].Level == level {
			return d
		}
	}
	return -1
}

// Each calls f with the index of every bit set, lowest first.
func Each(mask uint64, f func(i int)) {
	for ; mask != 0; mask &= mask - 1 {
		f(bits.TrailingZeros64(mask))
	}
}
