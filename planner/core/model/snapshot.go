// Package model holds the plain data that the decision core reads and writes:
// a Snapshot of the cluster and its jobs goes in, a Plan comes out. The types
// are the published JSON form too (see docs/snapshot.md), so a snapshot can be
// written by hand, replayed, and checked by any program.
package model

import "time"

// SnapshotVersion is the version of the JSON form that this package reads.
const SnapshotVersion = 1

// Snapshot is everything that a decision may depend on. It is never changed
// by the core.
type Snapshot struct {
	// Version is SnapshotVersion; 0 means the same, so that a hand-written
	// snapshot may leave it out.
	Version int `json:"version,omitempty"`
	// Now is the time of the decision. The core has no other clock.
	Now time.Time `json:"now"`
	// Levels names the tree's levels above the node, outermost first. Empty
	// means DefaultLevels. A node that lacks a level's value hangs directly
	// under the next outer level that it has.
	Levels []string `json:"levels,omitempty"`
	Nodes  []Node   `json:"nodes"`
	Jobs   []Job    `json:"jobs"`
	// Allocs are all allocations that may hold something on a node: members of
	// the jobs above, and work that Caravan does not manage.
	Allocs []Alloc `json:"allocs,omitempty"`
	// Queues are the queues that jobs may be in. Without any, nothing limits
	// what a queue uses.
	Queues []Queue `json:"queues,omitempty"`
	// Reservations set nodes or starts apart.
	Reservations []Reservation `json:"reservations,omitempty"`
	// Regions are what is known of the tree's regions.
	Regions []Region `json:"regions,omitempty"`
	// History is what is known of jobs that have ended.
	History History `json:"history,omitzero"`
	// Burst is where nodes can be bought, and what has been.
	Burst Burst `json:"burst,omitzero"`
}

// Region is what speaks for a region, or against it.
type Region struct {
	// Name is the nodes' value at the level region.
	Name string `json:"name"`
	// Price is what a GPU costs in an hour, by model, in the operator's currency.
	Price map[string]float64 `json:"price,omitempty"`
	// Carbon is how many grams of CO2 a kWh costs; 0 is unknown.
	Carbon float64 `json:"carbon,omitempty"`
	// Data names the data sets that are there.
	Data []string `json:"data,omitempty"`
}

// History is what is known of jobs that have ended.
type History struct {
	// Demands is how many GPU-seconds the latest of them have had, each in all of
	// its runs. Their order does not matter.
	Demands []float64 `json:"demands_gpu_s,omitempty"`
}

// MaxDemands is how many a History may list.
const MaxDemands = 10000

// DefaultLevels are the levels above the node, outermost first. Domain is an
// NVLink domain that spans nodes (an NVL72 rack).
var DefaultLevels = []string{LevelRegion, LevelZone, LevelBlock, LevelRack, LevelDomain}

// The standard level names. Node and island always exist; they are the two
// innermost levels.
const (
	LevelRegion = "region"
	LevelZone   = "zone"
	LevelBlock  = "block"
	LevelRack   = "rack"
	LevelDomain = "domain"
	LevelNode   = "node"
	LevelIsland = "island"
)

// Node is a Nomad client.
type Node struct {
	ID         string `json:"id"`
	Name       string `json:"name,omitempty"`
	Datacenter string `json:"datacenter,omitempty"`
	Pool       string `json:"pool,omitempty"`
	Class      string `json:"class,omitempty"`
	// Attributes are what constraints may name, keyed as Nomad interpolates
	// them without the braces: "attr.kernel.name", "meta.rack", "node.class".
	Attributes map[string]string `json:"attributes,omitempty"`
	// Levels maps a level's name to this node's value there. Two nodes are in
	// the same domain of a level when their values at that level and at every
	// outer level agree.
	Levels map[string]string `json:"levels,omitempty"`
	// Unschedulable says why nothing new may be placed here (draining, down,
	// ineligible, disconnected); empty means that it may.
	Unschedulable string    `json:"unschedulable,omitempty"`
	Capacity      Resources `json:"capacity"`
	// ReservedPorts are host ports that the node keeps for itself.
	ReservedPorts []int `json:"reserved_ports,omitempty"`
	GPUs          []GPU `json:"gpus,omitempty"`
	// Links is the GPUs' link matrix: Links[i][j] between GPUs[i] and GPUs[j].
	// Nil means unknown: then the islands are all that is known.
	Links [][]Link `json:"links,omitempty"`
	// Divides: its device plugin divides idle GPUs into MIG instances, and makes
	// them whole again, as it is told.
	Divides bool `json:"divides,omitempty"`
	// Divisions are the last that its GPUs were told of.
	Divisions []Division `json:"divisions,omitempty"`
	// Bought is set on a node that was bought in a pool.
	Bought *Bought `json:"bought,omitempty"`
}

// Division is how a GPU is to be divided, and what became of it.
type Division struct {
	// GPU is the UUID of the whole GPU.
	GPU string `json:"gpu"`
	// Profiles are the MIG profiles of its instances; none: it is to be whole.
	Profiles []string `json:"profiles,omitempty"`
	// At is when its state came about.
	At    time.Time     `json:"at"`
	State DivisionState `json:"state"`
	// Why says why it was refused.
	Why string `json:"why,omitempty"`
	// Again is when it may be tried again, of a refusal for what passes by itself: a
	// task was given the GPU just now, or a process uses it. Zero: nobody knows.
	Again time.Time `json:"again,omitzero"`
}

// DivisionState is what became of a Division.
type DivisionState string

const (
	// DivisionPending: the node has been told, or is to be.
	DivisionPending DivisionState = "pending"
	// DivisionDone: the GPU is divided so.
	DivisionDone DivisionState = "done"
	// DivisionRefused: the driver would not, or somebody uses the GPU; it is as it
	// was before.
	DivisionRefused DivisionState = "refused"
)

// Resources are what a task group asks for or a node has. Zero is none.
type Resources struct {
	CPUMHz    int `json:"cpu_mhz,omitempty"`
	Cores     int `json:"cores,omitempty"`
	MemoryMiB int `json:"memory_mib,omitempty"`
	DiskMiB   int `json:"disk_mib,omitempty"`
}

// GPU is one device instance of a node.
type GPU struct {
	// UUID is the device instance's ID, unique in the cluster.
	UUID string `json:"uuid"`
	// Vendor, Type and Model name the device group, as in
	// "nvidia/gpu/NVIDIA H100 80GB HBM3".
	Vendor string `json:"vendor,omitempty"`
	Type   string `json:"type,omitempty"`
	Model  string `json:"model,omitempty"`
	// Attributes are the device group's attributes, keyed without the
	// "device.attr." prefix, numbers with their unit as Nomad prints them. A
	// string attribute that looks like a number or a truth value is in double
	// quotes ("\"535.104\""), since Nomad compares only values of one kind;
	// feasible.QuoteAttribute does that.
	Attributes map[string]string `json:"attributes,omitempty"`
	// Unhealthy says why the GPU cannot be used; empty means that it can.
	Unhealthy string `json:"unhealthy,omitempty"`
	// Island is the index of the GPU's NVLink island within the node. GPUs of
	// one island are joined by NVLink; a GPU without NVLink is alone in its.
	Island int `json:"island"`
	// NUMA is the NUMA node, -1 if unknown.
	NUMA int `json:"numa"`
	// Parent is the UUID of the GPU that this is a MIG instance or a time slice of;
	// "" is a whole GPU. A GPU that is divided or shared is no device itself.
	Parent string `json:"parent,omitempty"`
	// Slices is how many tasks share the Parent, each with a time slice such as
	// this; 0 is no slice. SharedMiB is all of the Parent's memory, 0 if unknown.
	Slices    int `json:"slices,omitempty"`
	SharedMiB int `json:"shared_mib,omitempty"`
}

// Link is the connection between two GPUs of a node.
type Link struct {
	// Kind is nvidia-smi's name: NV#, PIX, PXB, PHB, NODE, SYS; X is the GPU
	// itself; XGMI# joins AMD GPUs.
	Kind string `json:"kind"`
	// GBs is the bandwidth per direction in GB/s, 0 if unknown.
	GBs float64 `json:"gb_s,omitempty"`
}

// Alloc is something that holds resources on a node.
type Alloc struct {
	ID        string `json:"id"`
	Namespace string `json:"namespace,omitempty"`
	Job       string `json:"job,omitempty"`
	Group     string `json:"group,omitempty"`
	Index     int    `json:"index,omitempty"`
	Node      string `json:"node"`
	// GPUs are the UUIDs held. One that its node does not list (any more) may
	// be among them: it cannot be given to anyone anyway.
	GPUs      []string  `json:"gpus,omitempty"`
	Resources Resources `json:"resources"`
	// Ports are the host ports held.
	Ports []int `json:"ports,omitempty"`
	// Stopping is set while the allocation is told to stop but its client has
	// not reported it dead: it still holds everything.
	Stopping bool `json:"stopping,omitempty"`
	// Lost is set when the node's client is cut off: the member counts as gone
	// for its gang, but its GPUs stay fenced.
	Lost bool `json:"lost,omitempty"`
	// Until is set on one that is stopping and that Nomad has forgotten, with its
	// job as a rule (nomad job stop -purge), before its client had said that it
	// ended: when it will have ended for sure. It holds everything until it is
	// left out of the Snapshot.
	Until time.Time `json:"until,omitzero"`
}
