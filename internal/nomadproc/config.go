package nomadproc

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"path/filepath"
	"strings"

	"github.com/caravan-sched/caravan/internal/devcluster"
	"github.com/caravan-sched/caravan/internal/freeport"
)

const defaultBind = "127.0.0.1"

// What a node of the development cluster claims to have, so that job files
// written for real GPU nodes fit: a DGX H100's processors and memory.
const (
	nodeComputeMHz = 224_000
	nodeMemoryMiB  = 2 << 20
	nodeDiskMiB    = 1 << 20
)

// Host ports for tasks are split between the clients, which share one host.
const (
	firstDynamicPort = 20_000
	lastDynamicPort  = 31_999
)

// denied are the fingerprints that clients leave out. The clouds' would try to
// reach metadata services; Consul's and Vault's would find the developer's.
// "signal", which clientConfig adds, lists the signals in random order: that
// gives each node a computed class of its own by luck. Without it a job that
// names a kill_signal finds no node, so it stays on nodes of DistinctClass.
var denied = []string{"env_aws", "env_gce", "env_azure", "env_digitalocean", "consul", "vault", "cni", "plugins_cni"}

// ports are an agent's.
type ports struct{ HTTP, RPC, Serf int }

func (p ports) object() map[string]any {
	return map[string]any{"http": p.HTTP, "rpc": p.RPC, "serf": p.Serf}
}

// url is where an agent with these ports answers.
func (p ports) url(host string) string {
	return "http://" + net.JoinHostPort(host, fmt.Sprint(p.HTTP))
}

// freePorts finds n agents' ports on the address.
func freePorts(bind string, n int) ([]ports, error) {
	out := make([]ports, n)
	for i := range out {
		for _, port := range []*int{&out[i].HTTP, &out[i].RPC, &out[i].Serf} {
			var err error
			if *port, err = freeport.Take(bind); err != nil {
				return nil, err
			}
		}
	}
	return out, nil
}

// agentConfig is what server and clients share. Without `advertise` an agent
// that is bound to a loopback address refuses to start.
func agentConfig(name, region, dataDir, bind string, p ports, acl bool) map[string]any {
	address := func(port int) string { return net.JoinHostPort(bind, fmt.Sprint(port)) }
	noConsul := map[string]any{"auto_advertise": false, "server_auto_join": false, "client_auto_join": false}
	return map[string]any{
		"name": name, "region": region, "data_dir": dataDir, "bind_addr": bind, "ports": p.object(),
		"advertise":            map[string]any{"http": address(p.HTTP), "rpc": address(p.RPC), "serf": address(p.Serf)},
		"log_level":            "INFO",
		"disable_update_check": true,
		"acl":                  map[string]any{"enabled": acl},
		"consul":               noConsul,
	}
}

func serverConfig(name, region, dataDir, bind string, p ports, acl bool) map[string]any {
	c := agentConfig(name, region, dataDir, bind, p, acl)
	c["server"] = map[string]any{
		"enabled": true, "bootstrap_expect": 1,
		// A lost node is noticed after about 13 s instead of 27.
		"min_heartbeat_ttl": "5s", "heartbeat_grace": "5s",
	}
	return c
}

func clientConfig(n devcluster.Node, region, dataDir, pluginDir, bind string, p ports, acl bool, serverRPC string, dynamic [2]int) map[string]any {
	c := agentConfig(n.Name, region, dataDir, bind, p, acl)
	c["datacenter"] = cmp.Or(n.Datacenter, "dc1")
	c["plugin_dir"] = pluginDir
	// Without it clients do not ask drivers for statistics at all.
	c["telemetry"] = map[string]any{"publish_allocation_metrics": true}
	deny := denied
	meta := map[string]string{}
	maps.Copy(meta, n.Meta)
	if n.DistinctClass {
		meta["caravan_dev_class"] = n.Name
	} else {
		deny = append(deny[:len(deny):len(deny)], "signal")
	}
	c["client"] = map[string]any{
		"enabled": true, "servers": []string{serverRPC},
		// Short: Nomad makes a socket deep below it for each task, whose path must
		// not be longer than 107 characters.
		"alloc_dir":  filepath.Join(filepath.Dir(dataDir), "a"),
		"node_class": n.Class, "node_pool": cmp.Or(n.Pool, "default"), "meta": meta,
		"network_interface": loopbackInterface(),
		"options": map[string]string{
			"fingerprint.denylist": strings.Join(deny, ","),
			// They are not used, and look for what a developer may not have.
			"driver.denylist": "docker,exec,java,qemu",
		},
		"cpu_total_compute": nodeComputeMHz, "memory_total_mb": nodeMemoryMiB,
		"disk_total_mb":    nodeDiskMiB,
		"min_dynamic_port": dynamic[0], "max_dynamic_port": dynamic[1],
		// The developer's disk may be fuller than Nomad likes.
		"gc_disk_usage_threshold": 100, "gc_inode_usage_threshold": 100,
	}
	return c
}

// loopbackInterface is the name of the interface that tasks' ports are on.
func loopbackInterface() string {
	interfaces, err := net.Interfaces()
	if err == nil {
		for _, i := range interfaces {
			if i.Flags&net.FlagLoopback != 0 {
				return i.Name
			}
		}
	}
	return "lo"
}

// pluginConfig is the agent's plugin blocks, in HCL since that is how plugins'
// configurations are given. server is the server's address.
func pluginConfig(plugins []devcluster.Plugin, server string) string {
	var b strings.Builder
	b.WriteString("plugin \"raw_exec\" {\n  config {\n    enabled = true\n  }\n}\n")
	for _, p := range plugins {
		fmt.Fprintf(&b, "plugin %q {\n  config {\n%s\n  }\n}\n", p.Name, strings.ReplaceAll(p.Config, devcluster.ServerHost, server))
	}
	return b.String()
}

// writeConfig writes an agent's configuration files and returns their paths.
func writeConfig(dir string, agent map[string]any, plugins string) ([]string, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("create agent directory: %w", err)
	}
	data, err := json.MarshalIndent(agent, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("encode agent configuration: %w", err)
	}
	paths := []string{filepath.Join(dir, "agent.json")}
	if err := os.WriteFile(paths[0], data, 0o600); err != nil {
		return nil, fmt.Errorf("write agent configuration: %w", err)
	}
	if plugins != "" {
		paths = append(paths, filepath.Join(dir, "plugins.hcl"))
		if err := os.WriteFile(paths[1], []byte(plugins), 0o600); err != nil {
			return nil, fmt.Errorf("write plugin configuration: %w", err)
		}
	}
	return paths, nil
}

// linkPlugins makes a plugin directory with the binaries under their names.
func linkPlugins(dir string, plugins []devcluster.Plugin) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("create plugin directory: %w", err)
	}
	for _, p := range plugins {
		path, err := filepath.Abs(p.Path)
		if err != nil {
			return fmt.Errorf("find plugin %q: %w", p.Name, err)
		}
		if _, err := os.Stat(path); err != nil {
			return fmt.Errorf("find plugin %q: %w", p.Name, err)
		}
		link := filepath.Join(dir, p.Name)
		if err := os.Remove(link); err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("install plugin %q: %w", p.Name, err)
		}
		if err := os.Symlink(path, link); err != nil {
			return fmt.Errorf("install plugin %q: %w", p.Name, err)
		}
	}
	return nil
}
