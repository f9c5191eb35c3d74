package topology

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// sharedTopologies is a collection of real machines beside the project; the
// tests that read it are skipped where it is missing.
const sharedTopologies = "../../../shared/topologies"

func all(n int) [][]int {
	island := make([]int, n)
	for i := range island {
		island[i] = i
	}
	return [][]int{island}
}

func alone(n int) [][]int {
	islands := make([][]int, n)
	for i := range islands {
		islands[i] = []int{i}
	}
	return islands
}

func mustParse(t *testing.T, path string) File {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	f, err := Parse(data)
	if err != nil {
		t.Fatalf("parse %s: %v", path, err)
	}
	return f
}

type machine struct {
	islands  [][]int
	nvswitch bool
	numa     int   // distinct NUMA nodes
	nics     int   // RDMA NICs
	nearest  []int // NICs of GPU 0
	switches []int // PCIe switch group by GPU; nil: not checked
	problem  string
}

// TestSharedMachines holds, for every file of the collection, what the machine
// is; a file without an entry fails.
func TestSharedMachines(t *testing.T) {
	pairs := func(ab ...int) [][]int {
		var out [][]int
		for i := 0; i < len(ab); i += 2 {
			out = append(out, []int{ab[i], ab[i+1]})
		}
		return out
	}
	want := map[string]machine{
		"nvidia-smi/b200-8gpu-8nic.txt":              {islands: all(8), nvswitch: true, numa: 2, nics: 8, nearest: []int{0, 1}, switches: []int{0, 0, 1, 1, 2, 2, 3, 3}},
		"nvidia-smi/dgx-a100-8gpu-11nic.txt":         {islands: all(8), nvswitch: true, numa: 4, nics: 11, nearest: []int{0, 1}, switches: []int{0, 0, 1, 1, 2, 2, 3, 3}},
		"nvidia-smi/dgx1-v100-8gpu.txt":              {islands: all(8)},
		"nvidia-smi/gb200-4gpu.txt":                  {islands: all(4), nvswitch: true, numa: 2},
		"nvidia-smi/h100-nvl-8gpu-bridge-pairs.txt":  {islands: pairs(0, 1, 2, 3, 4, 5, 6, 7), numa: 2, nics: 2, nearest: []int{0, 1}},
		"nvidia-smi/l40s-4gpu-2nic.txt":              {islands: alone(4), numa: 2, nics: 2, nearest: []int{0, 1}},
		"nvidia-smi/pcie-switch-pairs-8gpu-6nic.txt": {islands: alone(8), numa: 2, nics: 6, nearest: []int{0}, switches: []int{0, 0, 1, 1, 2, 2, 3, 3}},
		"nvidia-smi/rtx4090-8gpu.txt":                {islands: alone(8), numa: 2},
		"nvidia-smi/rtx8000-4gpu-bridge-pairs.txt":   {islands: pairs(0, 3, 1, 2)},
		"nccl-xml/aws-p4d-24xl.xml":                  {islands: alone(8), numa: 2, nics: 4, nearest: []int{0}, switches: []int{0, 0, 1, 1, 2, 2, 3, 3}, problem: "no NVLink information for 8 of 8 GPUs"},
		"nccl-xml/azure-ncv4.xml":                    {islands: alone(4), numa: 4, problem: "12 links to itself"},
		"nccl-xml/azure-ndv2.xml":                    {islands: alone(8), numa: 2, nics: 1, nearest: []int{0}, problem: "no NVLink information"},
		"nccl-xml/azure-ndv4.xml":                    {islands: alone(8), numa: 4, nics: 8, nearest: []int{0, 1}, switches: []int{0, 0, 1, 1, 2, 2, 3, 3}, problem: "no NVLink information"},
		"nccl-xml/rccl-gfx906-8gpu-8numa.xml":        {islands: [][]int{{0, 2, 3, 5}, {1, 4, 6, 7}}, numa: 6, nics: 1, nearest: []int{0}},
		"nccl-xml/rccl-gfx906-8gpu-pcie.xml":         {islands: alone(8), numa: 1, nics: 2, nearest: []int{0}, switches: []int{0, 0, 0, 0, 1, 1, 1, 1}},
		"nccl-xml/rccl-mi250x-16gcd-8nic.xml":        {islands: all(16), numa: 4, nics: 8, nearest: []int{0, 1}},
		"nccl-xml/rccl-mi300x-8gpu-8nic.xml":         {islands: all(8), numa: 2, nics: 8, nearest: []int{0}, switches: []int{0, 1, 2, 3, 4, 5, 6, 7}},
	}
	if _, err := os.Stat(sharedTopologies); err != nil {
		t.Skipf("the collection of machines is not here: %v", err)
	}
	for _, dir := range []string{"nvidia-smi", "nccl-xml"} {
		files, err := filepath.Glob(filepath.Join(sharedTopologies, dir, "*"))
		if err != nil || len(files) == 0 {
			t.Fatalf("no files in %s: %v", dir, err)
		}
		for _, path := range files {
			name := dir + "/" + filepath.Base(path)
			w, ok := want[name]
			if !ok {
				t.Errorf("%s: no expectation", name)
				continue
			}
			t.Run(name, func(t *testing.T) { checkMachine(t, mustParse(t, path), w) })
		}
	}
}

func checkMachine(t *testing.T, f File, want machine) {
	t.Helper()
	m := f.Matrix
	if d := cmp.Diff(want.islands, m.Islands()); d != "" {
		t.Errorf("islands (-want +got):\n%s", d)
	}
	if m.NVSwitch != want.nvswitch {
		t.Errorf("NVSwitch is %v, want %v", m.NVSwitch, want.nvswitch)
	}
	numa := map[int]bool{}
	var switches []int
	for _, g := range m.GPUs {
		if len(g.NUMA) > 0 {
			numa[g.NUMA[0]] = true
		}
		switches = append(switches, g.Switch)
	}
	if len(numa) != want.numa {
		t.Errorf("%d NUMA nodes, want %d", len(numa), want.numa)
	}
	if want.switches != nil {
		if d := cmp.Diff(want.switches, switches); d != "" {
			t.Errorf("PCIe switches (-want +got):\n%s", d)
		}
	}
	rdma := 0
	for _, n := range m.NICs {
		if n.RDMA {
			rdma++
		}
	}
	if rdma != want.nics {
		t.Errorf("%d RDMA NICs, want %d", rdma, want.nics)
	}
	if d := cmp.Diff(want.nearest, m.NearestNICs(0)); d != "" {
		t.Errorf("NICs nearest to GPU 0 (-want +got):\n%s", d)
	}
	problems := strings.Join(f.Problems, "\n")
	if want.problem == "" && problems != "" || !strings.Contains(problems, want.problem) {
		t.Errorf("problems %q, want %q", problems, want.problem)
	}
}

func TestTabsUnderlinesLegendAndModels(t *testing.T) {
	f := mustParse(t, "testdata/h100-pair-tabs.txt")
	checkMachine(t, f, machine{islands: all(2), numa: 2, nics: 2, nearest: []int{0}})
	want := Matrix{
		GPUs: []GPU{
			{Model: "NVIDIA H100 80GB HBM3", NUMA: []int{0}, CPUs: "0-47,96-143", Switch: 0, NVLinkGeneration: 4},
			{Model: "NVIDIA H100 80GB HBM3", NUMA: []int{1}, CPUs: "48-95,144-191", Switch: 1, NVLinkGeneration: 4},
		},
		NICs:     []NIC{{Name: "mlx5_0", RDMA: true, Switch: 0}, {Name: "mlx5_3", RDMA: true, Switch: 1}},
		Links:    [][]Link{{{Kind: KindSelf}, {KindNVLink, 18, 450}}, {{KindNVLink, 18, 450}, {Kind: KindSelf}}},
		NICPaths: [][]Kind{{KindPIX, KindSys}, {KindSys, KindPIX}},
	}
	if d := cmp.Diff(want, f.Matrix); d != "" {
		t.Errorf("matrix (-want +got):\n%s", d)
	}
}

func TestCubeMeshWithNamedNIC(t *testing.T) {
	f := mustParse(t, "testdata/cube-mesh.txt")
	checkMachine(t, f, machine{islands: all(8), nics: 1, nearest: []int{0}, switches: []int{0, 0, -1, -1, -1, -1, -1, -1}})
	if got := f.Matrix.GPUs[4].CPUs; got != "20-39,60-79" {
		t.Errorf("CPUs of GPU 4 are %q", got)
	}
}

func TestNVSwitchXML(t *testing.T) {
	f := mustParse(t, "testdata/nvswitch.xml")
	checkMachine(t, f, machine{islands: all(2), nvswitch: true, numa: 2, nics: 1, nearest: []int{0}, switches: []int{0, -1}})
	if d := cmp.Diff(Link{KindNVLink, 18, 450}, f.Matrix.Links[0][1]); d != "" {
		t.Errorf("link (-want +got):\n%s", d)
	}
	if got := f.Matrix.GPUs[0].Model; got != "NVIDIA H100 80GB HBM3" {
		t.Errorf("model is %q", got)
	}
	want := []Detail{
		{Vendor: "nvidia", ComputeCapability: "9.0", PCIeGeneration: 5, PCIeWidth: 16},
		{Vendor: "nvidia", ComputeCapability: "9.0", PCIeGeneration: 5, PCIeWidth: 16},
	}
	if d := cmp.Diff(want, f.Details); d != "" {
		t.Errorf("details (-want +got):\n%s", d)
	}
}

func TestSMIVariants(t *testing.T) {
	tests := map[string]struct {
		text    string
		islands [][]int
		numa    [][]int
		problem string
	}{
		"one GPU": {
			text:    "\tGPU0\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\nGPU0\t X \t0-251\t0\t\tN/A\n",
			islands: alone(1), numa: [][]int{{0}},
		},
		"no affinities": {text: "GPU0 GPU1\nGPU0 X NV4\nGPU1 NV4 X\n", islands: all(2), numa: [][]int{nil, nil}},
		"affinity not available": {
			text:    "  GPU0 GPU1 CPU Affinity NUMA Affinity GPU NUMA ID\nGPU0 X PHB 0-7 N/A N/A\nGPU1 PHB X 0-7 N/A N/A\n",
			islands: alone(2), numa: [][]int{nil, nil},
		},
		"gaps in the numbering": {text: "\tGPU0\tGPU3\tCPU Affinity\nGPU0\t X \tNV2\t0\nGPU3\tNV2\t X \t0\n", islands: all(2), numa: [][]int{nil, nil}},
		"CPU affinity empty": {
			text:    "\tGPU0\tGPU1\tNIC0\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\nGPU0\t X \tNV4\tNODE\t0\t0\t\tN/A\nGPU1\tNV4\t X \tNODE\t\t1\t\tN/A\nNIC0\tNODE\tNODE\t X \t\t\n",
			islands: all(2), numa: [][]int{{0}, {1}},
		},
		"more tabs than titles": {
			text:    "\t\tGPU0\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\nGPU0\t X \t0-7\t\t3\t\tN/A\n",
			islands: alone(1), numa: [][]int{{3}},
		},
		"memory-only NUMA nodes": {
			text:    "\tGPU0\tmlx5_0\tCPU Affinity\tNUMA Affinity\nGPU0\t X \tSYS\t0-3\t0,8,252-255\nmlx5_0\tSYS\t X \t\t\n",
			islands: alone(1), numa: [][]int{{0, 8, 252, 253, 254, 255}},
		},
		"cells glued together": {
			text:    "  GPU0  GPU1  NIC0  NIC1  CPU Affinity\nGPU0  X  NV18NODEPIX  0-3\nGPU1  NV18  X  SYSSYS  0-3\n",
			islands: all(2), numa: [][]int{nil, nil},
		},
		"NICs of any name": {
			text:    "\tGPU0\tGPU1\tirdma0\tibp24s0\tmlx5_bond_0\tCPU Affinity\tNUMA Affinity\nGPU0\t X \tNV4\tPIX\tSYS\tSYS\t0-3\t0\nGPU1\tNV4\t X \tSYS\tPIX\tSYS\t4-7\t1\n",
			islands: all(2), numa: [][]int{{0}, {1}},
		},
		"prompt and legend around": {
			text:    "$ nvidia-smi topo -m\n\tGPU0\tGPU1\tCPU Affinity\r\nGPU0\t X \tSOC\t0-3\r\nGPU1\tSOC\t X \t4-7\r\n\nLegend:\n  X    = Self\n  SYS  = GPU0 GPU1\n$ \n",
			islands: alone(2), numa: [][]int{nil, nil},
		},
		"one-sided link": {
			text:    "\tGPU0\tGPU1\tCPU Affinity\nGPU0\t X \tNV4\nGPU1\tSYS\t X \n",
			islands: alone(2), numa: [][]int{nil, nil}, problem: "GPU0 and GPU1 are joined by NV4 one way and SYS the other; taken as SYS",
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			f, err := Parse([]byte(tt.text))
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(tt.islands, f.Matrix.Islands()); d != "" {
				t.Errorf("islands (-want +got):\n%s", d)
			}
			var numa [][]int
			for _, g := range f.Matrix.GPUs {
				numa = append(numa, g.NUMA)
			}
			if d := cmp.Diff(tt.numa, numa); d != "" {
				t.Errorf("NUMA (-want +got):\n%s", d)
			}
			if got := strings.Join(f.Problems, "\n"); got != tt.problem {
				t.Errorf("problems %q, want %q", got, tt.problem)
			}
		})
	}
}

func TestXMLVariants(t *testing.T) {
	gpu := func(bus, inner string) string {
		return `<pci busid="` + bus + `" class="0x030200" vendor="0x10de" device="0x20b2" link_speed="16 GT/s" link_width="16"><gpu dev="` +
			bus[5:7] + `" sm="80">` + inner + `</gpu></pci>`
	}
	system := func(cpus ...string) string { return "<system>" + strings.Join(cpus, "") + "</system>" }
	tests := map[string]struct {
		xml     string
		islands [][]int
		kind    string // of the link 0-1
		problem string
	}{
		"bridge pair, listed by one": {
			xml:     system(`<cpu numaid="0">`, gpu("0000:01:00.0", `<nvlink target="0000:02:00.0" count="4" tclass="0x030200"/>`), gpu("0000:02:00.0", ""), `</cpu>`),
			islands: all(2), kind: "NV4", problem: "GPU 0 lists 4 links to GPU 1, which lists 0 back",
		},
		"target in upper case with eight digits": {
			xml: system(`<cpu numaid="0">`, gpu("0000:0a:00.0", `<nvlink target="00000000:0B:00.0" count="4" tclass="0x030200"/>`),
				gpu("0000:0b:00.0", `<nvlink target="0000:0A:00.0" count="4" tclass="0x030200"/>`), `</cpu>`),
			islands: all(2), kind: "NV4",
		},
		"target not in the file": {
			xml:     system(`<cpu numaid="0">`, gpu("0000:01:00.0", `<nvlink target="0000:07:00.0" count="4" tclass="0x030200"/>`), gpu("0000:02:00.0", ""), `</cpu>`),
			islands: alone(2), kind: "PHB", problem: `GPU 0 lists 4 links to "0000:07:00.0", which is not in the file`,
		},
		"CPU links are no island": {
			xml: system(`<cpu numaid="0">`, gpu("0000:01:00.0", `<nvlink target="0000:f0:00.0" count="3" tclass="0x068001"/>`),
				gpu("0000:02:00.0", `<nvlink target="0000:f0:00.0" count="3" tclass="0x068001"/>`), `</cpu>`),
			islands: alone(2), kind: "PHB",
		},
		"one GPU without its links to the switches": {
			xml: system(`<cpu numaid="0">`, gpu("0000:01:00.0", `<nvlink target="fffffff:ff:ff.0" count="18" tclass="0x068000"/>`),
				gpu("0000:02:00.0", `<c2c bw="44712" count="5"/>`), `</cpu>`),
			islands: alone(2), kind: "PHB", problem: "GPU 1 lists no NVLinks to the switches that other GPUs are joined by",
		},
		"several hosts": {
			xml: system(`<cpu host_hash="0x1" numaid="0">`, gpu("0000:01:00.0", ""), gpu("0000:02:00.0", ""), `</cpu><cpu host_hash="0x2" numaid="0">`,
				gpu("0000:01:00.0", ""), `</cpu>`),
			islands: alone(2), kind: "PHB", problem: "the file describes 2 hosts; only the first one is taken",
		},
		"device numbers give the order": {
			xml:     system(`<cpu numaid="1">`, gpu("0000:02:00.0", ""), `</cpu><cpu numaid="0">`, gpu("0000:01:00.0", ""), `</cpu>`),
			islands: alone(2), kind: "SYS",
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			f, err := Parse([]byte(tt.xml))
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(tt.islands, f.Matrix.Islands()); d != "" {
				t.Errorf("islands (-want +got):\n%s", d)
			}
			if got := f.Matrix.Links[0][1].String(); got != tt.kind {
				t.Errorf("link is %s, want %s", got, tt.kind)
			}
			if got := strings.Join(f.Problems, "\n"); got != tt.problem {
				t.Errorf("problems %q, want %q", got, tt.problem)
			}
			if f.Matrix.GPUs[0].BusID > f.Matrix.GPUs[1].BusID {
				t.Errorf("GPU 0 is %s, GPU 1 is %s", f.Matrix.GPUs[0].BusID, f.Matrix.GPUs[1].BusID)
			}
		})
	}
}

func TestParseLoneGPU(t *testing.T) {
	for name, text := range map[string]string{
		"no titles":         "\tGPU0\nGPU0\t X \n",
		"a word before":     "GPU0\n\tGPU0\tCPU Affinity\nGPU0\t X \t0-7\n",
		"the word and more": "GPU0\nGPU0\tGPU1\nGPU0\t X \tNV4\nGPU1\tNV4\t X \n",
	} {
		t.Run(name, func(t *testing.T) {
			f, err := Parse([]byte(text))
			if err != nil || len(f.Matrix.Islands()) != 1 {
				t.Errorf("Parse() = %v islands, %v; want one", f.Matrix.Islands(), err)
			}
		})
	}
}

func TestParseSaysDivided(t *testing.T) {
	f, err := Parse([]byte("GPU 0: NVIDIA A100 (UUID: GPU-1)\n  MIG 3g.20gb     Device  0: (UUID: MIG-1)\n  MIG 3g.20gb     Device  1: (UUID: MIG-2)\n\tGPU0\tCPU Affinity\nGPU0\t X \t0-7\n"))
	if err != nil || len(f.Problems) != 1 || !strings.Contains(f.Problems[0], "GPU0 is divided into MIG instances") {
		t.Errorf("Parse() has problems %q, %v; want one on GPU0", f.Problems, err)
	}
}

func TestParseRefuses(t *testing.T) {
	deep := strings.Repeat(`<pci busid="0000:01:00.0" class="0x060400">`, 70) + strings.Repeat("</pci>", 70)
	tests := map[string]struct{ text, want string }{
		"nothing":           {"", "it is empty"},
		"blank":             {" \n\t", "it is empty"},
		"prose":             {"hello\nworld\n", "no line names GPU0"},
		"row missing":       {"GPU0 GPU1 CPU Affinity\nGPU0 X NV1\n", "the row of GPU1 is missing"},
		"row cut off":       {"GPU0 GPU1 CPU Affinity\nGPU0 X NV1\nGPU1 NV1\n", "row GPU1 has 1 links for 2 devices"},
		"unknown link":      {"GPU0 GPU1 CPU Affinity\nGPU0 X OK\nGPU1 OK X\n", `row GPU0, column GPU1: unknown link "OK"`},
		"no diagonal":       {"GPU0 GPU1\nGPU0 NV1 NV1\nGPU1 NV1 X\n", "row GPU0, column GPU0"},
		"column twice":      {"GPU0 GPU0\nGPU0 X X\n", "the header names GPU0 twice"},
		"too many links":    {"GPU0 GPU1\nGPU0 X NV999\nGPU1 NV999 X\n", `unknown link "NV999"`},
		"affinity no list":  {"GPU0 CPU Affinity\nGPU0 X 0-\n", "row GPU0, CPU Affinity"},
		"affinity huge":     {"GPU0 CPU Affinity\nGPU0 X 0-999999999\n", "row GPU0, CPU Affinity"},
		"XML cut off":       {"<system><cpu numaid='0'>", "read XML"},
		"another XML":       {"<graphs/>", "root is <graphs>"},
		"bad NUMA":          {"<system><cpu numaid='x'/></system>", `numaid="x"`},
		"bad mask":          {"<system><cpu affinity='zz'/></system>", "hexadecimal"},
		"GPU without bus":   {"<system><cpu><pci class='0x030200'/></cpu></system>", "PCI bus ID"},
		"GPU twice":         {"<system><cpu><pci busid='0000:01:00.0' class='0x030200'/><pci busid='00000000:01:00.0' class='0x030200'/></cpu></system>", "two GPUs have the bus ID"},
		"bad count":         {"<system><cpu><pci busid='0000:01:00.0'><gpu><nvlink target='x' count='-1'/></gpu></pci></cpu></system>", "count"},
		"bridges very deep": {"<system><cpu>" + deep + "</cpu></system>", "more than 64 bridges"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := Parse([]byte(tt.text))
			if !errors.Is(err, ErrFile) || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v, want %q", err, tt.want)
			}
		})
	}
}
