package check

import (
	"bytes"
	"encoding/json"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/caravan-sched/caravan/devicegpu/topology"
)

func run(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	code = Main(args, &out, &errs)
	return code, out.String(), errs.String()
}

func report(t *testing.T, source string) Report {
	t.Helper()
	code, out, errs := run(t, "check", "--json", "--source", source, "--mock-seed", "node1")
	if code != 0 || errs != "" {
		t.Fatalf("exit code %d, %s", code, errs)
	}
	if !strings.Contains(out, `"problems": [`) || strings.Contains(out, "null") {
		t.Errorf("a list is null:\n%s", out)
	}
	var r Report
	dec := json.NewDecoder(strings.NewReader(out))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&r); err != nil {
		t.Fatal(err)
	}
	return r
}

func TestJSON(t *testing.T) {
	fixtures := "file:../topology/testdata/"
	tests := map[string]struct {
		source  string
		count   int
		islands [][]int
		group   string
		problem string
	}{
		"mock":            {"mock:dgxh200", 8, [][]int{{0, 1, 2, 3, 4, 5, 6, 7}}, "nvidia/gpu/NVIDIA H200 141GB HBM3e", ""},
		"nvidia-smi":      {fixtures + "h100-pair-tabs.txt", 2, [][]int{{0, 1}}, "nvidia/gpu/NVIDIA H100 80GB HBM3", ""},
		"without models":  {fixtures + "cube-mesh.txt", 8, [][]int{{0, 1, 2, 3, 4, 5, 6, 7}}, "nvidia/gpu/GPU", ""},
		"NCCL":            {fixtures + "nvswitch.xml", 2, [][]int{{0, 1}}, "nvidia/gpu/NVIDIA H100 80GB HBM3", ""},
		"cloud's partial": {fixtures + "partial.xml", 2, [][]int{{0}, {1}}, "nvidia/gpu/GPU", "no NVLink information for 2 of 2 GPUs"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			r := report(t, tt.source)
			if r.GPUCount != tt.count || len(r.GPUs) != tt.count || !r.Simulated || r.Source != tt.source {
				t.Errorf("%d GPUs, %d listed, simulated %v, of %s", r.GPUCount, len(r.GPUs), r.Simulated, r.Source)
			}
			if d := cmp.Diff(tt.islands, r.Islands); d != "" {
				t.Errorf("islands (-want +got):\n%s", d)
			}
			if len(r.Groups) != 1 || r.Groups[0].Name != tt.group || len(r.Groups[0].Devices) != tt.count {
				t.Fatalf("groups %+v, want %s", r.Groups, tt.group)
			}
			problems := strings.Join(r.Problems, "\n")
			if tt.problem == "" && problems != "" || !strings.Contains(problems, tt.problem) {
				t.Errorf("problems %q, want %q", problems, tt.problem)
			}
			m, err := topology.Decode(r.Groups[0].Attributes[topology.AttrTopology])
			if err != nil {
				t.Fatal(err)
			}
			for i, g := range r.GPUs {
				if g.Index != i || g.UUID != m.GPUs[i].UUID || !g.Healthy {
					t.Errorf("GPU %d is %+v", i, g)
				}
				if d := cmp.Diff(m.Links[i], r.Links[i]); d != "" {
					t.Errorf("links of GPU %d in the attribute (-) and in the report (+):\n%s", i, d)
				}
			}
		})
	}
}

func TestText(t *testing.T) {
	code, out, errs := run(t, "check", "--source", "file:../topology/testdata/partial.xml", "--mock-seed", "node1")
	if code != 0 || errs != "" {
		t.Fatalf("exit code %d, %s", code, errs)
	}
	want := `
Island        GPU0  GPU1
0       GPU0  X     PIX
1       GPU1  PIX   X

Nomad would be shown nvidia/gpu/GPU:
  numa_nodes               1
  nvlink_fabric            false
  nvlink_island_size       1
  nvlink_islands           2
  nvswitch                 false
  pci_bandwidth            32768MB/s
  pcie_generation          4
  pcie_switches            1
  pcie_width               16
  rdma_nics                1
  simulated                true
  unique.caravan_topology  (N characters)

Problems:
  - the file has no NVLink information for 2 of 2 GPUs (NCCL adds it when it runs): they are shown as not joined
`
	_, tail, _ := strings.Cut(out, "Health\n")
	_, tail, _ = strings.Cut(tail, "\n\n")
	tail = regexp.MustCompile(`\(\d+ characters`).ReplaceAllString(tail, "(N characters")
	if d := cmp.Diff(want, "\n"+tail); d != "" {
		t.Errorf("output (-want +got):\n%s", d)
	}
	if !strings.HasPrefix(out, "file:../topology/testdata/partial.xml: 2 GPUs in 2 islands (simulated)\n\nGPU  UUID") {
		t.Errorf("output starts with %.120q", out)
	}
}

func TestExitCodes(t *testing.T) {
	tests := map[string]struct {
		args []string
		code int
		want string
	}{
		"help without arguments": {nil, 0, "Nomad starts this binary itself"},
		"unknown command":        {[]string{"chekc"}, 2, `unknown command "chekc"`},
		"unknown flag":           {[]string{"check", "--sauce"}, 2, "unknown flag: --sauce"},
		"argument too many":      {[]string{"check", "mock:dgxh100"}, 2, "unknown command"},
		"unknown source":         {[]string{"check", "--source", "rocm"}, 1, "allowed are nvml, mock:dgxa100"},
		"no such file":           {[]string{"check", "--source", "file:none"}, 1, "none"},
		"version":                {[]string{"--version"}, 0, "0.1.0"},
		"decode garbage":         {[]string{"decode", "x"}, 1, "unreadable topology attribute"},
		"decode nothing":         {[]string{"decode"}, 2, "accepts 1 arg"},
		"record garbage":         {[]string{"record", "--source", "mock:"}, 1, "allowed are"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			code, out, errs := run(t, tt.args...)
			if code != tt.code || !strings.Contains(out+errs, tt.want) {
				t.Errorf("exit code %d, want %d; output %q, want %q", code, tt.code, out+errs, tt.want)
			}
		})
	}
}

func TestRecordAndDecode(t *testing.T) {
	code, out, errs := run(t, "record", "--source", "mock:dgxa100", "--mock-seed", "x")
	if code != 0 {
		t.Fatalf("exit code %d, %s", code, errs)
	}
	var inv struct{ Matrix topology.Matrix }
	if err := json.Unmarshal([]byte(out), &inv); err != nil {
		t.Fatal(err)
	}
	encoded, err := topology.Encode(inv.Matrix)
	if err != nil {
		t.Fatal(err)
	}
	code, out, errs = run(t, "decode", encoded)
	if code != 0 {
		t.Fatalf("exit code %d, %s", code, errs)
	}
	var m topology.Matrix
	if err := json.Unmarshal([]byte(out), &m); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(inv.Matrix, m); d != "" {
		t.Errorf("recorded (-) and decoded (+):\n%s", d)
	}
}

// TestSharedTopologies: an operator can check every file of the collection.
func TestSharedTopologies(t *testing.T) {
	files, _ := filepath.Glob("../../../shared/topologies/n*/*")
	if len(files) == 0 {
		t.Skip("the collection of machines is not here")
	}
	for _, path := range files {
		r := report(t, "file:"+path)
		seen := 0
		for _, island := range r.Islands {
			seen += len(island)
		}
		if seen != r.GPUCount || r.GPUCount == 0 {
			t.Errorf("%s: %d GPUs, %d in islands", path, r.GPUCount, seen)
		}
	}
}
