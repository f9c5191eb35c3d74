package place

import "github.com/caravan-sched/caravan/planner/core/model"

// Unit is what must be placed together or not at all.
type Unit struct {
	Parts    []Part
	Topology model.Topology
	// Apart: members of different parts share no node either.
	Apart bool
	// Taken are nodes on which the unit must not put anything, because
	// distinct_hosts forbids it: for all parts, or by part.
	Taken       []int32
	TakenByPart [][]int32
	// Quotas are the distinct_property constraints.
	Quotas []Quota
	// Within limits the unit to a domain, because other members of its gang
	// are there; topo.Root is no limit.
	Within int32
	// Only, if set, limits the unit to a part of one node instead.
	Only *Spot
	// Alike: its members get GPUs of one model, if there is room for all on one: of
	// Model, if others of its gang have that.
	Alike bool
	Model string
}

// Spot is a node, and the GPUs of it that count.
type Spot struct {
	Node int32
	GPUs uint64
}

// Part is Count equal members.
type Part struct {
	Request *Request
	Count   int
	// Slices may divide it.
	Slices Slices
}

// Quota is a distinct_property constraint: no value of Target may be used by
// more than Limit members.
type Quota struct {
	Target string
	Limit  int
	// Part is the part that it counts, -1 for all.
	Part int
	// Used counts the members that are there already, by value.
	Used map[string]int
}

// Placed is one member's place.
type Placed struct {
	Part int
	Node int32
	// GPUs are indexes in the node, in ring order; Tasks splits them by ask.
	GPUs  []int8
	Tasks [][]int8
}

// Result is a placement.
type Result struct {
	// Placed are the members, along the tree.
	Placed []Placed
	// Level and Domain name the domain chosen: a level of the tree, node,
	// island, or "" for the whole cluster.
	Level, Domain string
}
