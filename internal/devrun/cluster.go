package devrun

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/devicegpu/topology"
	"github.com/caravan-sched/caravan/internal/devcluster"
	"github.com/caravan-sched/caravan/internal/devnomad"
	"github.com/caravan-sched/caravan/internal/freeport"
	"github.com/caravan-sched/caravan/internal/nomadproc"
	"github.com/caravan-sched/caravan/planner/config"
)

// pluginName is the device plugin's binary, driverName the task driver's.
const (
	pluginName = "nomad-device-caravan"
	driverName = "nomad-driver-caravan"
)

// pairsTopology is a machine whose eight GPUs are bridged in pairs, as
// `nvidia-smi topo -m` prints it.
//
//go:embed pairs.txt
var pairsTopology []byte

// gpusPerNode is what each simulated node has.
const gpusPerNode = 8

// racks are the nodes' racks: two nodes share one.
var racks = map[string]string{"gpu-1": "r1", "gpu-2": "r1", "gpu-3": "r2", "far-1": "r1", "far-2": "r1"}

// nodeNames are the nodes in order.
var nodeNames = []string{"gpu-1", "gpu-2", "gpu-3"}

// startCluster starts the back end with its three nodes and waits until they
// are ready. The cluster has a data directory of its own, which it removes even
// when this process is killed; dir is for the little that it reads.
// port is the planner's, on the server's machine.
func startCluster(ctx context.Context, opts Options, play scenario, dir, port string) (devcluster.Cluster, error) {
	region := ""
	if play.federated {
		region = homeRegion
	}
	return startRegion(ctx, opts, play, dir, port, region, nodeNames)
}

// startRegion is startCluster with these nodes in a region.
func startRegion(ctx context.Context, opts Options, play scenario, dir, port, region string, names []string) (devcluster.Cluster, error) {
	plugin, err := findBinary(pluginName, opts.Plugin)
	if err != nil {
		return nil, err
	}
	driver, err := findBinary(driverName, opts.Driver, filepath.Dir(plugin))
	if err != nil && (play.driver || opts.Driver != "") {
		return nil, err
	}
	source := "mock:dgxh100"
	if play.pairs {
		path := filepath.Join(dir, "pairs.txt")
		if err := os.WriteFile(path, pairsTopology, 0o644); err != nil {
			return nil, fmt.Errorf("write simulated topology: %w", err)
		}
		source = "file:" + path
	}
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find this program: %w", err)
	}
	// Jobs that call it, as those with caravan join, need not say where it is.
	spec := devcluster.Spec{Log: opts.Log, ACL: play.acl, Networks: play.networks, Path: []string{filepath.Dir(self)}, Region: region}
	for _, name := range names {
		// The seed makes each node's GPUs its own.
		config := fmt.Sprintf("source    = %q\nmock_seed = %q", source, name)
		if play.faults {
			config += fmt.Sprintf("\nmock_faults = %q\nfingerprint_period = \"1s\"", faultsFile(dir, name))
		}
		if play.divides {
			config += fmt.Sprintf("\nmig = \"auto\"\nplanner_addresses = [\"http://%s:%s\"]", devcluster.ServerHost, port)
		}
		if play.shares && name == sharedNode {
			config += fmt.Sprintf("\nsharing {\n  slices = %d\n  count  = 1\n}", sharedBy)
		}
		plugins := []devcluster.Plugin{{Name: pluginName, Path: plugin, Config: config}}
		if driver != "" {
			plugins = append(plugins, devcluster.Plugin{Name: driverName, Path: driver, Config: driverConfig(dir, name, port)})
		}
		spec.Nodes = append(spec.Nodes, devcluster.Node{Name: name, Meta: map[string]string{"caravan_rack": racks[name]}, Plugins: plugins})
	}
	cluster, err := startBackend(ctx, opts, spec)
	if err != nil {
		return nil, err
	}
	if err := cluster.WaitReady(ctx); err != nil {
		return nil, errors.Join(err, cluster.Stop())
	}
	return cluster, nil
}

// faultsFile is where a node's simulated faults are written; nobody has any
// while it is not there.
func faultsFile(dir, node string) string { return filepath.Join(dir, node+".faults") }

// lostAfter is how long the stand-in's nodes may be silent: as long as those of
// the real Nomad, which is configured not to wait half a minute.
const lostAfter = 13 * time.Second

func startBackend(ctx context.Context, opts Options, spec devcluster.Spec) (devcluster.Cluster, error) {
	bin, found := nomadproc.Find()
	switch {
	case opts.Backend == devcluster.BackendDevNomad || opts.Backend == "" && !found:
		c, err := devnomad.StartWith(ctx, spec, devnomad.Options{LostAfter: lostAfter})
		if err != nil {
			return nil, err
		}
		return c, nil
	case opts.Backend == "" || opts.Backend == devcluster.BackendNomad && found:
		c, err := nomadproc.Start(ctx, bin, spec)
		if err != nil {
			return nil, err
		}
		return c, nil
	case opts.Backend == devcluster.BackendNomad:
		return nil, fmt.Errorf("start cluster: no nomad binary; set %s or put nomad on the PATH", nomadproc.EnvBinary)
	default:
		return nil, fmt.Errorf("start cluster: back end %q; allowed are %q and %q", opts.Backend, devcluster.BackendDevNomad, devcluster.BackendNomad)
	}
}

// backendOf is the back end that the options lead to, whether it is there or
// not.
func backendOf(opts Options) string {
	_, found := nomadproc.Find()
	switch {
	case opts.Backend != "":
		return opts.Backend
	case found:
		return devcluster.BackendNomad
	default:
		return devcluster.BackendDevNomad
	}
}

// driverConfig is the task driver's. The state is in the run's directory, so
// that the reaper finds what it is about.
func driverConfig(dir, node, port string) string {
	return fmt.Sprintf(`
state_dir  = %q
gpu_source = "mock:dgxh100"
mock_seed  = %q
planner {
  addresses = ["http://%s:%s"]
}`, filepath.Join(dir, "tasks-"+node), node, devcluster.ServerHost, port)
}

// findBinary returns the binary at the path given, else the one of that name in
// one of the directories, else the one beside this program, else the one on the
// PATH.
func findBinary(name, path string, dirs ...string) (string, error) {
	if path != "" {
		if _, err := os.Stat(path); err != nil {
			return "", fmt.Errorf("find plugin %s: %w", name, err)
		}
		return path, nil
	}
	if self, err := os.Executable(); err == nil {
		dirs = append(dirs, filepath.Dir(self))
	}
	for _, dir := range dirs {
		if _, err := os.Stat(filepath.Join(dir, name)); err == nil {
			return filepath.Join(dir, name), nil
		}
	}
	path, err := exec.LookPath(name)
	if err != nil {
		return "", fmt.Errorf("find plugin: no %s beside this program or on the PATH; build it with `make build`", name)
	}
	return path, nil
}

// readNodes reads the islands from what the device plugins told Nomad, so that
// the checks do not depend on the planner's view, and the nodes' names by ID.
func readNodes(client *api.Client) (islandMap, map[string]string, error) {
	islands, names := islandMap{of: map[string]string{}, size: map[string]int{}}, map[string]string{}
	stubs, _, err := client.Nodes().List(nil)
	if err != nil {
		return islands, nil, fmt.Errorf("read nodes: %w", err)
	}
	for _, stub := range stubs {
		node, _, err := client.Nodes().Info(stub.ID, nil)
		if err != nil {
			return islands, nil, fmt.Errorf("read node %s: %w", stub.Name, err)
		}
		names[node.ID] = node.Name
		if node.NodeResources == nil {
			continue
		}
		for _, group := range node.NodeResources.Devices {
			a := group.Attributes[topology.AttrTopology]
			if a == nil || a.StringVal == nil {
				return islands, nil, fmt.Errorf("read node %s: its devices have no %s", stub.Name, topology.AttrTopology)
			}
			m, err := topology.Decode(*a.StringVal)
			if err != nil {
				return islands, nil, fmt.Errorf("read topology of node %s: %w", stub.Name, err)
			}
			islands.add(node.Name, m)
		}
	}
	return islands, names, nil
}

// defaultPort is the planner's usual port if nobody listens there, else another.
func defaultPort() (string, error) {
	if l, err := net.Listen("tcp", config.DefaultListen); err == nil {
		_, port, err := net.SplitHostPort(l.Addr().String())
		if err := errors.Join(err, l.Close()); err != nil {
			return "", fmt.Errorf("find a free port: %w", err)
		}
		return port, nil
	}
	return anyPort()
}

// anyPort is one of this machine's that nobody has.
func anyPort() (string, error) {
	port, err := freeport.Take("127.0.0.1")
	if err != nil {
		return "", err
	}
	return strconv.Itoa(port), nil
}
