package complaints

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/hashicorp/nomad/api"
)

func mixedNode(t *testing.T) {
	e := start(t, gpuNode("mixed", only(t, "mixed", 0, 1, 2)+`mock_mig = ["2:3g.40gb,3g.40gb"]`))
	var whole, part string
	for name, n := range models(e.node("mixed")) {
		if strings.Contains(name, "MIG") {
			part = name
		} else {
			whole = name
		}
		if n != 2 {
			t.Fatalf("%d devices of %s, want two", n, name)
		}
	}
	kinds := func(id string) (out []string) {
		for _, a := range e.allocs(id) {
			for _, ids := range e.gpus(a) {
				for _, gpu := range ids {
					out = append(out, gpu[:4])
				}
			}
		}
		return out
	}
	wholeOnly := devices("nvidia/gpu", 1)
	wholeOnly.Constraints = []*api.Constraint{api.NewConstraint("${device.attr.mig_profile}", "is_not_set", "")}
	for _, step := range []struct {
		id   string
		ask  *api.RequestedDevice
		want []string // nil: it waits
	}{
		{"three", devices("nvidia/gpu", 3), nil},
		{"whole", devices(whole, 1), []string{"GPU-"}},
		{"constrained", wholeOnly, []string{"GPU-"}},
		{"parts", devices(part, 1), []string{"MIG-"}},
		{"any", devices("nvidia/gpu", 1), []string{"MIG-"}},
		{"no-more-whole", wholeOnly, nil},
		{"no-more", devices("nvidia/gpu", 1), nil},
	} {
		e.submit(job(step.id, 1, asks(step.ask)))
		if step.want == nil {
			e.explain(step.id, waits)
			continue
		}
		e.explain(step.id, running)
		if got := kinds(step.id); !slices.Equal(got, step.want) {
			t.Errorf("job %s has %v, want %v", step.id, got, step.want)
		}
	}
	for _, id := range []string{"three", "no-more-whole", "no-more"} {
		if got := kinds(id); got != nil {
			t.Errorf("job %s has %v, want nothing", id, got)
		}
	}
}

// pairs is a node of eight GPUs, joined in pairs by NVLink, as nvidia-smi topo -m
// shows it.
func pairs(t *testing.T) string {
	t.Helper()
	var b strings.Builder
	for i := range 8 {
		fmt.Fprintf(&b, "\tGPU%d", i)
	}
	b.WriteString("\tCPU Affinity\tNUMA Affinity\n")
	for i := range 8 {
		fmt.Fprintf(&b, "GPU%d", i)
		for j := range 8 {
			switch {
			case i == j:
				b.WriteString("\t X ")
			case i/2 == j/2:
				b.WriteString("\tNV4")
			default:
				b.WriteString("\tSYS")
			}
		}
		fmt.Fprintf(&b, "\t%d-%d\t%d\n", 4*i, 4*i+3, i/2)
	}
	path := filepath.Join(t.TempDir(), "topo.txt")
	if err := os.WriteFile(path, []byte(b.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func pairsStayWhole(t *testing.T) {
	e := start(t, gpuNode("paired", fmt.Sprintf("source = %q", "file:"+pairs(t))))
	snapshot, err := e.caravan.Snapshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	island := map[string]int{}
	for _, g := range snapshot.Nodes[0].GPUs {
		island[g.UUID] = g.Island
	}
	if len(island) != 8 {
		t.Fatalf("%d GPUs, want eight", len(island))
	}
	islands := func(id string) (out []int) {
		for _, ids := range e.gpus(e.allocs(id)[0]) {
			for _, gpu := range ids {
				out = append(out, island[gpu])
			}
		}
		slices.Sort(out)
		return out
	}
	single := map[int]int{}
	for i := range 4 {
		id := fmt.Sprintf("single-%d", i)
		e.submit(job(id, 1, asks(devices("nvidia/gpu", 1))))
		e.explain(id, running)
		single[islands(id)[0]]++
	}
	if len(single) != 2 {
		t.Errorf("single GPUs by pair: %v, want two pairs filled", single)
	}
	for i := range 2 {
		id := fmt.Sprintf("double-%d", i)
		e.submit(job(id, 1, asks(devices("nvidia/gpu", 2))))
		e.explain(id, running)
		if got := islands(id); got[0] != got[1] {
			t.Errorf("job %s has GPUs of the pairs %v, want one", id, got)
		}
	}
}
