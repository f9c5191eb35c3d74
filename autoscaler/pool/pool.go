// Package pool reads the pools file: where nodes can be bought, what each brings,
// what it costs, and how long it takes. The planner reads it to decide, the
// autoscaler's plugins to carry out (see docs/burst.md).
package pool

import "time"

// File is a pools file, complete and valid.
type File struct {
	// Path is where it was read.
	Path string
	// Currency is what all prices are in, as people are to see it ("EUR").
	Currency string
	// DataSets are what is known of data sets, by name.
	DataSets []DataSet
	// Pools are sorted by name.
	Pools []Pool
}

// Find is the pool of a name; nil if there is none.
func (f *File) Find(name string) *Pool {
	for i := range f.Pools {
		if f.Pools[i].Name == name {
			return &f.Pools[i]
		}
	}
	return nil
}

// DataSet is a data set that jobs name in caravan_data.
type DataSet struct {
	Name string
	// GB is its size in 10^9 bytes.
	GB float64
	// EgressPrice is what a GB costs to be taken from where it is kept.
	EgressPrice float64
}

// Pool is a kind of nodes that can be bought in one place.
type Pool struct {
	Name string
	// Provider, Region and InstanceType are the cloud's names of it. Region is the
	// nodes' value at the level region too, unless Levels says another.
	Provider     string
	Region       string
	InstanceType string

	// GPUs is how many a node has, and Vendor, Type and Model what they are, as its
	// device plugin says.
	GPUs                int
	Vendor, Type, Model string
	// GPUAttributes are the device group's attributes, as jobs constrain on them.
	GPUAttributes map[string]string
	// IslandSize is how many GPUs of a node NVLink joins; 1: it joins none.
	IslandSize int
	// NUMANodes is how many NUMA nodes the GPUs are spread over evenly.
	NUMANodes int
	// The rest of what a node has for jobs.
	CPUMHz, Cores, MemoryMiB, DiskMiB int

	// Datacenter, NodePool and Class are Nomad's, Meta and Attributes what a node
	// has besides, as jobs constrain on them; Attributes are keyed without "attr.".
	Datacenter, NodePool, Class string
	Meta, Attributes            map[string]string
	// Levels are its nodes' values at levels of the tree. Near is the level at
	// which the nodes of one purchase have a value of their own, its ID: the cloud
	// puts them near each other (a placement group, a compact placement). "" is none.
	Levels map[string]string
	Near   string

	// OnDemand and Spot are what a node costs in an hour; 0 says that there is no
	// such offer. One of them is above 0.
	OnDemand, Spot float64
	// SpotLifetime is how long a spot node lives on average until it is taken away.
	SpotLifetime time.Duration
	// BootTime is how long a node takes from its order until it is ready, and
	// JoinTimeout how long it may take.
	BootTime, JoinTimeout time.Duration
	// MinBilling is the least that is billed for a node, and BillingPeriod what it
	// is rounded up to.
	MinBilling, BillingPeriod time.Duration
	// EgressPrice is what a GB costs that leaves the place.
	EgressPrice float64
	// TransferGbps is how fast data comes in and goes out, in 10^9 bits a second,
	// all nodes together; 0: it takes no time.
	TransferGbps float64
	// Quota is how many nodes there may be at most.
	Quota int
	// Carbon is how many grams of CO2 a kWh costs, and PowerKW what a node takes; 0
	// is unknown.
	Carbon, PowerKW float64
	// Data names the data sets that are there already.
	Data []string

	// WorkingDirectory is Terraform's, absolute or from where the process runs;
	// Workspace is "" for the default one. Variable is the map of nodes.
	WorkingDirectory string
	Workspace        string
	Variable         string
	VarFiles         []string
}

// The defaults of keys that have one.
const (
	DefaultCurrency      = "USD"
	DefaultVendor        = "nvidia"
	DefaultType          = "gpu"
	DefaultVariable      = "nodes"
	DefaultDatacenter    = "dc1"
	DefaultNodePool      = "default"
	DefaultBillingPeriod = time.Second
	DefaultSpotLifetime  = 24 * time.Hour
	minJoinTimeout       = 10 * time.Minute
)
