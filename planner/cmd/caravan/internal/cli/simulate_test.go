package cli

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// smallTrace has twelve jobs over two days, one of them larger than 16 GPUs.
func smallTrace() string {
	var b strings.Builder
	b.WriteString("job,submit_s,duration_s,gpus,queue,class\n")
	for i := range 12 {
		gpus := []string{"1", "4", "8", "16"}[i%4]
		if i == 7 {
			gpus = "32"
		}
		b.WriteString(strings.Join([]string{"j" + string(rune('a'+i)), []string{"0", "15000", "30000"}[i%3], "36000", gpus, "team", ""}, ",") + "\n")
	}
	return strings.Replace(b.String(), "ja,0,", "ja,100000,", 1)
}

func TestSimulate(t *testing.T) {
	path := writeFile(t, "trace.csv", smallTrace())
	cluster := writeFile(t, "cluster.hcl", "nodes \"dgx\" {\n  count = 2\n  gpus  = 8\n  model = \"H100\"\n}\n")
	broken := writeFile(t, "broken.csv", smallTrace()+"x,1,-5,1,,\n")
	few := writeFile(t, "few.csv", "job,submit_s,duration_s,gpus\na,0,60,1\nb,60,60,1\n")
	large := writeFile(t, "large.csv", "job,submit_s,duration_s,gpus\na,0,60,1\nb,60,60,4096\n")
	both := writeFile(t, "both.hcl", "nodes \"a\" {\n  count = 4\n  gpus  = 8\n  model = \"H100\"\n}\nnodes \"b\" {\n  count = 2\n  gpus  = 8\n  model = \"A100\"\n}\n")
	named := writeFile(t, "named.csv", "job,submit_s,duration_s,gpus,gpu_models\na,0,60,1,\nb,60,60,32,A100\nc,120,60,1,\n")
	wrong := writeFile(t, "wrong.hcl", "nodes \"dgx\" {\n  count = 0\n  gpus  = 99\n  model = \"H1000\"\n}\n")
	queues := writeFile(t, "queues.hcl", "queue \"team\" {\n  guarantee {\n    gpus = 8\n  }\n}\n")
	late := writeFile(t, "late.csv", "job,submit_s,duration_s,gpus,deadline_s\na,0,36000,8,\nb,60,7200,8,20000\n")
	pools := writeFile(t, "pools.hcl", `pool "eu" {
  provider      = "aws"
  region        = "eu"
  instance_type = "dgx"
  quota         = 4
  boot_time     = "1m"
  node {
    gpus       = 8
    model      = "NVIDIA A100-SXM4-80GB"
    cpu_mhz    = 1000
    memory_mib = 1000
    disk_mib   = 1000
  }
  price {
    on_demand = 10
  }
  terraform {
    working_directory = "eu"
  }
}
`)
	shards := writeFile(t, "sacct.txt", "JobID|Submit|ElapsedRaw|AllocTRES\n1|1970-01-01T00:00:07|60|gres/shard=1\n2|1970-01-01T00:00:07|60|gres/gpu=1\n3|1970-01-01T00:00:07|0|gres/gpu=1\n4|1970-01-01T00:01:07|60|gres/gpu=1\n")
	own := writeFile(t, "own.hcl", "policy {\n  order = \"sjf\"\n}\n")
	tests := map[string]struct {
		args     []string
		wantCode int
		wantOut  []string
		wantErr  []string
	}{
		"a table":              {args: []string{"simulate", "--trace", path, "--gpus", "16", "--policies", "k8s-default,gang", "--seeds", "2", "--load", "0.9"}, wantOut: []string{"POLICY", "k8s-default", "gang", "AGAINST K8S-DEFAULT"}},
		"no steady state":      {args: []string{"simulate", "--trace", path, "--gpus", "16", "--policies", "gang", "--seeds", "1"}, wantOut: []string{"there is no steady state"}},
		"pools":                {args: []string{"simulate", "--trace", path, "--gpus", "16", "--policies", "k8s-default,fifo", "--seeds", "1", "--no-bootstrap", "--estimate-sigma", "0", "--pools", filepath.Join("..", "..", "..", "..", "..", "autoscaler", "pool", "testdata", "pools.hcl"), "--burst-wait", "1s", "--json"}, wantOut: []string{`"bought": 0,`, `"bought_per_run"`}},
		"no pool in the file":  {args: []string{"simulate", "--trace", path, "--pools", writeFile(t, "none.hcl", "")}, wantCode: 1, wantErr: []string{"none.hcl has no pool"}},
		"a wait without pools": {args: []string{"simulate", "--trace", path, "--burst-wait", "1h"}, wantCode: 2, wantErr: []string{"--burst-wait 1h0m0s without --pools"}},
		"what was bought":      {args: []string{"simulate", "--trace", late, "--gpus", "8", "--policies", "fifo", "--seeds", "1", "--no-bootstrap", "--even-speed", "--load", "90", "--estimate-sigma", "0", "--pools", pools, "--burst-wait", "1m"}, wantOut: []string{"DEADLINES MET", "BOUGHT", " 21.00"}},
		"no such pools":        {args: []string{"simulate", "--trace", path, "--pools", "/no/such"}, wantCode: 1, wantErr: []string{"read pools"}},
		"a cluster file":       {args: []string{"simulate", "--trace", path, "--cluster", cluster, "--policies", "fifo", "--seeds", "1", "--no-bootstrap"}, wantOut: []string{"fifo"}},
		"jobs of a model of which there are too few": {args: []string{"simulate", "--trace", named, "--cluster", both, "--policies", "gang", "--seeds", "1", "--no-bootstrap"}, wantOut: []string{"gang"}, wantErr: []string{"can never hold them: 1; the first is b, of 32 GPUs of NVIDIA A100-SXM4-80GB; the largest is b"}},
		"jobs that no cluster holds":                 {args: []string{"simulate", "--trace", path, "--gpus", "16", "--policies", "gang", "--seeds", "1", "--no-bootstrap"}, wantOut: []string{"gang"}, wantErr: []string{"jobs left out because the cluster of 16 GPUs, at most 8 on a node, can never hold them: 1; the first is jh, of 32 GPUs; the largest is jh, of 32 GPUs"}},
		"a wrong cluster file":                       {args: []string{"simulate", "--trace", path, "--cluster", wrong}, wantCode: 1, wantErr: []string{"count is 0", "gpus is 99", "\"H1000\": want one of A10, A100"}},
		"an unknown policy":                          {args: []string{"simulate", "--trace", path, "--policies", "best,gang", "--seeds", "0"}, wantCode: 2, wantErr: []string{"policy \"best\": want one of k8s-default", "seeds 0"}},
		"more behind an order":                       {args: []string{"simulate", "--trace", path, "--gpus", "16", "--policies", "sjf+easy+preempt", "--seeds", "1", "--load", "0.9"}, wantOut: []string{"sjf+easy+preempt"}},
		"something else behind it":                   {args: []string{"simulate", "--trace", path, "--policies", "sjf+luck"}, wantCode: 2, wantErr: []string{"policy sjf+luck: want easy"}},
		"words that are at odds": {args: []string{"simulate", "--trace", path, "--policies", "sjf+unsaved,caravan+no-preempt+lend,fifo+preempt+no-preempt,fifo+easy+conservative,fifo+easy+easy,fifo+,fifo@,caravan@unsaved25@unsaved50,fifo@oracle@no-estimates"}, wantCode: 2, wantErr: []string{
			"policy sjf+unsaved: unsaved is about who gives way, and nobody does", "lend is about who gives way", "want preempt or no-preempt, not both", "want easy or conservative, not both",
			"easy is there twice", "policy fifo+: want easy", "policy fifo@: \"\": want one of elastic100", "want unsaved25 or unsaved50 behind the @, not both", "want oracle or no-estimates behind the @",
		}},
		"words behind others":           {args: []string{"simulate", "--trace", path, "--policies", "p.hcl+easy,k8s-default+easy,sjf@oracle+easy"}, wantCode: 2, wantErr: []string{"policy p.hcl+easy: want p.hcl alone", "policy k8s-default+easy: want k8s-default alone", "policy sjf@oracle+easy: +easy goes before the @: want sjf+easy@oracle"}},
		"rows of their own":             {args: []string{"simulate", "--trace", path, "--gpus", "16", "--policies", "sjf@oracle,sjf@no-estimates,fifo@elastic100,gang+no-elastic", "--seeds", "1", "--elastic", "0.5"}, wantOut: []string{"sjf@oracle", "sjf@no-estimates", "fifo@elastic100"}},
		"another row":                   {args: []string{"simulate", "--trace", path, "--policies", "sjf@luck", "--elastic", "2"}, wantCode: 2, wantErr: []string{`"luck": want one of elastic100, elastic30, no-estimates, oracle, unsaved100, unsaved25, unsaved50, unsaved75 behind an @`, "elastic part 2"}},
		"queues and a policy's file":    {args: []string{"simulate", "--trace", path, "--gpus", "16", "--policies", own + ",fairshare", "--queues", queues, "--seeds", "1"}, wantOut: []string{"own.hcl", "fairshare"}},
		"a wrong policy's file":         {args: []string{"simulate", "--trace", path, "--policies", queues}, wantCode: 1, wantErr: []string{"queues.hcl"}},
		"no such queues":                {args: []string{"simulate", "--trace", path, "--queues", "/no/such"}, wantCode: 1, wantErr: []string{"read queues"}},
		"more jobs than are kept":       {args: []string{"simulate", "--trace", path, "--gpus", "32", "--policies", "gang", "--seeds", "1", "--max-jobs", "11"}, wantOut: []string{"gang"}, wantErr: []string{"12 jobs are more than are kept (--max-jobs): 1 of its 2 days are used"}},
		"shards of an unknown size":     {args: []string{"trace", "convert", "--format", "sacct", shards}, wantOut: []string{"\n2,"}, wantErr: []string{"2 of 4 rows are left out: it has a part of a GPU (gres/shard): say with --shards-per-gpu"}},
		"shards":                        {args: []string{"trace", "convert", "--format", "sacct", "--shards-per-gpu", "4", shards}, wantOut: []string{"\n1,7,60,1,,,,,,,0.25,,\n"}},
		"shards without end":            {args: []string{"trace", "convert", "--format", "sacct", "--shards-per-gpu", "9999", shards}, wantCode: 2, wantErr: []string{"--shards-per-gpu 9999: want 0 (jobs with shards are left out) to 1024"}},
		"no job is kept":                {args: []string{"simulate", "--trace", path, "--max-jobs", "0"}, wantCode: 2, wantErr: []string{"--max-jobs 0: want 1 or more"}},
		"a load of nothing":             {args: []string{"simulate", "--trace", path, "--load", "0"}, wantCode: 2, wantErr: []string{"load 0"}},
		"no trace":                      {args: []string{"simulate"}, wantCode: 2, wantErr: []string{"no trace"}},
		"no such trace":                 {args: []string{"simulate", "--trace", "/no/such"}, wantCode: 1, wantErr: []string{"/no/such"}},
		"a cluster of half a node":      {args: []string{"simulate", "--trace", path, "--gpus", "12"}, wantCode: 2, wantErr: []string{"12 GPUs with 8 per node"}},
		"broken rows":                   {args: []string{"simulate", "--trace", broken, "--gpus", "16", "--policies", "gang", "--seeds", "1", "--no-bootstrap"}, wantOut: []string{"gang", "Not played: 1 of 13 rows are broken and left out; the first is line 14: duration_s -5 s", "Not played: jobs left out because the cluster of 16 GPUs"}, wantErr: []string{"1 of 13 rows are broken", "line 14: duration_s -5 s"}},
		"rows that are no jobs":         {args: []string{"simulate", "--trace", shards, "--format", "sacct", "--gpus", "8", "--policies", "gang", "--seeds", "1", "--no-bootstrap"}, wantOut: []string{"Not played: 2 of 4 rows"}, wantErr: []string{"2 of 4 rows are left out: it has a part of a GPU (gres/shard): say with --shards-per-gpu how many a GPU has (1), it never ran (1); the first is line 2: it has a part"}},
		"broken rows stop":              {args: []string{"simulate", "--trace", broken, "--strict"}, wantCode: 1, wantErr: []string{"line 14: duration_s -5 s"}},
		"gavel without its throughputs": {args: []string{"simulate", "--trace", path, "--format", "gavel"}, wantCode: 2, wantErr: []string{"simulation_throughputs.json.gz", "--throughputs"}},
		"describe":                      {args: []string{"trace", "describe", path}, wantOut: []string{"12 in 1.2 days", "32    1"}},
		"describe what is left out":     {args: []string{"trace", "describe", "--format", "sacct", shards}, wantOut: []string{"2 in 0.0 days, of 4 rows", "the first is line 2: it has a part of a GPU"}, wantErr: []string{"2 of 4 rows are left out"}},
		"describe as JSON":              {args: []string{"trace", "describe", "--json", path}, wantOut: []string{`"max_gpus": 32`, `"rows": 12`}},
		"convert":                       {args: []string{"trace", "convert", path}, wantOut: []string{"job,submit_s,duration_s,gpus", "jb,15000,36000,4"}},
		"sample":                        {args: []string{"trace", "sample", "--from", "1", "--days", "1", path}, wantOut: []string{"ja,0,36000,1"}},
		"sample of nothing":             {args: []string{"trace", "sample", "--from", "9", path}, wantCode: 1, wantErr: []string{"no job is submitted"}},
		"scale":                         {args: []string{"trace", "scale", "--gpus", "16", "--load", "0.5", path}, wantOut: []string{"ja,"}, wantErr: []string{"1 jobs are larger than 16 GPUs"}},
		"make up":                       {args: []string{"trace", "synth", "--jobs", "3", "--days", "1"}, wantOut: []string{"synth-000001"}},
		"make up nothing":               {args: []string{"trace", "synth", "--jobs", "0"}, wantCode: 2, wantErr: []string{"jobs 0: want 1 to 10000000"}},
		"make up without end":           {args: []string{"trace", "synth", "--days", "NaN", "--small", "NaN", "--gpus-per-node", "0", "--max-nodes", "-1"}, wantCode: 2, wantErr: []string{"days NaN: want more than 0, at most 100000", "small NaN: want a part from 0 to 1", "gpus-per-node 0: want 1 to 64", "max-nodes -1: want 1 to 16384"}},
		"make up for ever":              {args: []string{"trace", "synth", "--days", "Inf"}, wantCode: 2, wantErr: []string{"days +Inf"}},
		"sample before the first day":   {args: []string{"trace", "sample", "--from", "-3", "--days", "NaN", path}, wantCode: 2, wantErr: []string{"--from -3: want 0 to 100000", "--days NaN: want more than 0"}},
		"scale to no cluster":           {args: []string{"trace", "scale", "--gpus", "-4", path}, wantCode: 2, wantErr: []string{"gpus -4: want 1 to"}},
		"scale to a load without end":   {args: []string{"trace", "scale", "--load", "Inf", path}, wantCode: 2, wantErr: []string{"load +Inf: want 0.0001 to 100"}},
		"scale to nearly no load":       {args: []string{"trace", "scale", "--load", "1e-300", path}, wantCode: 2, wantErr: []string{"load 1e-300: want 0.0001 to 100"}},
		"numbers that are none":         {args: []string{"simulate", "--trace", path, "--load", "1e-300", "--repair", "NaN", "--failures", "Inf", "--interval", "Inf"}, wantCode: 2, wantErr: []string{"load 1e-300: want 0.0001", "repair NaN: want more than 0", "failures +Inf of each node", "interval +Inf: want 0 to 86400"}},
		"a network without end":         {args: []string{"simulate", "--trace", path, "--oversubscription", "4,2"}, wantCode: 2, wantErr: []string{"oversubscription 4 above racks, 2 above blocks: want 1 or more, no less above blocks"}},
		"a network that is none":        {args: []string{"simulate", "--trace", path, "--oversubscription", "0,0"}, wantCode: 2, wantErr: []string{"--oversubscription 0 above racks, 0 above blocks: want 1 or more"}},
		"a network as it is not":        {args: []string{"simulate", "--trace", path, "--oversubscription", "NaN,Inf"}, wantCode: 2, wantErr: []string{"oversubscription NaN above racks"}},
		"another growth":                {args: []string{"simulate", "--trace", path, "--elastic-speed", "cubic"}, wantCode: 2, wantErr: []string{`--elastic-speed "cubic": want linear or model`}},
		"growth by the model":           {args: []string{"simulate", "--trace", path, "--gpus", "64", "--policies", "goodput@elastic100", "--seeds", "1", "--elastic-speed", "model", "--json"}, wantOut: []string{`"elastic_speed": "model"`}},
		"a narrow network":              {args: []string{"simulate", "--trace", path, "--gpus", "64", "--policies", "gang", "--seeds", "1", "--oversubscription", "4,8", "--json"}, wantOut: []string{`"oversubscription": [`}},
		"nothing in the middle":         {args: []string{"simulate", "--trace", few, "--gpus", "16", "--policies", "gang", "--seeds", "1", "--no-bootstrap"}, wantOut: []string{"No job is submitted in the middle half of the time, so", "  -         -        -        -  "}},
		"all but one too large":         {args: []string{"simulate", "--trace", large, "--gpus", "16", "--policies", "gang", "--seeds", "1", "--no-bootstrap"}, wantCode: 1, wantErr: []string{"scale 1 jobs", "can never hold them: 1, the largest is b, of 4096 GPUs"}},
		"no such command":               {args: []string{"trace", "draw", path}, wantCode: 2, wantErr: []string{`unknown command "draw" for "caravan trace"`}},
		"a time unit":                   {args: []string{"trace", "describe", "--time-unit", "h", path}, wantCode: 2, wantErr: []string{`--time-unit "h"`}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got := newFakePlanner(t).call(nil, "", test.args...)
			if got.code != test.wantCode {
				t.Errorf("exit code %d: want %d\n%s%s", got.code, test.wantCode, got.out, got.errOut)
			}
			for _, want := range test.wantOut {
				if !strings.Contains(got.out, want) {
					t.Errorf("output lacks %q:\n%s", want, got.out)
				}
			}
			for _, want := range test.wantErr {
				if !strings.Contains(got.errOut, want) {
					t.Errorf("error lacks %q:\n%s", want, got.errOut)
				}
			}
		})
	}
}

// What comes from a pipe is read as often as it takes.
func TestTracesFromAPipe(t *testing.T) {
	text := smallTrace() + "x,1,-5,1,,\n"
	path := writeFile(t, "trace.csv", text)
	for _, args := range [][]string{{"sample", "--from", "0.2", "--days", "1"}, {"sample", "--seed", "3"}, {"scale", "--gpus", "16", "--load", "0.5"}, {"convert"}, {"describe", "--json"}} {
		args = append([]string{"trace"}, args...)
		file := newFakePlanner(t).call(nil, "", append(args, path)...)
		pipe := newFakePlanner(t).call(nil, text, append(args, "-")...)
		if file.code != 0 || pipe.code != 0 || file.out != pipe.out || len(strings.Split(file.out, "\n")) < 4 {
			t.Errorf("%v: from a pipe:\n%s%s\nfrom a file:\n%s%s", args, pipe.out, pipe.errOut, file.out, file.errOut)
		}
		if want := "-: 1 of 13 rows are broken"; !strings.Contains(pipe.errOut, want) {
			t.Errorf("%v: error lacks %q:\n%s", args, want, pipe.errOut)
		}
	}
	if got := newFakePlanner(t).call(nil, "", "trace", "scale", "-"); got.code != 1 || !strings.Contains(got.errOut, "empty") || got.out != "" {
		t.Errorf("an empty pipe: %+v", got)
	}
}

// The JSON has every metric, and each run's events are a file of their own.
func TestSimulateJSON(t *testing.T) {
	path := writeFile(t, "trace.csv", smallTrace())
	events := filepath.Join(t.TempDir(), "events.jsonl")
	got := newFakePlanner(t).call(nil, "", "simulate", "--trace", path, "--gpus", "16", "--policies", "gang,fifo", "--seeds", "1", "--json", "--events", events, "--report", filepath.Dir(events))
	if got.code != CodeOK {
		t.Fatalf("exit code %d: %s", got.code, got.errOut)
	}
	var out struct {
		Results []struct {
			Policy  string
			Seed    int
			Metrics map[string]any
		}
		Differences []struct{ Against string }
	}
	if err := json.Unmarshal([]byte(got.out), &out); err != nil || len(out.Results) != 2 || len(out.Differences) != 1 || out.Differences[0].Against != "gang" {
		t.Fatalf("%d results, %v", len(out.Results), err)
	}
	for _, name := range []string{"utilisation_allocated", "utilisation_productive", "utilisation_bound", "jct_mean_s", "jct_p50_s", "jct_p99_s", "jct_p999_s", "jct_max_s", "jct_gpu_weighted_s", "jct_p99_bound_s", "queue_p95_s", "free_fillable", "free_fragmented", "free_indivisible", "cost_per_run", "queue_fair_share_mean_s", "queue_fragmentation_mean_s", "queue_provisioning_mean_s", "requeue_p95_s", "free_fgd", "finish_time_fairness_max", "preemptions", "gpu_hours_lost", "unfinished", "decide_mean_us", "decide_event_us"} {
		if _, ok := out.Results[0].Metrics[name].(float64); !ok {
			t.Errorf("%s is missing", name)
		}
	}
	if page, err := os.ReadFile(filepath.Join(filepath.Dir(events), "index.html")); err != nil || !strings.Contains(string(page), "trace.csv") {
		t.Errorf("the report: %v", err)
	}
	for _, policy := range []string{"gang", "fifo"} {
		b, err := os.ReadFile(strings.TrimSuffix(events, ".jsonl") + "." + policy + ".1.jsonl")
		if err != nil || !strings.Contains(string(b), `"event":"finish"`) {
			t.Errorf("events of %s: %v", policy, err)
		}
	}
}

// The JSON and the report say all that the results depend on.
func TestSimulateSaysTheSetup(t *testing.T) {
	path, dir := writeFile(t, "trace.csv", smallTrace()), t.TempDir()
	cluster := writeFile(t, "ours.hcl", "nodes \"a\" {\n  count = 2\n  gpus = 8\n  model = \"H100\"\n}\nnodes \"b\" {\n  count = 1\n  gpus = 1\n  model = \"L40S\"\n  sharing {\n    slices = 4\n  }\n}\n")
	got := newFakePlanner(t).call(nil, "", "simulate", "--trace", path, "--cluster", cluster, "--policies", "gang,fifo", "--seeds", "1", "--json", "--report", dir, "--no-bootstrap", "--even-speed", "--failures", "0.5", "--repair", "60", "--estimate-sigma", "-1", "--interference", "0.25", "--elastic", "0.5")
	if got.code != CodeOK {
		t.Fatalf("exit code %d: %s", got.code, got.errOut)
	}
	for _, want := range []string{`"bootstrap": false`, `"speed_by_place": false`, `"failures_per_node_day": 0.5`, `"repair_s": 60`, `"divide_s": 10`, `"interference": 0.25`, `"cluster": "ours.hcl"`, `"burst_wait_s": 0`, `"trace_file": "trace.csv"`, `"trace_format": "csv"`} {
		if !strings.Contains(got.out, want) {
			t.Errorf("the JSON lacks %s", want)
		}
	}
	page, err := os.ReadFile(filepath.Join(dir, "index.html"))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"ours.hcl: 17 GPUs, at most 8 whole ones on a node", "1, each with the trace as it is, so that intervals are of what else is drawn", "<td>none</td>", "the same everywhere (--even-speed)", "0.5 of each node in a day, away for 60 s on average", "0.5 of the whole-node jobs", "dividing takes 10 s; interference 0.25", "the first is jh, of 32 GPUs"} {
		if !strings.Contains(string(page), want) {
			t.Errorf("the report lacks %s", want)
		}
	}
}

// As it is, a trace has the load that it has: a and b ask for 12 of 16 GPUs for an hour, c for all of
// them for a minute, in two hours. Submissions stay, and what comes at one time has no load.
func TestSimulateUnscaled(t *testing.T) {
	path := writeFile(t, "trace.csv", "job,submit_s,duration_s,gpus\na,0,3600,8\nb,1800,3600,4\nc,7200,60,16\n")
	events := filepath.Join(t.TempDir(), "events.jsonl")
	args := []string{"simulate", "--gpus", "16", "--policies", "gang", "--seeds", "1", "--no-bootstrap", "--unscaled", "--trace"}
	got := newFakePlanner(t).call(nil, "", append(args, path, "--events", events, "--json")...)
	if got.code != CodeOK || !strings.Contains(got.out, `"load": 0.38333`) || !strings.Contains(got.out, `"unscaled": true`) {
		t.Errorf("exit code %d: %s%s", got.code, got.out, got.errOut)
	}
	if b, err := os.ReadFile(events); err != nil || !strings.Contains(string(b), `{"t_s":7200,"event":"submit","job":"c"`) {
		t.Errorf("events: %v\n%s", err, b)
	}
	if got := newFakePlanner(t).call(nil, "", append(args, path)...); got.code != CodeOK || !strings.HasPrefix(got.out, "Load 0.383, as submitted.\n\n") {
		t.Errorf("exit code %d: %s%s", got.code, got.out, got.errOut)
	}
	at := writeFile(t, "at.csv", "job,submit_s,duration_s,gpus\na,0,3600,8\nb,0,3600,4\n")
	if got := newFakePlanner(t).call(nil, "", append(args, at)...); got.code != CodeFailure || !strings.Contains(got.errOut, "all 2 jobs are submitted at one time: want different times") {
		t.Errorf("exit code %d: %s%s", got.code, got.out, got.errOut)
	}
}

// A report that cannot be written is refused before anything is played.
func TestSimulateReportNowhere(t *testing.T) {
	path := writeFile(t, "trace.csv", smallTrace())
	events := filepath.Join(t.TempDir(), "events.jsonl")
	got := newFakePlanner(t).call(nil, "", "simulate", "--trace", path, "--gpus", "16", "--policies", "gang", "--seeds", "1", "--events", events, "--report", filepath.Join(path, "report"))
	if got.code != CodeFailure || !strings.Contains(got.errOut, "write report: mkdir") || got.out != "" {
		t.Errorf("exit code %d: %s%s", got.code, got.out, got.errOut)
	}
	if _, err := os.Stat(events); !os.IsNotExist(err) {
		t.Errorf("it was played: %v", err)
	}
}

// What a row cannot be played by is told, and the other rows have all that they would have.
func TestSimulateRowsThatComeToNoEnd(t *testing.T) {
	path, dir := writeFile(t, "trace.csv", smallTrace()), t.TempDir()
	events := filepath.Join(dir, "events.jsonl")
	got := newFakePlanner(t).call(nil, "", "simulate", "--trace", path, "--gpus", "16", "--policies", "caravan+reserve,gang,fifo", "--seeds", "1", "--no-bootstrap", "--json", "--events", events, "--report", dir)
	const want = "which would fit, but not beside 1 GPU kept for interactive jobs"
	if got.code != CodeFailure || !strings.Contains(got.errOut, "simulate: caravan+reserve, seed 1: ") || !strings.Contains(got.errOut, want) {
		t.Errorf("exit code %d: %s", got.code, got.errOut)
	}
	var out simulated
	if err := json.Unmarshal([]byte(got.out), &out); err != nil {
		t.Fatalf("%v: %s", err, got.out)
	}
	if len(out.Results) != 2 || out.Results[0].Policy != "gang" || len(out.Differences) != 1 || out.Differences[0].Against != "gang" {
		t.Errorf("results: %+v; differences: %+v", out.Results, out.Differences)
	}
	if len(out.Failed) != 1 || out.Failed[0].Policy != "caravan+reserve" || out.Failed[0].Seed != 1 || !strings.Contains(out.Failed[0].Error, want) {
		t.Errorf("failed: %+v", out.Failed)
	}
	if page, err := os.ReadFile(filepath.Join(dir, "index.html")); err != nil || !strings.Contains(string(page), want) {
		t.Errorf("the report does not say it: %v", err)
	}
	for file, there := range map[string]bool{"events.gang.1.jsonl": true, "events.fifo.1.jsonl": true, "events.caravan+reserve.1.jsonl": false, "events.caravan+reserve.1.jsonl.part": false} {
		if _, err := os.Stat(filepath.Join(dir, file)); (err == nil) != there {
			t.Errorf("%s: %v: want it there: %t", file, err, there)
		}
	}
}
