package driver

import (
	"net"
	"strings"
	"testing"

	"github.com/caravan-sched/caravan/driver/exec"
	"github.com/caravan-sched/caravan/internal/nomadplugin/base"
	"github.com/caravan-sched/caravan/internal/nomadplugin/driver"
)

// TestRefusals: who writes a job is told of everything at once.
func TestRefusals(t *testing.T) {
	tests := map[string]struct {
		plugin, task string
		change       func(*driver.TaskConfig)
		want         []string
	}{
		"the host lacks it all": {
			task: "command = \"no-such-command\"\nwork_dir = \"/not/here\"\nulimit {\n nofile = \"9999999999999\"\n}",
			change: func(t *driver.TaskConfig) {
				t.User = "no-such-user"
				t.Mounts = []driver.Mount{{HostPath: "/not/here", TaskPath: "/nor/there"}}
				t.Network = &driver.NetworkIsolation{Mode: driver.NetworkGroup, Path: "/not/here"}
				t.Resources.Linux.CPUQuota = 5
			},
			want: []string{`config.command: "no-such-command"`, `config.work_dir: "/not/here"`, `config.ulimit.nofile: "9999999999999" is above`, `user: "no-such-user"`, "/nor/there", "network_namespace", "cpu_quota"},
		},
		"the operator forbids it": {
			plugin: "denied_users = [\"root\"]\nruntimes = [\"docker\"]",
			task:   "image = \"train:1\"\nruntime = \"podman\"\nruntime_args = [\"--privileged\"]\nmember = \"king\"\nfence_after = \"1s\"",
			change: func(t *driver.TaskConfig) { t.User = "0" },
			want:   []string{`runtime is "podman"`, "runtime_args", `member is "king"`, "fence_after", `user is "0"`, `the operator's denied_users is ["root"]`},
		},
		"denied by the user's number": {
			plugin: `denied_users = ["0"]`, task: `command = "/bin/sh"`, change: func(t *driver.TaskConfig) { t.User = "root:root" },
			want: []string{`user is "root:root"`},
		},
		"denied as nobody else was asked for": {
			plugin: `denied_users = ["` + me() + `"]`, task: `command = "/bin/sh"`,
			want: []string{`user is ""`},
		},
		"nowhere to meet": {
			task: `command = "/bin/sh"`,
			change: func(t *driver.TaskConfig) {
				t.Network = &driver.NetworkIsolation{Mode: driver.NetworkGroup, Path: "/proc/self/ns/net"}
				t.Resources.Ports = []driver.PortMapping{{Label: "rendezvous", Value: 23456, To: 29500, HostIP: "10.0.0.7"}}
				t.DNS = &driver.DNS{Servers: []string{"a b"}}
			},
			want: []string{`port "rendezvous" is 23456 on the node and 29500 in the group's network`, "dns.servers"},
		},
		"a task of no cluster": {
			task:   `command = "/bin/sh"`,
			change: func(t *driver.TaskConfig) { t.NodeID, t.Namespace, t.User = "", "", "no-such-user" },
			want:   []string{"task.node", "task.namespace", "no-such-user"},
		},
		"no such runtime": {
			task: "image = \"train:1\"\nruntime = \"podman\"",
			want: []string{"run an image with podman", "podman: is not installed"},
		},
		"a container that cannot be": {
			task: `image = "--privileged"`,
			change: func(t *driver.TaskConfig) {
				t.Network = &driver.NetworkIsolation{Mode: driver.NetworkGroup, Path: "/proc/self/ns/net"}
				t.Mounts = []driver.Mount{{HostPath: "data", TaskPath: "/a:b"}}
				t.Env["CARAVAN_GPU_BUS_IDS"] = "GPU-1"
			},
			want: []string{`"GPU-1"`, `image is "--privileged"`, "docker cannot join the network", `mount of "data" at "/a:b"`},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			p := describing(t, plannerAddress+test.plugin, exec.Facilities{})
			r := &rig{t: t, allocs: t.TempDir()}
			task := r.task("a", test.task)
			if test.change != nil {
				test.change(&task)
			}
			_, err := p.describe(t.Context(), task, p.config())
			for _, want := range test.want {
				if err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("the refusal lacks %q:\n%v", want, err)
				}
			}
		})
	}
}

// TestShares: Nomad's MHz fit into the kernel's shares, on large nodes too.
func TestShares(t *testing.T) {
	topology := func(cores, mhz int, override uint64) *base.DriverConfig {
		c := &base.DriverConfig{Topology: &base.CPUTopology{OverrideComputeMHz: override, Cores: []base.Core{{Disabled: true, BaseMHz: 9999}}}}
		for range cores {
			c.Topology.Cores = append(c.Topology.Cores, base.Core{GuessedMHz: uint64(mhz)})
		}
		return c
	}
	tests := map[string]struct {
		config *base.DriverConfig
		mhz    int64
		want   int64
		core   float64
	}{
		"none":                     {mhz: 0, want: 0},
		"less than none":           {mhz: -1, want: 0},
		"few":                      {mhz: 1, want: 2},
		"as they are":              {config: topology(4, 2500, 0), mhz: 2500, want: 2500, core: 2500},
		"all of a large node":      {config: topology(192, 2400, 0), mhz: 192 * 2400, want: 1 << 18, core: 2400},
		"a quarter of a large one": {config: topology(192, 2400, 0), mhz: 48 * 2400, want: 1 << 16, core: 2400},
		"hardly any of it":         {config: topology(192, 2400, 0), mhz: 1, want: 2, core: 2400},
		"the operator's word":      {config: topology(2, 2400, 1<<20), mhz: 1 << 19, want: 1 << 17, core: 1 << 19},
		"not told":                 {mhz: 1 << 20, want: 1 << 18},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			c := computeOf(test.config)
			if got := c.shares(test.mhz); got != test.want || c.coreMHz() != test.core {
				t.Errorf("shares = %d of a node with cores of %v MHz, want %d and %v", got, c.coreMHz(), test.want, test.core)
			}
		})
	}
}

// TestRoute: without anything else a node's address is that on the way to the
// planner.
func TestRoute(t *testing.T) {
	for address, want := range map[string]string{"http://127.0.0.1:1": "127.0.0.1", "http://[::1]:1": "::1", "::": "127.0.0.1", "http://no.such.host.invalid": "127.0.0.1"} {
		if want == "::1" {
			if conn, err := net.Dial("udp", "[::1]:9"); err != nil {
				continue
			} else if err := conn.Close(); err != nil {
				t.Fatal(err)
			}
		}
		if got := route([]string{address}); got != want {
			t.Errorf("route to %s = %s, want %s", address, got, want)
		}
	}
}
