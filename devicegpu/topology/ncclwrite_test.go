package topology

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

// drawTree draws a machine that PCIe can hold: NUMA nodes, switches of one or
// two levels below them, and GPUs and cards on their ports. NVLinks lie over
// it: none, through switches, or between GPUs.
func drawTree(t *rapid.T) (Matrix, []Detail) {
	type spot struct{ numa, group, leaf int }
	var spots []spot
	group := 0
	for numa := range rapid.IntRange(1, 3).Draw(t, "numa nodes") {
		for range rapid.IntRange(1, 3).Draw(t, "groups") {
			for leaf := range rapid.IntRange(1, 2).Draw(t, "leaves") {
				for range rapid.IntRange(1, 3).Draw(t, "GPUs") {
					spots = append(spots, spot{numa, group, leaf})
				}
			}
			group++
		}
	}
	spots = rapid.Permutation(spots).Draw(t, "order")
	cards := rapid.IntRange(0, 3).Draw(t, "cards")
	m, details := Empty(len(spots), cards), make([]Detail, len(spots))
	path := func(a, b spot) Kind {
		switch {
		case a.numa != b.numa:
			return KindSys
		case a.group != b.group:
			return rapid.SampledFrom([]Kind{KindPHB, KindNode}).Draw(t, "bridge")
		case a.leaf != b.leaf:
			return KindPXB
		}
		return KindPIX
	}
	for n := range m.NICs {
		at := rapid.SampledFrom(spots).Draw(t, "card")
		m.NICs[n] = NIC{Name: "mlx5", BusID: formatBusID(uint64(0x100+n) << 8), RDMA: true, Switch: -1}
		for i := range spots {
			m.NICPaths[i][n] = path(spots[i], at)
		}
	}
	for i, s := range spots {
		m.GPUs[i].BusID, m.GPUs[i].NUMA = formatBusID(uint64(i+1)<<8), []int{s.numa}
		m.GPUs[i].CPUs = FormatList([]int{s.numa * 40, s.numa*40 + 1})
		details[i] = Detail{Vendor: "nvidia", ComputeCapability: "9.0", PCIeGeneration: 5, PCIeWidth: 16}
		for j := range i {
			m.SetLink(i, j, Link{Kind: path(s, spots[j])})
		}
	}
	m.GroupSwitches()
	switch rapid.IntRange(0, 2).Draw(t, "NVLink") {
	case 1:
		m.NVSwitch = len(spots) > 1
		for i := range spots {
			for j := range i {
				m.SetLink(i, j, Link{Kind: KindNVLink, Count: 18})
			}
		}
	case 2:
		for i := 1; i < len(spots); i += 2 {
			m.SetLink(i, i-1, Link{Kind: KindNVLink, Count: 1 + i%4})
		}
	}
	return m, details
}

// TestWriteNCCLProperty: the file says what the matrix says of the GPUs.
func TestWriteNCCLProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m, details := drawTree(t)
		if err := m.Validate(); err != nil {
			t.Fatal(err)
		}
		all := make([]int, len(m.GPUs))
		for i := range all {
			all[i] = i
		}
		gpus := rapid.Permutation(all).Draw(t, "granted")[:rapid.IntRange(1, len(all)).Draw(t, "count")]
		text, err := WriteNCCL(m, details, gpus)
		if err != nil {
			t.Fatal(err)
		}
		f, err := Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		got := make([]int, len(gpus)) // places in the file, in the order granted
		for k, i := range gpus {
			got[k] = slices.IndexFunc(f.Matrix.GPUs, func(g GPU) bool { return g.BusID == m.GPUs[i].BusID })
			if got[k] < 0 {
				t.Fatalf("GPU %d is not in the file", i)
			}
			if d := cmp.Diff(details[i], f.Details[got[k]]); d != "" {
				t.Fatalf("details (-want +got):\n%s", d)
			}
		}
		want, read := m.Subset(gpus), f.Matrix.Subset(got)
		if len(want.GPUs) > 1 && want.NVSwitch != read.NVSwitch {
			t.Fatalf("NVSwitch %v, want %v", read.NVSwitch, want.NVSwitch)
		}
		for a := range want.GPUs {
			if want.GPUs[a].CPUs != read.GPUs[a].CPUs || !slices.Equal(want.GPUs[a].NUMA, read.GPUs[a].NUMA) {
				t.Fatalf("GPU %d is at %v, CPUs %s; want %v, %s", a, read.GPUs[a].NUMA, read.GPUs[a].CPUs, want.GPUs[a].NUMA, want.GPUs[a].CPUs)
			}
			for b := range want.GPUs {
				if x, y := want.Links[a][b], read.Links[a][b]; sameInNCCL(x.Kind) != sameInNCCL(y.Kind) || x.Count != y.Count {
					t.Fatalf("link %d-%d is %s, want %s\n%s", a, b, y, x, text)
				}
			}
			for n, nic := range want.NICs {
				at := slices.IndexFunc(read.NICs, func(x NIC) bool { return x.BusID == nic.BusID })
				if at < 0 {
					if want.NICPaths[a][n] != KindSys {
						t.Fatalf("card %d, at %s, is not in the file", n, want.NICPaths[a][n])
					}
					continue
				}
				if x, y := want.NICPaths[a][n], read.NICPaths[a][at]; sameInNCCL(x) != sameInNCCL(y) {
					t.Fatalf("path of GPU %d to card %d is %s, want %s\n%s", a, n, y, x, text)
				}
			}
		}
		if !slices.EqualFunc(want.Islands(), read.Islands(), slices.Equal) {
			t.Fatalf("islands %v, want %v", read.Islands(), want.Islands())
		}
	})
}

func TestWriteNCCLRefuses(t *testing.T) {
	m := Empty(2, 0)
	details := make([]Detail, 2)
	m.GPUs[0].BusID, m.GPUs[1].BusID = "0000:01:00.0", "0000:02:00.0"
	m.GPUs[0].NUMA, m.GPUs[1].NUMA = []int{0}, []int{1}
	m.SetLink(0, 1, Link{Kind: KindSys})
	if _, err := WriteNCCL(m, details, []int{0, 1}); err != nil {
		t.Fatal(err)
	}
	tests := map[string]struct {
		change func(*Matrix)
		gpus   []int
		want   string
	}{
		"no GPUs":        {func(*Matrix) {}, nil, "0 GPUs"},
		"no address":     {func(m *Matrix) { m.GPUs[1].BusID = "" }, []int{0, 1}, "PCI address of GPU 1"},
		"unknown path":   {func(m *Matrix) { m.SetLink(0, 1, Link{}) }, []int{0, 1}, "how GPU 0 reaches GPU 1"},
		"no tree has it": {func(m *Matrix) { m.SetLink(0, 1, Link{Kind: KindPHB}) }, []int{0, 1}, "joined by PHB, which NCCL would take for SYS"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			x := m.Subset([]int{0, 1})
			tt.change(&x)
			_, err := WriteNCCL(x, details, tt.gpus)
			if !errors.Is(err, ErrNoNCCL) || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v, want %q", err, tt.want)
			}
		})
	}
}

// TestWriteNCCLOfSharedTopologies: every machine of the collection either has a
// file, or a reason.
func TestWriteNCCLOfSharedTopologies(t *testing.T) {
	files, _ := filepath.Glob("../../../shared/topologies/n*/*")
	if len(files) == 0 {
		t.Skip("the collection of machines is not here")
	}
	written := 0
	for _, path := range files {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		f, err := Parse(data)
		if err != nil {
			t.Fatal(err)
		}
		all := make([]int, len(f.Matrix.GPUs))
		for i := range all {
			all[i] = i
		}
		text, err := WriteNCCL(f.Matrix, f.Details, all)
		if err != nil {
			if !errors.Is(err, ErrNoNCCL) {
				t.Errorf("%s: %v", path, err)
			}
			continue
		}
		written++
		if again, err := WriteNCCL(f.Matrix, f.Details, all); err != nil || string(again) != string(text) {
			t.Errorf("%s: written twice, %v:\n%s\n%s", path, err, text, again)
		}
	}
	if written < 4 {
		t.Errorf("only %d of %d machines have a file", written, len(files))
	}
}

func TestFormatMask(t *testing.T) {
	for cpus, want := range map[string]string{"": "", "x": "", "0-3": "0000000f", "31,32": "00000001,80000000"} {
		if got := formatMask(cpus); got != want {
			t.Errorf("mask of %q is %q, want %q", cpus, got, want)
		}
		if back, err := parseMask(want); cpus != "x" && (err != nil || back != FormatList(mustList(t, cpus))) {
			t.Errorf("mask %q reads as %q, %v", want, back, err)
		}
	}
}

func mustList(t *testing.T, s string) []int {
	t.Helper()
	list, err := ParseList(s)
	if err != nil {
		t.Fatal(err)
	}
	return list
}
