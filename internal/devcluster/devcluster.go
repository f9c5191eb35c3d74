// Package devcluster describes a small Nomad cluster for development and
// tests, and what can be done to one. Two back ends provide it: the in-process
// stand-in (internal/devnomad) and real Nomad processes (internal/nomadproc).
package devcluster

import (
	"context"

	"github.com/hashicorp/nomad/api"
)

// The names of the two back ends.
const (
	BackendDevNomad = "devnomad"
	BackendNomad    = "nomad"
)

// Spec is a cluster to be started: one server and the nodes listed.
type Spec struct {
	// DataDir is where the cluster keeps everything; "" is a new temporary
	// directory that Stop removes.
	DataDir string
	// Bind is the loopback address; "" is 127.0.0.1. Ports are free ones.
	Bind  string
	Nodes []Node
	// ACL turns ACLs on; the cluster is bootstrapped and Token is management.
	ACL bool
	// Log receives the processes' or the stand-in's log lines; nil drops them.
	Log func(line string)
}

// Node is one client.
type Node struct {
	Name       string
	Datacenter string // "" is dc1
	Pool       string // "" is default
	Class      string
	Meta       map[string]string
	// Plugins are device plugins to load, each a binary with its HCL config.
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
	// Config is the body of the plugin block's config, in HCL.
	Config string
}

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
	// Stop ends every task and process.
	Stop() error
}
