package topology

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func TestLists(t *testing.T) {
	tests := map[string]struct {
		in   string
		want []int
		text string
	}{
		"empty":    {"", nil, ""},
		"N/A":      {"N/A", nil, ""},
		"ranges":   {"0,3-5,11", []int{0, 3, 4, 5, 11}, "0,3-5,11"},
		"unsorted": {"8-9, 1,8", []int{1, 8, 9}, "1,8-9"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := ParseList(tt.in)
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(tt.want, got); d != "" {
				t.Errorf("list (-want +got):\n%s", d)
			}
			if s := FormatList(got); s != tt.text {
				t.Errorf("text %q, want %q", s, tt.text)
			}
		})
	}
	for _, bad := range []string{"x", "1-", "-1", "5-3", "0-99999999999999999999", "1,,2"} {
		if got, err := ParseList(bad); err == nil {
			t.Errorf("%q is read as %v", bad, got)
		}
	}
}

func TestMask(t *testing.T) {
	got, err := parseMask("00000000,000000ff,ffffffff,ffff0000,00000000,00ffffff,ffffffff")
	if err != nil || got != "0-55,112-167" {
		t.Errorf("mask is %q, %v", got, err)
	}
}

func TestBusIDs(t *testing.T) {
	tests := map[string]string{
		"0000:18:00.0": "0000:18:00.0", "00000000:AB:00.0": "0000:ab:00.0", "18:00.0": "0000:18:00.0",
		"0001:00:00.0": "0001:00:00.0", "10000:1f:1f.7": "10000:1f:1f.7",
		"0000:18:00": "0000:18:00.0", "": "", "18": "", "0000:18:20.0": "", "0000:18:00.8": "", "000000000:18:00.0": "",
	}
	for in, want := range tests {
		if got, err := NormalizeBusID(in); got != want || (err == nil) != (want != "") {
			t.Errorf("%q is %q, %v; want %q", in, got, err, want)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.Uint64Range(0, 1<<48-1).Draw(t, "n")
		if got := packBusID(formatBusID(n)); got != n {
			t.Fatalf("%#x comes back as %#x", n, got)
		}
	})
}

func TestBandwidth(t *testing.T) {
	// Per direction: half of what the product pages add up for both.
	for generation, want := range map[int]float64{1: 80, 2: 150, 3: 300, 4: 450, 5: 900, 6: 1800} {
		links := map[int]float64{1: 4, 2: 6, 3: 12, 4: 18, 5: 18, 6: 36}[generation]
		if got := NVLinkGBs(generation) * links; got != want {
			t.Errorf("NVLink %d: %g GB/s a GPU, want %g", generation, got, want)
		}
	}
	if got := PCIeGBs(4, 16); got < 31.5 || got > 31.6 {
		t.Errorf("PCIe 4 x16: %g GB/s", got)
	}
	last := PCIeGBs(5, 16) + 1
	for _, kind := range []Kind{KindPIX, KindPHB, KindSys, KindUnknown} {
		got := PathGBs(kind, PCIeGBs(5, 16))
		if got >= last {
			t.Errorf("%q has %g GB/s, the nearer kind %g", kind, got, last)
		}
		last = got
	}
}

func TestNVLinkGenerationByModel(t *testing.T) {
	for model, want := range map[string]string{
		"NVIDIA H100 80GB HBM3": "9.0", "Tesla V100-SXM2-16GB": "7.0", "NVIDIA A100-SXM4-40GB": "8.0", "Quadro RTX 8000": "7.5",
		"NVIDIA RTX A6000": "8.6", "NVIDIA B200": "10.0", "NVIDIA GH200 480GB": "9.0", "Something new": "",
	} {
		if got := modelCapability(model); got != want {
			t.Errorf("%s: %q, want %q", model, got, want)
		}
	}
}

func TestLinkJSON(t *testing.T) {
	got, err := json.Marshal([]Link{{KindNVLink, 18, 450}, {Kind: KindSelf}, {}})
	if want := `[{"kind":"NV18","gb_s":450},{"kind":"X"},{"kind":"?"}]`; err != nil || string(got) != want {
		t.Errorf("%s, %v; want %s", got, err, want)
	}
}

func TestSubset(t *testing.T) {
	m := mustParse(t, "testdata/cube-mesh.txt").Matrix
	s := m.Subset([]int{6, 1, 2})
	if err := s.Validate(); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff([][]int{{0, 1, 2}}, s.Islands()); d != "" {
		t.Errorf("islands (-want +got):\n%s", d)
	}
	if s.Links[0][1] != m.Links[6][1] || s.NICPaths[2][0] != m.NICPaths[2][0] {
		t.Errorf("links or paths are not those of the GPUs taken")
	}
}
