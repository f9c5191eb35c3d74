package audit_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/caravan-sched/caravan/planner/core/burst"
	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/sim"
	"github.com/caravan-sched/caravan/planner/sim/audit"
	"github.com/caravan-sched/caravan/planner/sim/trace"
)

// played plays jobs and hands out the log and the metrics.
func played(t interface {
	Fatal(...any)
	Helper()
}, c *sim.Comparison) (log []byte, metrics []byte, outcome sim.Result) {
	t.Helper()
	var b bytes.Buffer
	l := sim.NewLogger(&b)
	c.Log = func(string, int) func(sim.Event) { return l.Log }
	c.Workers = 1
	results, err := c.Run(ctx(t))
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	m, err := json.Marshal(results[0].Metrics)
	if err != nil {
		t.Fatal(err)
	}
	return b.Bytes(), m, results[0]
}

func nodesOf(c sim.Cluster) []audit.Node {
	var out []audit.Node
	for i := range c.Nodes {
		out = append(out, audit.Node{Name: c.Nodes[i].ID, GPUs: len(c.Nodes[i].GPUs)})
	}
	return out
}

// somePools is one with two nodes of four GPUs, which boot for two minutes.
func somePools() model.Burst {
	n := model.Node{ID: "eu", Datacenter: "dc1", Pool: "default", Capacity: model.Resources{CPUMHz: 1 << 20, MemoryMiB: 1 << 21, DiskMiB: 1 << 24}}
	for i := range 4 {
		n.GPUs = append(n.GPUs, model.GPU{UUID: fmt.Sprint(i), Vendor: "nvidia", Type: "gpu", Model: "H100", NUMA: -1})
	}
	return model.Burst{Currency: "EUR", Pools: []model.BuyPool{{
		Name: "eu", Node: n, Quota: 2, OnDemand: 10, Spot: 3, SpotLifetime: time.Hour, Boot: 2 * time.Minute, Join: 15 * time.Minute, MinBilling: time.Minute, Period: time.Second,
	}}}
}

func traceOf(jobs []trace.Job) []audit.Job {
	var out []audit.Job
	for _, j := range jobs {
		out = append(out, audit.Job{ID: j.ID, GPUs: j.GPUs, Duration: j.Duration, Queue: j.Queue, Class: j.Class, Model: j.Model, Timed: j.Deadline != 0})
	}
	return out
}

// Whatever is played, by whichever policy: the log says nothing that cannot be,
// work done is work submitted and work lost, and every metric can be computed
// from it again.
func TestLogsHoldWhatTheySay(t *testing.T) {
	policies := append(sim.Policies(), "sjf+preempt", "fifo+conservative", "las+defrag")
	rapid.Check(t, func(t *rapid.T) {
		cluster, err := sim.Regular(16, 4)
		if err != nil {
			t.Fatal(err)
		}
		jobs := make([]trace.Job, rapid.IntRange(2, 30).Draw(t, "jobs"))
		for i := range jobs {
			j := trace.Job{
				ID: fmt.Sprintf("j%d", i), Submit: float64(rapid.IntRange(0, 4000).Draw(t, "submit")), Duration: float64(rapid.IntRange(1, 3000).Draw(t, "duration")),
				GPUs: rapid.IntRange(1, 16).Draw(t, "gpus"), Queue: rapid.SampledFrom([]string{"", "x", "y"}).Draw(t, "queue"), Class: rapid.SampledFrom([]string{"", trace.ClassInteractive, trace.ClassFoundation}).Draw(t, "class"),
			}
			if j.GPUs%4 == 0 && rapid.Bool().Draw(t, "elastic") {
				j.Min, j.Max = max(4, j.GPUs/8*4), min(16, 2*j.GPUs)
			}
			jobs[i] = j
		}
		jobs[0].Submit, jobs[1].Submit = 0, 4000
		trace.Sort(jobs)
		c := sim.Comparison{
			Cluster: cluster, Jobs: jobs, Policies: []string{rapid.SampledFrom(policies).Draw(t, "policy")}, Load: rapid.Float64Range(0.3, 2).Draw(t, "load"), Seeds: 1,
			Replay: rapid.Bool().Draw(t, "replay"), Sigma: rapid.SampledFrom([]float64{1, 0.3, 0, sim.NoEstimates}).Draw(t, "sigma"), Interval: float64(rapid.SampledFrom([]int{0, 30}).Draw(t, "interval")), Restart: sim.DefaultRestart,
			Failures: sim.Failures{PerNodeDay: float64(rapid.SampledFrom([]int{0, 20}).Draw(t, "failures")), Repair: 600},
		}
		nodes := nodesOf(cluster)
		if name := c.Policies[0]; name != sim.PolicyKube && name != sim.PolicyKubeQuota && rapid.Bool().Draw(t, "pools") {
			c.Pools, c.Burst = somePools(), burst.Policy{Default: model.BurstAllow, WaitOver: time.Minute}
			for _, n := range nodesOf(cluster.WithPools(c.Pools))[len(nodes):] {
				n.Bought = true
				nodes = append(nodes, n)
			}
		}
		log, metrics, _ := played(t, &c)
		r, err := audit.Check(audit.Input{Events: bytes.NewReader(log), Nodes: nodes, Trace: traceOf(jobs), Replay: c.Replay, Estimates: &audit.Estimates{Sigma: c.Sigma, Seed: 1}})
		if err != nil {
			t.Fatal(err)
		}
		if r.FaultCount > 0 {
			t.Fatalf("%d faults: %s", r.FaultCount, strings.Join(r.Faults, "\n"))
		}
		if diff := r.Done - r.Submitted - r.Lost + r.Left; diff > 1e-6 || diff < -1e-6 {
			t.Errorf("work of %g GPU-hours done: %g submitted and %g lost", r.Done, r.Submitted, r.Lost)
		}
		differences, err := r.Compare(metrics)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range differences {
			t.Errorf("%s is said to be %g: the log says %g", d.Metric, d.Said, d.Found)
		}
	})
}

// A log that somebody has changed is found out.
func TestFalsifiedLogsAreFound(t *testing.T) {
	cluster, err := sim.Regular(16, 4)
	if err != nil {
		t.Fatal(err)
	}
	jobs, err := trace.Synthetic{Jobs: 60, Days: 0.5, GPUsPerNode: 4, MaxNodes: 4, Small: 0.6, Seed: 4}.Make()
	if err != nil {
		t.Fatal(err)
	}
	c := sim.Comparison{Cluster: cluster, Jobs: jobs, Policies: []string{"las"}, Load: 1.2, Seeds: 1, Replay: true, Sigma: 1, Interval: 30, Restart: sim.DefaultRestart, Failures: sim.Failures{PerNodeDay: 2, Repair: 1200}}
	log, metrics, result := played(t, &c)
	if result.Metrics.Preemptions == 0 || result.Metrics.GPUHoursLost == 0 {
		t.Fatalf("%d preemptions and %g GPU-hours lost: want some of both", result.Metrics.Preemptions, result.Metrics.GPUHoursLost)
	}
	lines := strings.Split(strings.TrimSpace(string(log)), "\n")
	// at finds the nth line with all of some texts.
	at := func(n int, texts ...string) int {
		for i, l := range lines {
			if !slices.ContainsFunc(texts, func(s string) bool { return !strings.Contains(l, s) }) {
				if n--; n < 0 {
					return i
				}
			}
		}
		t.Fatalf("no line with %v", texts)
		return 0
	}
	drop := func(i int) []string { return slices.Delete(slices.Clone(lines), i, i+1) }
	change := func(i int, old, now string) []string {
		out := slices.Clone(lines)
		if out[i] = strings.Replace(out[i], old, now, 1); out[i] == lines[i] {
			t.Fatalf("line %d has no %s: %s", i, old, lines[i])
		}
		return out
	}
	start, finish, resize := at(3, `"start"`), at(5, `"finish"`), at(0, `"resize"`, `"speed":1`)
	two := at(0, `"start"`, `:1"`)
	tests := map[string][]string{
		"a start is missing":        drop(start),
		"a finish is missing":       drop(finish),
		"a submission is missing":   drop(at(7, `"submit"`)),
		"a stop is missing":         drop(at(0, `"stop"`)),
		"a failure is missing":      drop(at(0, `"fail"`)),
		"a recovery is missing":     drop(at(0, `"up"`)),
		"it never loaded its state": drop(resize),
		"it works faster":           change(resize, `"speed":1`, `"speed":1.5`),
		"it works more slowly":      change(resize, `"speed":1`, `"speed":0.5`),
		"other GPUs":                change(two, `:1"`, `:2"`),
		"a GPU that is not there":   change(two, `:1"`, `:9"`),
		"one GPU less":              change(two, lines[two][strings.Index(lines[two], `,"n`):strings.Index(lines[two], `]`)], ""),
		"a loss is hidden":          change(at(0, `"lost_s"`), `"lost_s":`, `"lost_s":0.5,"speed":`),
		"it was to run longer":      change(at(9, `"submit"`), `"duration_s":`, `"duration_s":1`),
		"it is somebody else's":     change(at(9, `"submit"`), `"duration_s":`, `"queue":"another","duration_s":`),
		"it is of another class":    change(at(9, `"submit"`, `"class":"`), `"class":"`, `"class":"x`),
		"it is made to be late":     change(at(9, `"submit"`), `"duration_s":`, `"deadline_s":1,"duration_s":`),
		"it is thought to be short": change(at(9, `"submit"`), `"estimate_s":`, `"estimate_s":0.00`),
		"nobody guesses how long":   change(at(9, `"submit"`), `"estimate_s":`, `"estimate_s":0,"deadline_s":-`),
		"two events change places":  swapped(lines, finish),
		"a start comes twice":       slices.Insert(slices.Clone(lines), start, lines[start]),
		"a finish comes twice":      slices.Insert(slices.Clone(lines), finish, lines[finish]),
		"the log is cut off":        lines[:len(lines)/2],
	}
	for name, falsified := range tests {
		t.Run(name, func(t *testing.T) {
			r, err := audit.Check(audit.Input{Events: strings.NewReader(strings.Join(falsified, "\n")), Nodes: nodesOf(cluster), Trace: traceOf(c.Jobs), Replay: true, Estimates: &audit.Estimates{Sigma: 1, Seed: 1}})
			if err == nil && r.FaultCount == 0 {
				t.Error("nothing was found")
			}
		})
	}
	r, err := audit.Check(audit.Input{Events: bytes.NewReader(log), Nodes: nodesOf(cluster), Trace: traceOf(c.Jobs), Replay: true, Estimates: &audit.Estimates{Sigma: 1, Seed: 1}})
	if err != nil || r.FaultCount > 0 {
		t.Fatalf("the log as it is: %v, %v", err, r.Faults)
	}
	// Of 60 standard normal numbers the mean is within 0.65, and the deviation within
	// 0.46, of 0 and 1 in all but one of a million logs.
	if n := r.Noise; n == nil || n.Jobs != len(c.Jobs) || math.Abs(n.Mean) > 0.65 || math.Abs(n.Sigma-1) > 0.46 {
		t.Errorf("estimates %+v: want %d, with a mean error of 0 and a deviation of 1", n, len(c.Jobs))
	}
	for name, said := range map[string]audit.Estimates{"another error": {Sigma: 0.9, Seed: 1}, "another seed": {Sigma: 1, Seed: 2}, "none": {Sigma: -1, Seed: 1}, "exact ones": {Seed: 1}} {
		r, err := audit.Check(audit.Input{Events: bytes.NewReader(log), Nodes: nodesOf(cluster), Estimates: &said})
		if err != nil || r.FaultCount < len(c.Jobs)-1 || !strings.Contains(r.Faults[0], "is thought to run for") {
			t.Errorf("%s: %v, %d faults: want one for each of %d jobs", name, err, r.FaultCount, len(c.Jobs))
		}
	}
	// And so is a result that is another one than the log's.
	var said map[string]any
	if err := json.Unmarshal(metrics, &said); err != nil {
		t.Fatal(err)
	}
	for name, x := range said {
		n, number := x.(float64)
		if !number || strings.HasPrefix(name, "decide_") || name == "decisions" || name == "events" || strings.HasPrefix(name, "bought") {
			continue
		}
		said[name] = n*1.001 + 1e-4
		data, err := json.Marshal(said)
		if err != nil {
			t.Fatal(err)
		}
		if d, err := r.Compare(data); err != nil || len(d) != 1 || d[0].Metric != name {
			t.Errorf("%s changed: %v, %v", name, d, err)
		}
		said[name] = n
	}
}

func swapped(lines []string, i int) []string {
	out := slices.Clone(lines)
	for k := i - 1; k >= 0; k-- {
		if out[k][:12] != out[i][:12] { // another time
			out[k], out[i] = out[i], out[k]
			return out
		}
	}
	return out
}

// What is no log is refused.
func TestRefused(t *testing.T) {
	for name, text := range map[string]string{"nothing": "", "no JSON": "t_s", "an unknown field": `{"t_s":1,"event":"submit","color":1}`, "an impossible time": `{"t_s":1e300,"event":"submit"}`} {
		if _, err := audit.Check(audit.Input{Events: strings.NewReader(text), Nodes: []audit.Node{{Name: "n", GPUs: 4}}}); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

// Any text is read without a panic.
func FuzzCheck(f *testing.F) {
	f.Add(`{"t_s":0,"event":"submit","job":"a","gpus":[],"speed":0,"asks":{"gpus":1,"duration_s":5}}
{"t_s":0,"event":"start","job":"a","gpus":["n:0"],"speed":1}
{"t_s":5,"event":"finish","job":"a","gpus":["n:0"],"speed":0}`)
	f.Add(`{"t_s":0,"event":"down","node":"n"}
{"t_s":0,"event":"resize","job":"a","gpus":["n:0","n:0","m:1"],"speed":-1}`)
	f.Add(`{"t_s":0,"event":"submit","job":"a","gpus":[],"speed":0,"asks":{"gpus":1,"duration_s":5,"gpu_share":0.5}}
{"t_s":0,"event":"start","job":"a","gpus":["s:0/2"],"speed":1}
{"t_s":1,"event":"divide","node":"d","gpus":["d:0"],"profiles":["1g.10gb"]}
{"t_s":5,"event":"finish","job":"a","gpus":["s:0/2"],"speed":0}`)
	f.Fuzz(func(t *testing.T, text string) {
		_, _ = audit.Check(audit.Input{Events: strings.NewReader(text), Nodes: []audit.Node{{Name: "n", GPUs: 2}, {Name: "m", GPUs: 1}, {Name: "s", GPUs: 1, Slices: []int{2}}, {Name: "d", GPUs: 1, Divides: true}}})
	})
}
