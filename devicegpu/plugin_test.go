package devicegpu

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/go-hclog"

	"github.com/caravan-sched/caravan/devicegpu/nvml"
	"github.com/caravan-sched/caravan/devicegpu/topology"
	"github.com/caravan-sched/caravan/internal/nomadplugin/attr"
	"github.com/caravan-sched/caravan/internal/nomadplugin/base"
	"github.com/caravan-sched/caravan/internal/nomadplugin/device"
	"github.com/caravan-sched/caravan/internal/nomadplugin/hclspec"
)

// fake is a source that finds what a test says.
type fake struct {
	mu        sync.Mutex
	inventory nvml.Inventory
	samples   []nvml.Sample
	err       error
	simulated bool
	looks     int
	// events are handed to the listener.
	events chan nvml.Event
}

func (f *fake) Events(ctx context.Context, got func(nvml.Event)) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case e := <-f.events:
			got(e)
		}
	}
}

func (f *fake) Inventory() (nvml.Inventory, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.looks++
	return f.inventory, f.err
}

func (f *fake) Samples() ([]nvml.Sample, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.samples, f.err
}

func (f *fake) set(inv nvml.Inventory, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.inventory, f.err = inv, err
}

func (f *fake) Simulated() bool { return f.simulated }

func (f *fake) Close() error { return nil }

// pairs is a node with two NVLink pairs, 0-3 and 1-2.
func pairs() nvml.Inventory {
	m := topology.Empty(4, 0)
	inv := nvml.Inventory{DriverVersion: "570.1", CUDAVersion: "12.8"}
	for i := range 4 {
		m.GPUs[i].UUID, m.GPUs[i].Model, m.GPUs[i].BusID = fmt.Sprintf("GPU-%d", i), "NVIDIA A100", fmt.Sprintf("0000:0%d:00.0", i)
		minor, memory := 3-i, uint64(40960)
		inv.GPUs = append(inv.GPUs, nvml.GPU{Vendor: "nvidia", Minor: &minor, MemoryMiB: &memory, ComputeCapability: "8.0"})
		for j := range i {
			m.SetLink(i, j, topology.Link{Kind: topology.KindSys, GBs: 10})
		}
	}
	m.SetLink(0, 3, topology.Link{Kind: topology.KindNVLink, Count: 12, GBs: 300})
	m.SetLink(1, 2, topology.Link{Kind: topology.KindNVLink, Count: 12, GBs: 300})
	inv.Matrix = m
	return inv
}

func configure(t *testing.T, p *Plugin, hcl string) error {
	t.Helper()
	raw, err := hclspec.Encode(p.ConfigSchema(), []byte(hcl), "test")
	if err != nil {
		t.Fatal(err)
	}
	return p.SetConfig(context.Background(), base.Config{Raw: raw})
}

func newPlugin(t *testing.T, source *fake, hcl string) *Plugin {
	t.Helper()
	p := New(hclog.NewNullLogger())
	p.open = func(nvml.Spec) (nvml.Source, error) { return source, nil }
	p.exists = func(string) bool { return true }
	if err := configure(t, p, hcl); err != nil {
		t.Fatal(err)
	}
	return p
}

func TestDisabled(t *testing.T) {
	p := newPlugin(t, &fake{inventory: pairs()}, `enabled = false`)
	nothing := func([]device.Group) error { t.Error("sent"); return nil }
	if err := p.Fingerprint(t.Context(), nothing); !errors.Is(err, device.ErrDisabled) {
		t.Errorf("fingerprint: %v", err)
	}
	if _, err := p.Reserve(t.Context(), []string{"GPU-0"}); !errors.Is(err, device.ErrDisabled) {
		t.Errorf("reserve: %v", err)
	}
}

// fingerprints runs the plugin's stream in a bubble of virtual time.
type fingerprints struct {
	mu  sync.Mutex
	all [][]device.Group
}

func (f *fingerprints) send(g []device.Group) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := device.Validate(g); err != nil {
		return err
	}
	f.all = append(f.all, g)
	return nil
}

func (f *fingerprints) last() (int, []device.Group) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.all), f.all[len(f.all)-1]
}

func healthOf(g device.Group) map[string]string {
	out := map[string]string{}
	for _, d := range g.Devices {
		out[d.ID] = d.HealthDescription
		if d.Healthy != (d.HealthDescription == "") {
			out[d.ID] += " (but the flag differs)"
		}
	}
	return out
}

func TestFingerprintStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		source := &fake{inventory: pairs()}
		p := newPlugin(t, source, `fingerprint_period = "10s"`)
		var sent fingerprints
		done := make(chan error, 1)
		go func() { done <- p.Fingerprint(ctx, sent.send) }()
		next := func() (int, []device.Group) {
			time.Sleep(10 * time.Second)
			synctest.Wait()
			return sent.last()
		}
		synctest.Wait()
		n, g := sent.last()
		if n != 1 || len(g) != 1 || len(g[0].Devices) != 4 {
			t.Fatalf("%d fingerprints, the last one %+v", n, g)
		}
		attributes := maps.Clone(g[0].Attributes)

		if n, _ = next(); n != 1 {
			t.Errorf("nothing changed, and %d fingerprints were sent", n)
		}
		// The driver cannot be asked: nothing is sent.
		source.set(nvml.Inventory{}, errors.New("broken"))
		if n, _ = next(); n != 1 {
			t.Errorf("the source failed, and %d fingerprints were sent", n)
		}
		// GPU 1 is gone: it stays listed, and the attributes stay the same.
		source.set(pick(pairs(), []int{0, 2, 3}), nil)
		n, g = next()
		want := map[string]string{"GPU-0": "", "GPU-1": lostUnhealthy, "GPU-2": "", "GPU-3": ""}
		if d := cmp.Diff(want, healthOf(g[0])); n != 2 || d != "" {
			t.Errorf("%d fingerprints; health (-want +got):\n%s", n, d)
		}
		if !reflect.DeepEqual(attributes, g[0].Attributes) {
			t.Errorf("attributes changed from %v to %v", attributes, g[0].Attributes)
		}
		// Even if all are gone.
		source.set(nvml.Inventory{}, nil)
		n, g = next()
		if n != 3 || len(g[0].Devices) != 4 || g[0].Devices[0].Healthy {
			t.Errorf("%d fingerprints; %+v", n, g)
		}
		// And back again, as before: trusted after three good looks.
		source.set(pairs(), nil)
		n, g = next()
		for id := range want {
			want[id] = lostUnhealthy + " (over: trusted again after 3 good looks)"
		}
		if d := cmp.Diff(want, healthOf(g[0])); n != 4 || d != "" {
			t.Errorf("%d fingerprints; health (-want +got):\n%s", n, d)
		}
		next()
		n, g = next()
		for id := range want {
			want[id] = ""
		}
		if d := cmp.Diff(want, healthOf(g[0])); n != 5 || d != "" {
			t.Errorf("%d fingerprints; health (-want +got):\n%s", n, d)
		}
		if !reflect.DeepEqual(attributes, g[0].Attributes) {
			t.Errorf("attributes changed from %v to %v", attributes, g[0].Attributes)
		}
		cancel()
		synctest.Wait()
		if err := <-done; err != nil {
			t.Errorf("stream ended with %v", err)
		}
	})
}

// TestFirstFingerprintOfNothing: Nomad waits for a first one.
func TestFirstFingerprintOfNothing(t *testing.T) {
	for name, source := range map[string]*fake{"no GPUs": {}, "source fails": {err: errors.New("broken")}} {
		t.Run(name, func(t *testing.T) {
			p := newPlugin(t, source, "")
			ctx, cancel := context.WithCancel(t.Context())
			sent := 0
			err := p.Fingerprint(ctx, func(g []device.Group) error {
				sent++
				cancel()
				if len(g) > 0 {
					t.Errorf("sent %+v", g)
				}
				return nil
			})
			if err != nil || sent != 1 {
				t.Errorf("%d sent, %v", sent, err)
			}
		})
	}
}

func TestGroups(t *testing.T) {
	inv := pairs()
	inv.Matrix.GPUs[2].Model = "NVIDIA T4\xff"
	inv.Matrix.GPUs[3].Model = ""
	less := uint64(39000)
	inv.GPUs[1].MemoryMiB = &less
	inv.Matrix.GPUs[0].NUMA, inv.Matrix.GPUs[1].NUMA = []int{0}, []int{1}
	inv.Matrix.GPUs[0].Fabric = topology.Fabric{ClusterUUID: "ab", CliqueID: 3}
	inv.Matrix.GPUs[1].Fabric = inv.Matrix.GPUs[0].Fabric
	g, err := Groups(inv, true)
	if err != nil {
		t.Fatal(err)
	}
	if err := device.Validate(g); err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, group := range g {
		names = append(names, fmt.Sprintf("%s/%s/%s %d", group.Vendor, group.Type, group.Name, len(group.Devices)))
	}
	if d := cmp.Diff([]string{"nvidia/gpu/NVIDIA A100 2", "nvidia/gpu/NVIDIA T4? 1", "nvidia/gpu/GPU 1"}, names); d != "" {
		t.Errorf("groups (-want +got):\n%s", d)
	}
	encoded, _ := g[0].Attributes[topology.AttrTopology].AsString()
	m, err := topology.Decode(encoded)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(inv.Matrix, m); d != "" {
		t.Errorf("the attribute has another matrix (-want +got):\n%s", d)
	}
	delete(g[0].Attributes, topology.AttrTopology)
	want := map[string]string{
		"memory": "39000MiB", "driver_version": "570.1", "cuda_version": "12.8", "compute_capability": "8",
		"nvlink_island_size": "1", "nvlink_islands": "2", "nvswitch": "false", "numa_nodes": "2", "rdma_nics": "0", "simulated": "true",
		"nvlink_fabric": "true", "unique.fabric_cluster": "ab", "unique.fabric_clique": "3",
	}
	if d := cmp.Diff(want, texts(g[0].Attributes)); d != "" {
		t.Errorf("attributes (-want +got):\n%s", d)
	}
}

func texts(attributes map[string]attr.Value) map[string]string {
	out := map[string]string{}
	for k, v := range attributes {
		out[k] = v.Text()
	}
	return out
}

func TestIgnoredGPUs(t *testing.T) {
	source := &fake{inventory: pairs()}
	p := newPlugin(t, source, `ignored_gpu_ids = ["GPU-3", "GPU-9"]`)
	p.scan()
	g, err := p.groups()
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(map[string]string{"GPU-0": "", "GPU-1": "", "GPU-2": ""}, healthOf(g[0])); d != "" {
		t.Errorf("devices (-want +got):\n%s", d)
	}
	if _, err := p.Reserve(t.Context(), []string{"GPU-3"}); err == nil {
		t.Error("an ignored GPU was reserved")
	}
}

func TestReserve(t *testing.T) {
	tests := map[string]struct {
		ids       []string
		simulated bool
		missing   string // a device node that is not there
		wantIDs   string
		// wantBusIDs are set for real GPUs only.
		wantBusIDs string
		wantNodes  []string
		wantErr    []string
	}{
		"in topology order": {
			ids: []string{"GPU-3", "GPU-2", "GPU-1", "GPU-0"}, simulated: true, wantIDs: "GPU-0,GPU-1,GPU-2,GPU-3",
		},
		"with device nodes": {
			ids: []string{"GPU-3", "GPU-0"}, missing: "/dev/nvidia-modeset", wantIDs: "GPU-0,GPU-3",
			wantBusIDs: "0000:00:00.0,0000:03:00.0",
			wantNodes:  []string{"/dev/nvidia3", "/dev/nvidia0", "/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools"},
		},
		"nothing":            {},
		"unknown":            {ids: []string{"GPU-0", "GPU-7", "GPU-8"}, wantErr: []string{`GPU "GPU-7" is unknown`, `GPU "GPU-8" is unknown`}},
		"twice":              {ids: []string{"GPU-0", "GPU-1", "GPU-0"}, wantErr: []string{`GPU "GPU-0" is asked for 2 times`}},
		"unhealthy":          {ids: []string{"GPU-sick"}, wantErr: []string{`GPU "GPU-sick" cannot be used: sick`}},
		"all faults at once": {ids: []string{"x", "x", "GPU-sick"}, wantErr: []string{`"x" is unknown`, `"x" is asked for 2 times`, "sick"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			inv := pairs()
			if strings.Contains(strings.Join(tt.ids, " "), "sick") {
				inv.Matrix.GPUs[2].UUID, inv.GPUs[2].Health.Lost = "GPU-sick", "sick"
			}
			p := newPlugin(t, &fake{inventory: inv, simulated: tt.simulated}, "nccl_topology = false")
			p.exists = func(path string) bool { return path != tt.missing }
			r, err := p.Reserve(t.Context(), tt.ids)
			for _, want := range tt.wantErr {
				if err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("error %v lacks %q", err, want)
				}
			}
			if len(tt.wantErr) > 0 {
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			want := device.Reservation{}
			if tt.wantIDs != "" {
				want.Env = map[string]string{
					"CUDA_VISIBLE_DEVICES": tt.wantIDs, "NVIDIA_VISIBLE_DEVICES": tt.wantIDs, "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
				}
				if tt.wantBusIDs != "" {
					want.Env["CARAVAN_GPU_BUS_IDS"] = tt.wantBusIDs
				}
			}
			for _, node := range tt.wantNodes {
				want.Devices = append(want.Devices, device.Node{TaskPath: node, HostPath: node, Permissions: "rwm"})
			}
			if d := cmp.Diff(want, r); d != "" {
				t.Errorf("reservation (-want +got):\n%s", d)
			}
		})
	}
}
