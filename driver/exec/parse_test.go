package exec

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func TestParseCPUs(t *testing.T) {
	tests := map[string]struct {
		want    []int
		wantErr bool
	}{
		"":                      {},
		" \n":                   {},
		"0":                     {want: []int{0}},
		"0-3,8":                 {want: []int{0, 1, 2, 3, 8}},
		"8, 2-3 ,3\n":           {want: []int{2, 3, 8}},
		"1023":                  {want: []int{1023}},
		"1024":                  {wantErr: true},
		"3-1":                   {wantErr: true},
		"1-":                    {wantErr: true},
		"-1":                    {wantErr: true},
		"a":                     {wantErr: true},
		"1,,2":                  {wantErr: true},
		"0-9999999999999999999": {wantErr: true},
	}
	for list, test := range tests {
		got, err := ParseCPUs(list)
		if diff := cmp.Diff(test.want, got); diff != "" || (err != nil) != test.wantErr {
			t.Errorf("%q: %v (-want +got):\n%s", list, err, diff)
		}
	}
}

func TestFormatCPUsIsTheInverse(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		cpus := rapid.SliceOfDistinct(rapid.IntRange(0, maxCPU), rapid.ID[int]).Draw(t, "cpus")
		slices.Sort(cpus)
		got, err := ParseCPUs(FormatCPUs(cpus))
		if err != nil || !slices.Equal(got, cpus) {
			t.Fatalf("%v became %v by %q: %v", cpus, got, FormatCPUs(cpus), err)
		}
	})
}

func FuzzParseCPUs(f *testing.F) {
	for _, seed := range []string{"", "0-3,8", "1-", "0-1023", "9-2", "1,1,1", "0x1"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, list string) {
		cpus, err := ParseCPUs(list)
		if err != nil {
			return
		}
		if !slices.IsSorted(cpus) || len(slices.Compact(slices.Clone(cpus))) != len(cpus) {
			t.Errorf("%q: %v is not a sorted set", list, cpus)
		}
		if again, err := ParseCPUs(FormatCPUs(cpus)); err != nil || !slices.Equal(again, cpus) {
			t.Errorf("%q: %v became %v: %v", list, cpus, again, err)
		}
	})
}

func TestSplitUser(t *testing.T) {
	tests := map[string]struct {
		name, group string
		wantErr     bool
	}{
		"nobody":    {name: "nobody"},
		"1000:1000": {name: "1000", group: "1000"},
		"a:b":       {name: "a", group: "b"},
		`DOM\user`:  {name: `DOM\user`},
		"":          {wantErr: true},
		":b":        {wantErr: true},
		"a:":        {wantErr: true},
		"a:b:c":     {wantErr: true},
		"../x":      {wantErr: true},
		"a\nb":      {wantErr: true},
	}
	for s, test := range tests {
		name, group, err := splitUser(s)
		if name != test.name || group != test.group || (err != nil) != test.wantErr {
			t.Errorf("%q: %q, %q, %v", s, name, group, err)
		}
	}
}

func FuzzSplitUser(f *testing.F) {
	for _, seed := range []string{"nobody", "0:0", "a:b:c", ":", "4294967295:1", "\x00"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, s string) {
		name, group, err := splitUser(s)
		if err != nil {
			return
		}
		joined := name
		if group != "" {
			joined += ":" + group
		}
		if joined != s || name == "" {
			t.Errorf("%q: %q and %q", s, name, group)
		}
		if uid, ok := number(name); ok && (uid < 0 || uid > maxID) {
			t.Errorf("%q: uid %d", s, uid)
		}
	})
}

func TestLookupUser(t *testing.T) {
	tests := map[string]struct {
		want    *identity
		wantErr string
	}{
		"nobody":          {want: &identity{UID: 65534, GID: 65534, Groups: []int{65534}}},
		"65534":           {want: &identity{UID: 65534, GID: 65534, Groups: []int{65534}}},
		"nobody:root":     {want: &identity{UID: 65534, GID: 0, Groups: []int{65534}}},
		"4711:4712":       {want: &identity{UID: 4711, GID: 4712}},
		"4711":            {wantErr: "give its group too"},
		"no-such-user":    {wantErr: "is not a user of this host"},
		"nobody:no-group": {wantErr: `"no-group" is not a group of this host`},
		"4294967295:1":    {wantErr: "is not a user of this host"},
	}
	for name, test := range tests {
		got, err := lookupUser(name)
		if test.wantErr != "" {
			if err == nil || !strings.Contains(err.Error(), test.wantErr) {
				t.Errorf("%s: error %v, want %q", name, err, test.wantErr)
			}
			continue
		}
		if diff := cmp.Diff(test.want, got); diff != "" || err != nil {
			t.Errorf("%s: %v (-want +got):\n%s", name, err, diff)
		}
	}
}

func TestCgroupMounts(t *testing.T) {
	const hybrid = `30 23 0:26 / /sys/fs/cgroup ro,nosuid - tmpfs tmpfs ro
31 30 0:27 / /sys/fs/cgroup/unified rw shared:5 - cgroup2 cgroup2 rw,nsdelegate
32 30 0:28 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct
33 30 0:29 / /sys/fs/cgroup/a\040b rw - cgroup cgroup rw,memory
34 30 0:30 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,xattr,name=systemd
35 30 0:28 /x /elsewhere rw - cgroup cgroup rw,cpu,cpuacct
nonsense
36 30 - cgroup
`
	unified, v1 := cgroupMounts(hybrid)
	if unified != "/sys/fs/cgroup/unified" {
		t.Errorf("unified = %q", unified)
	}
	want := map[string]string{"cpu": "/sys/fs/cgroup/cpu,cpuacct", "cpuacct": "/sys/fs/cgroup/cpu,cpuacct", "memory": "/sys/fs/cgroup/a b"}
	if diff := cmp.Diff(want, v1); diff != "" {
		t.Errorf("v1 (-want +got):\n%s", diff)
	}
}

func FuzzCgroupMounts(f *testing.F) {
	f.Add("31 30 0:27 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n")
	f.Add("31 - cgroup\n - \n")
	f.Fuzz(func(t *testing.T, text string) {
		_, v1 := cgroupMounts(text)
		for c := range v1 {
			if !slices.Contains(v1Controllers, c) {
				t.Errorf("unknown controller %q", c)
			}
		}
	})
}

// machine is a host of two NUMA nodes with a GPU on each, as far as sysfs goes.
func machine(t *testing.T) host {
	t.Helper()
	h := host{proc: "/proc", sys: t.TempDir()}
	for path, text := range map[string]string{
		"devices/system/cpu/online":               "0-7\n",
		"devices/system/node/node0/cpulist":       "0,4-7\n",
		"devices/system/node/node1/cpulist":       "1-3\n",
		"devices/system/node/node2/cpulist":       "\n", // memory only
		"bus/pci/devices/0000:3b:00.0/numa_node":  "0\n",
		"bus/pci/devices/0000:af:00.0/numa_node":  "1\n",
		"bus/pci/devices/0000:00:1f.0/numa_node":  "-1\n",
		"bus/pci/devices/10000:01:00.0/numa_node": "0\n",
		"bus/pci/devices/0001:01:00.0/numa_node":  "what?\n",
	} {
		file := filepath.Join(h.sys, path)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return h
}

func TestAffinity(t *testing.T) {
	tests := map[string]struct {
		spec       Spec
		want       string
		wantFaults int
	}{
		"everywhere":               {want: ""},
		"the CPUs named":           {spec: Spec{CPUSet: "1-2"}, want: "1-2"},
		"near a GPU":               {spec: Spec{CPUSet: "0-7", NUMADevices: []string{"00000000:AF:00.0"}}, want: "1-3"},
		"near two GPUs":            {spec: Spec{CPUSet: "0-7", NUMADevices: []string{"0000:3b:00.0", "0000:af:00.0"}}, want: "0-7"},
		"a node":                   {spec: Spec{CPUSet: "0-7", NUMANodes: []int{0}}, want: "0,4-7"},
		"within the CPUs named":    {spec: Spec{CPUSet: "3-5", NUMANodes: []int{0}}, want: "4-5"},
		"none of the CPUs is near": {spec: Spec{CPUSet: "1-2", NUMANodes: []int{0}}, want: "1-2"},
		"node without CPUs":        {spec: Spec{CPUSet: "1-2", NUMANodes: []int{2}}, want: "1-2"},
		"unknown node":             {spec: Spec{CPUSet: "1-2", NUMANodes: []int{9}}, want: "1-2"},
		"firmware does not tell":   {spec: Spec{CPUSet: "1-2", NUMADevices: []string{"0000:00:1f.0", "0001:01:00.0"}}, want: "1-2"},
		"unknown device":           {spec: Spec{CPUSet: "1-2", NUMADevices: []string{"0000:ff:00.0"}}, want: "1-2"},
		"every fault":              {spec: Spec{CPUSet: "x", NUMANodes: []int{-1}, NUMADevices: []string{"../..", "GPU-0"}}, wantFaults: 4},
		"CPUs that are not there":  {spec: Spec{CPUSet: "6-9"}, want: "6-9", wantFaults: 1},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got, faults := machine(t).affinity(test.spec)
			if len(faults) != test.wantFaults {
				t.Errorf("faults = %v, want %d", faults, test.wantFaults)
			}
			if test.wantFaults < 4 && FormatCPUs(got) != test.want {
				t.Errorf("CPUs = %s, want %s", FormatCPUs(got), test.want)
			}
		})
	}
}

// TestAffinityHere: the same of the host that this runs on.
func TestAffinityHere(t *testing.T) {
	cpus := FormatCPUs(allowedCPUs()[:1])
	if got, err := Affinity(Spec{CPUSet: cpus}); err != nil || got != cpus {
		t.Errorf("CPUs = %q, %v, want %q", got, err, cpus)
	}
	if got, err := Affinity(Spec{}); err != nil || got != "" {
		t.Errorf("CPUs = %q, %v, want none", got, err)
	}
	var fault *SpecError
	if _, err := Affinity(Spec{NUMADevices: []string{"GPU-0"}}); !errors.As(err, &fault) {
		t.Errorf("error = %v", err)
	}
}

func TestEveryFaultIsTold(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "plain")
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	err := Check(Spec{
		ID: "../x", Command: file, Args: []string{"a\x00b"}, Env: []string{"=x", "y"}, Dir: dir + "/missing",
		User: "no-such-user", Groups: nil, Stdout: "/dev/null", Stderr: dir + "/missing/err",
		Ulimits: map[string]string{"nofiles": "1", "core": "2:1", "nofile": "99999999999"},
		CPUSet:  "0-", NUMADevices: []string{"gpu"}, Limits: Limits{CPUShares: 1, CPUQuota: 5, CPUPeriod: 1, MemoryBytes: -1, Processes: -1, OOMScoreAdj: 2000, MemoryReserveBytes: -1},
		RestrictDevices: true, Devices: []Device{{Path: dir}, {Path: "/dev/null", Permissions: "x"}, {Path: "/dev/no-such"}, {Path: "/dev/[z"}},
		Mounts: []Mount{{HostPath: dir, TaskPath: file, Propagation: "bidirectional"}, {HostPath: dir + "/a", TaskPath: dir + "/b"}}, NetworkNamespace: dir + "/netns",
		NoCgroups: true,
	})
	var faults *SpecError
	if !errors.As(err, &faults) {
		t.Fatalf("check: %v", err)
	}
	got := map[string]int{}
	for _, f := range faults.Faults {
		got[f.Field]++
		if f.Why == "" {
			t.Errorf("%s: no reason", f.Field)
		}
	}
	want := map[string]int{
		"id": 1, "command": 1, "env[0]": 1, "env[1]": 1, "dir": 1, "user": 1, "stdout": 1, "stderr": 1,
		"ulimits.nofiles": 1, "ulimits.core": 1, "ulimits.nofile": 1, "cpu_set": 1, "numa_devices[0]": 1,
		"limits.cpu_shares": 1, "limits.cpu_quota": 1, "limits.cpu_period": 1, "limits.memory_bytes": 1,
		"limits.memory_reserve_bytes": 1, "limits.processes": 1, "limits.oom_score_adj": 1,
		"devices[0]": 1, "devices[1]": 1, "devices[2]": 1, "devices[3]": 1, "restrict_devices": 1,
		"mounts[0].task_path": 1, "mounts[0].propagation": 1, "mounts[1].host_path": 1, "mounts[1].task_path": 1,
		"network_namespace": 1,
	}
	if os.Geteuid() != 0 {
		t.Skip("needs root: others are told more")
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("faults (-want +got):\n%s\n%v", diff, err)
	}
}

func TestLookCommand(t *testing.T) {
	dir := t.TempDir()
	for name, mode := range map[string]os.FileMode{"run": 0o755, "plain": 0o644, "sub/run": 0o755, "other/plain": 0o755} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte("#!/bin/sh\n"), mode); err != nil {
			t.Fatal(err)
		}
	}
	tests := map[string]struct {
		command, path string
		want          string
		wantWhy       string
	}{
		"absolute":         {command: dir + "/run", want: dir + "/run"},
		"relative":         {command: "./sub/run", want: dir + "/sub/run"},
		"in the PATH":      {command: "run", path: "/nowhere:" + dir, want: dir + "/run"},
		"relative PATH":    {command: "run", path: "sub", want: dir + "/sub/run"},
		"passed over":      {command: "plain", path: dir + ":" + dir + "/other", want: dir + "/other/plain"},
		"usual PATH":       {command: "sh", want: "/usr/bin/sh"},
		"not there":        {command: dir + "/missing", wantWhy: "cannot be run: it does not exist"},
		"not in the PATH":  {command: "missing", path: "/nowhere", wantWhy: "was not found in the PATH (/nowhere)"},
		"not executable":   {command: dir + "/plain", wantWhy: "is not executable"},
		"found, but plain": {command: "plain", path: dir, wantWhy: "was found at " + dir + "/plain, which is not executable"},
		"a directory":      {command: dir, wantWhy: "is a directory"},
		"a device":         {command: "/dev/null", wantWhy: "is not a file"},
		"none":             {command: "", wantWhy: "is needed"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			var env []string
			if test.path != "" {
				env = []string{"PATH=/x", "PATH=" + test.path}
			}
			got, faults := lookCommand(test.command, dir, env)
			why := ""
			if len(faults) > 0 {
				why = faults[0].Why
			}
			if got != test.want || why != test.wantWhy {
				t.Errorf("got %q and %q, want %q and %q", got, why, test.want, test.wantWhy)
			}
		})
	}
}
