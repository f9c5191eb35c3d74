package topology

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// drawMatrix draws any valid matrix.
func drawMatrix(t *rapid.T) Matrix {
	n, nics := rapid.IntRange(0, 18).Draw(t, "gpus"), rapid.IntRange(0, 12).Draw(t, "nics")
	m := Empty(n, nics)
	kinds := []Kind{KindUnknown, KindPIX, KindPXB, KindPHB, KindNode, KindSys}
	link := rapid.Custom(func(t *rapid.T) Link {
		l := Link{Kind: rapid.SampledFrom(append(kinds, KindNVLink, KindXGMI)).Draw(t, "kind"), GBs: rapid.Float64Range(0, 1e6).Draw(t, "gbs")}
		if l.Kind.Fast() {
			l.Count = rapid.IntRange(1, maxLinkCount).Draw(t, "count")
		}
		return l
	})
	bus := rapid.Custom(func(t *rapid.T) string {
		if rapid.Bool().Draw(t, "none") {
			return ""
		}
		return formatBusID(rapid.Uint64Range(0, 1<<48-1).Draw(t, "bus"))
	})
	for i := range n {
		m.GPUs[i] = GPU{
			UUID: rapid.SampledFrom([]string{
				fmt.Sprintf("GPU-%08x-0123-4567-89ab-cdef00112233", i), fmt.Sprintf("MIG-%08x-0123-4567-89ab-cdef00112233", i), fmt.Sprintf("0x%d\n", i),
			}).Draw(t, "uuid"),
			BusID: bus.Draw(t, "bus"), Model: rapid.String().Draw(t, "model"), CPUs: rapid.String().Draw(t, "cpus"),
			Switch: rapid.IntRange(-1, MaxGPUs-1).Draw(t, "switch"), NVLinkGeneration: rapid.IntRange(0, 255).Draw(t, "generation"),
			Fabric: Fabric{ClusterUUID: rapid.String().Draw(t, "cluster"), CliqueID: rapid.Uint32().Draw(t, "clique")},
		}
		for v, step := range rapid.SliceOfN(rapid.IntRange(1, 9), 0, 5).Draw(t, "numa") {
			m.GPUs[i].NUMA = append(m.GPUs[i].NUMA, v*10+step)
		}
		for j := range i {
			m.SetLink(i, j, link.Draw(t, "link"))
		}
		for j := range nics {
			m.NICPaths[i][j] = rapid.SampledFrom(kinds).Draw(t, "path")
		}
	}
	for i := range nics {
		m.NICs[i] = NIC{
			Name: rapid.String().Draw(t, "name"), BusID: bus.Draw(t, "bus"), RDMA: rapid.Bool().Draw(t, "rdma"),
			SpeedMbps: rapid.IntRange(0, 1<<31-1).Draw(t, "speed"), Switch: rapid.IntRange(-1, MaxGPUs-1).Draw(t, "switch"),
		}
	}
	m.NVSwitch = rapid.Bool().Draw(t, "nvswitch")
	return m
}

func TestAttributeRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := drawMatrix(t)
		s, err := Encode(want)
		if err != nil {
			t.Fatalf("encode: %v", err)
		}
		got, err := Decode(s)
		if err != nil {
			t.Fatalf("decode: %v", err)
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Fatalf("round trip (-want +got):\n%s", d)
		}
		// Nothing that is cut off may pass for something else.
		if cut := rapid.IntRange(0, len(s)-1).Draw(t, "cut"); cut >= 0 {
			if _, err := Decode(s[:cut]); !errors.Is(err, ErrAttribute) {
				t.Fatalf("cut to %d of %d characters: error %v", cut, len(s), err)
			}
		}
	})
}

func withUUIDs(m Matrix) Matrix {
	for i := range m.GPUs {
		// Random-looking digits, as real ones are: they do not compress.
		h := fmt.Sprintf("%016x%016x", 0x9e3779b97f4a7c15*uint64(i+1), 0xc2b2ae3d27d4eb4f*uint64(i+7))
		m.GPUs[i].UUID = fmt.Sprintf("GPU-%s-%s-%s-%s-%s", h[:8], h[8:12], h[12:16], h[16:20], h[20:])
	}
	return m
}

// TestAttributeSize: the attribute is stored for every node and sent with
// every update of one.
func TestAttributeSize(t *testing.T) {
	if _, err := os.Stat(sharedTopologies); err != nil {
		t.Skipf("the collection of machines is not here: %v", err)
	}
	files, _ := filepath.Glob(filepath.Join(sharedTopologies, "n*", "*"))
	for _, path := range files {
		m := withUUIDs(mustParse(t, path).Matrix)
		s, err := Encode(m)
		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		if limit := 150 + 60*len(m.GPUs); len(s) > limit {
			t.Errorf("%s: %d characters for %d GPUs and %d NICs, want at most %d", filepath.Base(path), len(s), len(m.GPUs), len(m.NICs), limit)
		}
		t.Logf("%-36s %2d GPUs %2d NICs: %4d characters", filepath.Base(path), len(m.GPUs), len(m.NICs), len(s))
	}
}

func TestEncodeRefuses(t *testing.T) {
	two := func(change func(*Matrix)) Matrix {
		m := withUUIDs(Empty(2, 1))
		change(&m)
		return m
	}
	tests := map[string]struct {
		m    Matrix
		want []string
	}{
		"no UUID":     {Empty(1, 0), []string{"GPU 0 has no UUID"}},
		"same UUID":   {two(func(m *Matrix) { m.GPUs[1].UUID = m.GPUs[0].UUID }), []string{"GPU 1 has the UUID"}},
		"asymmetric":  {two(func(m *Matrix) { m.Links[0][1] = Link{Kind: KindSys} }), []string{"link 0-1 is SYS one way"}},
		"every fault": {two(func(m *Matrix) { m.GPUs[0].BusID = "x"; m.GPUs[1].NUMA = []int{3, 1}; m.NICs[0].Switch = -2 }), []string{`"x"`, "[3 1]", "-2"}},
		"short rows":  {two(func(m *Matrix) { m.Links = m.Links[:1] }), []string{"1 rows of links for 2 GPUs"}},
		"NIC path":    {two(func(m *Matrix) { m.NICPaths[0][0] = KindNVLink }), []string{`path of GPU 0 to NIC 0 is "NV"`}},
		"too many":    {Empty(MaxGPUs+1, 0), []string{"129 GPUs"}},
		"no count":    {two(func(m *Matrix) { m.SetLink(0, 1, Link{Kind: KindNVLink}) }), []string{"0 links"}},
		"NaN":         {two(func(m *Matrix) { m.SetLink(0, 1, Link{Kind: KindPIX, GBs: -1}) }), []string{"-1 GB/s"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := Encode(tt.m)
			if !errors.Is(err, ErrInvalid) {
				t.Fatalf("error %v", err)
			}
			for _, want := range tt.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("error %q lacks %q", err, want)
				}
			}
		})
	}
}

func TestDecodeRefuses(t *testing.T) {
	good, err := Encode(withUUIDs(Empty(8, 2)))
	if err != nil {
		t.Fatal(err)
	}
	flipped := []byte(good)
	flipped[len(flipped)/2] ^= 1
	tests := map[string]struct{ s, want string }{
		"nothing":       {"", `does not start with "ct1."`},
		"other version": {"ct2.AAAA", `format "ct2"`},
		"not base64":    {"ct1.!!!!", "base64"},
		"only a prefix": {"ct1.", "truncated"},
		"cut off":       {good[:len(good)-4], "truncated"},
		"longer":        {good + "AAAA", "bytes too long"},
		"changed":       {string(flipped), ""},
		"very long":     {"ct1." + strings.Repeat("A", maxAttributeBytes), "at most"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := Decode(tt.s)
			if !errors.Is(err, ErrAttribute) || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v, want %q", err, tt.want)
			}
		})
	}
}

func FuzzDecode(f *testing.F) {
	for _, name := range []string{"h100-pair-tabs.txt", "cube-mesh.txt", "nvswitch.xml"} {
		data, err := os.ReadFile(filepath.Join("testdata", name))
		if err != nil {
			f.Fatal(err)
		}
		file, err := Parse(data)
		if err != nil {
			f.Fatal(err)
		}
		s, err := Encode(withUUIDs(file.Matrix))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(s)
		f.Add(s[:len(s)/2])
	}
	f.Add("ct1.")
	f.Fuzz(func(t *testing.T, s string) {
		m, err := Decode(s)
		if err != nil {
			if !errors.Is(err, ErrAttribute) {
				t.Fatalf("error %v", err)
			}
			return
		}
		checkStable(t, m)
	})
}

// FuzzDecodePayload goes past the checksum, which random input cannot.
func FuzzDecodePayload(f *testing.F) {
	f.Add(encodePayload(withUUIDs(Empty(3, 1))))
	f.Add([]byte{0xff, 0xff, 0xff, 0xff, 0x0f})
	f.Fuzz(func(t *testing.T, payload []byte) {
		m, err := decodePayload(payload)
		if err != nil || m.Validate() != nil {
			return
		}
		checkStable(t, m)
	})
}

func checkStable(t *testing.T, m Matrix) {
	m.Islands()
	if n := len(m.GPUs); n <= 10 {
		gpus := make([]int, n)
		for i := range gpus {
			gpus[i] = i
		}
		if got := m.Order(gpus); !slices.Equal(slices.Sorted(slices.Values(got)), gpus) {
			t.Fatalf("order %v is no permutation of %d GPUs", got, n)
		}
	}
	for i := range m.GPUs {
		m.NearestNICs(i)
		if m.GPUs[i].UUID == "" {
			return
		}
	}
	s, err := Encode(m)
	if err != nil {
		t.Fatalf("encode what was decoded: %v", err)
	}
	again, err := Decode(s)
	if err != nil {
		t.Fatalf("decode what was encoded: %v", err)
	}
	if d := cmp.Diff(m, again); d != "" {
		t.Fatalf("second round (-first +second):\n%s", d)
	}
}

func FuzzParse(f *testing.F) {
	for _, name := range []string{"h100-pair-tabs.txt", "cube-mesh.txt", "nvswitch.xml"} {
		data, err := os.ReadFile(filepath.Join("testdata", name))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		file, err := Parse(data)
		if err != nil {
			return
		}
		m := file.Matrix
		if err := m.Validate(); err != nil {
			t.Fatalf("parsed but not valid: %v", err)
		}
		if len(file.Details) != len(m.GPUs) {
			t.Fatalf("%d details for %d GPUs", len(file.Details), len(m.GPUs))
		}
		if len(m.GPUs) <= 16 {
			checkStable(t, withUUIDs(m))
		}
	})
}
