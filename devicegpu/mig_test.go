package devicegpu

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/caravan-sched/caravan/devicegpu/nvml"
	"github.com/caravan-sched/caravan/devicegpu/topology"
	"github.com/caravan-sched/caravan/internal/nomadplugin/device"
)

// divided is pairs() with GPU 1 divided into two instances.
func divided() nvml.Inventory {
	inv := pairs()
	yes, memory, slots := true, uint64(19968), uint64(3)
	inv.GPUs[1].MIG = &yes
	for n := range 2 {
		inv.GPUs[1].Instances = append(inv.GPUs[1].Instances, nvml.Instance{
			UUID: fmt.Sprintf("MIG-%d", n), Model: "NVIDIA A100 MIG 3g.20gb", Profile: "3g.20gb",
			GPUInstance: n + 1, MemoryMiB: &memory, Slices: &slots, Caps: []int{30 + n, 40 + n},
		})
	}
	return inv
}

func TestMIGGroups(t *testing.T) {
	p := newPlugin(t, &fake{inventory: divided()}, "")
	p.scan()
	g, err := p.groups()
	if err != nil {
		t.Fatal(err)
	}
	if err := device.Validate(g); err != nil {
		t.Fatal(err)
	}
	if len(g) != 2 || g[0].Name != "NVIDIA A100" || g[1].Name != "NVIDIA A100 MIG 3g.20gb" || g[1].Vendor != "nvidia" || g[1].Type != "gpu" {
		t.Fatalf("groups %+v", g)
	}
	if d := cmp.Diff(map[string]string{"GPU-0": "", "GPU-2": "", "GPU-3": ""}, healthOf(g[0])); d != "" {
		t.Errorf("whole GPUs (-want +got):\n%s", d)
	}
	if d := cmp.Diff(map[string]string{"MIG-0": "", "MIG-1": ""}, healthOf(g[1])); d != "" {
		t.Errorf("instances (-want +got):\n%s", d)
	}
	a := texts(g[1].Attributes)
	list, err := topology.DecodeInstances(a[topology.AttrInstances])
	if err != nil {
		t.Fatal(err)
	}
	want := []topology.Instance{
		{UUID: "MIG-0", Parent: "GPU-1", Index: 1, Profile: "3g.20gb", GPUInstance: 1},
		{UUID: "MIG-1", Parent: "GPU-1", Index: 1, Profile: "3g.20gb", GPUInstance: 2},
	}
	if d := cmp.Diff(want, list); d != "" {
		t.Errorf("instances (-want +got):\n%s", d)
	}
	m, err := topology.Decode(a[topology.AttrTopology])
	if err != nil || m.GPUs[list[0].Index].UUID != list[0].Parent {
		t.Errorf("the matrix has another GPU at the index: %v", err)
	}
	delete(a, topology.AttrTopology)
	delete(a, topology.AttrInstances)
	wantText := map[string]string{
		"memory": "19968MiB", "mig_profile": "3g.20gb", "mig_slices": "3", "driver_version": "570.1", "cuda_version": "12.8",
		"compute_capability": "8", "rdma_nics": "0",
	}
	if d := cmp.Diff(wantText, a); d != "" {
		t.Errorf("attributes (-want +got):\n%s", d)
	}
}

// TestMIGLife: instances follow their GPU's health, and leave the list when
// they are destroyed.
func TestMIGLife(t *testing.T) {
	source := &fake{inventory: divided()}
	p := newPlugin(t, source, "")
	look := func(inv nvml.Inventory) map[string]string {
		t.Helper()
		source.set(inv, nil)
		p.scan()
		groups, err := p.groups()
		if err != nil {
			t.Fatal(err)
		}
		out := map[string]string{}
		for _, g := range groups {
			for id, reason := range healthOf(g) {
				if strings.HasPrefix(id, "MIG") || id == "GPU-1" {
					out[id] = reason
				}
			}
		}
		return out
	}
	expect := func(what string, want, got map[string]string) {
		t.Helper()
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("%s (-want +got):\n%s", what, d)
		}
	}
	expect("well", map[string]string{"MIG-0": "", "MIG-1": ""}, look(divided()))
	lost := divided()
	lost.GPUs[1] = nvml.GPU{Vendor: "nvidia", Health: nvml.Health{Lost: "gone"}}
	expect("its GPU is lost", map[string]string{"MIG-0": "its GPU: gone", "MIG-1": "its GPU: gone"}, look(lost))
	if _, err := p.Reserve(t.Context(), []string{"MIG-0"}); err == nil || !strings.Contains(err.Error(), `GPU "MIG-0" cannot be used: its GPU: gone`) {
		t.Errorf("error %v", err)
	}
	for range 3 {
		look(divided())
	}
	p.tracker.Event(nvml.Event{UUID: "GPU-1", XID: 94, GPUInstance: ptr(2), ComputeInstance: ptr(0)})
	expect("an error of one", map[string]string{"MIG-0": "", "MIG-1": "XID 94: reset the GPU and restart the agent"}, look(divided()))
	one := divided()
	one.GPUs[1].Instances = one.GPUs[1].Instances[:1]
	partial := one
	partial.GPUs = append([]nvml.GPU(nil), one.GPUs...)
	partial.GPUs[1].Partial = true
	for range 5 {
		if got := look(partial); len(got) != 2 {
			t.Errorf("an instance that could not be read left: %v", got)
		}
	}
	gone := map[string]string{"MIG-0": "", "MIG-1": goneUnhealthy}
	expect("destroyed", gone, look(one))
	expect("destroyed", gone, look(one))
	expect("forgotten", map[string]string{"MIG-0": ""}, look(one))
	whole := pairs()
	whole.GPUs[1].MIG = ptr(false)
	expect("whole again", map[string]string{"GPU-1": ""}, look(whole))
}

func ptr[T any](v T) *T { return &v }

func TestReserveMIG(t *testing.T) {
	dir := t.TempDir()
	p := newPlugin(t, &fake{inventory: divided()}, `nccl_topology = "`+dir+`"`)
	r, err := p.Reserve(t.Context(), []string{"MIG-1", "MIG-0", "GPU-3"})
	if err != nil {
		t.Fatal(err)
	}
	if got := r.Env[envCUDADevices]; got != "GPU-3,MIG-0,MIG-1" || r.Env[envNVIDIADevices] != got {
		t.Errorf("environment %v", r.Env)
	}
	if _, ok := r.Env[envNCCLTopology]; ok {
		t.Error("instances got an NCCL topology")
	}
	var nodes []string
	for _, n := range r.Devices {
		nodes = append(nodes, n.HostPath+" "+n.Permissions)
	}
	want := []string{
		"/dev/nvidia0 rwm", "/dev/nvidia2 rwm", "/dev/nvidia-caps/nvidia-cap30 r", "/dev/nvidia-caps/nvidia-cap40 r",
		"/dev/nvidia-caps/nvidia-cap31 r", "/dev/nvidia-caps/nvidia-cap41 r",
		"/dev/nvidiactl rwm", "/dev/nvidia-uvm rwm", "/dev/nvidia-uvm-tools rwm", "/dev/nvidia-modeset rwm",
	}
	if d := cmp.Diff(want, nodes); d != "" {
		t.Errorf("device nodes (-want +got):\n%s", d)
	}
	if _, err := p.Reserve(t.Context(), []string{"GPU-1"}); err == nil || !strings.Contains(err.Error(), `"GPU-1" is unknown`) {
		t.Errorf("a divided GPU was reserved whole: %v", err)
	}
}

func TestReserveIMEX(t *testing.T) {
	inv := pairs()
	inv.Matrix.GPUs[0].Fabric = topology.Fabric{ClusterUUID: "ab"}
	for _, there := range []bool{true, false} {
		p := newPlugin(t, &fake{inventory: inv}, "nccl_topology = false")
		p.exists = func(path string) bool { return there || path != imexChannel }
		for id, fabric := range map[string]bool{"GPU-0": true, "GPU-1": false} {
			r, err := p.Reserve(t.Context(), []string{id})
			if err != nil {
				t.Fatal(err)
			}
			_, env := r.Env[envIMEXChannels]
			node := strings.Contains(fmt.Sprint(r.Devices), imexChannel)
			if want := there && fabric; env != want || node != want {
				t.Errorf("%s, channel there: %v: variable %v, device node %v", id, there, env, node)
			}
		}
	}
}

func TestReserveNCCLTopology(t *testing.T) {
	dir := t.TempDir() + "/files"
	p := newPlugin(t, &fake{inventory: pairs(), simulated: true}, `nccl_topology = "`+dir+`"`)
	r, err := p.Reserve(t.Context(), []string{"GPU-0", "GPU-3"})
	if err != nil {
		t.Fatal(err)
	}
	path := r.Env[envNCCLTopology]
	if d := cmp.Diff([]device.Mount{{TaskPath: path, HostPath: path, ReadOnly: true}}, r.Mounts); d != "" || !strings.HasPrefix(path, dir) {
		t.Errorf("mounts of %q (-want +got):\n%s", path, d)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	f, err := topology.Parse(text)
	if err != nil || len(f.Matrix.GPUs) != 2 || f.Matrix.Links[0][1].Count != 12 {
		t.Errorf("the file reads as %+v, %v", f.Matrix, err)
	}
	again, err := p.Reserve(t.Context(), []string{"GPU-3", "GPU-0"})
	if err != nil || again.Env[envNCCLTopology] != path {
		t.Errorf("the same GPUs have another file: %v, %v", again.Env, err)
	}
	// A folder that others can write in is not trusted, and the task starts.
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	r, err = p.Reserve(t.Context(), []string{"GPU-0"})
	if err != nil || r.Env[envNCCLTopology] != "" || len(r.Mounts) > 0 {
		t.Errorf("reservation %+v, %v", r, err)
	}
}

// TestReserveAMD: another vendor's tasks have its variables.
func TestReserveAMD(t *testing.T) {
	inv := pairs()
	for i := range inv.GPUs {
		inv.GPUs[i].Vendor = vendorAMD
	}
	p := newPlugin(t, &fake{inventory: inv, simulated: true}, "nccl_topology = false")
	r, err := p.Reserve(t.Context(), []string{"GPU-0"})
	if d := cmp.Diff(map[string]string{envROCmDevices: "GPU-0"}, r.Env); d != "" || err != nil {
		t.Errorf("environment (-want +got):\n%s%v", d, err)
	}
}
