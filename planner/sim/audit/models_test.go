package audit_test

import (
	"bytes"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/caravan-sched/caravan/planner/sim"
	"github.com/caravan-sched/caravan/planner/sim/audit"
	"github.com/caravan-sched/caravan/planner/sim/trace"
)

// Jobs that name GPU models have those alone, whoever decides, and every metric follows
// from the log; what a log says of a GPU of another model is found.
func TestModelsHoldWhatTheySay(t *testing.T) {
	cluster, err := sim.ParseCluster([]byte("nodes \"h\" {\n  count = 2\n  gpus  = 8\n  model = \"H100\"\n}\nnodes \"t\" {\n  count = 3\n  gpus  = 4\n  model = \"T4\"\n}\n"), "mixed.hcl")
	if err != nil {
		t.Fatal(err)
	}
	nodes := nodesOf(cluster)
	for i := range nodes {
		nodes[i].Models = cluster.ModelsOf(i)
	}
	rapid.Check(t, func(t *rapid.T) {
		jobs := []trace.Job{{ID: "first", Duration: 600, GPUs: 1, GPUModels: "T4"}, {ID: "last", Submit: 3001, Duration: 600, GPUs: 1}}
		for i := range rapid.IntRange(1, 25).Draw(t, "jobs") {
			jobs = append(jobs, trace.Job{
				ID: "j" + string(rune('a'+i)), Submit: float64(rapid.IntRange(1, 3000).Draw(t, "submit")), Duration: float64(rapid.IntRange(1, 3000).Draw(t, "duration")),
				GPUs: rapid.IntRange(1, 14).Draw(t, "gpus"), GPUModels: rapid.SampledFrom([]string{"", "", "T4", "H100", "T4|H100", "T4|A10", "A10"}).Draw(t, "models"),
			})
		}
		trace.Sort(jobs)
		c := sim.Comparison{Cluster: cluster, Jobs: jobs, Policies: []string{rapid.SampledFrom([]string{sim.PolicyKube, sim.PolicyGang, "backfill", "caravan", "las"}).Draw(t, "policy")}, Load: 1, Seeds: 1, Replay: true, Sigma: 1, Interval: 10, Restart: sim.DefaultRestart}
		log, metrics, _ := played(t, &c)
		check := func(log []byte) *audit.Report {
			in := traceOf(jobs)
			for i := range in {
				in[i].GPUModels = jobs[i].GPUModels
			}
			r, err := audit.Check(audit.Input{Events: bytes.NewReader(log), Nodes: nodes, Trace: in, Replay: true})
			if err != nil {
				t.Fatal(err)
			}
			return r
		}
		r := check(log)
		differences, err := r.Compare(metrics)
		if err != nil || r.FaultCount > 0 || len(differences) > 0 {
			t.Fatalf("%v %v %v", r.Faults, differences, err)
		}
		r = check(bytes.Replace(log, []byte(`"gpu_models":"Tesla T4"`), []byte(`"gpu_models":"NVIDIA A10"`), 1))
		if faults := strings.Join(r.Faults, "\n"); !strings.Contains(faults, "which is a Tesla T4, or T4: it may run on NVIDIA A10") {
			t.Errorf("a GPU of another model is not found: %s", faults)
		}
	})
}
