// Package devcluster describes a small Nomad cluster for development and
// tests, and what can be done to one. Two back ends provide it: the in-process
// stand-in (internal/devnomad) and real Nomad processes (internal/nomadproc).
package devcluster

import (
	"context"
	"errors"
	"path/filepath"
	"strings"

	"github.com/hashicorp/nomad/api"
)

// The names of the two back ends.
const (
	BackendDevNomad = "devnomad"
	BackendNomad    = "nomad"
)

// ErrNoNetworks says that this machine cannot give nodes networks of their own.
var ErrNoNetworks = errors.New("nodes cannot have networks of their own here")

// Spec is a cluster to be started: one server and the nodes listed.
type Spec struct {
	// DataDir is where the cluster keeps everything; "" is a new temporary
	// directory that Stop removes.
	DataDir string
	// Bind is the loopback address; "" is 127.0.0.1. Ports are free ones.
	Bind  string
	Nodes []Node
	// Region is the cluster's Nomad region; "" is "global". Clusters of several
	// regions are joined with Member.Federate.
	Region string
	// ACL turns ACLs on; the cluster is bootstrapped and Token is management.
	ACL bool
	// Networks gives each node a network of its own, so that Cut works. On real
	// Nomad that needs root and the tools of iproute2; ErrNoNetworks tells that
	// they are missing.
	Networks bool
	// Path are absolute directories in which the nodes' agents and tasks find
	// programs, after those of this process's PATH.
	Path []string
	// Log receives the processes' or the stand-in's log lines; nil drops them.
	Log func(line string)
}

// PathVariable is the nodes' PATH: inherited, and then those of the spec.
func (s Spec) PathVariable(inherited string) string {
	list := string(filepath.ListSeparator)
	return strings.TrimPrefix(strings.Join(append([]string{inherited}, s.Path...), list), list)
}

// Node is one client.
type Node struct {
	Name       string
	Datacenter string // "" is dc1
	Pool       string // "" is default
	Class      string
	Meta       map[string]string
	// Plugins are the device plugins and task drivers to load, each a binary with
	// its HCL config.
	Plugins []Plugin
	// DistinctClass gives the node a computed class of its own; otherwise nodes
	// that are configured alike have the same computed class.
	DistinctClass bool
}

// Plugin is a Nomad plugin binary.
type Plugin struct {
	// Name is the binary's base name, as in the agent's plugin block.
	Name string
	// Path is the binary.
	Path string
	// Config is the body of the plugin block's config, in HCL. ServerHost in it is
	// replaced.
	Config string
}

// ServerHost stands in a plugin's Config for the address of the machine that the
// server runs on, as the nodes reach it.
const ServerHost = "@SERVER_HOST@"

// Cluster is a running cluster.
type Cluster interface {
	// Backend is BackendDevNomad or BackendNomad; Version is Nomad's version,
	// or that of Nomad which the stand-in follows.
	Backend() string
	Version() string
	// Address is the HTTP API's base URL; Token is "" without ACLs.
	Address() string
	Token() string
	Client() *api.Client
	// WaitReady returns when every node is ready and has fingerprinted the
	// devices of its plugins.
	WaitReady(ctx context.Context) error
	// StopNode kills a client without a goodbye; StartNode brings it back
	// under the same ID and data.
	StopNode(name string) error
	StartNode(name string) error
	// AgentAddress is the base URL of a node's own agent, as it is reached from
	// the node and what runs there; "" if there is no such node.
	AgentAddress(node string) string
	// Agent is a client of a node's own agent. It reaches one that is cut off.
	Agent(node string) (*api.Client, error)
	// Cut separates a node from the servers: its agent and tasks live on. Heal
	// joins it again. They need Spec.Networks.
	Cut(node string) error
	Heal(node string) error
	// Joining is what a client needs to join the cluster later, in a process of its
	// own.
	Joining() Joining
	// Stop ends every task and process.
	Stop() error
}

// Joining is how a client joins a cluster that runs. It is JSON in a file.
type Joining struct {
	// Backend is the cluster's.
	Backend string
	// Address and Token are the API's.
	Address, Token string
	// Bind is the loopback address of the cluster's processes.
	Bind string
	// Binary, Server and Region are a real Nomad's: the program, its servers' RPC
	// address, and their region. ACL says whether its agents enforce ACLs.
	Binary, Server, Region string
	ACL                    bool
	// Path is the client's PATH; "" is the process's own.
	Path string
	// Node is what the client is to be, but for its name and for more meta.
	Node Node
}

// Member is a cluster that can be one of the regions of a federation.
type Member interface {
	Cluster
	// Region is its Nomad region.
	Region() string
	// Federate joins it with another region, so that each forwards to the other.
	Federate(ctx context.Context, other Member) error
	// Isolate takes the region's servers off the network, for the other regions
	// and for whoever asks them; its nodes and tasks go on. Rejoin undoes it.
	Isolate() error
	Rejoin(ctx context.Context) error
}
