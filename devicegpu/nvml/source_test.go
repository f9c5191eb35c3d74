package nvml

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/caravan-sched/caravan/devicegpu/topology"
)

func mustOpen(t *testing.T, source, seed string) (Source, Inventory) {
	t.Helper()
	s, err := Open(Spec{Source: source, Seed: seed})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	inv, err := s.Inventory()
	if err != nil {
		t.Fatal(err)
	}
	if err := inv.Matrix.Validate(); err != nil {
		t.Fatal(err)
	}
	if len(inv.GPUs) != len(inv.Matrix.GPUs) {
		t.Fatalf("%d GPUs, but %d in the matrix", len(inv.GPUs), len(inv.Matrix.GPUs))
	}
	return s, inv
}

func uuids(inv Inventory) []string {
	var out []string
	for _, g := range inv.Matrix.GPUs {
		out = append(out, g.UUID)
	}
	return out
}

func TestMockMachines(t *testing.T) {
	tests := map[string]struct {
		link         topology.Link
		capability   string
		numa         []int
		switches     []int
		nearest      []int // NICs of GPU 3
		driver, cuda string
	}{
		"dgxa100": {
			topology.Link{Kind: topology.KindNVLink, Count: 12, GBs: 300}, "8.0",
			[]int{3, 3, 1, 1, 7, 7, 5, 5}, []int{0, 0, 1, 1, 2, 2, 3, 3}, []int{2, 3}, "550.54.15", "12.4",
		},
		"dgxh100": {
			topology.Link{Kind: topology.KindNVLink, Count: 18, GBs: 450}, "9.0",
			[]int{0, 0, 0, 0, 1, 1, 1, 1}, []int{0, 1, 2, 3, 4, 5, 6, 7}, []int{3}, "550.54.15", "12.4",
		},
		"dgxh200": {
			topology.Link{Kind: topology.KindNVLink, Count: 18, GBs: 450}, "9.0",
			[]int{0, 0, 0, 0, 1, 1, 1, 1}, []int{0, 1, 2, 3, 4, 5, 6, 7}, []int{3}, "550.54.15", "12.4",
		},
		"dgxb200": {
			topology.Link{Kind: topology.KindNVLink, Count: 18, GBs: 900}, "10.0",
			[]int{0, 0, 0, 0, 1, 1, 1, 1}, []int{0, 1, 2, 3, 4, 5, 6, 7}, []int{3}, "560.28.03", "12.6",
		},
	}
	if d := cmp.Diff(machineNames(), []string{"dgxa100", "dgxb200", "dgxh100", "dgxh200"}); d != "" {
		t.Errorf("machines (-got +want):\n%s", d)
	}
	for name, want := range tests {
		t.Run(name, func(t *testing.T) {
			source, inv := mustOpen(t, "mock:"+name, "node1")
			m := inv.Matrix
			if d := cmp.Diff([][]int{{0, 1, 2, 3, 4, 5, 6, 7}}, m.Islands()); d != "" {
				t.Errorf("islands (-want +got):\n%s", d)
			}
			if d := cmp.Diff(want.link, m.Links[0][7]); d != "" {
				t.Errorf("link (-want +got):\n%s", d)
			}
			var numa, switches []int
			for i, g := range m.GPUs {
				numa, switches = append(numa, g.NUMA[0]), append(switches, g.Switch)
				if got := inv.GPUs[i].ComputeCapability; got != want.capability {
					t.Errorf("GPU %d has compute capability %s", i, got)
				}
			}
			if d := cmp.Diff(want.numa, numa); d != "" {
				t.Errorf("NUMA (-want +got):\n%s", d)
			}
			if d := cmp.Diff(want.switches, switches); d != "" {
				t.Errorf("switches (-want +got):\n%s", d)
			}
			if d := cmp.Diff(want.nearest, m.NearestNICs(3)); d != "" {
				t.Errorf("nearest NICs (-want +got):\n%s", d)
			}
			if !m.NVSwitch || !source.Simulated() || len(inv.Problems) > 0 {
				t.Errorf("NVSwitch %v, simulated %v, problems %q", m.NVSwitch, source.Simulated(), inv.Problems)
			}
			if inv.DriverVersion != want.driver || inv.CUDAVersion != want.cuda {
				t.Errorf("driver %s, CUDA %s", inv.DriverVersion, inv.CUDAVersion)
			}
			// With and without go-nvml (cgo) the machine is the same.
			if d := cmp.Diff(machines[name].inventory(name, "node1"), inv); d != "" {
				t.Errorf("machine without go-nvml (-) and with it (+):\n%s", d)
			}
			samples, err := source.Samples()
			if err != nil || len(samples) != 8 || samples[2].UUID != m.GPUs[2].UUID {
				t.Errorf("samples %v, %v", samples, err)
			}
		})
	}
}

func TestUUIDsOfSimulatedGPUs(t *testing.T) {
	seen := map[string]string{}
	for _, source := range []string{"mock:dgxh100", "mock:dgxh200", "file:testdata/recorded.json"} {
		for _, seed := range []string{"node1", "node2", ""} {
			_, inv := mustOpen(t, source, seed)
			_, again := mustOpen(t, source, seed)
			if d := cmp.Diff(uuids(inv), uuids(again)); d != "" {
				t.Errorf("%s, seed %q: opened twice (-first +second):\n%s", source, seed, d)
			}
			for _, id := range uuids(inv) {
				if other, ok := seen[id]; ok {
					t.Errorf("%s of %s, seed %q, is also of %s", id, source, seed, other)
				}
				seen[id] = source + " " + seed
			}
		}
	}
}

func TestRecorded(t *testing.T) {
	_, recorded := mustOpen(t, "mock:dgxa100", "x")
	data, err := json.MarshalIndent(recorded, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "a100.json")
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	_, inv := mustOpen(t, "file:"+path, "y")
	if uuids(inv)[0] == uuids(recorded)[0] {
		t.Errorf("the UUIDs are those of the file")
	}
	for i := range inv.Matrix.GPUs {
		inv.Matrix.GPUs[i].UUID = recorded.Matrix.GPUs[i].UUID
	}
	if d := cmp.Diff(recorded, inv); d != "" {
		t.Errorf("recorded (-) and read (+):\n%s", d)
	}
}

// TestSharedTopologies: every file of the collection can stand in for a node.
func TestSharedTopologies(t *testing.T) {
	files, _ := filepath.Glob("../../../shared/topologies/n*/*")
	if len(files) == 0 {
		t.Skip("the collection of machines is not here")
	}
	for _, path := range files {
		t.Run(filepath.Base(path), func(t *testing.T) {
			_, inv := mustOpen(t, "file:"+path, "node1")
			if len(inv.GPUs) < 4 {
				t.Errorf("%d GPUs", len(inv.GPUs))
			}
			if _, err := topology.Encode(inv.Matrix); err != nil {
				t.Error(err)
			}
			vendor := "nvidia"
			if strings.HasPrefix(filepath.Base(path), "rccl") {
				vendor = "amd"
			}
			for i, g := range inv.GPUs {
				if g.Vendor != vendor {
					t.Errorf("GPU %d is of %s", i, g.Vendor)
				}
			}
		})
	}
}

func TestOpenRefuses(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return "file:" + path
	}
	tests := map[string]struct {
		source, want string
		is           error
	}{
		"nothing":         {"", "allowed are nvml, mock:dgxa100, mock:dgxb200, mock:dgxh100, mock:dgxh200, file:PATH", ErrSource},
		"unknown":         {"rocm", `"rocm"`, ErrSource},
		"unknown machine": {"mock:dgx1", `"mock:dgx1"`, ErrSource},
		"no path":         {"file:", `"file:"`, ErrSource},
		"no file":         {"file:" + dir + "/none", "none", os.ErrNotExist},
		"a folder":        {"file:" + dir, dir, nil},
		"no topology":     {write("text", "hello\n"), "no line names GPU0", topology.ErrFile},
		"empty":           {write("empty", ""), "it is empty", topology.ErrFile},
		"other JSON":      {write("other.json", `{"a": 1}`), `unknown field "a"`, nil},
		"JSON cut off":    {write("cut.json", `{"gpus": [`), "read recorded inventory", nil},
		"JSON and more":   {write("more.json", `{"gpus": []} x`), "there is more behind it", nil},
		"counts differ":   {write("counts.json", `{"gpus": [{}]}`), "1 GPUs, but 0 in its matrix", nil},
		"bad matrix":      {write("matrix.json", `{"gpus": [{}], "matrix": {"gpus": [{"bus_id": "x"}], "links": [[{"kind": "X"}]]}}`), `bus ID "x"`, topology.ErrInvalid},
		"too long":        {write("long", strings.Repeat("GPU0 ", 1<<20)), "longer than", nil},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := Open(Spec{Source: tt.source})
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Fatalf("error %v, want %q", err, tt.want)
			}
			if tt.is != nil && !errors.Is(err, tt.is) {
				t.Errorf("error %v is not %v", err, tt.is)
			}
			if valid := ValidSource(tt.source); valid == errors.Is(err, ErrSource) {
				t.Errorf("ValidSource is %v", valid)
			}
		})
	}
}

func FuzzRecorded(f *testing.F) {
	data, err := os.ReadFile("testdata/recorded.json")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(data)
	f.Fuzz(func(t *testing.T, data []byte) {
		inv, err := parseFile(data)
		if err != nil {
			return
		}
		if len(inv.GPUs) != len(inv.Matrix.GPUs) {
			t.Fatalf("%d GPUs, but %d in the matrix", len(inv.GPUs), len(inv.Matrix.GPUs))
		}
		first, err := json.Marshal(inv)
		if err != nil {
			t.Fatal(err)
		}
		again, err := parseFile(first)
		if err != nil {
			t.Fatalf("read what was written: %v", err)
		}
		if second, err := json.Marshal(again); err != nil || !bytes.Equal(first, second) {
			t.Fatalf("second round differs: %v", err)
		}
	})
}
