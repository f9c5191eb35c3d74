package sim

import (
	"compress/gzip"
	"encoding/json"
	"math"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/caravan-sched/caravan/planner/core"
	"github.com/caravan-sched/caravan/planner/sim/trace"
)

// cut is a cluster of one node with two GPUs that are offered as is said.
func cut(t *testing.T, how string) Cluster {
	t.Helper()
	c, err := ParseCluster([]byte("nodes \"n\" {\n  count = 1\n  gpus  = 2\n  model = \"H100\"\n"+how+"\n}\n"), "cut.hcl")
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// Worked by hand: two GPUs, the second shared by up to two tasks. a needs 0.6 of one
// and b 0.5: together they would be too much for it, so b has the whole GPU. c needs
// 0.4 and goes beside a. d wants a GPU of its own, and waits for b's. From 30 s, when d
// is submitted, nothing counts any more: until then 0.6 for 30 s, 1 for 20 s, 0.4 for
// 10 s, of two GPUs.
func TestSharedGPUs(t *testing.T) {
	c := cut(t, "  sharing {\n    slices = 2\n    count  = 1\n  }")
	jobs := c.InTheirParts([]trace.Job{{ID: "a", Duration: 100, GPUs: 1, Share: 0.6}, {ID: "b", Submit: 10, Duration: 50, GPUs: 1, Share: 0.5}, {ID: "c", Submit: 20, Duration: 30, GPUs: 1, Share: 0.4}, {ID: "d", Submit: 30, Duration: 10, GPUs: 1}})
	got, out := story(t, Setup{Cluster: c, Jobs: jobs, Scheduler: planned(t, c, core.Policy{Order: "besteffort"})})
	want := `0 submit a 
0 start a n-00000:1/1
10 submit b 
10 start b n-00000:0
20 submit c 
20 start c n-00000:1/2
30 submit d 
50 finish c n-00000:1/2
60 finish b n-00000:0
60 start d n-00000:0
70 finish d n-00000:0
100 finish a n-00000:1/1
`
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("story (-want +got):\n%s", diff)
	}
	m := out.Metrics()
	near(t, "allocated", m.UtilisationAllocated, (0.6*30+1*20+0.4*10)/(2*30))
	near(t, "productive", m.UtilisationProductive, (0.6*30+0.5*20+0.4*10)/(2*30))
	near(t, "bound", m.UtilisationBound, (0.6*30+0.5*20+0.4*10)/(2*30))
	near(t, "busy GPU-hours", m.CostPerRunBusy*4*3600, 0.6*100+50+0.4*30+10)
}

// By two tasks on it a GPU is slowed down: both need 1.47 times as long while they are
// both there. a has done 10 s of its 20 when b comes at 10 s; both work at 1/1.47, so a
// is done at 10 + 10 · 1.47; then b, of 20 s, has 10 left.
func TestInterference(t *testing.T) {
	c := cut(t, "  sharing {\n    slices = 2\n  }")
	jobs := c.InTheirParts([]trace.Job{{ID: "a", Duration: 20, GPUs: 1, Share: 0.9}, {ID: "x", Duration: 100, GPUs: 1, Share: 0.9}, {ID: "b", Submit: 10, Duration: 20, GPUs: 1, Share: 0.1}})
	_, out := story(t, Setup{Cluster: c, Jobs: jobs, Interference: 0.47, Scheduler: planned(t, c, core.Policy{Order: "besteffort"})})
	done := out.Done()
	near(t, "a", done[0].Ended, 10+10*1.47)
	near(t, "b", done[2].Ended, 10+10*1.47+10)
	near(t, "x", done[1].Ended, 100)
}

// 0.47 is by how much longer the tasks take, in the median, of which Gavel measured
// how fast each is on a V100 beside another one (Narayanan et al., OSDI'20).
func TestInterferenceMeasured(t *testing.T) {
	f, err := os.Open("../../../shared/traces/gavel/simulation_throughputs.json.gz")
	if err != nil {
		t.Skipf("the published throughputs are not here: %v", err)
	}
	defer f.Close()
	plain, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	var all map[string]map[string]map[string]json.RawMessage
	if err := json.NewDecoder(plain).Decode(&all); err != nil {
		t.Fatal(err)
	}
	var longer []float64
	for name, beside := range all["v100"] {
		var alone float64
		if !strings.HasSuffix(name, ", 1)") || json.Unmarshal(beside["null"], &alone) != nil || alone == 0 {
			continue
		}
		for other, data := range beside {
			var both [2]float64
			if _, one := all["v100"][other]; one && json.Unmarshal(data, &both) == nil && both[0] > 0 && both[1] > 0 {
				longer = append(longer, alone/both[0]-1)
			}
		}
	}
	slices.Sort(longer)
	if median := Quantile(longer, 0.5); len(longer) < 600 || math.Abs(median-0.47) > 0.01 {
		t.Errorf("%d tasks beside another one take %.3f longer in the median: docs/simulator.md says 0.47", len(longer), median)
	}
}

// Two GPUs that are divided as is needed. a wants an instance: a GPU is divided, which
// takes 10 s, and the other stays whole for b. c wants both GPUs whole, and waits for a
// and b; then what is divided is made whole again. A GPU is left as it was divided for
// ten minutes at least.
func TestDividedGPUs(t *testing.T) {
	c := cut(t, "  mig = \"auto\"")
	jobs := c.InTheirParts([]trace.Job{{ID: "a", Duration: 100, GPUs: 1, Profile: "3g.40gb"}, {ID: "b", Submit: 1, Duration: 1000, GPUs: 1}, {ID: "c", Submit: 2, Duration: 10, GPUs: 2}})
	got, out := story(t, Setup{Cluster: c, Jobs: jobs, Divide: 10, Scheduler: planned(t, c, core.Policy{Order: "besteffort"})})
	want := `0 submit a 
0 divide  n-00000:0
1 submit b 
1 start b n-00000:1
2 submit c 
10 divided  n-00000:0
10 start a n-00000:0/1
110 finish a n-00000:0/1
`
	if !strings.HasPrefix(got, want) {
		t.Errorf("story:\n%s\nwant it to begin with\n%s", got, want)
	}
	if m := out.Metrics(); m.Unfinished != 0 || out.Done()[2].First < 1001 {
		t.Errorf("story:\n%s\nwant c to start on two whole GPUs once b has ended", got)
	}
	if n := strings.Count(got, "divided"); n != 2 {
		t.Errorf("a GPU is divided %d times: want it divided and made whole again\n%s", n, got)
	}
}

// Where no GPU is shared who needs a part of one has all of it, and who asks for an
// instance can never run.
func TestPartsOfWholeGPUs(t *testing.T) {
	c := Comparison{Cluster: small(t), Load: 0.5, Seeds: 1, Replay: true, Policies: []string{"caravan", "k8s-default"}, Jobs: []trace.Job{{ID: "a", Duration: 10, GPUs: 1, Share: 0.1}, {ID: "b", Duration: 10, GPUs: 1, Profile: "1g.10gb"}, {ID: "c", Submit: 100, Duration: 10, GPUs: 1, Share: 0.9}}}
	p, err := c.Prepare(1)
	if err != nil || p.TooLarge != 1 || p.Largest.ID != "b" {
		t.Fatalf("%d can never run, %q: want b (%v)", p.TooLarge, p.Largest.ID, err)
	}
	if diff := cmp.Diff(Elastic(p.Jobs, 1, 1, 8, 1)[0].Max, 2); diff != "" {
		t.Errorf("a job of one GPU (-got +want):\n%s", diff)
	}
	results, err := c.Run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range results {
		near(t, r.Policy, r.Metrics.CostPerRunBusy*3600, 10)
	}
}

// Every fault of what a file says of parts is in the error.
func TestPartsFaults(t *testing.T) {
	const file = `
nodes "a" {
  count     = 1
  gpus      = 8
  model     = "T4"
  mig       = "auto"
}
nodes "b" {
  count     = 1
  gpus      = 2
  model     = "H100"
  mig       = "yes"
  instances = ["2:3g.40gb", "0:3g.40gb,3g.40gb,3g.40gb", "0:1g.5gb", "x"]
  sharing {
    slices = 1
    count  = 3
  }
  sharing {
    slices = 99
  }
}
nodes "c" {
  count = 1
  gpus  = 8
  model = "H100"
  sharing {
    slices = 9
  }
}
`
	_, err := ParseCluster([]byte(file), "c.hcl")
	if err == nil {
		t.Fatal("accepted")
	}
	for _, want := range []string{
		`nodes "a": mig is of a T4: want it with a model that has MIG: A100, B200, H100, H200`,
		`nodes "b": mig is "yes": want "auto" or "fixed"`,
		`nodes "b": instances is "2:3g.40gb": want a GPU from 0 to 1 and its profiles`,
		`nodes "b": instances is "0:3g.40gb,3g.40gb,3g.40gb": want profiles that fit on one GPU, of 1g.10gb, 1g.20gb, 2g.20gb, 3g.40gb, 4g.40gb, 7g.80gb`,
		`nodes "b": instances is "0:1g.5gb": want each GPU once`,
		`nodes "b": instances is "x": want a GPU from 0 to 1`,
		`nodes "b": sharing is 2: want one block at most`,
		`nodes "b": sharing is 1 slices: want slices from 2 to 32`,
		`nodes "b": sharing is 3 GPUs (count): want 0 (all) to 2`,
		`nodes "b": sharing is set beside mig or instances`,
		`nodes "c": gpus is 8, with 72 slices and instances: want at most 64`,
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("the error lacks %s:\n%v", want, err)
		}
	}
}
