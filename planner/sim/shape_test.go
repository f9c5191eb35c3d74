package sim

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/caravan-sched/caravan/planner/core"
	"github.com/caravan-sched/caravan/planner/sim/trace"
)

// uneven has two nodes of eight GPUs and four of four: 32 in all.
func uneven(t *testing.T) Cluster {
	t.Helper()
	c, err := ParseCluster([]byte("nodes \"big\" {\n  count = 2\n  gpus = 8\n  model = \"H100\"\n}\nnodes \"small\" {\n  count = 4\n  gpus = 4\n  model = \"A100\"\n}\n"), "uneven.hcl")
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// A gang has as many of the largest nodes as it fills, and one other at most.
func TestHolds(t *testing.T) {
	even, err := Regular(32, 8)
	if err != nil {
		t.Fatal(err)
	}
	c := uneven(t)
	for _, test := range []struct {
		gpus       int
		even, some bool
	}{{1, true, true}, {8, true, true}, {13, true, true}, {16, true, true}, {20, true, true}, {21, true, false}, {24, true, false}, {32, true, false}, {33, false, false}} {
		if even, some := even.Holds(test.gpus), c.Holds(test.gpus); even != test.even || some != test.some {
			t.Errorf("%d GPUs: %t on equal nodes, %t on others: want %t and %t", test.gpus, even, some, test.even, test.some)
		}
	}
}

// What the shape of the cluster can never hold is left out, whichever the policy;
// all else ends.
func TestJobsThatNoShapeHolds(t *testing.T) {
	c := Comparison{Cluster: uneven(t), Policies: append(Policies(), "caravan+no-preempt"), Load: 0.9, Seeds: 1, Replay: true, Sigma: 0, Jobs: []trace.Job{
		{ID: "a", Duration: 600, GPUs: 8}, {ID: "b", Submit: 60, Duration: 600, GPUs: 24}, {ID: "c", Submit: 90, Duration: 600, GPUs: 20}, {ID: "d", Submit: 120, Duration: 600, GPUs: 40}, {ID: "e", Submit: 3600, Duration: 600, GPUs: 4},
	}}
	p, err := c.Prepare(1)
	if err != nil || p.TooLarge != 2 || p.Largest.ID != "d" || len(p.Jobs) != 3 {
		t.Fatalf("%d of %d too large, the largest is %q, %v: want 2 of 5, d", p.TooLarge, len(c.Jobs), p.Largest.ID, err)
	}
	results, err := c.Run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range results {
		if r.Metrics.Unfinished != 0 {
			t.Errorf("%s: %d jobs never end", r.Policy, r.Metrics.Unfinished)
		}
	}
	c.Jobs = c.Jobs[1:2]
	if _, err := c.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "all 1 jobs are larger than the cluster of 32 GPUs, at most 8 on a node, can hold") {
		t.Errorf("error %v", err)
	}
}

// lazy starts nothing.
type lazy struct{ Scheduler }

func (lazy) Submit(float64, Ask) error { return nil }
func (lazy) Decide(now float64) ([]Action, float64, error) {
	return nil, now + time.Hour.Seconds(), nil
}

// A run that cannot end names the job.
func TestRunsThatCannotEndNameTheJob(t *testing.T) {
	c := uneven(t)
	for want, test := range map[string]Setup{
		"job big asks for 24 GPUs":  {Cluster: c, Jobs: []trace.Job{{ID: "big", Duration: 1, GPUs: 24}}, Scheduler: planned(t, c, core.Policy{Order: "fifo"})},
		"the first is a, of 4 GPUs": {Cluster: c, Jobs: []trace.Job{{ID: "a", Duration: 1, GPUs: 4}}, Scheduler: lazy{}},
	} {
		if _, err := Run(t.Context(), test); err == nil || !strings.Contains(fmt.Sprint(err), want) {
			t.Errorf("error %v: want %q", err, want)
		}
	}
}

// A cluster file's faults are all said at once, each of them once.
func TestFaultsOfAClusterFile(t *testing.T) {
	_, err := ParseCluster([]byte("nodes \"a\" {\n  count = 0\n  gpus = \"many\"\n  model = \"H1000\"\n  colour = \"red\"\n}\nnodes \"b\" {\n  count = 1.5\n  gpus = 99\n}\nracks = 3\n"), "c.hcl")
	if err == nil {
		t.Fatal("it is accepted")
	}
	for _, want := range []string{"c.hcl:2: nodes \"a\": count is 0: want 1", "c.hcl:3", "c.hcl:4: nodes \"a\": model is \"H1000\": want one of A10", "c.hcl:5", "c.hcl:8", "c.hcl:9: nodes \"b\": gpus is 99: want 1 to 64", "\"model\" is required", "c.hcl:11"} {
		if n := strings.Count(err.Error(), want); n != 1 {
			t.Errorf("%q is said %d times: want once\n%v", want, n, err)
		}
	}
	if n := strings.Count(err.Error(), "\n") + 1; n != 8 {
		t.Errorf("%d faults: want 8\n%v", n, err)
	}
}

// A cluster that is too large is refused before it is made.
func TestAClusterFileThatIsTooLarge(t *testing.T) {
	_, err := ParseCluster([]byte("nodes \"a\" {\n  count = 1048576\n  gpus = 64\n  model = \"H100\"\n}\n"), "c.hcl")
	if want := "c.hcl: 67108864 GPUs: want at most 1048576"; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("error %v: want %q", err, want)
	}
}

// The documentation names every model that a cluster file may have.
func TestModelsAreDocumented(t *testing.T) {
	page, err := os.ReadFile("../../docs/simulator.md")
	if err != nil {
		t.Fatal(err)
	}
	if want := "`" + strings.Join(Models(), "`, `") + "`"; !strings.Contains(strings.Join(strings.Fields(string(page)), " "), want) {
		t.Errorf("docs/simulator.md lacks %s", want)
	}
}

// The cluster files of the documentation are ones.
func TestDocumentedClusters(t *testing.T) {
	page, err := os.ReadFile("../../docs/simulator.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := strings.Split(string(page), "```hcl\n")[1:]
	for _, block := range blocks {
		text, _, _ := strings.Cut(block, "```")
		if _, err := ParseCluster([]byte(text), "docs/simulator.md"); err != nil {
			t.Error(err)
		}
	}
	if len(blocks) < 2 {
		t.Errorf("%d cluster files in docs/simulator.md: want the two that are there", len(blocks))
	}
}
