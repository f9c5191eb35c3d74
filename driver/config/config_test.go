package config

import (
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/caravan-sched/caravan/devicegpu/nvml"
	"github.com/caravan-sched/caravan/internal/nomadplugin/base"
	"github.com/caravan-sched/caravan/internal/nomadplugin/driver"
	"github.com/caravan-sched/caravan/internal/nomadplugin/hclspec"
)

// keys are the codec tags of a struct, those of its blocks below their name.
func keys(t reflect.Type, prefix string) []string {
	var out []string
	for _, f := range reflect.VisibleFields(t) {
		if f.Anonymous {
			continue
		}
		key := prefix + f.Tag.Get("codec")
		out = append(out, key)
		if f.Type.Kind() == reflect.Pointer {
			out = append(out, keys(f.Type.Elem(), key+".")...)
		}
	}
	return out
}

func optionKeys(options []Option, prefix string) []string {
	var out []string
	for _, o := range options {
		out = append(out, prefix+o.Key)
		out = append(out, optionKeys(o.Block, prefix+o.Key+".")...)
	}
	return out
}

// TestKeys: the structs and the tables of options name the same keys.
func TestKeys(t *testing.T) {
	for name, test := range map[string]struct {
		raw     any
		options []Option
	}{"plugin": {rawPlugin{}, PluginOptions}, "task": {rawTask{}, TaskOptions}} {
		got, want := keys(reflect.TypeOf(test.raw), ""), optionKeys(test.options, "")
		slices.Sort(got)
		slices.Sort(want)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: options (-) and struct (+) differ:\n%s", name, diff)
		}
	}
}

func readPlugin(t *testing.T, hcl string) (Plugin, error) {
	t.Helper()
	raw, err := hclspec.Encode(PluginSchema(), []byte(hcl), "plugin")
	if err != nil {
		return Plugin{}, err
	}
	return ReadPlugin(base.Config{Raw: raw}, func(name string) string {
		if nvml.ValidSource(name) {
			return ""
		}
		return nvml.Sources()
	})
}

func mustPlugin(t *testing.T, hcl string) Plugin {
	t.Helper()
	p, err := readPlugin(t, hcl)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func readTask(t *testing.T, hcl string, plugin Plugin) (Task, error) {
	t.Helper()
	raw, err := hclspec.Encode(TaskSchema(), []byte(hcl), "task")
	if err != nil {
		return Task{}, err
	}
	return ReadTask(driver.TaskConfig{Name: "main", AllocDir: "/a", Raw: raw}, plugin)
}

func TestReadPlugin(t *testing.T) {
	defaults := Plugin{
		Enabled: true, Planners: []string{"http://127.0.0.1:4656"},
		StateDir: "/run/nomad-driver-caravan", JoinTimeout: 10 * time.Minute, FenceAfter: time.Minute,
		Cgroups: true, Runtimes: []string{"podman", "docker", "apptainer"}, DeniedUsers: []string{},
		AllowedDevices: []string{"/dev/infiniband/*", "/dev/fuse", "/dev/net/tun"}, GPUSource: "nvml",
	}
	tests := map[string]struct {
		hcl  string
		want func(*Plugin)
	}{
		"empty": {``, func(*Plugin) {}},
		"planner": {`
			planner {
			  addresses = ["https://a:1", "https://b:2"]
			  ca_file   = "/ca"
			  cert_file = "/c"
			  key_file  = "/k"
			}`, func(p *Plugin) {
			p.Planners, p.PlannerTLS = []string{"https://a:1", "https://b:2"}, TLS{CAFile: "/ca", CertFile: "/c", KeyFile: "/k"}
		}},
		"a block's own defaults": {`
			planner { ca_file = "/ca" }
			nomad { tls_server_name = "client.global.nomad" }`, func(p *Plugin) {
			p.PlannerTLS, p.NomadTLS = TLS{CAFile: "/ca"}, TLS{ServerName: "client.global.nomad"}
		}},
		"the rest": {`
			enabled = false
			state_dir = "/s"
			join_timeout = "1h"
			fence_after = "0s"
			address = "10.0.0.1"
			cgroups = false
			runtimes = ["apptainer"]
			allow_runtime_args = true
			allowed_devices = ["/dev/kvm"]
			gpu_source = "mock:dgxh100"
			mock_seed = "s"
			mock_faults = "/f"
			denied_users = ["root"]`, func(p *Plugin) {
			*p = Plugin{
				Planners: p.Planners, StateDir: "/s", JoinTimeout: time.Hour, Address: "10.0.0.1",
				Runtimes: []string{"apptainer"}, RuntimeArgs: true, DeniedUsers: []string{"root"},
				AllowedDevices: []string{"/dev/kvm"}, GPUSource: "mock:dgxh100", MockSeed: "s", MockFaults: "/f",
			}
		}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			want := defaults
			test.want(&want)
			if diff := cmp.Diff(want, mustPlugin(t, test.hcl)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestReadPluginFaults(t *testing.T) {
	_, err := readPlugin(t, `
		planner {
		  addresses = ["10.0.0.1:4656"]
		  cert_file = "/c"
		}
		nomad { address = "ftp://x" }
		state_dir = "run"
		join_timeout = "soon"
		fence_after = "5s"
		address = "node-1"
		gpu_source = "mock:abacus"
		allowed_devices = ["kvm"]
		runtimes = ["lxc"]`)
	if err == nil {
		t.Fatal("no error")
	}
	for _, want := range []string{
		`address is "node-1": allowed is an IP address`,
		`fence_after is "5s": allowed is "0s" for never, or at least 10s`,
		`join_timeout is "soon": allowed is a duration`,
		`nomad.address is "ftp://x": allowed is http://HOST:PORT`,
		`planner.addresses is "10.0.0.1:4656": allowed is http://HOST:PORT`,
		`planner.cert_file, planner.key_file is "/c, ": allowed is both or none`,
		`gpu_source is "mock:abacus"`, `allowed_devices is "kvm": allowed is absolute paths`,
		`runtimes is "lxc": allowed is podman, docker, apptainer`,
		`state_dir is "run": allowed is an absolute path`,
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("error lacks %q:\n%v", want, err)
		}
	}
}

func TestReadTask(t *testing.T) {
	plugin := mustPlugin(t, "")
	defaults := Task{
		Args: []string{}, RuntimeArgs: []string{}, WorkDir: "/a/main", DeviceIsolation: true, NUMAAffinity: true,
		Role: RoleRank, PortLabel: "rendezvous", JoinTimeout: 10 * time.Minute, CheckpointGrace: 2 * time.Minute, FenceAfter: time.Minute,
	}
	tests := map[string]struct {
		hcl  string
		want func(*Task)
	}{
		"command": {`command = "x"`, func(w *Task) { w.Command = "x" }},
		"processes": {`
			command  = "x"
			args     = ["a", "b"]
			work_dir = "local/src"
			ulimit {
			  nofile = "1024:2048"
			}
			pid_namespace = true
			mount_namespace = true
			device_isolation = false
			numa_affinity = false
			processes = 4`, func(w *Task) {
			w.Command, w.Args, w.WorkDir, w.Ulimit = "x", []string{"a", "b"}, "/a/main/local/src", map[string]string{"nofile": "1024:2048"}
			w.PIDNamespace, w.MountNamespace, w.DeviceIsolation, w.NUMAAffinity, w.Processes = true, true, false, false, 4
		}},
		"container": {`
			image = "pytorch"
			runtime = "docker"
			entrypoint = ["/e"]
			shm_size = "16g"
			member = "none"`, func(w *Task) {
			w.Image, w.Runtime, w.Entrypoint, w.ShmSize, w.Role = "pytorch", "docker", []string{"/e"}, "16g", RoleNone
		}},
		"gang": {`
			command = "x"
			member = "follow"
			port_label = "p2p"
			join_timeout = "1m"
			checkpoint {
			  signal = "SIGUSR1"
			  grace  = "30s"
			  paths  = ["ckpt/*.pt", "/data/last"]
			}
			resize_signal = "SIGUSR2"
			fence_after = "0s"
			preflight {
			  command = "nccl-test"
			  args = ["-q"]
			}`, func(w *Task) {
			w.Command, w.Role, w.PortLabel, w.JoinTimeout = "x", RoleFollow, "p2p", time.Minute
			w.CheckpointSignal, w.CheckpointGrace, w.CheckpointPaths = "SIGUSR1", 30*time.Second, []string{"/a/main/ckpt/*.pt", "/data/last"}
			w.ResizeSignal, w.FenceAfter = "SIGUSR2", 0
			w.Preflight = &Preflight{GPU: true, Command: "nccl-test", Args: []string{"-q"}, Timeout: 2 * time.Minute}
		}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			want := defaults
			test.want(&want)
			got, err := readTask(t, test.hcl, plugin)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestReadTaskFaults(t *testing.T) {
	tests := map[string]struct {
		hcl, plugin string
		want        []string
	}{
		"nothing":     {``, ``, []string{`command is "": allowed is a command, or an image`}},
		"unknown key": {`comand = "x"`, ``, []string{`"comand"`}},
		"all at once": {`
			command = "x"
			runtime = "docker"
			member = "leader"
			processes = -1
			join_timeout = "0s"
			resize_signal = "SIGFOO"
			fence_after = "1s"
			checkpoint {
			  signal = "USR1"
			  grace = "-1s"
			  paths = ["[", ""]
			}
			preflight {
			  args = ["a"]
			  timeout = "0s"
			}`, ``, []string{
			`runtime is "docker": allowed is nothing without an image`,
			`member is "leader": allowed is rank, follow, none`,
			`processes is "-1": allowed is 0 to 4096`,
			`join_timeout is "0s": allowed is a duration of 1s to`,
			`resize_signal is "SIGFOO": allowed is a signal's name`,
			`fence_after is "1s": allowed is "0s" for never, or at least 10s`,
			`checkpoint.signal is "USR1"`, `checkpoint.grace is "-1s"`,
			`checkpoint.paths is "["`, `checkpoint.paths is ""`,
			`preflight.args is "a": allowed is nothing without preflight.command`, `preflight.timeout is "0s"`,
		}},
		"container": {`
			image = "x"
			runtime = "docker"
			runtime_args = ["--privileged"]
			pid_namespace = true`, `runtimes = ["podman"]`, []string{
			`runtime is "docker": allowed is podman`,
			`runtime_args is "--privileged": allowed is nothing: the operator has not set allow_runtime_args`,
			`pid_namespace, mount_namespace is "true": allowed is false with an image`,
		}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := readTask(t, test.hcl, mustPlugin(t, test.plugin))
			if err == nil {
				t.Fatal("no error")
			}
			for _, want := range test.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("error lacks %q:\n%v", want, err)
				}
			}
		})
	}
}

// TestTable: the table has a row for each key.
func TestTable(t *testing.T) {
	for _, options := range [][]Option{PluginOptions, TaskOptions} {
		table := Table(options)
		seen := map[string]bool{}
		for _, key := range optionKeys(options, "") {
			if n := strings.Count(table, "| `"+key+"` |"); n != 1 {
				t.Errorf("%d rows for %s", n, key)
			}
			seen[key] = true
		}
		if rows := strings.Count(table, "\n") - 2; rows != len(seen) {
			t.Errorf("%d rows for the keys %v", rows, slices.Sorted(maps.Keys(seen)))
		}
	}
}
