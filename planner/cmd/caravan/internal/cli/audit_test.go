package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The events of a simulation bear out its results; others are found out.
func TestCheckEvents(t *testing.T) {
	path := writeFile(t, "trace.csv", smallTrace())
	events := filepath.Join(t.TempDir(), "events.jsonl")
	played := newFakePlanner(t).call(nil, "", "simulate", "--trace", path, "--gpus", "16", "--policies", "k8s-default,sjf", "--seeds", "1", "--no-bootstrap", "--failures", "1", "--json", "--events", events)
	if played.code != CodeOK {
		t.Fatalf("exit code %d: %s", played.code, played.errOut)
	}
	results := writeFile(t, "results.json", played.out)
	events = strings.TrimSuffix(events, ".jsonl") + ".k8s-default.1.jsonl"
	log, err := os.ReadFile(events)
	if err != nil {
		t.Fatal(err)
	}
	twice := writeFile(t, "twice.jsonl", strings.Replace(string(log), `"event":"finish"`, `"event":"stop"`, 1))
	other := writeFile(t, "other.json", strings.Replace(played.out, `"jct_mean_s": `, `"jct_mean_s": 9`, 1))
	failed := writeFile(t, "failed.json", `{"error":"x"}`)
	noised := writeFile(t, "noised.json", strings.Replace(played.out, `"estimate_sigma": 1`, `"estimate_sigma": 0.5`, 1))
	others := writeFile(t, "others.csv", "job,submit_s,duration_s,gpus\nz,0,1,1\n")
	tests := map[string]struct {
		args             []string
		wantCode         int
		wantOut, wantErr string
	}{
		"as it is":             {args: []string{events, "--trace", path}, wantOut: "Faults     none"},
		"with its results":     {args: []string{events, "--results", results, "--policy", "k8s-default"}, wantOut: "every metric is what the events say"},
		"as JSON":              {args: []string{events, "--json"}, wantOut: `"work_submitted_gpu_h"`},
		"an end is missing":    {args: []string{twice}, wantCode: 1, wantOut: "never finished", wantErr: "faults: 1; metrics that are others: 0"},
		"other results":        {args: []string{events, "--results", other, "--policy", "k8s-default"}, wantCode: 1, wantOut: "jct_mean_s", wantErr: "faults: 0; metrics that are others: "},
		"results of others":    {args: []string{events, "--results", results, "--policy", "las"}, wantCode: 2, wantErr: "k8s-default, seed 1"},
		"another cluster":      {args: []string{events, "--gpus-per-node", "4"}, wantCode: 1, wantOut: "there is no GPU"},
		"another trace":        {args: []string{events, "--trace", others, "--no-bootstrap"}, wantCode: 1, wantOut: "is not in the trace"},
		"estimates":            {args: []string{events, "--estimate-sigma", "1"}, wantOut: "σ ="},
		"estimates of others":  {args: []string{events, "--estimate-sigma", "1", "--seed", "2"}, wantCode: 1, wantOut: "is thought to run for"},
		"estimates twice":      {args: []string{events, "--estimate-sigma", "1", "--results", results, "--policy", "sjf"}, wantCode: 2, wantErr: "--estimate-sigma beside --results"},
		"results of estimates": {args: []string{events, "--results", noised, "--policy", "k8s-default"}, wantCode: 1, wantOut: "with an error of σ = 0.5"},
		"no events":            {args: []string{path}, wantCode: 1, wantErr: "invalid events: line 1"},
		"no such file":         {args: []string{"/no/such"}, wantCode: 1, wantErr: "/no/such"},
		"results of a failure": {args: []string{events, "--results", failed}, wantCode: 2, wantErr: "there is no result in it: want the output of simulate --json, it failed: x\n"},
		"results that are not": {args: []string{events, "--results", path}, wantCode: 1, wantErr: "read results"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got := newFakePlanner(t).call(nil, "", append([]string{"trace", "check-events", "--gpus", "16"}, test.args...)...)
			if got.code != test.wantCode || !strings.Contains(got.out, test.wantOut) || !strings.Contains(got.errOut, test.wantErr) {
				t.Errorf("exit code %d: want %d, %q and %q\n%s%s", got.code, test.wantCode, test.wantOut, test.wantErr, got.out, got.errOut)
			}
		})
	}
}

// To k8s-default the GPUs of a cluster with parts are whole: whoever does not say whose
// events they are is told to.
func TestCheckEventsOfAClusterWithParts(t *testing.T) {
	cluster := writeFile(t, "parts.hcl", "nodes \"a\" {\n  count = 2\n  gpus = 8\n  model = \"L40S\"\n  sharing {\n    slices = 4\n  }\n}\n")
	path := writeFile(t, "trace.csv", "job,submit_s,duration_s,gpus,gpu_share\na,0,600,1,0.5\nb,60,600,1,0.25\nc,9000,60,1,0.25\n")
	events := filepath.Join(t.TempDir(), "events.jsonl")
	played := newFakePlanner(t).call(nil, "", "simulate", "--trace", path, "--cluster", cluster, "--policies", "k8s-default", "--seeds", "1", "--no-bootstrap", "--events", events)
	if played.code != CodeOK {
		t.Fatalf("exit code %d: %s", played.code, played.errOut)
	}
	if got := newFakePlanner(t).call(nil, "", "trace", "check-events", events, "--cluster", cluster); got.code != CodeFailure || !strings.Contains(got.errOut, "say so with --policy") {
		t.Errorf("without --policy: exit code %d: %s", got.code, got.errOut)
	}
	if got := newFakePlanner(t).call(nil, "", "trace", "check-events", events, "--cluster", cluster, "--policy", "k8s-default"); got.code != CodeOK || !strings.Contains(got.out, "Faults     none") {
		t.Errorf("with --policy: exit code %d: %s%s", got.code, got.out, got.errOut)
	}
}

// Jobs that the shape of a cluster can never hold are left out, and nobody misses
// them among the events.
func TestCheckEventsOfAnUnevenCluster(t *testing.T) {
	cluster := writeFile(t, "uneven.hcl", "nodes \"big\" {\n  count = 2\n  gpus = 8\n  model = \"H100\"\n}\nnodes \"small\" {\n  count = 4\n  gpus = 4\n  model = \"A100\"\n}\n")
	path := writeFile(t, "trace.csv", "job,submit_s,duration_s,gpus\na,0,600,8\nb,60,600,24\nc,90,600,20\nd,9000,60,4\n")
	events := filepath.Join(t.TempDir(), "events.jsonl")
	for _, policy := range []string{"k8s-default", "gang"} {
		played := newFakePlanner(t).call(nil, "", "simulate", "--trace", path, "--cluster", cluster, "--policies", policy, "--seeds", "1", "--no-bootstrap", "--json", "--events", events)
		if played.code != CodeOK || !strings.Contains(played.errOut, "never hold them: 1; the first is b, of 24 GPUs") {
			t.Fatalf("%s: exit code %d: %s", policy, played.code, played.errOut)
		}
		if got := newFakePlanner(t).call(nil, "", "trace", "check-events", events, "--cluster", cluster, "--trace", path, "--no-bootstrap"); got.code != CodeOK {
			t.Errorf("%s: exit code %d:\n%s%s", policy, got.code, got.out, got.errOut)
		}
	}
}

// Jobs of one name are told apart alike by whoever reads the trace.
func TestCheckEventsOfNamesThatComeAgain(t *testing.T) {
	path := writeFile(t, "trace.csv", "job,submit_s,duration_s,gpus\na,100,100,4\na,120,100,1\nr,-5,100,1\n")
	events := filepath.Join(t.TempDir(), "events.jsonl")
	played := newFakePlanner(t).call(nil, "", "simulate", "--trace", path, "--gpus", "8", "--policies", "gang", "--seeds", "1", "--no-bootstrap", "--json", "--events", events)
	if played.code != CodeOK {
		t.Fatalf("exit code %d: %s", played.code, played.errOut)
	}
	if got := newFakePlanner(t).call(nil, "", "trace", "check-events", events, "--gpus", "8", "--trace", path, "--no-bootstrap"); got.code != CodeOK {
		t.Errorf("exit code %d:\n%s%s", got.code, got.out, got.errOut)
	}
}

// Parts of GPUs are played and checked, also by a baseline that gives none.
func TestCheckEventsOfParts(t *testing.T) {
	cluster := writeFile(t, "parts.hcl", "nodes \"a\" {\n  count = 1\n  gpus = 4\n  model = \"H100\"\n  sharing {\n    slices = 2\n    count = 1\n  }\n}\nnodes \"b\" {\n  count = 1\n  gpus = 2\n  model = \"H100\"\n  mig = \"auto\"\n}\n")
	path := writeFile(t, "trace.csv", "job,submit_s,duration_s,gpus,gpu_share,mig_profile\na,0,600,1,0.5,\nb,60,600,1,0.5,\nc,90,600,1,,3g.40gb\nd,9000,60,3,,\n")
	for _, policy := range []string{"caravan", "k8s-default"} {
		events := filepath.Join(t.TempDir(), "events.jsonl")
		args := []string{"--trace", path, "--cluster", cluster, "--no-bootstrap"}
		played := newFakePlanner(t).call(nil, "", append([]string{"simulate", "--policies", policy, "--seeds", "1", "--load", "0.1", "--divide", "20", "--interference", "0.47", "--events", events, "--json"}, args...)...)
		results := writeFile(t, "results.json", played.out)
		got := newFakePlanner(t).call(nil, "", append([]string{"trace", "check-events", events, "--results", results}, args...)...)
		log, err := os.ReadFile(events)
		if got.code != CodeOK || err != nil {
			t.Fatalf("%s: exit code %d, %v:\n%s%s%s", policy, got.code, err, got.out, got.errOut, played.errOut)
		}
		if parts := strings.Contains(string(log), `"a-00000:3/2"`) && strings.Contains(string(log), `"divided"`); parts != (policy == "caravan") {
			t.Errorf("%s: parts of GPUs: %t\n%s", policy, parts, log)
		}
	}
}

// Rows whose jobs nobody estimates, or everybody knows, or that save nothing are checked for
// that.
func TestCheckEventsOfRows(t *testing.T) {
	path := writeFile(t, "trace.csv", smallTrace())
	events := filepath.Join(t.TempDir(), "events.jsonl")
	rows := []string{"sjf", "sjf@oracle", "gang@no-estimates", "sjf@unsaved50", "las@unsaved100"}
	played := newFakePlanner(t).call(nil, "", "simulate", "--trace", path, "--gpus", "16", "--policies", strings.Join(rows, ","), "--seeds", "2", "--estimate-sigma", "0.5", "--json", "--events", events)
	if played.code != CodeOK {
		t.Fatalf("exit code %d: %s", played.code, played.errOut)
	}
	results := writeFile(t, "results.json", played.out)
	if got := newFakePlanner(t).call(nil, "", "trace", "check-events", events, "--gpus", "16", "--results", results, "--seed", "2"); got.code != CodeUsage || !strings.Contains(got.errOut, "sjf@oracle, seed 2") {
		t.Errorf("of which policy they are nobody says: exit code %d: %s", got.code, got.errOut)
	}
	for _, row := range rows {
		log := strings.TrimSuffix(events, ".jsonl") + "." + row + ".2.jsonl"
		got := newFakePlanner(t).call(nil, "", "trace", "check-events", log, "--gpus", "16", "--results", results, "--policy", row, "--seed", "2", "--trace", path)
		if got.code != CodeOK || strings.Contains(got.out, "Estimates") == (row == rows[2]) {
			t.Errorf("%s: exit code %d: %s%s", row, got.code, got.out, got.errOut)
		}
	}
	log := strings.TrimSuffix(events, ".jsonl") + "." + rows[4] + ".2.jsonl"
	for _, test := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"--policy", rows[4], "--seed", "2"}, CodeOK, ""},
		{[]string{"--policy", "sjf"}, CodeFailure, "saves nothing: true: with 0 % of all jobs"},
	} {
		if got := newFakePlanner(t).call(nil, "", append([]string{"trace", "check-events", log, "--gpus", "16"}, test.args...)...); got.code != test.code || !strings.Contains(got.out, test.want) {
			t.Errorf("%v: exit code %d: want %d and %q: %s%s", test.args, got.code, test.code, test.want, got.out, got.errOut)
		}
	}
}

// Of one policy with several seeds only the seed has to be said.
func TestCheckEventsOfOnePolicy(t *testing.T) {
	path := writeFile(t, "trace.csv", smallTrace())
	events := filepath.Join(t.TempDir(), "events.jsonl")
	played := newFakePlanner(t).call(nil, "", "simulate", "--trace", path, "--gpus", "16", "--policies", "sjf", "--seeds", "2", "--json", "--events", events)
	if played.code != CodeOK {
		t.Fatalf("exit code %d: %s", played.code, played.errOut)
	}
	results := writeFile(t, "results.json", played.out)
	for seed, want := range map[string]int{"1": CodeFailure, "2": CodeOK, "3": CodeUsage} {
		got := newFakePlanner(t).call(nil, "", "trace", "check-events", strings.TrimSuffix(events, ".jsonl")+".sjf.2.jsonl", "--gpus", "16", "--results", results, "--seed", seed)
		if got.code != want {
			t.Errorf("seed %s: exit code %d: want %d\n%s%s", seed, got.code, want, got.out, got.errOut)
		}
	}
}
