package driver

import (
	"context"
	"maps"
	"os"
	"os/user"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/go-hclog"

	"github.com/caravan-sched/caravan/driver/config"
	"github.com/caravan-sched/caravan/driver/container"
	"github.com/caravan-sched/caravan/driver/exec"
	"github.com/caravan-sched/caravan/driver/supervisor"
	"github.com/caravan-sched/caravan/internal/nomadplugin/base"
	"github.com/caravan-sched/caravan/internal/nomadplugin/driver"
	"github.com/caravan-sched/caravan/internal/nomadplugin/hclspec"
)

// someHost has a docker with NVIDIA's runtime.
type someHost struct{}

func (someHost) LookPath(name string) (string, error) {
	if name != "docker" {
		return "", os.ErrNotExist
	}
	return "/usr/bin/docker", nil
}

func (someHost) Output(_ context.Context, _ string, args ...string) (string, error) {
	if args[0] == "info" {
		return "runc nvidia", nil
	}
	return "28.2.2", nil
}

func (someHost) CDI() []string { return nil }

// describing is a plugin that is only asked what it makes of tasks. hcl is its
// configuration.
func describing(t *testing.T, hcl string, facilities exec.Facilities) *Plugin {
	t.Helper()
	raw, err := hclspec.Encode(config.PluginSchema(), []byte(hcl), "plugin")
	if err != nil {
		t.Fatal(err)
	}
	p := New(hclog.NewNullLogger(), "/bin/true")
	p.host, p.probe = someHost{}, func() (exec.Facilities, error) { return facilities, nil }
	if err := p.SetConfig(t.Context(), base.Config{Raw: raw}); err != nil {
		t.Fatal(err)
	}
	return p
}

// me is the user that the tests run as.
func me() string {
	u, err := user.Current()
	if err != nil {
		return err.Error()
	}
	return u.Username
}

// withGPUs gives a task what the device plugin does.
func withGPUs(t *driver.TaskConfig) {
	t.DeviceEnv = map[string]string{"NVIDIA_VISIBLE_DEVICES": "GPU-1,GPU-2", "CARAVAN_GPU_BUS_IDS": "0000:3b:00.0,0000:5e:00.0"}
	for k, v := range t.DeviceEnv {
		t.Env[k] = v
	}
	t.Devices = []driver.DeviceNode{{HostPath: "/dev/zero", TaskPath: "/dev/zero", Permissions: "rw"}}
}

const plannerAddress = "planner {\n addresses = [\"http://127.0.0.1:4656\"]\n}\n"

// TestDescribe: what Nomad says of a task comes to its supervisor, each in its
// place.
func TestDescribe(t *testing.T) {
	tests := map[string]struct {
		plugin, task string
		change       func(*driver.TaskConfig)
		// devices is how the host can restrict devices.
		devices string
		want    func(task driver.TaskConfig, s *supervisor.Start)
	}{
		"the least": {want: func(driver.TaskConfig, *supervisor.Start) {}},
		"the environment": {
			change: func(t *driver.TaskConfig) { t.Env = map[string]string{"B": "2\n3", "A": "", "PATH": "/bin"} },
			want:   func(_ driver.TaskConfig, s *supervisor.Start) { s.Workload.Env = []string{"A=", "B=2\n3", "PATH=/bin"} },
		},
		"where and as whom": {
			task:   "work_dir = \"local\"\nulimit {\n nofile = \"64:128\"\n}\npid_namespace = true\nmount_namespace = true",
			change: func(t *driver.TaskConfig) { t.User = "root" },
			want: func(t driver.TaskConfig, s *supervisor.Start) {
				w := &s.Workload
				w.Dir, w.User, w.Ulimits, w.PIDNamespace, w.MountNamespace = t.LocalDir(), "root", map[string]string{"nofile": "64:128"}, true, true
			},
		},
		"a slice of a GPU": {
			change: func(t *driver.TaskConfig) {
				t.DeviceEnv = map[string]string{"NVIDIA_VISIBLE_DEVICES": "GPU-1", "CARAVAN_GPU_SLICE": "GPU-1::2"}
				maps.Copy(t.Env, t.DeviceEnv)
			},
			want: func(t driver.TaskConfig, s *supervisor.Start) {
				s.Barrier.GPUs = []string{"GPU-1::2"}
				s.Workload.Env = t.Environ()
			},
		},
		"GPUs": {
			change: withGPUs, devices: "v1",
			want: func(t driver.TaskConfig, s *supervisor.Start) {
				s.Barrier.GPUs = []string{"GPU-1", "GPU-2"}
				s.Workload.Env = t.Environ()
				s.Workload.NUMADevices = []string{"0000:3b:00.0", "0000:5e:00.0"}
				s.Workload.RestrictDevices = true
				s.Workload.Devices = []exec.Device{{Path: "/dev/zero", Permissions: "rw"}, {Path: "/dev/infiniband/*"}}
			},
			plugin: `allowed_devices = ["/dev/infiniband/*", "/dev/not-here"]`,
		},
		"GPUs of AMD's, on reserved cores": {
			change: func(t *driver.TaskConfig) {
				t.DeviceEnv = map[string]string{"ROCR_VISIBLE_DEVICES": "GPU-a"}
				t.Env["CARAVAN_GPU_BUS_IDS"] = "0000:3b:00.0"
				t.Resources.Linux.CPUSet = "0"
			},
			want: func(t driver.TaskConfig, s *supervisor.Start) {
				s.Barrier.GPUs, s.Workload.Env, s.Workload.CPUSet = []string{"GPU-a"}, t.Environ(), "0"
			},
		},
		"GPUs, nothing to do with them": {
			task: "device_isolation = false\nnuma_affinity = false\nprocesses = 3", change: withGPUs, devices: "v1",
			want: func(t driver.TaskConfig, s *supervisor.Start) {
				s.Barrier.GPUs, s.Barrier.Processes, s.Workload.Env = []string{"GPU-1", "GPU-2"}, 3, t.Environ()
			},
		},
		"no cgroups": {
			plugin: "cgroups = false", change: withGPUs, devices: "v1",
			want: func(t driver.TaskConfig, s *supervisor.Start) {
				s.Barrier.GPUs, s.Workload.Env, s.Workload.NoCgroups = []string{"GPU-1", "GPU-2"}, t.Environ(), true
				s.Workload.NUMADevices = []string{"0000:3b:00.0", "0000:5e:00.0"}
			},
		},
		"limits": {
			change: func(t *driver.TaskConfig) {
				t.Resources.MemoryMiB = 256
				t.Resources.Linux = driver.Linux{CPUShares: 1500, CPUQuota: 50_000, CPUPeriod: 100_000, MemoryLimitBytes: 256 << 20, OOMScoreAdj: 10, Cgroup: "/sys/fs/cgroup/nomad.slice/share.slice/a.main.scope"}
			},
			want: func(_ driver.TaskConfig, s *supervisor.Start) {
				s.Workload.Limits = exec.Limits{CPUShares: 1500, CPUQuota: 50_000, CPUPeriod: 100_000, MemoryBytes: 256 << 20, OOMScoreAdj: 10}
				s.Workload.CgroupParent = "/sys/fs/cgroup/nomad.slice/share.slice/a.main.scope"
			},
		},
		"memory_max": {
			change: func(t *driver.TaskConfig) {
				t.Resources.MemoryMiB, t.Resources.MemoryMaxMiB = 256, 512
				t.Resources.Linux.MemoryLimitBytes = 512 << 20
			},
			want: func(_ driver.TaskConfig, s *supervisor.Start) {
				s.Workload.Limits = exec.Limits{MemoryBytes: 512 << 20, MemoryReserveBytes: 256 << 20}
			},
		},
		"memory_max without an end": {
			change: func(t *driver.TaskConfig) {
				t.Resources.MemoryMiB, t.Resources.MemoryMaxMiB = 256, -1
				t.Resources.Linux.MemoryLimitBytes = 256 << 20
			},
			want: func(_ driver.TaskConfig, s *supervisor.Start) {
				s.Workload.Limits = exec.Limits{MemoryReserveBytes: 256 << 20}
			},
		},
		"mounts": {
			change: func(t *driver.TaskConfig) {
				t.Mounts = []driver.Mount{
					{HostPath: t.SharedDir(), TaskPath: t.LocalDir(), Propagation: "private"},
					{HostPath: t.SharedDir(), TaskPath: t.SharedDir()},
					{HostPath: t.LocalDir(), TaskPath: t.LocalDir(), ReadOnly: true},
				}
			},
			want: func(t driver.TaskConfig, s *supervisor.Start) {
				s.Workload.Mounts = []exec.Mount{
					{HostPath: t.SharedDir(), TaskPath: t.LocalDir(), Propagation: "private"}, {HostPath: t.LocalDir(), TaskPath: t.LocalDir(), ReadOnly: true},
				}
			},
		},
		"a network of the group's": {
			change: func(t *driver.TaskConfig) {
				t.Network = &driver.NetworkIsolation{Mode: driver.NetworkGroup, Path: "/proc/self/ns/net"}
				t.Resources.Ports = []driver.PortMapping{{Label: "http", Value: 80, HostIP: "10.0.0.9"}, {Label: "rendezvous", Value: 29500, To: 29500, HostIP: "10.0.0.7"}}
			},
			want: func(_ driver.TaskConfig, s *supervisor.Start) {
				s.Workload.NetworkNamespace, s.Barrier.Address, s.Barrier.Port = "/proc/self/ns/net", "10.0.0.7", 29500
			},
		},
		"the host's network": {
			change: func(t *driver.TaskConfig) {
				t.Network = &driver.NetworkIsolation{Mode: driver.NetworkHost, Path: "/proc/self/ns/net"}
				t.Resources.Networks = []driver.NetworkResource{{IP: ""}, {IP: "10.0.0.8"}}
			},
			want: func(_ driver.TaskConfig, s *supervisor.Start) { s.Barrier.Address = "10.0.0.8" },
		},
		"a port by another label, at the operator's address": {
			plugin: `address = "192.0.2.7"`, task: `port_label = "nccl"`,
			change: func(t *driver.TaskConfig) {
				t.Resources.Ports = []driver.PortMapping{{Label: "nccl", Value: 4000, HostIP: "10.0.0.7"}}
			},
			want: func(_ driver.TaskConfig, s *supervisor.Start) { s.Barrier.Address, s.Barrier.Port = "192.0.2.7", 4000 },
		},
		"no port, at the operator's address": {
			plugin: `address = "192.0.2.7"`, task: `port_label = ""`,
			want: func(_ driver.TaskConfig, s *supervisor.Start) { s.Barrier.Address = "192.0.2.7" },
		},
		"checkpoints and what happens to a gang": {
			task: "checkpoint {\n signal = \"SIGUSR1\"\n grace = \"7s\"\n paths = [\"local/*.pt\", \"/data/c\"]\n}\nresize_signal = \"SIGHUP\"\njoin_timeout = \"3m\"\nfence_after = \"40s\"",
			want: func(t driver.TaskConfig, s *supervisor.Start) {
				s.Checkpoint = supervisor.Checkpoint{Signal: "SIGUSR1", Grace: 7 * time.Second, Paths: []string{filepath.Join(t.LocalDir(), "*.pt"), "/data/c"}}
				s.ResizeSignal, s.Barrier.JoinTimeout, s.Fence.After = "SIGHUP", 3*time.Minute, 40*time.Second
			},
		},
		"an agent at another address": {
			plugin: "nomad {\n address = \"https://10.0.0.1:4646\"\n ca_file = \"/ca.pem\"\n}",
			want: func(_ driver.TaskConfig, s *supervisor.Start) {
				s.Fence = supervisor.Fence{Nomad: "https://10.0.0.1:4646", TLS: supervisor.TLS{CAFile: "/ca.pem"}, After: time.Minute}
			},
		},
		"a preflight": {
			plugin: `gpu_source = "mock:dgxh100"`, task: "preflight {\n command = \"nccl-test\"\n args = [\"-q\"]\n timeout = \"9s\"\n}",
			want: func(_ driver.TaskConfig, s *supervisor.Start) {
				s.Preflight = &supervisor.Preflight{GPUSource: "mock:dgxh100", Command: "nccl-test", Args: []string{"-q"}, Timeout: 9 * time.Second}
			},
		},
		"a log shipper": {
			task: `member = "none"`,
			want: func(_ driver.TaskConfig, s *supervisor.Start) {
				s.Role, s.Barrier = supervisor.RoleNone, supervisor.Barrier{}
			},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if host, err := exec.Probe(); err != nil || test.devices != "" && host.Devices == "" {
				t.Skipf("the host cannot keep devices from tasks: %v", err)
			}
			p := describing(t, plannerAddress+test.plugin, exec.Facilities{Devices: test.devices})
			r := &rig{t: t, allocs: t.TempDir()}
			task := r.task("a", "command = \"/bin/sh\"\nargs = [\"-c\", \"exit\"]\n"+test.task)
			if test.change != nil {
				test.change(&task)
			}
			want := theLeast(task)
			test.want(task, &want)
			got, err := p.describe(t.Context(), task, p.config())
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("start (-want +got):\n%s", diff)
			}
		})
	}
}

// theLeast is what comes of a task that says nothing but its command.
func theLeast(t driver.TaskConfig) supervisor.Start {
	return supervisor.Start{
		Task: supervisor.Task{Namespace: "default", Job: "train", Group: "workers", Alloc: "alloc-a", Task: "main", Node: "node-1", NodeName: "gpu-1"},
		Workload: exec.Spec{
			Command: "/bin/sh", Args: []string{"-c", "exit"}, Env: t.Environ(), Dir: t.TaskDir(),
			Stdout: t.StdoutPath, Stderr: t.StderrPath, CgroupScope: "alloc-a.main",
		},
		Role: supervisor.RoleRank,
		Barrier: supervisor.Barrier{
			Planners: []string{"http://127.0.0.1:4656"}, IdentityFile: filepath.Join(t.SecretsDir(), "nomad_caravan.jwt"),
			JoinTimeout: 10 * time.Minute, Address: "127.0.0.1",
		},
		Files:      supervisor.Files{Dir: filepath.Join(t.LocalDir(), "caravan")},
		Checkpoint: supervisor.Checkpoint{Grace: 2 * time.Minute},
		Fence: supervisor.Fence{
			Socket: filepath.Join(t.SecretsDir(), "api.sock"), TokenFile: filepath.Join(t.SecretsDir(), "nomad_caravan.jwt"),
			Nomad: "http://127.0.0.1:4646", After: time.Minute,
		},
	}
}

// TestDescribeContainer: the same with an image.
func TestDescribeContainer(t *testing.T) {
	t.Setenv("AGENTS_OWN", "x")
	p := describing(t, plannerAddress+"allow_runtime_args = true", exec.Facilities{Devices: "v1"})
	r := &rig{t: t, allocs: t.TempDir()}
	task := r.task("a", `
		image = "train:1"
		entrypoint = ["/e", "-v"]
		command = "run"
		args = ["fast"]
		work_dir = "/src"
		runtime_args = ["--privileged"]
		ulimit {
		  memlock = "unlimited"
		}`)
	withGPUs(&task)
	task.Env["AGENTS_OWN"] = "x"
	task.User = "trainer"
	task.Devices = append(task.Devices, driver.DeviceNode{HostPath: "/dev/nvidia0", TaskPath: "/dev/nvidia0"}, driver.DeviceNode{HostPath: "/dev/nvidia-caps-imex-channels/channel0", TaskPath: "/dev/nvidia-caps-imex-channels/channel0"})
	task.Mounts = []driver.Mount{{HostPath: "/data", TaskPath: "/in", ReadOnly: true, Propagation: "private"}}
	task.Resources.MemoryMiB, task.Resources.MemoryMaxMiB = 256, 512
	task.Resources.Linux = driver.Linux{CPUShares: 99, CPUSet: "0", MemoryLimitBytes: 512 << 20, Cgroup: "/sys/fs/cgroup/x"}
	got, err := p.describe(t.Context(), task, p.config())
	if err != nil {
		t.Fatal(err)
	}
	same := func(path string) container.Mount { return container.Mount{HostPath: path, TaskPath: path} }
	limits := exec.Limits{CPUShares: 99, MemoryBytes: 512 << 20, MemoryReserveBytes: 256 << 20}
	want := theLeast(task)
	want.Barrier.GPUs = []string{"GPU-1", "GPU-2"}
	want.Workload = exec.Spec{
		Command: "/usr/bin/docker", Dir: task.TaskDir(), Stdout: task.StdoutPath, Stderr: task.StderrPath, CPUSet: "0",
		Limits: limits, CgroupParent: "/sys/fs/cgroup/x", CgroupScope: "alloc-a.main",
	}
	want.Container = &container.Spec{
		Runtime: container.Runtime{Name: container.Docker, Path: "/usr/bin/docker", Version: "28.2.2", NVIDIA: container.NVIDIARuntime},
		Name:    containerName(task), Image: "train:1", Entrypoint: []string{"/e", "-v"}, Command: "run", Args: []string{"fast"}, WorkDir: "/src",
		Env:  map[string]string{"GREETING": "hello", "NVIDIA_VISIBLE_DEVICES": "GPU-1,GPU-2", "CARAVAN_GPU_BUS_IDS": "0000:3b:00.0,0000:5e:00.0"},
		User: "trainer", GPUs: []string{"GPU-1", "GPU-2"}, ShmSize: "536870912b", Ulimits: map[string]string{"memlock": "unlimited"}, RuntimeArgs: []string{"--privileged"},
		Mounts:  []container.Mount{same(task.SharedDir()), same(task.LocalDir()), same(task.SecretsDir()), {HostPath: "/data", TaskPath: "/in", ReadOnly: true, Propagation: "private"}},
		Devices: []container.Device{{HostPath: "/dev/zero", TaskPath: "/dev/zero", Permissions: "rw"}, {HostPath: "/dev/nvidia-caps-imex-channels/channel0", TaskPath: "/dev/nvidia-caps-imex-channels/channel0"}},
		Limits:  container.Limits{CPUShares: 99, CPUSet: "0", MemoryBytes: 512 << 20, MemoryReserveBytes: 256 << 20},
		Labels:  map[string]string{"caravan.alloc": "alloc-a", "caravan.job": "train", "caravan.namespace": "default", "caravan.task": "main"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("start (-want +got):\n%s", diff)
	}
	// Simulated GPUs are nothing that a runtime could give.
	simulated := describing(t, plannerAddress+"allow_runtime_args = true\ngpu_source = \"mock:dgxh100\"", exec.Facilities{Devices: "v1"})
	if got, err = simulated.describe(t.Context(), task, simulated.config()); err != nil {
		t.Fatal(err)
	}
	want.Container.GPUs = nil
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("start with simulated GPUs (-want +got):\n%s", diff)
	}
}
