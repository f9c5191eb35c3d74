package nvml

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestSimulatedMIG(t *testing.T) {
	open := func(seed string) Inventory {
		s, err := Open(Spec{Source: "mock:dgxa100", Seed: seed, MIG: []string{"0:3g.20gb,3g.20gb", "5:7g.40gb", "9:1g.5gb"}})
		if err != nil {
			t.Fatal(err)
		}
		inv, err := s.Inventory()
		if err != nil {
			t.Fatal(err)
		}
		return inv
	}
	inv := open("node1")
	if len(inv.Problems) != 1 || !strings.Contains(inv.Problems[0], "no GPU 9") {
		t.Errorf("problems %q", inv.Problems)
	}
	want := Instance{Model: "NVIDIA A100-SXM4-40GB MIG 3g.20gb", Profile: "3g.20gb", GPUInstance: 2, MemoryMiB: ptr(uint64(20480)), Slices: ptr(uint64(3))}
	got := inv.GPUs[0].Instances[1]
	uuid := got.UUID
	got.UUID = ""
	if d := cmp.Diff(want, got); d != "" || !strings.HasPrefix(uuid, "MIG-") {
		t.Errorf("%s (-want +got):\n%s", uuid, d)
	}
	for i, n := range []int{2, 0, 0, 0, 0, 1} {
		if len(inv.GPUs[i].Instances) != n || inv.GPUs[i].Divided() != (n > 0) {
			t.Errorf("GPU %d has %d instances, want %d", i, len(inv.GPUs[i].Instances), n)
		}
	}
	seen := map[string]bool{}
	for _, seed := range []string{"node1", "node2"} {
		for _, g := range open(seed).GPUs {
			for _, inst := range g.Instances {
				if seen[inst.UUID] {
					t.Errorf("%s is there twice", inst.UUID)
				}
				seen[inst.UUID] = true
			}
		}
	}
	if !seen[uuid] {
		t.Errorf("the UUID changes")
	}
}

func TestParseMIGTellsEveryFault(t *testing.T) {
	_, err := ParseMIG([]string{"x", "0:3g.20gb,4g", "0:1g.5gb", "1:4g.20gb,4g.20gb"})
	for _, want := range []string{`mock_mig[0] = "x"`, `"4g" is no profile`, "GPU 0 is divided twice", "8 slices, and a GPU has 7"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v lacks %q", err, want)
		}
	}
	if _, err := Open(Spec{Source: SourceNVML, MIG: []string{"0:1g.5gb"}}); err == nil || !strings.Contains(err.Error(), "are real") {
		t.Errorf("error %v", err)
	}
}

func TestSimulatedFaults(t *testing.T) {
	path := filepath.Join(t.TempDir(), "faults")
	s, err := Open(Spec{Source: "mock:dgxh100", Seed: "x", Faults: path})
	if err != nil {
		t.Fatal(err)
	}
	before, err := s.Inventory() // no file, no faults
	if err != nil {
		t.Fatal(err)
	}
	text := "0 lost\n1 silent # with a reason\n\n2 ecc 4\n3 sram\n3 remap_pending\n3 remap_failed\n3 retired_pending\n3 mig_pending\n4 fabric\n5 nvlink 2\n6 xid 79\n99 lost\nnonsense\n"
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	inv, err := s.Inventory()
	if err != nil {
		t.Fatal(err)
	}
	want := make([]Health, len(before.GPUs))
	for i, g := range before.GPUs {
		want[i] = g.Health
	}
	yes := ptr(true)
	want[0] = Health{Lost: "the GPU has fallen off the bus"}
	want[1] = Health{Silent: "NVML error 999"}
	want[2].UncorrectedVolatile = ptr(uint64(4))
	want[3].SRAMThreshold, want[3].RemapPending, want[3].RemapFailed, want[3].RetiredPending, want[3].MIGPending = yes, yes, yes, yes, yes
	want[4].Fabric = FabricInProgress
	want[5].LinksActive, want[5].LinksInactive, want[5].LinksToSwitches = 16, 2, 16
	var got []Health
	for _, g := range inv.GPUs {
		got = append(got, g.Health)
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("health (-want +got):\n%s", d)
	}
	if p := strings.Join(inv.Problems, "\n"); !strings.Contains(p, "no GPU 99") || !strings.Contains(p, "line 14") {
		t.Errorf("problems %q", p)
	}
	if _, err := s.Inventory(); err != nil { // reported once only
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte("6 xid 79\n7 xid 48\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Inventory(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var events []Event
	if err := s.Events(ctx, func(e Event) {
		if events = append(events, e); len(events) == 2 {
			cancel()
		}
	}); err != nil {
		t.Error(err)
	}
	if d := cmp.Diff([]Event{{UUID: inv.Matrix.GPUs[6].UUID, XID: 79}, {UUID: inv.Matrix.GPUs[7].UUID, XID: 48}}, events); d != "" {
		t.Errorf("events (-want +got):\n%s", d)
	}
	if err := os.WriteFile(path, []byte("* driver\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Inventory(); err == nil {
		t.Error("the driver answers")
	}
}

func FuzzFaults(f *testing.F) {
	f.Add("3 xid 79\n* driver\n# none\n1 nvlink")
	f.Add("300 xid 0\n\x00")
	f.Fuzz(func(t *testing.T, text string) {
		faults, _ := parseFaults(text)
		for _, x := range faults {
			if x.gpu < 0 || x.gpu > 255 || x.kind == "" {
				t.Fatalf("%+v", x)
			}
		}
	})
}
