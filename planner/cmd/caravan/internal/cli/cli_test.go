package cli

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/httpapi"
)

const jobFileText = `
variable "members" {
  type    = number
  default = 2
}
variable "gpus" {
  type    = list(number)
  default = [8]
}
job "train-gang" {
  type = "batch"
  group "g" {
    count = var.members
    task "t" {
      driver = "raw_exec"
      resources {
        device "nvidia/gpu" {
          count = var.gpus[0]
        }
      }
    }
  }
}
`

func writeFile(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestCommands(t *testing.T) {
	jobPath := writeFile(t, "job.hcl", jobFileText)
	tests := map[string]struct {
		change   func(*fakePlanner)
		env      map[string]string
		stdin    string
		args     []string
		wantCode int
		wantOut  []string
		wantErr  []string
	}{
		"policy":         {args: []string{"policy"}, wantOut: []string{"order            fairshare", "half_life        24h0m0s", "preempt.enabled  false", "the planner's file"}},
		"policy as JSON": {args: []string{"policy", "--json"}, wantOut: []string{`"order": "fairshare"`, `"half_life_ns": 86400000000000`}},
		"policy set":     {stdin: "policy {}", args: []string{"policy", "set", "-"}, wantOut: []string{"set 1m0s ago; caravan policy reset", "reservation tonight: no node has the name or ID \"x\""}},
		"policy reset":   {args: []string{"policy", "reset"}, wantOut: []string{"the planner's file"}},
		"policy refused": {
			change: func(f *fakePlanner) { f.fail["PUT /caravan/v1/settings/policy"] = 400 }, stdin: "policy {}", args: []string{"policy", "set", "-"},
			wantCode: 1, wantErr: []string{"set policy: it was made to fail"},
		},
		"policy of no file": {args: []string{"policy", "set", "/no/such"}, wantCode: 1, wantErr: []string{"read policy", "/no/such"}},
		"reservations":      {args: []string{"reservations"}, wantOut: []string{"tonight", "maintenance", "planned", "2 nodes will be empty by then"}},
		"explain --unblock": {args: []string{"explain", "big", "--unblock"}, wantOut: []string{"stopping x would make room in node n1; that costs 2 GPU-minutes"}},
		"explain --unblock none": {
			change: func(f *fakePlanner) { f.answers["GET /caravan/v1/unblock/default/big"] = httpapi.UnblockResult{} },
			args:   []string{"explain", "big", "--unblock"}, wantOut: []string{"Nothing that could be stopped would let it start"},
		},
		"explain --unblock of what runs": {args: []string{"explain", "train-gang", "--unblock"}, wantOut: []string{"train-gang does not wait, it is running already"}},
		"pools":                          {args: []string{"pools"}, wantOut: []string{"1 node there", "4.00 EUR", "17.32 EUR", "it is late here", "idle for 6m0s"}},
		"pools as JSON":                  {args: []string{"pools", "--json"}, wantOut: []string{`"market": "spot"`}},
		"reservations as JSON":           {args: []string{"reservations", "--json"}, wantOut: []string{`"state": "planned"`}},
		"reservations set":               {stdin: "reservation \"tonight\" {}", args: []string{"reservations", "set", "-"}, wantOut: []string{"1 reservation: tonight", "caravan reservations reset"}},
		"reservations reset":             {args: []string{"reservations", "reset"}, wantOut: []string{"the planner's file"}},
		"queues set":                     {stdin: `queue "a" {}`, args: []string{"queues", "set", "-"}, wantOut: []string{"1 queue: a", "caravan queues reset"}},
		"queues reset":                   {args: []string{"queues", "reset"}, wantOut: []string{"the planner's file"}},
		"queue":                          {args: []string{"queue"}, wantOut: []string{"big", "needs 4 whole nodes"}},
		"status":                         {args: []string{"status"}, wantOut: []string{"leader, policy fifo", "train-gang", "2/2"}},
		"status of a job":                {args: []string{"status", "big"}, wantOut: []string{"big", "0/4"}},
		"explain":                        {args: []string{"explain", "big"}, wantOut: []string{"wait: needs 4 whole nodes;\n          1 is free"}},
		"explain by namespace": {
			change: func(f *fakePlanner) {
				f.answers["GET /caravan/v1/explain/ns/x"] = httpapi.Explain{Job: httpapi.Job{Namespace: "ns", ID: "x"}}
			},
			args: []string{"explain", "ns/x"}, wantOut: []string{"ns/x"},
		},
		"explain a job whose ID holds a slash": {
			change: func(f *fakePlanner) {
				f.answers["GET /caravan/v1/explain/default/a/b"] = httpapi.Explain{Job: httpapi.Job{Namespace: "default", ID: "a/b"}}
			},
			args: []string{"explain", "a/b"}, wantOut: []string{"a/b"},
		},
		"explain nothing": {
			args: []string{"explain", "nobody"}, wantCode: 1,
			wantErr: []string{`there is no managed job "nobody" in namespace "default"; ` + "`caravan status` lists them"},
		},
		"bench optimality": {args: []string{"bench", "optimality", "--clusters", "20", "--json"},
			wantOut: []string{`"clusters": 20`, `"missed": 0`, `"cheapest_share": 1`}},
		"bench optimality in words": {args: []string{"bench", "optimality", "--clusters", "20"}, wantOut: []string{"20 clusters, seed 1", "left waiting                     0"}},
		"bench no clusters":         {args: []string{"bench", "optimality", "--clusters", "0"}, wantCode: 2, wantErr: []string{"--clusters 0: want 1 to 1000000"}},
		"bench speed": {args: []string{"bench", "speed", "--match", "^gang=128/", "--reps", "1", "--least", "0s", "--json"},
			wantOut: []string{`"name": "gang=128/nodes=512"`, `"budget_ms": 0.5`}, wantErr: []string{"measuring gang=128/nodes=512"}},
		"bench speed in words":      {args: []string{"bench", "speed", "--match", "^gang=128/", "--reps", "1", "--least", "0s"}, wantOut: []string{"CASE", "gang=128/nodes=512", "0.5 ms"}, wantErr: []string{"measuring"}},
		"bench speed, no pattern":   {args: []string{"bench", "speed", "--match", "("}, wantCode: 2, wantErr: []string{`--match "("`}},
		"bench speed, not measured": {args: []string{"bench", "speed", "--reps", "0"}, wantCode: 2, wantErr: []string{"--reps 0: want 1 to 1000"}},
		"topology":                  {args: []string{"topology"}, wantOut: []string{"cluster"}},
		"topology of a node":        {args: []string{"topology", "gpu-1"}, wantOut: []string{"GPU-1", "free"}},
		"topology of nobody":        {args: []string{"topology", "x"}, wantCode: 1, wantErr: []string{`there is no node "x"`}},
		"run":                       {args: []string{"run", jobPath}, wantOut: []string{`Job "train-gang" is registered.`, "* it is first in its queue", "running, 2 of 2 members placed"}},
		"run from standard input": {
			stdin: jobFileText, args: []string{"run", "-"}, wantOut: []string{"running"},
		},
		"run queued": {
			change: func(f *fakePlanner) {
				f.answers["GET /caravan/v1/explain/default/train-gang"] = f.answers["GET /caravan/v1/explain/default/big"]
			},
			args: []string{"run", jobPath}, wantCode: 2, wantOut: []string{"queued, number 1", "wait: needs 4 whole nodes;\n"},
		},
		"run detached": {
			change: func(f *fakePlanner) { f.fail["GET /caravan/v1/explain/default/train-gang"] = 500 },
			args:   []string{"run", "--detach", jobPath}, wantOut: []string{"registered"},
		},
		"run left to Nomad": {
			change: func(f *fakePlanner) {
				delete(f.answers, "GET /caravan/v1/explain/default/train-gang")
				f.answers["POST /caravan/v1/plan"] = httpapi.PlanResult{}
			},
			args: []string{"run", jobPath}, wantOut: []string{"Caravan leaves this job to Nomad"},
		},
		"run at an address that is Nomad's own": {
			change: func(f *fakePlanner) {
				for key := range f.answers {
					if strings.Contains(key, httpapi.Prefix) {
						delete(f.answers, key)
					}
				}
			},
			args: []string{"run", jobPath}, wantCode: 1, wantErr: []string{"nothing was registered: what answers at http", "is no Caravan planner"},
		},
		"run refused": {
			change: func(f *fakePlanner) { f.fail["PUT /v1/jobs"] = 400 },
			args:   []string{"run", jobPath}, wantCode: 1, wantErr: []string{"answer 400", "it was made to fail"},
		},
		"run without rights": {
			change: func(f *fakePlanner) { f.fail["PUT /v1/jobs"] = 403 },
			args:   []string{"run", jobPath}, wantCode: 1, wantErr: []string{"NOMAD_TOKEN"},
		},
		"run, then the planner fails": {
			change: func(f *fakePlanner) { f.fail["GET /caravan/v1/explain/default/train-gang"] = 500 },
			args:   []string{"run", jobPath}, wantCode: 1, wantErr: []string{"the job is registered, but what was decided is not known"},
		},
		"run with an undeclared variable": {
			args: []string{"run", "-var", "x=1", jobPath}, wantCode: 1, wantErr: []string{`declares no variable "x"; it declares gpus, members`},
		},
		"run with a variable without value": {args: []string{"run", "-var", "x", jobPath}, wantCode: 2, wantErr: []string{"NAME=VALUE"}},
		"run a file that is not there":      {args: []string{"run", "/no/such/file"}, wantCode: 1, wantErr: []string{"read job file: open /no/such/file"}},
		"run JSON":                          {stdin: "{}", args: []string{"run", "-"}, wantCode: 1, wantErr: []string{"nomad job run -json"}},
		"run contradicting itself":          {args: []string{"run", "--wait", "--detach", jobPath}, wantCode: 2, wantErr: []string{"exclude each other"}},
		"plan":                              {args: []string{"plan", jobPath}, wantOut: []string{"admit: fits", "Nothing was changed."}},
		"plan of a job that would wait": {
			change: func(f *fakePlanner) {
				f.answers["POST /caravan/v1/plan"] = httpapi.PlanResult{Managed: true, Decision: model.Decision{Action: model.ActionWait, Reason: "full"}}
			},
			args: []string{"plan", jobPath}, wantCode: 2, wantOut: []string{"wait: full"},
		},
		"plan of a faulty job": {
			change: func(f *fakePlanner) {
				f.answers["POST /caravan/v1/plan"] = httpapi.PlanResult{Managed: true, Faults: []string{"bad gang"}}
			},
			args: []string{"plan", jobPath}, wantCode: 1, wantOut: []string{"bad gang"},
		},
		"plan of an unmanaged job": {
			change: func(f *fakePlanner) {
				f.answers["POST /caravan/v1/plan"] = httpapi.PlanResult{Why: "no device"}
			},
			args: []string{"plan", jobPath}, wantOut: []string{"no: no device"},
		},
		"release":           {args: []string{"release", "train-gang"}, wantOut: []string{"train-gang  yes"}},
		"release all":       {args: []string{"release", "--all"}, wantOut: []string{"train-gang  yes"}},
		"suspend":           {args: []string{"suspend", "train-gang"}, wantOut: []string{"train-gang: its members are told to suspend."}},
		"resume":            {args: []string{"resume", "--reason", "night is over", "train-gang"}, wantOut: []string{"told to resume"}},
		"requeue as JSON":   {args: []string{"requeue", "--json", "train-gang"}, wantOut: []string{`"changed": true`}},
		"suspend of nobody": {args: []string{"suspend", "nobody"}, wantCode: 1, wantErr: []string{"no managed job"}},
		"suspend of none":   {args: []string{"suspend"}, wantCode: 2, wantErr: []string{"it takes one job, not 0"}},
		"promote":           {args: []string{"promote", "serve"}, wantOut: []string{"The update of serve is promoted; see nomad deployment status d1234567"}},
		"promote of nobody": {args: []string{"promote", "nobody"}, wantCode: 1, wantErr: []string{"answer 404"}},
		"promote too early": {
			change: func(f *fakePlanner) { f.fail["PUT /v1/deployment/promote/d1234567-89"] = 400 },
			args:   []string{"promote", "serve"}, wantCode: 1, wantErr: []string{"it was made to fail"},
		},
		"promote without an update": {
			change: func(f *fakePlanner) { f.answers["GET /v1/job/serve/deployment"] = nil },
			args:   []string{"promote", "serve"}, wantCode: 1, wantErr: []string{`job "serve" in namespace "default" has no update`},
		},
		"rollback":          {args: []string{"rollback", "serve"}, wantOut: []string{"The update of serve is taken back"}},
		"release of nobody": {args: []string{"release", "nobody"}, wantCode: 1, wantErr: []string{"no managed job"}},
		"release of all and one": {
			args: []string{"release", "--all", "x"}, wantCode: 2, wantErr: []string{"name one job, or give --all"},
		},
		"release that fails": {
			change: func(f *fakePlanner) {
				f.answers["POST /caravan/v1/release"] = httpapi.ReleaseResult{Jobs: []httpapi.Released{{Job: "x", Note: "Nomad answered 500"}}}
			},
			args: []string{"release", "--all"}, wantCode: 1, wantOut: []string{"Nomad answered 500"},
		},
		"doctor": {args: []string{"doctor"}, wantOut: []string{"ok    planner: the planner at http", "warn  gate: 1 node opens it\n      → unset it", "3 checks: 2 ok, 1 warning, 0 failed."}},
		"doctor that finds a fault": {
			change: func(f *fakePlanner) {
				f.answers["GET /caravan/v1/doctor"] = httpapi.NewDoctor(now, "0.9", []httpapi.Check{{Name: "acl", Status: httpapi.CheckFail, Detail: "lacks submit-job"}})
			},
			args: []string{"doctor", "--json"}, wantCode: 1, wantOut: []string{`"ok": false`, `"status": "fail"`, "version 0.9, and this command's is 1"},
		},
		"doctor without a planner": {
			env:  map[string]string{httpapi.AddressEnv: "http://127.0.0.1:1", "NOMAD_ADDR": "http://nomad.test:4646"},
			args: []string{"doctor", "-token", "secret"}, wantCode: 1,
			wantOut: []string{"fail  planner: no planner answers at http://127.0.0.1:1", "ok    acl: http://nomad.test:4646 as secret"},
		},
		"doctor by configuration": {
			args:    []string{"doctor", "-config", writeFile(t, "caravan.hcl", "nomad {\n  address = \"http://other:4646\"\n  token = \"t\"\n}\n")},
			wantOut: []string{"planner: not asked", "acl: http://other:4646 as t"},
		},
		"doctor without rights": {
			change: func(f *fakePlanner) { f.fail["GET /caravan/v1/doctor"] = 403 },
			args:   []string{"doctor"}, wantCode: 1, wantErr: []string{"ask the planner: it was made to fail", "NOMAD_TOKEN"},
		},
		"doctor of an older planner": {
			change: func(f *fakePlanner) { delete(f.answers, "GET /caravan/v1/doctor") },
			args:   []string{"doctor"}, wantCode: 1, wantErr: []string{"is older than this command"},
		},
		"planner not there": {
			env: map[string]string{httpapi.AddressEnv: "http://127.0.0.1:1"}, args: []string{"queue"}, wantCode: 1,
			wantErr: []string{"cannot reach the planner at http://127.0.0.1:1: connect: connection refused", "caravan agent -config FILE", "CARAVAN_ADDR"},
		},
		"planner fails": {
			change: func(f *fakePlanner) { f.fail["GET /caravan/v1/queue"] = 500 },
			args:   []string{"queue"}, wantCode: 1, wantErr: []string{"read queue: it was made to fail"},
		},
		"status while Nomad is away": {
			change: func(f *fakePlanner) { f.fail["GET /caravan/v1/jobs"] = 503 },
			args:   []string{"status"}, wantOut: []string{"leader", "jobs: they cannot be listed: it was made to fail"},
		},
		"status of a planner that waits": {
			change: func(f *fakePlanner) {
				f.answers["GET /caravan/v1/status"] = httpapi.Status{Version: "1", Policy: "fifo", Waiting: "for the lock", Nomad: httpapi.Nomad{Address: "http://n"}}
			},
			args: []string{"status"}, wantOut: []string{"standing by, policy fifo", "for the lock", "http://n, being asked for the first time"},
		},
		"explain at an address that is Nomad's own": {
			change: func(f *fakePlanner) { clear(f.answers) },
			args:   []string{"explain", "a/b"}, wantCode: 1, wantErr: []string{"is no Caravan planner"},
		},
		"address by flag":      {env: map[string]string{httpapi.AddressEnv: "http://127.0.0.1:1"}, args: []string{"-address", "FAKE", "queue"}, wantOut: []string{"big"}},
		"address is no URL":    {args: []string{"-address=x", "queue"}, wantCode: 2, wantErr: []string{`parse address "x"`}},
		"CA is not there":      {args: []string{"-ca-cert=/no/ca", "queue"}, wantCode: 1, wantErr: []string{"read CA certificate"}},
		"CA is no certificate": {args: []string{"-ca-cert", jobPath, "queue"}, wantCode: 1, wantErr: []string{"holds no PEM certificate"}},
		"unknown command":      {args: []string{"quue"}, wantCode: 2, wantErr: []string{`unknown command "quue"`}},
		"unknown flag":         {args: []string{"queue", "-x"}, wantCode: 2, wantErr: []string{"unknown shorthand flag"}},
		"too many arguments":   {args: []string{"queue", "x"}, wantCode: 2, wantErr: []string{"it takes no argument, not 1"}},
		"version":              {args: []string{"version"}, wantOut: []string{"caravan "}},
		"completion":           {args: []string{"completion", "bash"}, wantOut: []string{"bash completion"}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			f := newFakePlanner(t)
			if tc.change != nil {
				tc.change(f)
			}
			for i, arg := range tc.args {
				if arg == "FAKE" {
					tc.args[i] = f.URL
				}
			}
			got := f.call(tc.env, tc.stdin, tc.args...)
			if got.code != tc.wantCode {
				t.Errorf("exit code %d, want %d\n%s%s", got.code, tc.wantCode, got.out, got.errOut)
			}
			for _, want := range tc.wantOut {
				if !strings.Contains(got.out, want) {
					t.Errorf("output lacks %q:\n%s", want, got.out)
				}
			}
			for _, want := range tc.wantErr {
				if !strings.Contains(got.errOut, want) {
					t.Errorf("error lacks %q:\n%s", want, got.errOut)
				}
			}
			if tc.wantErr == nil && got.errOut != "" {
				t.Errorf("unexpected error output:\n%s", got.errOut)
			}
		})
	}
}

// Every command that prints has JSON that a program can read.
func TestJSON(t *testing.T) {
	jobPath := writeFile(t, "job.hcl", jobFileText)
	for _, args := range [][]string{
		{"queue"}, {"status"}, {"status", "big"}, {"explain", "big"}, {"topology"}, {"topology", "gpu-1"},
		{"run", jobPath}, {"run", "--detach", jobPath}, {"plan", jobPath}, {"validate", jobPath}, {"release", "--all"}, {"promote", "serve"}, {"rollback", "serve"}, {"version"},
	} {
		t.Run(strings.Join(args[:1], " "), func(t *testing.T) {
			f := newFakePlanner(t)
			got := f.call(nil, "", append([]string{"--json"}, args...)...)
			var v any
			if err := json.Unmarshal([]byte(got.out), &v); err != nil || got.code != CodeOK {
				t.Errorf("code %d, %v in\n%s%s", got.code, err, got.out, got.errOut)
			}
		})
	}
	f := newFakePlanner(t)
	var out registered
	if err := json.Unmarshal([]byte(f.call(nil, "", "run", "-json", jobPath).out), &out); err != nil {
		t.Fatal(err)
	}
	if out.Explain == nil || out.Explain.State != model.StateRunning || out.Managed == nil || !*out.Managed || out.EvalID != "e1" {
		t.Errorf("run --json: %+v", out)
	}
}

func TestDoubleDashes(t *testing.T) {
	got := doubleDashes([]string{"run", "-var", "a=-b", "-var=x", "-h", "-", "-1", "--json", "--", "-var"})
	want := []string{"run", "--var", "a=-b", "--var=x", "-h", "-", "-1", "--json", "--", "-var"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestColorOnlyOnTerminals(t *testing.T) {
	for name, tc := range map[string]struct {
		app  app
		env  map[string]string
		want bool
	}{
		"terminal":                 {app{env: Env{Terminal: true}}, nil, true},
		"pipe":                     {app{}, nil, false},
		"terminal with NO_COLOR":   {app{env: Env{Terminal: true}}, map[string]string{"NO_COLOR": "1"}, false},
		"terminal with --no-color": {app{env: Env{Terminal: true}, noColor: true}, nil, false},
	} {
		a := tc.app
		a.env.LookupEnv = func(key string) (string, bool) { v, ok := tc.env[key]; return v, ok }
		a.env.Now = func() time.Time { return now }
		if got := a.style().Color; got != tc.want {
			t.Errorf("%s: colour %v, want %v", name, got, tc.want)
		}
	}
}
