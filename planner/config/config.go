// Package config reads the planner's configuration: an HCL file, then the
// environment, then defaults. It is validated whole, so that an operator sees
// every fault at once.
package config

import (
	"time"

	"github.com/caravan-sched/caravan/autoscaler/pool"
	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/core/queue"
)

// Config is the planner's whole configuration, complete and valid.
type Config struct {
	Nomad     Nomad
	Listen    Listen
	Managed   Managed
	Policy    Policy
	Admission Admission
	Trouble   Trouble
	// Levels are the levels above the node, outermost first.
	Levels []Level
	// Queues are sorted by path.
	Queues []model.Queue
	// Regions are what is known of regions.
	Regions []model.Region
	// Federation are the Nomad regions that are planned for as one; empty: the one
	// of Nomad.Address alone. The planner's own state is in the first.
	Federation []string
	// Burst is where nodes can be bought; when they are is in Policy.
	Burst Burst
	// Reservations set nodes or starts apart, in the file's order.
	Reservations []model.Reservation
	// Topology is the operator's topology file; nil when there is none.
	Topology *Topology
	State    State
	Gateway  Gateway
	Barrier  Barrier
	// ObserveOnly shows decisions and carries none of them out.
	ObserveOnly bool
	// LogLevel is go-hclog's name of it: trace, debug, info, warn, error.
	LogLevel string
}

// Nomad says how Nomad is reached. An empty field is taken from Nomad's own
// environment variables (NOMAD_ADDR, NOMAD_TOKEN, NOMAD_CACERT, …).
type Nomad struct {
	Address string
	Region  string
	Token   string
	// TokenFile is read at the start and again whenever Nomad refuses the
	// token, so that a rotated token needs no restart.
	TokenFile     string
	CAFile        string
	CAPath        string
	CertFile      string
	KeyFile       string
	TLSServerName string
	TLSSkipVerify bool
}

// Listen is the one listener, of the gateway and of Caravan's own API.
type Listen struct {
	// Address is HOST:PORT.
	Address string
	// Advertise is the base URL under which the other planners and people reach
	// this one.
	Advertise string
	// CertFile and KeyFile turn TLS on.
	CertFile string
	KeyFile  string
	// ClientCAFile, where set, makes the listener ask for client certificates
	// that this authority signed.
	ClientCAFile string
}

// Managed says which jobs Caravan manages.
type Managed struct {
	// Devices are names as in a job's device block: "gpu", "nvidia/gpu" or
	// "nvidia/gpu/MODEL". A job that asks for one of them is managed.
	Devices []string
	// Namespaces limits Caravan to these; "*" is all. Globs are allowed, here
	// and below ("team-*").
	Namespaces       []string
	ExemptNamespaces []string
	ExemptNodePools  []string
}

// Policy is how the queue is worked.
type Policy struct {
	// Policy is what the decision core is given.
	queue.Policy
	// HalfLife is after how long what a queue has used counts half, where the
	// order looks at that; 0 means that only what it uses now counts.
	HalfLife time.Duration
}

// Burst is where nodes can be bought.
type Burst struct {
	// Pools is the pools file; nil: nothing is bought.
	Pools *pool.File
	// Carbon is where the figures for CO2 are from; nil: from the pools file alone.
	Carbon *CarbonSource
}

// Admission is how a decided placement is carried out.
type Admission struct {
	// Deadline is how long all members may take to be placed; then what was
	// placed is stopped and the job is queued again.
	Deadline time.Duration
	// RetryInitial is the wait after the first failed admission. It doubles
	// with every further one, up to RetryMax.
	RetryInitial time.Duration
	RetryMax     time.Duration
}

// Trouble is how long a fault under a running gang may last before the gang is
// taken off.
type Trouble struct {
	// SickGPU is for a GPU that is reported unhealthy, and MissingGPU for one that
	// its node does not list any more, as while a device plugin restarts.
	SickGPU    time.Duration
	MissingGPU time.Duration
}

// Level is one level of the topology tree above the node.
type Level struct {
	Name string
	// Meta is the node meta key that a node's value is taken from.
	Meta string
}

// State is where Caravan keeps what it must remember, as Nomad Variables.
type State struct {
	Namespace string
}

// Gateway is the reverse proxy in front of Nomad.
type Gateway struct {
	// Wait is how long the answer to a registration waits for the first
	// decision on the job.
	Wait time.Duration
}

// Barrier is where the members of gangs wait for each other.
type Barrier struct {
	// MaxWaiting is how many members' requests may wait at one planner at once.
	MaxWaiting int
	// AvoidFor is how long a job is not placed again on a node that its
	// preflight has found unfit.
	AvoidFor time.Duration
}

// The defaults of every key that has one.
const (
	DefaultListen       = "127.0.0.1:4656"
	DefaultNomadAddress = "http://127.0.0.1:4646"
	DefaultDevice       = "nvidia/gpu"
	DefaultOrder        = queue.OrderCaravan
	DefaultMaxHolds     = queue.DefaultMaxHolds
	DefaultHalfLife     = 24 * time.Hour
	DefaultDeadline     = 60 * time.Second
	DefaultRetryInitial = 5 * time.Second
	DefaultRetryMax     = 5 * time.Minute
	DefaultSickGPU      = 30 * time.Second
	DefaultMissingGPU   = 2 * time.Minute
	DefaultNamespace    = "default"
	DefaultGatewayWait  = 3 * time.Second
	DefaultMaxWaiting   = 16384
	DefaultAvoidFor     = time.Hour
	DefaultLogLevel     = "info"
	// MetaPrefix and a level's name make the node meta key of that level.
	MetaPrefix = "caravan_"
)

// Default is the configuration of a planner without a file or environment.
func Default() Config {
	c := Config{
		Nomad:  Nomad{Address: DefaultNomadAddress},
		Listen: Listen{Address: DefaultListen, Advertise: "http://" + DefaultListen},
		Managed: Managed{
			Devices:    []string{DefaultDevice},
			Namespaces: []string{"*"},
		},
		Policy: Policy{Policy: defaultPolicy(), HalfLife: DefaultHalfLife},
		Admission: Admission{
			Deadline:     DefaultDeadline,
			RetryInitial: DefaultRetryInitial,
			RetryMax:     DefaultRetryMax,
		},
		Trouble:  Trouble{SickGPU: DefaultSickGPU, MissingGPU: DefaultMissingGPU},
		State:    State{Namespace: DefaultNamespace},
		Gateway:  Gateway{Wait: DefaultGatewayWait},
		Barrier:  Barrier{MaxWaiting: DefaultMaxWaiting, AvoidFor: DefaultAvoidFor},
		LogLevel: DefaultLogLevel,
	}
	for _, name := range model.DefaultLevels {
		c.Levels = append(c.Levels, Level{Name: name, Meta: MetaPrefix + name})
	}
	return c
}

// LevelNames are the names of the levels above the node, outermost first.
func (c *Config) LevelNames() []string {
	names := make([]string, len(c.Levels))
	for i, l := range c.Levels {
		names[i] = l.Name
	}
	return names
}
