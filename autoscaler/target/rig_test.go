package target_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	goplugin "github.com/hashicorp/go-plugin"
	"github.com/hashicorp/nomad-autoscaler/plugins"
	"github.com/hashicorp/nomad-autoscaler/plugins/base"
	autoscaler "github.com/hashicorp/nomad-autoscaler/plugins/target"
	"github.com/hashicorp/nomad-autoscaler/sdk"
	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/autoscaler/target"
	"github.com/caravan-sched/caravan/autoscaler/terraform"
	"github.com/caravan-sched/caravan/internal/devcluster"
	"github.com/caravan-sched/caravan/internal/devjoin"
	"github.com/caravan-sched/caravan/internal/devnomad"
	"github.com/caravan-sched/caravan/internal/nomadproc"
	"github.com/caravan-sched/caravan/planner/burstapi"
)

// devicePlugin is the path of the built device plugin.
var devicePlugin string

// The test's binary is the plugin and the clients too.
func TestMain(m *testing.M) {
	switch {
	case len(os.Args) > 1 && os.Args[1] == "dev-client":
		ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
		defer stop()
		if err := devjoin.Run(ctx, os.Args[2:], os.Stdout); err != nil && !errors.Is(err, context.Canceled) {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	case os.Getenv(plugins.Handshake.MagicCookieKey) != "":
		plugins.Serve(func(log hclog.Logger) any { return target.New(log) })
		return
	}
	os.Exit(run(m))
}

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "caravan-target-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	devicePlugin = filepath.Join(dir, "nomad-device-caravan")
	if out, err := exec.Command("go", "build", "-o", devicePlugin, "../../devicegpu/cmd/nomad-device-caravan").CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "build the device plugin: %v\n%s", err, out)
		return 1
	}
	return m.Run()
}

// rig is a pool with all that belongs to it.
type rig struct {
	t       *testing.T
	cluster devcluster.Cluster
	stand   *devnomad.Cluster // the same, where it is the stand-in
	planner *planner
	dir     string
	config  map[string]string // of the plugin
	policy  map[string]string // of the target in the policy
}

// rigOptions are what tests change.
type rigOptions struct {
	model       string // the simulated machine
	joinTimeout string
	vars        map[string]any // of the local module
	noPlanner   bool
	nomad       string // the real one's program; "" is the stand-in
}

func newRig(t *testing.T, o rigOptions) *rig {
	t.Helper()
	if !terraform.HasBinary() {
		t.Skip("no terraform and no tofu on the PATH: nodes cannot be made")
	}
	r := &rig{t: t, planner: newPlanner(t), dir: t.TempDir()}
	c := r.startCluster(o.nomad)
	if err := os.CopyFS(r.dir, os.DirFS("../terraform/modules/local")); err != nil {
		t.Fatal(err)
	}
	j := c.Joining()
	if o.model == "" {
		o.model = "mock:dgxh100"
	}
	j.Node.Plugins = []devcluster.Plugin{{Name: "nomad-device-caravan", Path: devicePlugin, Config: fmt.Sprintf("source = %q", o.model)}}
	vars := map[string]any{"pool": "p", "directory": filepath.Join(r.dir, "nodes"), "client": []string{os.Args[0], "dev-client", filepath.Join(r.dir, "client.json")}}
	for k, v := range o.vars {
		vars[k] = v
	}
	r.write("client.json", j)
	r.write("terraform.tfvars.json", vars)
	if o.joinTimeout == "" {
		o.joinTimeout = "2m"
	}
	pools := fmt.Sprintf(`
pool "p" {
  provider      = "local"
  region        = "here"
  instance_type = "dgx"
  quota         = 8
  boot_time     = "1s"
  join_timeout  = %q
  node {
    gpus       = 8
    model      = "NVIDIA H100 80GB HBM3"
    cpu_mhz    = 1000
    memory_mib = 1000
    disk_mib   = 1000
  }
  price {
    on_demand = 2
    spot      = 1
  }
  terraform {
    working_directory = "."
  }
}
`, o.joinTimeout)
	if err := os.WriteFile(filepath.Join(r.dir, "pools.hcl"), []byte(pools), 0o644); err != nil {
		t.Fatal(err)
	}
	r.config = map[string]string{
		target.KeyPools: filepath.Join(r.dir, "pools.hcl"), "nomad_address": c.Address(), target.KeyPlanner: r.planner.URL, "planner_token": "planner-secret-token",
		target.KeySettle: "200ms", "nomad_config_inherit": "true",
	}
	if o.noPlanner {
		delete(r.config, target.KeyPlanner)
	}
	r.policy = map[string]string{target.KeyPool: "p", sdk.TargetConfigKeyDrainDeadline: "20s", sdk.TargetConfigKeyClass: "burst", "node_purge": "true"}
	t.Cleanup(r.killAll)
	return r
}

// startCluster starts a cluster without nodes.
func (r *rig) startCluster(nomad string) devcluster.Cluster {
	r.t.Helper()
	var err error
	if nomad != "" {
		r.cluster, err = nomadproc.Start(r.t.Context(), nomad, devcluster.Spec{})
	} else {
		r.stand, err = devnomad.StartWith(r.t.Context(), devcluster.Spec{}, devnomad.Options{LostAfter: 100 * time.Millisecond})
		r.cluster = r.stand
	}
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() {
		if err := r.cluster.Stop(); err != nil {
			r.t.Error(err)
		}
	})
	return r.cluster
}

// killAll ends what a failed test may have left.
func (r *rig) killAll() {
	for _, pid := range r.processes() {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
}

// processes are the PIDs of the nodes' clients, and of what they have started.
func (r *rig) processes() []int {
	all, _ := filepath.Glob("/proc/[0-9]*/environ")
	var out []int
	for _, f := range all {
		if raw, err := os.ReadFile(f); err == nil && strings.Contains(string(raw), "CARAVAN_LOCAL_NODE="+r.dir) {
			var pid int
			if _, err := fmt.Sscanf(f, "/proc/%d/", &pid); err == nil {
				out = append(out, pid)
			}
		}
	}
	return out
}

func (r *rig) write(name string, v any) {
	r.t.Helper()
	raw, err := json.Marshal(v)
	if err == nil {
		err = os.WriteFile(filepath.Join(r.dir, name), raw, 0o600)
	}
	if err != nil {
		r.t.Fatal(err)
	}
}

// launched is a plugin in a process of its own.
type launched struct {
	autoscaler.Target
	client *goplugin.Client
	log    *logText
}

// logText keeps what the plugin logs.
type logText struct {
	mu   sync.Mutex
	t    *testing.T
	text strings.Builder
}

// Write implements io.Writer.
func (l *logText) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

// String is all that was logged.
func (l *logText) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// launch starts the plugin as the autoscaler does, and configures it.
func (r *rig) launch(env ...string) *launched {
	r.t.Helper()
	l := &launched{log: &logText{t: r.t}}
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), env...)
	l.client = goplugin.NewClient(&goplugin.ClientConfig{
		HandshakeConfig: plugins.Handshake, Cmd: cmd, AllowedProtocols: []goplugin.Protocol{goplugin.ProtocolGRPC},
		Plugins: map[string]goplugin.Plugin{sdk.PluginTypeTarget: &autoscaler.PluginTarget{}, sdk.PluginTypeBase: &base.PluginBase{}},
		Logger:  hclog.New(&hclog.LoggerOptions{Output: io.MultiWriter(l.log), Level: hclog.Debug}),
	})
	r.t.Cleanup(func() {
		l.client.Kill()
		if r.t.Failed() {
			r.t.Log(l.log.String())
		}
	})
	rpc, err := l.client.Client()
	if err != nil {
		r.t.Fatal(err)
	}
	raw, err := rpc.Dispense(sdk.PluginTypeTarget)
	if err != nil {
		r.t.Fatal(err)
	}
	l.Target = raw.(autoscaler.Target)
	return l
}

func (r *rig) start() *launched {
	r.t.Helper()
	l := r.launch()
	if err := l.SetConfig(r.config); err != nil {
		r.t.Fatal(err)
	}
	return l
}

func (r *rig) status(l *launched) *sdk.TargetStatus {
	r.t.Helper()
	s, err := l.Status(r.policy)
	if err != nil {
		r.t.Fatal(err)
	}
	return s
}

// nodes are the keys of the pool's nodes that Nomad thinks alive.
func (r *rig) nodes() []string {
	r.t.Helper()
	c := r.cluster.Client()
	list, _, err := c.Nodes().List(nil)
	if err != nil {
		r.t.Fatal(err)
	}
	var out []string
	for _, stub := range list {
		n, _, err := c.Nodes().Info(stub.ID, nil)
		if err == nil && n.Status != api.NodeStatusDown {
			out = append(out, n.Meta[burstapi.MetaNode])
		}
	}
	slices.Sort(out)
	return out
}

// state are the names in Terraform's state.
func (r *rig) state() []string {
	r.t.Helper()
	d, err := terraform.Open(terraform.Config{Dir: r.dir}, hclog.NewNullLogger())
	if err != nil {
		r.t.Fatal(err)
	}
	s, err := d.Nodes(r.t.Context())
	if err != nil {
		r.t.Fatal(err)
	}
	return s.Names()
}

// loop evaluates as the autoscaler's policy handler does, until done says that it is
// enough.
func (r *rig) loop(l *launched, done func(s *sdk.TargetStatus) bool) *handler {
	r.t.Helper()
	h := &handler{target: l, policy: r.policy, want: r.planner.wanted, max: 8}
	for end := time.Now().Add(90 * time.Second); ; time.Sleep(250 * time.Millisecond) {
		h.evaluate(time.Now())
		if h.status != nil && done(h.status) {
			return h
		}
		if time.Now().After(end) {
			r.t.Fatalf("the loop came to no end: status %+v, the last error and no-op %v %q, reports %q", h.status, h.errs[max(0, len(h.errs)-1):], h.noOps[max(0, len(h.noOps)-1):], r.planner.told())
		}
	}
}

// nothingLeft checks that no machine is there, known or not.
func (r *rig) nothingLeft() {
	r.t.Helper()
	if s := r.state(); len(s) > 0 {
		r.t.Errorf("nodes are left in the state: %v", s)
	}
	if p := r.processes(); len(p) > 0 {
		r.t.Errorf("machines are left: processes %v", p)
	}
	if n := r.nodes(); len(n) > 0 {
		r.t.Errorf("nodes are left in Nomad: %v", n)
	}
}

// join lets a node join that nobody has bought, and returns what ends it.
func (r *rig) join(name, key string) func() {
	r.t.Helper()
	cmd := exec.Command(os.Args[0], "dev-client", filepath.Join(r.dir, "client.json"), "-node="+name, "-meta", "caravan_pool=p", "-meta", "caravan_node="+key)
	if err := cmd.Start(); err != nil {
		r.t.Fatal(err)
	}
	end := func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }
	r.t.Cleanup(end)
	for until := time.Now().Add(90 * time.Second); !slices.Contains(r.nodes(), key); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(until) {
			r.t.Fatalf("node %s did not join", name)
		}
	}
	return end
}
