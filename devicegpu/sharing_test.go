package devicegpu

import (
	"context"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/caravan-sched/caravan/devicegpu/nvml"
	"github.com/caravan-sched/caravan/devicegpu/topology"
	"github.com/caravan-sched/caravan/internal/nomadplugin/device"
)

// offered lists the devices of each group, those that are unhealthy with why.
func offered(t *testing.T, p *Plugin) map[string][]string {
	t.Helper()
	groups, err := p.groups()
	if err != nil {
		t.Fatal(err)
	}
	if err := device.Validate(groups); err != nil {
		t.Fatal(err)
	}
	out := map[string][]string{}
	for _, g := range groups {
		for _, d := range g.Devices {
			id := d.ID
			if !d.Healthy {
				id += ": " + d.HealthDescription
			}
			out[g.Name] = append(out[g.Name], id)
		}
	}
	return out
}

func TestSharingWhich(t *testing.T) {
	tests := map[string]struct {
		hcl       string
		inventory nvml.Inventory
		want      map[string][]string
	}{
		"one by its UUID": {`sharing {
				slices = 2
				gpus   = ["GPU-1", "GPU-of-another-node"]
			}`, pairs(), map[string][]string{
			"NVIDIA A100": {"GPU-0", "GPU-2", "GPU-3"}, "NVIDIA A100 SHARED 1of2": {"GPU-1::0", "GPU-1::1"},
		}},
		"the last two": {`sharing {
				slices = 2
				count  = 2
			}`, pairs(), map[string][]string{
			"NVIDIA A100": {"GPU-0", "GPU-1"}, "NVIDIA A100 SHARED 1of2": {"GPU-2::0", "GPU-2::1", "GPU-3::0", "GPU-3::1"},
		}},
		"by the model, and the first block that names it": {`
			sharing {
				slices = 3
				gpus   = ["GPU-0"]
			}
			sharing {
				slices = 2
				models = ["NVIDIA A100"]
				count  = 1
			}
			sharing {
				slices = 4
				models = ["NVIDIA H100"]
			}`, pairs(), map[string][]string{
			"NVIDIA A100": {"GPU-1", "GPU-2"}, "NVIDIA A100 SHARED 1of3": {"GPU-0::0", "GPU-0::1", "GPU-0::2"}, "NVIDIA A100 SHARED 1of2": {"GPU-3::0", "GPU-3::1"},
		}},
		"none that is divided": {`sharing {
				slices = 2
				gpus   = ["GPU-1"]
			}`, divided(), map[string][]string{
			"NVIDIA A100": {"GPU-0", "GPU-2", "GPU-3"}, "NVIDIA A100 MIG 3g.20gb": {"MIG-0", "MIG-1"},
		}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			p := newPlugin(t, &fake{inventory: tt.inventory}, tt.hcl)
			p.scan()
			if d := cmp.Diff(tt.want, offered(t, p)); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
		})
	}
}

// No more devices than a planner can keep.
func TestSharingBound(t *testing.T) {
	p := newPlugin(t, &fake{inventory: pairs()}, "sharing { slices = 31 }")
	p.scan()
	got := offered(t, p)
	if len(got["NVIDIA A100"]) != 2 || len(got["NVIDIA A100 SHARED 1of31"]) != 62 {
		t.Errorf("offered %v", got)
	}
	if !slices.ContainsFunc(p.complaints, func(c string) bool { return strings.Contains(c, "and 64 are the most") }) {
		t.Errorf("complaints %q", p.complaints)
	}
}

func TestSharingAttributes(t *testing.T) {
	p := newPlugin(t, &fake{inventory: pairs()}, `sharing {
		slices     = 4
		count      = 1
		memory_mib = 8000
	}`)
	p.scan()
	groups, err := p.groups()
	if err != nil {
		t.Fatal(err)
	}
	a := texts(groups[1].Attributes)
	list, err := topology.DecodeShares(a[topology.AttrShares])
	if d := cmp.Diff([]topology.Share{{GPU: "GPU-3", Index: 3, Slices: 4, MemoryMiB: 40960}}, list); d != "" || err != nil {
		t.Errorf("shares (-want +got):\n%s%v", d, err)
	}
	delete(a, topology.AttrTopology)
	delete(a, topology.AttrShares)
	want := map[string]string{
		"memory": "8000MiB", "shared_memory": "40960MiB", "shared_slices": "4", "driver_version": "570.1", "cuda_version": "12.8",
		"compute_capability": "8", "rdma_nics": "0",
	}
	if d := cmp.Diff(want, a); d != "" {
		t.Errorf("attributes (-want +got):\n%s", d)
	}
	p = newPlugin(t, &fake{inventory: pairs()}, `sharing {
		slices     = 4
		memory_mib = 20000
	}`)
	p.scan()
	if !slices.ContainsFunc(p.complaints, func(c string) bool {
		return strings.Contains(c, "4 slices of memory_mib = 20000 do not fit; each is told of 10240 MiB")
	}) {
		t.Errorf("complaints %q", p.complaints)
	}
}

// What is shared stays shared, and sick in all of its slices, whatever becomes of
// the GPUs: one that may be given away whole never turns up in slices.
func TestSharingLife(t *testing.T) {
	source := &fake{inventory: pairs()}
	p := newPlugin(t, source, `sharing {
		slices = 2
		count  = 1
	}`)
	look := func(what string, inv nvml.Inventory, want map[string][]string) {
		t.Helper()
		source.set(inv, nil)
		p.scan()
		if d := cmp.Diff(want, offered(t, p)); d != "" {
			t.Errorf("%s (-want +got):\n%s", what, d)
		}
	}
	whole := []string{"GPU-0", "GPU-1", "GPU-2"}
	well := map[string][]string{"NVIDIA A100": whole, "NVIDIA A100 SHARED 1of2": {"GPU-3::0", "GPU-3::1"}}
	look("well", pairs(), well)
	sick := pairs()
	sick.GPUs[3].Health.Lost = "gone"
	look("sick", sick, map[string][]string{"NVIDIA A100": whole, "NVIDIA A100 SHARED 1of2": {"GPU-3::0: gone", "GPU-3::1: gone"}})
	if _, err := p.Reserve(t.Context(), []string{"GPU-3::1"}); err == nil || !strings.Contains(err.Error(), `GPU "GPU-3::1" cannot be used: gone`) {
		t.Errorf("error %v", err)
	}
	look("not found", pick(pairs(), []int{0, 1, 2}), map[string][]string{"NVIDIA A100": whole, "NVIDIA A100 SHARED 1of2": {"GPU-3::0: " + lostUnhealthy, "GPU-3::1: " + lostUnhealthy}})
	for range 3 {
		source.set(pairs(), nil)
		p.scan()
	}
	look("well again", pairs(), well)
	if p.divideAs(wanted{GPU: "GPU-3", Profiles: []string{"3g.20gb"}}); !strings.Contains(p.divisions["GPU-3"].Refused, "shared by time slices") {
		t.Errorf("a shared GPU was divided: %+v", p.divisions)
	}
	if slices.Contains(p.known(), "GPU-3") {
		t.Error("the planner is asked how to divide a shared GPU")
	}
}

func TestReserveSlice(t *testing.T) {
	p := newPlugin(t, &fake{inventory: pairs()}, `
		nccl_topology = false
		sharing {
			slices = 4
			gpus   = ["GPU-1"]
		}
		sharing {
			slices   = 2
			gpus     = ["GPU-2"]
			mps_pipe = "/tmp/nvidia-mps"
		}`)
	r, err := p.Reserve(t.Context(), []string{"GPU-1::3"})
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{
		"CUDA_VISIBLE_DEVICES": "GPU-1", "NVIDIA_VISIBLE_DEVICES": "GPU-1", "CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CARAVAN_GPU_BUS_IDS": "0000:01:00.0",
		"CARAVAN_GPU_SLICE": "GPU-1::3", "CARAVAN_GPU_SLICES": "4", "CARAVAN_GPU_MEMORY_MIB": "10240",
	}
	if d := cmp.Diff(want, r.Env); d != "" || len(r.Mounts) > 0 {
		t.Errorf("environment (-want +got):\n%s%v", d, r.Mounts)
	}
	r, err = p.Reserve(t.Context(), []string{"GPU-2::0"})
	if err != nil {
		t.Fatal(err)
	}
	for key, want := range map[string]string{envMPSPipe: "/tmp/nvidia-mps", envMPSMemory: "0=20480M", envMPSThreads: "50"} {
		if r.Env[key] != want {
			t.Errorf("%s = %q, want %q", key, r.Env[key], want)
		}
	}
	if d := cmp.Diff([]device.Mount{{TaskPath: "/tmp/nvidia-mps", HostPath: "/tmp/nvidia-mps"}}, r.Mounts); d != "" {
		t.Errorf("mounts (-want +got):\n%s", d)
	}
	for _, ids := range [][]string{{"GPU-1::0", "GPU-1::1"}, {"GPU-1::0", "GPU-0"}} {
		if _, err := p.Reserve(t.Context(), ids); err == nil || !strings.Contains(err.Error(), "a device block gets one slice") {
			t.Errorf("%v: error %v", ids, err)
		}
	}
	for _, id := range []string{"GPU-1", "GPU-1::4", "GPU-0::0"} {
		if _, err := p.Reserve(t.Context(), []string{id}); err == nil || !strings.Contains(err.Error(), "is unknown") {
			t.Errorf("%s was reserved: %v", id, err)
		}
	}
}

// The figures of a slice are its GPU's.
func TestSharingStats(t *testing.T) {
	used := uint64(1024)
	source := &fake{inventory: pairs(), samples: []nvml.Sample{{UUID: "GPU-3", MemoryUsedMiB: &used}, {UUID: "GPU-0", MemoryUsedMiB: &used}}}
	p := newPlugin(t, source, `sharing {
		slices = 2
		count  = 1
	}`)
	p.scan()
	ctx, cancel := context.WithCancel(t.Context())
	got := map[string][]string{}
	if err := p.Stats(ctx, time.Hour, func(list []device.GroupStats) error {
		for _, g := range list {
			got[g.Name] = slices.Sorted(maps.Keys(g.Instances))
			for id, s := range g.Instances {
				if s.Summary.Int == nil || *s.Summary.Int != 1024 || *s.Summary.IntOf != 40960 {
					t.Errorf("%s: %+v", id, s.Summary)
				}
			}
		}
		cancel()
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(map[string][]string{"NVIDIA A100": {"GPU-0"}, "NVIDIA A100 SHARED 1of2": {"GPU-3::0", "GPU-3::1"}}, got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}
