package config

import (
	"fmt"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/caravan-sched/caravan/internal/nomadplugin/base"
	"github.com/caravan-sched/caravan/internal/nomadplugin/hclspec"
)

// tlsOptions are how a server is recognised and how it recognises us.
var tlsOptions = []Option{
	{Key: "ca_file", Type: "string", Doc: "certificates of those who sign the server's; the system's by default"},
	{Key: "cert_file", Type: "string", Doc: "the client certificate, in PEM"},
	{Key: "key_file", Type: "string", Doc: "its key"},
	{Key: "tls_server_name", Type: "string", Doc: "the name in the server's certificate, where it is not the address"},
}

// PluginOptions are what the agent's plugin block may hold.
var PluginOptions = []Option{
	{Key: "enabled", Type: "bool", Default: "true", Doc: "false makes the driver take no tasks"},
	{Key: "planner", Doc: "where the gang's barrier is", Block: append([]Option{
		{Key: "addresses", Type: "list(string)", Default: `["http://127.0.0.1:4656"]`, Doc: "the planners' addresses; the first that answers is used"},
	}, tlsOptions...)},
	{Key: "nomad", Doc: "the local Nomad agent, which is asked whether it still reaches its servers", Block: append([]Option{
		{Key: "address", Type: "string", Doc: "its HTTP address. By default it is asked by the socket that it makes for each task, which needs no settings; where there is none, at http://127.0.0.1:4646"},
	}, tlsOptions...)},
	{Key: "state_dir", Type: "string", Default: `"/run/nomad-driver-caravan"`, Doc: "where the tasks' supervisors keep their state. It need not survive a reboot"},
	{Key: "join_timeout", Type: "string", Default: `"10m"`, Doc: "default of the tasks' `join_timeout`"},
	{Key: "fence_after", Type: "string", Default: `"60s"`, Doc: "default of the tasks' `fence_after`. The planner knows only what jobs say, and assumes 60s else: with another value here, say `fence_after` in the jobs as well"},
	{Key: "address", Type: "string", Doc: "the IP address by which the members of gangs on other nodes reach this one; by default that of the task's network, or of the route to the planner"},
	{Key: "cgroups", Type: "bool", Default: "true", Doc: "false keeps the driver from using cgroups"},
	{Key: "runtimes", Type: "list(string)", Default: `["podman", "docker", "apptainer"]`, Doc: "the container runtimes that tasks may use, in the order of preference"},
	{Key: "allow_runtime_args", Type: "bool", Default: "false", Doc: "let tasks give arguments of their own to the runtime. Who may do that may do anything on the node"},
	{Key: "allowed_devices", Type: "list(string)", Default: `["/dev/infiniband/*", "/dev/fuse", "/dev/net/tun"]`, Doc: "device nodes that tasks may open beside those that were reserved for them and the usual ones, as paths and patterns"},
	{Key: "gpu_source", Type: "string", Default: `"nvml"`, Doc: "where preflights read the health of GPUs: `nvml`, or as the device plugin's `source`; containers get no simulated ones. `mock_seed` and `mock_faults` are the device plugin's too"},
	{Key: "mock_seed", Type: "string", Doc: "for simulated GPUs"},
	{Key: "mock_faults", Type: "string", Doc: "for simulated GPUs"},
	{Key: "denied_users", Type: "list(string)", Default: "[]", Doc: "users that tasks may not run as, by name or number"},
}

// rawPlugin is the plugin block as it comes from Nomad.
type rawPlugin struct {
	Enabled          bool        `codec:"enabled"`
	Planner          *rawPlanner `codec:"planner"`
	Nomad            *rawNomad   `codec:"nomad"`
	StateDir         string      `codec:"state_dir"`
	JoinTimeout      string      `codec:"join_timeout"`
	FenceAfter       string      `codec:"fence_after"`
	Address          string      `codec:"address"`
	Cgroups          bool        `codec:"cgroups"`
	Runtimes         []string    `codec:"runtimes"`
	AllowRuntimeArgs bool        `codec:"allow_runtime_args"`
	DeniedUsers      []string    `codec:"denied_users"`
	AllowedDevices   []string    `codec:"allowed_devices"`
	GPUSource        string      `codec:"gpu_source"`
	MockSeed         string      `codec:"mock_seed"`
	MockFaults       string      `codec:"mock_faults"`
}

type rawPlanner struct {
	Addresses []string `codec:"addresses"`
	TLS
}

type rawNomad struct {
	Address string `codec:"address"`
	TLS
}

// TLS is how a server is recognised and how it recognises us; "" is the
// system's default.
type TLS struct {
	CAFile     string `codec:"ca_file"`
	CertFile   string `codec:"cert_file"`
	KeyFile    string `codec:"key_file"`
	ServerName string `codec:"tls_server_name"`
}

// Plugin is a valid plugin configuration.
type Plugin struct {
	Enabled bool
	// Planners are base URLs, at least one.
	Planners   []string
	PlannerTLS TLS
	// Nomad is "" where the agent is found by itself.
	Nomad    string
	NomadTLS TLS
	StateDir string
	// JoinTimeout and FenceAfter are the tasks' defaults.
	JoinTimeout, FenceAfter time.Duration
	// Address is how other nodes reach this one, "" where that is found out.
	Address     string
	Cgroups     bool
	Runtimes    []string
	RuntimeArgs bool
	DeniedUsers []string
	// AllowedDevices are paths and patterns of device nodes for every task.
	AllowedDevices []string
	// GPUSource, MockSeed and MockFaults are where preflights look.
	GPUSource, MockSeed, MockFaults string
}

// realGPUs is the source of GPUs that are there.
const realGPUs = "nvml"

// SimulatedGPUs says that the node's GPUs exist in name only.
func (p Plugin) SimulatedGPUs() bool { return p.GPUSource != realGPUs }

// PluginSchema describes the plugin block to Nomad.
func PluginSchema() *hclspec.Spec { return Schema(PluginOptions) }

// ReadPlugin reads the plugin block. The error lists every fault. refusesSource
// says which names are allowed for a source of GPUs, "" if this one is: the
// sources bring libraries with them that other readers of configurations do
// without.
func ReadPlugin(cfg base.Config, refusesSource func(name string) (allowed string)) (Plugin, error) {
	raw := rawPlugin{
		Enabled: true, Cgroups: true, StateDir: "/run/nomad-driver-caravan", JoinTimeout: "10m", FenceAfter: "60s",
		Runtimes: slices.Clone(Runtimes), GPUSource: realGPUs,
	}
	if err := cfg.Decode(&raw); err != nil {
		return Plugin{}, err
	}
	if raw.Planner == nil {
		raw.Planner = &rawPlanner{Addresses: []string{"http://127.0.0.1:4656"}}
	}
	if raw.Nomad == nil {
		raw.Nomad = &rawNomad{}
	}
	var f faults
	out := Plugin{
		Enabled: raw.Enabled, Planners: raw.Planner.Addresses, Nomad: raw.Nomad.Address,
		PlannerTLS: raw.Planner.TLS, NomadTLS: raw.Nomad.TLS,
		StateDir: raw.StateDir, Address: raw.Address, Cgroups: raw.Cgroups,
		JoinTimeout: f.duration("join_timeout", raw.JoinTimeout, 0, time.Second),
		FenceAfter:  f.duration("fence_after", raw.FenceAfter, 0, 0),
		Runtimes:    raw.Runtimes, RuntimeArgs: raw.AllowRuntimeArgs, DeniedUsers: raw.DeniedUsers,
		AllowedDevices: raw.AllowedDevices, GPUSource: raw.GPUSource, MockSeed: raw.MockSeed, MockFaults: raw.MockFaults,
	}
	if out.FenceAfter > 0 && out.FenceAfter < leastFence {
		f.add("fence_after", raw.FenceAfter, fmt.Sprintf("%q for never, or at least %s", "0s", leastFence))
	}
	if len(out.Planners) == 0 {
		f.add("planner.addresses", "[]", "at least one address")
	}
	for _, a := range out.Planners {
		f.address("planner.addresses", a)
	}
	if out.Nomad != "" {
		f.address("nomad.address", out.Nomad)
	}
	f.pair("planner", out.PlannerTLS)
	f.pair("nomad", out.NomadTLS)
	f.ip("address", out.Address)
	if !filepath.IsAbs(out.StateDir) {
		f.add("state_dir", out.StateDir, "an absolute path")
	}
	if allowed := refusesSource(out.GPUSource); allowed != "" {
		f.add("gpu_source", out.GPUSource, allowed)
	}
	for _, d := range out.AllowedDevices {
		if _, err := filepath.Match(d, ""); err != nil || !filepath.IsAbs(d) {
			f.add("allowed_devices", d, "absolute paths and patterns as in a shell")
		}
	}
	for _, r := range out.Runtimes {
		f.oneOf("runtimes", r, Runtimes)
	}
	return out, f.err("the plugin's configuration")
}

func (f *faults) address(key, text string) {
	u, err := url.Parse(text)
	if err != nil || u.Host == "" || !slices.Contains([]string{"http", "https"}, u.Scheme) || strings.Trim(u.Path, "/") != "" {
		f.add(key, text, "http://HOST:PORT or https://HOST:PORT")
	}
}

func (f *faults) pair(block string, t TLS) {
	if (t.CertFile == "") != (t.KeyFile == "") {
		f.add(block+".cert_file, "+block+".key_file", t.CertFile+", "+t.KeyFile, "both or none")
	}
}
