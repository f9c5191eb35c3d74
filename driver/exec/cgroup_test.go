package exec

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// unifiedHost is a host with cgroup v2 as on today's distributions, as plain
// files: what is written can be looked at, and what is read be chosen.
func unifiedHost(t *testing.T, controllers string, groups ...string) host {
	t.Helper()
	h := host{proc: "/proc", sys: "/sys", unified: t.TempDir(), v1: map[string]string{}}
	for _, dir := range append(groups, "") {
		write(t, filepath.Join(h.unified, dir, "cgroup.controllers"), controllers+"\n")
		write(t, filepath.Join(h.unified, dir, "cgroup.subtree_control"), "")
		write(t, filepath.Join(h.unified, dir, "cgroup.procs"), "")
	}
	return h
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

var someLimits = Limits{CPUShares: 2048, CPUQuota: 50_000, MemoryBytes: 1 << 30, MemoryReserveBytes: 1 << 29, Processes: 100}

func TestUnifiedLimits(t *testing.T) {
	const scope = "nomad.slice/share.slice/alloc.task.scope"
	tests := map[string]struct {
		controllers string
		want        map[string]string
	}{
		"all": {"cpuset cpu io memory hugetlb pids", map[string]string{
			"cpu.weight": "79", "cpu.max": "50000 100000", "memory.max": "1073741824", "memory.low": "536870912",
			"memory.swap.max": "0", "pids.max": "100", "cpuset.cpus": "0",
		}},
		"some": {"memory", map[string]string{"memory.max": "1073741824", "memory.low": "536870912", "memory.swap.max": "0"}},
		"none": {"", map[string]string{}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			h := unifiedHost(t, test.controllers, scope)
			for file := range tests["all"].want {
				write(t, filepath.Join(h.unified, scope, file), "")
			}
			spec := Spec{ID: "w", Limits: someLimits, CPUSet: "0", CgroupParent: filepath.Join(h.unified, scope)}
			g := h.place(spec)
			if err := g.create(spec, nil); err != nil {
				t.Fatal(err)
			}
			got := map[string]string{}
			entries, err := os.ReadDir(filepath.Join(h.unified, scope))
			if err != nil {
				t.Fatal(err)
			}
			for _, e := range entries {
				text := read(t, filepath.Join(h.unified, scope, e.Name()))
				if !strings.HasPrefix(e.Name(), "cgroup.") && text != "" {
					got[e.Name()] = text
				}
			}
			// The weight is the library's to compute.
			if w := got["cpu.weight"]; w != "" && test.want["cpu.weight"] != "" {
				got["cpu.weight"] = test.want["cpu.weight"]
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("limits (-want +got):\n%s", diff)
			}
			if err := g.add(4711); err != nil {
				t.Fatal(err)
			}
			if got := g.pids(); !slices.Equal(got, []int{4711}) {
				t.Errorf("processes = %v", got)
			}
			if len(g.owned) > 0 {
				t.Errorf("would remove Nomad's cgroup %v", g.owned)
			}
		})
	}
}

func TestPlace(t *testing.T) {
	h := unifiedHost(t, "memory", "nomad.slice/share.slice/a.t.scope")
	root := t.TempDir()
	h.v1 = map[string]string{"cpu": root + "/cpu,cpuacct", "cpuacct": root + "/cpu,cpuacct", "cpuset": root + "/cpuset", "freezer": root + "/freezer", "pids": root + "/pids"}
	for _, dir := range []string{"cpu,cpuacct/nomad/a.t", "freezer/nomad/a.t", "cpuset/nomad/share", "cpuset/nomad/reserve/a.t", "pids"} {
		write(t, filepath.Join(root, dir, "cgroup.procs"), "")
	}
	tests := map[string]struct {
		spec      Spec
		want      map[string]string
		unified   string
		wantOwned []string
	}{
		"nothing of Nomad's": {
			spec:    Spec{ID: "w"},
			want:    map[string]string{"cpu": "cpu,cpuacct/caravan/w", "cpuacct": "cpu,cpuacct/caravan/w", "cpuset": "cpuset/caravan/w", "freezer": "freezer/caravan/w", "pids": "pids/caravan/w"},
			unified: "caravan/w", wantOwned: []string{"caravan/w", "cpu,cpuacct/caravan/w", "cpuset/caravan/w", "freezer/caravan/w", "pids/caravan/w"},
		},
		"Nomad's v1, shared cores": {
			spec:    Spec{ID: "w", CgroupParent: root + "/cpuset/nomad/share", CgroupScope: "a.t"},
			want:    map[string]string{"cpu": "cpu,cpuacct/nomad/a.t", "cpuacct": "cpu,cpuacct/nomad/a.t", "cpuset": "cpuset/nomad/share", "freezer": "freezer/nomad/a.t", "pids": "pids/caravan/w"},
			unified: "caravan/w", wantOwned: []string{"caravan/w", "pids/caravan/w"},
		},
		"Nomad's v1, own cores": {
			spec:    Spec{ID: "w", CgroupParent: root + "/cpuset/nomad/reserve/a.t", CgroupScope: "a.t"},
			want:    map[string]string{"cpu": "cpu,cpuacct/nomad/a.t", "cpuacct": "cpu,cpuacct/nomad/a.t", "cpuset": "cpuset/nomad/reserve/a.t", "freezer": "freezer/nomad/a.t", "pids": "pids/caravan/w"},
			unified: "caravan/w", wantOwned: []string{"caravan/w", "pids/caravan/w"},
		},
		"Nomad's v1, of a task that is gone": {
			spec:    Spec{ID: "w", CgroupParent: root + "/cpuset/nomad/reserve/b.t", CgroupScope: "b.t"},
			want:    map[string]string{"cpu": "cpu,cpuacct/caravan/w", "cpuacct": "cpu,cpuacct/caravan/w", "cpuset": "cpuset/caravan/w", "freezer": "freezer/caravan/w", "pids": "pids/caravan/w"},
			unified: "caravan/w", wantOwned: []string{"caravan/w", "cpu,cpuacct/caravan/w", "cpuset/caravan/w", "freezer/caravan/w", "pids/caravan/w"},
		},
		"Nomad's v2": {
			spec:    Spec{ID: "w", CgroupParent: h.unified + "/nomad.slice/share.slice/a.t.scope"},
			want:    map[string]string{"cpu": "cpu,cpuacct/caravan/w", "cpuacct": "cpu,cpuacct/caravan/w", "cpuset": "cpuset/caravan/w", "freezer": "freezer/caravan/w", "pids": "pids/caravan/w"},
			unified: "nomad.slice/share.slice/a.t.scope", wantOwned: []string{"cpu,cpuacct/caravan/w", "cpuset/caravan/w", "freezer/caravan/w", "pids/caravan/w"},
		},
		"none wanted": {spec: Spec{ID: "w", NoCgroups: true, CgroupParent: h.unified + "/nomad.slice/share.slice/a.t.scope"}, want: map[string]string{}},
		"the root is nobody's": {
			spec:    Spec{ID: "w", CgroupParent: h.unified},
			want:    map[string]string{"cpu": "cpu,cpuacct/caravan/w", "cpuacct": "cpu,cpuacct/caravan/w", "cpuset": "cpuset/caravan/w", "freezer": "freezer/caravan/w", "pids": "pids/caravan/w"},
			unified: "caravan/w", wantOwned: []string{"caravan/w", "cpu,cpuacct/caravan/w", "cpuset/caravan/w", "freezer/caravan/w", "pids/caravan/w"},
		},
	}
	short := func(path string) string {
		return strings.TrimPrefix(strings.TrimPrefix(path, root+"/"), h.unified+"/")
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			g := h.place(test.spec)
			got := map[string]string{}
			for c, dir := range g.v1 {
				got[c] = short(dir)
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("v1 (-want +got):\n%s", diff)
			}
			if short(g.unified) != test.unified {
				t.Errorf("unified = %s, want %s", g.unified, test.unified)
			}
			var owned []string
			for _, dir := range g.owned {
				owned = append(owned, short(dir))
			}
			slices.Sort(owned)
			if diff := cmp.Diff(test.wantOwned, owned); diff != "" {
				t.Errorf("owned (-want +got):\n%s", diff)
			}
			if slices.Contains(g.holders(), root+"/cpuset/nomad/share") {
				t.Error("would kill what shares Nomad's cores")
			}
			if dir := root + "/cpuset/nomad/reserve/a.t"; g.v1["cpuset"] == dir && !slices.Contains(g.holders(), dir) {
				t.Error("would not limit the task's own cores")
			}
		})
	}
}

func TestProbe(t *testing.T) {
	h := unifiedHost(t, "cpuset cpu io memory pids")
	f := h.probe()
	f.Devices, f.Namespaces, f.Root = "", nil, false
	want := Facilities{Cgroups: "v2", Controllers: []string{"cpu", "cpuset", "memory", "pids"}, Freezer: "v2", Kill: "cgroup"}
	if diff := cmp.Diff(want, f); diff != "" {
		t.Errorf("v2 (-want +got):\n%s", diff)
	}
	h.v1 = map[string]string{"memory": t.TempDir()}
	f = h.probe()
	f.Devices, f.Namespaces, f.Root = "", nil, false
	want = Facilities{Cgroups: "hybrid", Controllers: []string{"memory"}, Freezer: "v2", Kill: "cgroup"}
	if diff := cmp.Diff(want, f); diff != "" {
		t.Errorf("hybrid (-want +got):\n%s", diff)
	}
	f = host{proc: "/proc"}.probe()
	f.Namespaces, f.Root = nil, false
	if diff := cmp.Diff(Facilities{Cgroups: "none", Freezer: "signal", Kill: "scan"}, f); diff != "" {
		t.Errorf("none (-want +got):\n%s", diff)
	}
	if _, err := Probe(); err != nil {
		t.Error(err)
	}
}

// needController skips where limits of a kind cannot be set.
func needController(t *testing.T, name string) {
	t.Helper()
	f, err := Probe()
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Contains(f.Controllers, name) {
		t.Skipf("needs the cgroup controller %s; there are %v", name, f.Controllers)
	}
}

func TestOutOfMemory(t *testing.T) {
	needController(t, "memory")
	for _, pidNamespace := range []bool{false, true} {
		spec := actor(t, "hog")
		spec.Limits.MemoryBytes = 64 << 20
		spec.PIDNamespace = pidNamespace
		exit := wait(t, start(t, spec))
		if !exit.OOM {
			t.Errorf("with PIDs of its own %v: exit = %+v", pidNamespace, exit)
		}
	}
	spec := shell(t, "kill -9 $$")
	spec.Limits.MemoryBytes = 64 << 20
	if exit := wait(t, start(t, spec)); exit.OOM {
		t.Errorf("killed otherwise: exit = %+v", exit)
	}
}

func TestLimitOfProcesses(t *testing.T) {
	needController(t, "pids")
	spec := shell(t, "for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do sleep 1000 & done; echo all")
	spec.Limits.Processes = 10
	spec.Stderr = spec.Stdout
	w := start(t, spec)
	wait(t, w)
	if out := read(t, spec.Stdout); strings.Contains(out, "all") {
		t.Errorf("started all: %s", out)
	}
}

func TestDevices(t *testing.T) {
	needRoot(t)
	f, err := Probe()
	if err != nil {
		t.Fatal(err)
	}
	if f.Devices == "" {
		t.Skip("this host cannot restrict devices")
	}
	here, err := here()
	if err != nil {
		t.Fatal(err)
	}
	hosts := map[string]host{f.Devices: here}
	bpf := here
	bpf.v1 = map[string]string{}
	if bpf.deviceControl() == "bpf" {
		hosts["bpf"] = bpf
	}
	for way, h := range hosts {
		t.Run(way, func(t *testing.T) {
			spec := actor(t, "open", "/dev/null", "/dev/zero", "/dev/kmsg", "/dev/mem")
			spec.RestrictDevices = true
			open := func(devices ...Device) string {
				spec.Devices = devices
				spec.Stdout = filepath.Join(t.TempDir(), "out")
				w, err := h.start(soon(t), spec)
				if err != nil {
					t.Fatal(err)
				}
				wait(t, w)
				if err := w.Close(soon(t)); err != nil {
					t.Fatal(err)
				}
				return read(t, spec.Stdout)
			}
			const none = "/dev/null ok\n/dev/zero ok\n/dev/kmsg operation not permitted\n"
			if got := open(); !strings.HasPrefix(got, none) {
				t.Errorf("without devices:\n%s", got)
			}
			if got := open(Device{Path: "/dev/kms?"}, Device{Path: "/dev/no-such*"}); !strings.Contains(got, "/dev/kmsg ok\n") {
				t.Errorf("with one:\n%s", got)
			}
			if got := open(Device{Path: "/dev/kmsg", Permissions: "r"}); !strings.HasPrefix(got, none) {
				t.Errorf("read-only, opened for both:\n%s", got)
			}
		})
	}
}
