package audit_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/caravan-sched/caravan/planner/core"
	"github.com/caravan-sched/caravan/planner/sim"
	"github.com/caravan-sched/caravan/planner/sim/audit"
	"github.com/caravan-sched/caravan/planner/sim/trace"
)

// stopping are policies that stop jobs, those that save nothing too where all is set.
func stopping(order string, all bool) core.Policy {
	p := core.Policy{Order: order}
	p.Preempt.Enabled, p.Preempt.SavedOnly = true, !all
	return p
}

// Where some jobs save nothing, too, the log says nothing that cannot be, and every metric
// can be computed from it again.
func TestLogsOfUnsavedWorkHold(t *testing.T) {
	own := map[string]core.Policy{"all-las": stopping("las", true), "all-caravan": stopping("caravan", true), "saved-caravan": stopping("caravan", false)}
	policies := []string{"all-las", "all-caravan", "saved-caravan", "las", "caravan", sim.PolicyKube}
	rapid.Check(t, func(t *rapid.T) {
		cluster, err := sim.Regular(16, 4)
		if err != nil {
			t.Fatal(err)
		}
		jobs := make([]trace.Job, rapid.IntRange(2, 30).Draw(t, "jobs"))
		for i := range jobs {
			jobs[i] = trace.Job{ID: fmt.Sprintf("j%d", i), Submit: float64(rapid.IntRange(0, 9000).Draw(t, "submit")), Duration: float64(rapid.IntRange(1, 9000).Draw(t, "duration")), GPUs: rapid.IntRange(1, 16).Draw(t, "gpus")}
		}
		jobs[0].Submit, jobs[1].Submit = 0, 9000
		trace.Sort(jobs)
		share := rapid.SampledFrom([]int{25, 50, 75, 100}).Draw(t, "share")
		row := fmt.Sprintf("%s@unsaved%d", rapid.SampledFrom(policies).Draw(t, "policy"), share)
		if rapid.Bool().Draw(t, "elastic") {
			row += "@elastic30"
		}
		c := sim.Comparison{
			Cluster: cluster, Jobs: jobs, Policies: []string{row}, Own: own, Load: rapid.Float64Range(0.3, 2).Draw(t, "load"), Seeds: 1, Sigma: 1, Interval: 10, Restart: sim.DefaultRestart,
			Failures: sim.Failures{PerNodeDay: float64(rapid.SampledFrom([]int{0, 4}).Draw(t, "failures")), Repair: 600},
		}
		log, metrics, _ := played(t, &c)
		r, err := audit.Check(audit.Input{Events: bytes.NewReader(log), Nodes: nodesOf(cluster), Trace: traceOf(jobs), Unsaved: &audit.Unsaved{Part: float64(share) / 100, Seed: 1}})
		if err != nil {
			t.Fatal(err)
		}
		if r.FaultCount > 0 {
			t.Fatalf("%s: %d faults: %s", row, r.FaultCount, strings.Join(r.Faults, "\n"))
		}
		if diff := r.Done - r.Submitted - r.Lost + r.Left; diff > 1e-6 || diff < -1e-6 {
			t.Errorf("%s: work of %g GPU-hours done: %g submitted and %g lost", row, r.Done, r.Submitted, r.Lost)
		}
		differences, err := r.Compare(metrics)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range differences {
			t.Errorf("%s: %s is said to be %g: the log says %g", row, d.Metric, d.Said, d.Found)
		}
	})
}

// What a log says of lost work is checked: a saves nothing, b does.
func TestForgedLosses(t *testing.T) {
	const submitted = `{"t_s":0,"event":"submit","job":"a","asks":{"gpus":1,"duration_s":100,"unsaved":true}}
{"t_s":0,"event":"submit","job":"b","asks":{"gpus":1,"duration_s":100}}
{"t_s":0,"event":"start","job":"a","gpus":["n:0"],"speed":1}
{"t_s":0,"event":"start","job":"b","gpus":["n:1"],"speed":1}
`
	const stopsA = `{"t_s":40,"event":"stop","job":"a","gpus":["n:0"],"lost_s":40}
`
	const restA = `{"t_s":50,"event":"start","job":"a","gpus":["n:0"],"speed":1}
`
	const endB = `{"t_s":100,"event":"finish","job":"b","gpus":["n:1"]}
`
	const endA = `{"t_s":150,"event":"finish","job":"a","gpus":["n:0"]}
`
	whole := submitted + stopsA + restA + endB + endA
	check := func(t *testing.T, log string, said *audit.Unsaved) *audit.Report {
		t.Helper()
		r, err := audit.Check(audit.Input{Events: strings.NewReader(log), Nodes: []audit.Node{{Name: "n", GPUs: 2}}, Unsaved: said})
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	r := check(t, whole, nil)
	if r.FaultCount > 0 || r.Metrics["gpu_hours_lost"] != 40.0/3600 || r.Metrics["preemptions"] != 1 {
		t.Errorf("the log as it is: %v, %g GPU-hours lost: want 40 s, and one stop", r.Faults, r.Metrics["gpu_hours_lost"])
	}
	failed := strings.Replace(whole, `"stop"`, `"fail"`, 1)
	if r := check(t, failed, nil); r.FaultCount > 0 || r.Metrics["preemptions"] != 0 {
		t.Errorf("a failure: %v, %g stops", r.Faults, r.Metrics["preemptions"])
	}
	change := func(log, old, now string) string {
		out := strings.Replace(log, old, now, 1)
		if out == log {
			t.Fatalf("no %s in %s", old, log)
		}
		return out
	}
	tests := map[string]struct{ log, want string }{
		"too much is lost":          {change(whole, `"lost_s":40`, `"lost_s":41`), `stop of "a", which saves nothing, loses 41 s of work: it had 40`},
		"too little is lost":        {change(whole, `"lost_s":40`, `"lost_s":39`), "loses 39 s of work: it had 40"},
		"nothing is lost":           {change(whole, `,"lost_s":40`, ``), "loses 0 s of work: it had 40"},
		"less than nothing is lost": {change(whole, `"lost_s":40`, `"lost_s":-40`), "loses -40 s of work"},
		"too little by a failure":   {change(failed, `"lost_s":40`, `"lost_s":30`), `fail of "a", which saves nothing, loses 30 s of work: it had 40`},
		"who saves loses by a stop": {change(whole, stopsA, stopsA+`{"t_s":40,"event":"stop","job":"b","gpus":["n:1"],"lost_s":40}`+"\n"), `stop of "b" loses 40 s of work`},
		"one loses as it ends":      {change(whole, endA, `{"t_s":150,"event":"finish","job":"a","gpus":["n:0"],"lost_s":100}`), `finish of "a" loses 100 s`},
		"one loses and goes on":     {change(whole, stopsA, `{"t_s":40,"event":"resize","job":"a","gpus":["n:0"],"speed":1,"lost_s":40}`+"\n"), `resize of "a" loses 40 s of work, and it keeps its GPUs`},
		"it is said to save":        {change(whole, `,"unsaved":true`, ``), `stop of "a" loses 40 s of work`},
		"it takes time to save":     {change(whole, stopsA, `{"t_s":35,"event":"resize","job":"a","gpus":["n:0"]}`+"\n"+stopsA), `"a" has its GPUs and does not work`},
		"it takes time to load":     {change(whole, restA, change(restA, `"speed":1`, `"speed":0`)), `"a" has its GPUs and does not work`},
		"it goes on where it was":   {change(whole, `{"t_s":150,`, `{"t_s":110,`), `"a" finishes having done`},
		"it is elastic":             {change(whole, `"unsaved":true`, `"unsaved":true,"min_gpus":1,"max_gpus":2`), "who changes its size has to save"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if r := check(t, test.log, nil); !strings.Contains(strings.Join(r.Faults, "\n"), test.want) {
				t.Errorf("faults: %q: want one with %q", r.Faults, test.want)
			}
		})
	}
	// Who saves nothing is drawn: with this seed all, or none, are others than those two.
	for _, part := range []float64{0, 1} {
		if r := check(t, whole, &audit.Unsaved{Part: part, Seed: 1}); r.FaultCount != 1 || !strings.Contains(r.Faults[0], "saves nothing: ") {
			t.Errorf("a part of %g: %v: want one job that is another one", part, r.Faults)
		}
	}
}
