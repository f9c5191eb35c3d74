package audit_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/caravan-sched/caravan/planner/sim"
	"github.com/caravan-sched/caravan/planner/sim/audit"
	"github.com/caravan-sched/caravan/planner/sim/trace"
)

// inParts is a cluster with GPUs that are whole, shared, divided, and divided as is
// needed.
const inParts = `
nodes "whole" {
  count = 2
  gpus  = 4
  model = "H100"
}
nodes "shared" {
  count = 1
  gpus  = 4
  model = "H100"
  sharing {
    slices = 3
    count  = 2
  }
}
nodes "fixed" {
  count     = 1
  gpus      = 2
  model     = "H100"
  instances = ["1:3g.40gb,2g.20gb,1g.10gb"]
}
nodes "auto" {
  count = 2
  gpus  = 2
  model = "H100"
  mig   = "auto"
}
`

func partsCluster(t interface{ Fatal(...any) }) (sim.Cluster, []audit.Node) {
	c, err := sim.ParseCluster([]byte(inParts), "parts.hcl")
	if err != nil {
		t.Fatal(err)
	}
	nodes := nodesOf(c)
	for i := range nodes {
		nodes[i].Slices, nodes[i].Profiles, nodes[i].Divides = c.PartsOf(i)
	}
	return c, nodes
}

// Whatever is played on GPUs that are shared and divided, by whichever policy: no GPU
// is used more than once over its parts, and every metric is found again.
func TestPartsHoldWhatTheySay(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		cluster, nodes := partsCluster(t)
		jobs := make([]trace.Job, rapid.IntRange(2, 40).Draw(t, "jobs"))
		for i := range jobs {
			j := trace.Job{ID: fmt.Sprintf("j%d", i), Submit: float64(rapid.IntRange(0, 8000).Draw(t, "submit")), Duration: float64(rapid.IntRange(1, 3000).Draw(t, "duration")), GPUs: 1, Queue: rapid.SampledFrom([]string{"", "x", "y"}).Draw(t, "queue")}
			switch rapid.IntRange(0, 3).Draw(t, "kind") {
			case 0:
				j.GPUs = rapid.IntRange(1, 8).Draw(t, "gpus")
			case 1:
				j.Profile = rapid.SampledFrom([]string{"1g.10gb", "2g.20gb", "3g.40gb", "7g.80gb"}).Draw(t, "profile")
			default:
				j.Share = float64(rapid.IntRange(1, 999).Draw(t, "share")) / 1000
			}
			jobs[i] = j
		}
		jobs[0].Submit, jobs[1].Submit = 0, 8000
		trace.Sort(jobs)
		c := sim.Comparison{
			Cluster: cluster, Jobs: jobs, Policies: []string{rapid.SampledFrom(append(sim.Policies(), "sjf+preempt", "caravan+preempt+defrag")).Draw(t, "policy")}, Load: rapid.Float64Range(0.1, 1.5).Draw(t, "load"), Seeds: 1,
			Replay: rapid.Bool().Draw(t, "replay"), Sigma: 1, Interval: 30, Restart: sim.DefaultRestart, Divide: float64(rapid.SampledFrom([]int{0, 10, 300}).Draw(t, "divide")), Interference: rapid.SampledFrom([]float64{0, 0.47}).Draw(t, "interference"),
			Failures: sim.Failures{PerNodeDay: float64(rapid.SampledFrom([]int{0, 20}).Draw(t, "failures")), Repair: 600},
		}
		if name := c.Policies[0]; name == sim.PolicyKube || name == sim.PolicyKubeQuota {
			nodes = nodesOf(cluster)
		}
		log, metrics, _ := played(t, &c)
		of := traceOf(jobs)
		for i := range of {
			of[i].Share, of[i].Profile = jobs[i].Share, jobs[i].Profile
		}
		r, err := audit.Check(audit.Input{Events: bytes.NewReader(log), Nodes: nodes, Trace: of, Replay: c.Replay})
		if err != nil {
			t.Fatal(err)
		}
		if r.FaultCount > 0 {
			t.Fatalf("%d faults: %s", r.FaultCount, strings.Join(r.Faults, "\n"))
		}
		if d, err := r.Compare(metrics); err != nil || len(d) > 0 {
			t.Fatalf("metrics that are others: %v, %v", d, err)
		}
	})
}

// Logs of parts that no cluster could have are found out.
func TestFalsifiedParts(t *testing.T) {
	_, nodes := partsCluster(t)
	submit := func(job string, more string) string {
		return fmt.Sprintf(`{"t_s":0,"event":"submit","job":%q,"gpus":[],"speed":0,"asks":{"gpus":1,"duration_s":50%s}}`, job, more)
	}
	start := func(job, gpu string) string {
		return fmt.Sprintf(`{"t_s":1,"event":"start","job":%q,"gpus":[%q],"speed":1}`, job, gpu)
	}
	finish := func(job, gpu string) string {
		return fmt.Sprintf(`{"t_s":51,"event":"finish","job":%q,"gpus":[%q],"speed":0}`, job, gpu)
	}
	divide := func(at int, event, gpu, profiles string) string {
		return fmt.Sprintf(`{"t_s":%d,"event":%q,"gpus":[%q],"speed":0,"node":"auto-00000","profiles":[%s]}`, at, event, gpu, profiles)
	}
	half, most, third := `,"gpu_share":0.5`, `,"gpu_share":0.6`, `,"gpu_share":0.428571428,"mig_profile":"3g.40gb"`
	const shared, fixed, auto = "shared-00000:2", "fixed-00000:1", "auto-00000:0"
	tests := map[string]struct {
		lines []string
		want  string
	}{
		"well":                      {[]string{submit("a", half), submit("b", half), start("a", shared+"/1"), start("b", shared+"/3"), finish("a", shared+"/1"), finish("b", shared+"/3")}, ""},
		"an instance":               {[]string{submit("a", third), start("a", fixed+"/1"), finish("a", fixed+"/1")}, ""},
		"divided":                   {[]string{submit("a", third), divide(0, "divide", auto, `"3g.40gb","3g.40gb"`), divide(1, "divided", auto, `"3g.40gb","3g.40gb"`), start("a", auto+"/2"), finish("a", auto+"/2")}, ""},
		"a slice twice":             {[]string{submit("a", half), submit("b", half), start("a", shared+"/1"), start("b", shared+"/1")}, "which \"a\" has"},
		"more than all of it":       {[]string{submit("a", half), submit("b", most), start("a", shared+"/1"), start("b", shared+"/2")}, "is used to 1.1 of it"},
		"a slice too many":          {[]string{submit("a", half), start("a", shared+"/4")}, "it has 3 now"},
		"a shared one as a whole":   {[]string{submit("a", ""), start("a", shared)}, "which is offered in parts"},
		"a slice of a whole one":    {[]string{submit("a", half), start("a", "whole-00000:0/1")}, "it has 0 now"},
		"a part of who wants all":   {[]string{submit("a", ""), start("a", shared+"/1")}, "asks for all of one"},
		"another instance":          {[]string{submit("a", third), start("a", fixed+"/2")}, "none that it asks for"},
		"an instance too early":     {[]string{submit("a", third), divide(0, "divide", auto, `"3g.40gb"`), start("a", auto+"/1")}, "it has 0 now"},
		"all of one being divided":  {[]string{submit("a", ""), divide(0, "divide", auto, `"3g.40gb"`), start("a", auto)}, "which is offered in parts"},
		"divided under somebody":    {[]string{submit("a", ""), start("a", auto), divide(2, "divide", auto, `"3g.40gb"`)}, "uses it"},
		"divided where none may be": {[]string{submit("a", half), divide(2, "divide", fixed, `"3g.40gb"`)}, "does not divide its GPUs"},
		"divided twice":             {[]string{submit("a", half), divide(2, "divide", auto, ""), divide(3, "divide", auto, "")}, "it was so before"},
		"two parts":                 {[]string{submit("a", half), strings.Replace(start("a", shared+"/1"), `"]`, `","`+shared+`/2"]`, 1)}, "want the number of one part"},
		"the other part given back": {[]string{submit("a", half), start("a", shared+"/1"), finish("a", shared+"/2")}, "it has others"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			r, err := audit.Check(audit.Input{Events: strings.NewReader(strings.Join(test.lines, "\n")), Nodes: nodes})
			if err != nil {
				t.Fatal(err)
			}
			if all := strings.Join(r.Faults, "\n"); test.want == "" && all != "" || !strings.Contains(all, test.want) {
				t.Errorf("faults:\n%s\nwant %q", all, test.want)
			}
		})
	}
}
