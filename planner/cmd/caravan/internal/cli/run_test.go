package cli

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/internal/jobhcl"
	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/gangspec"
	"github.com/caravan-sched/caravan/planner/httpapi"
)

const explainTrain = "GET /caravan/v1/explain/default/train-gang"

// With --wait a job that waiting does not help is answered at once.
func TestRunWaitsNotForTheHopeless(t *testing.T) {
	tests := map[string]struct {
		explain    httpapi.Explain
		wantSleeps int
	}{
		"too large": {explain: httpapi.Explain{Detail: model.Detail{Code: "too_large"}}},
		"no node":   {explain: httpapi.Explain{Detail: model.Detail{Code: "no_node"}}},
		"invalid":   {explain: httpapi.Explain{Detail: model.Detail{Code: "invalid"}}},
		"held":      {explain: httpapi.Explain{Detail: model.Detail{Code: "hold"}}},
		"faulty":    {explain: httpapi.Explain{Faults: []string{"bad gang"}}},
		"behind":    {explain: httpapi.Explain{Detail: model.Detail{Code: "behind"}}, wantSleeps: 11},
		"divided":   {explain: httpapi.Explain{Detail: model.Detail{Code: "dividing"}}, wantSleeps: 11},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			f := newFakePlanner(t)
			tc.explain.Job = httpapi.Job{Namespace: "default", ID: "train-gang", State: model.StateQueued, Reason: "it is " + name}
			f.answers[explainTrain] = tc.explain
			got := f.call(nil, jobFileText, "run", "--wait", "-")
			want := CodeQueued
			if tc.wantSleeps > 0 {
				want = CodeFailure // the fake's patience ends
			}
			if got.code != want || got.sleeps != tc.wantSleeps {
				t.Errorf("code %d after %d sleeps, want %d after %d\n%s%s", got.code, got.sleeps, want, tc.wantSleeps, got.out, got.errOut)
			}
			if !strings.Contains(got.out+got.errOut, "it is "+name) {
				t.Errorf("the reason is missing:\n%s%s", got.out, got.errOut)
			}
		})
	}
}

// The decision counts, also when the planner has not seen it carried out.
func TestRunJustAdmitted(t *testing.T) {
	f := newFakePlanner(t)
	e := httpapi.Explain{Job: httpapi.Job{Namespace: "default", ID: "train-gang", State: model.StateQueued}, Action: model.ActionAdmit}
	f.answers[explainTrain] = e
	if got := f.call(nil, jobFileText, "run", "-"); got.code != CodeOK {
		t.Errorf("admitted: code %d\n%s", got.code, got.out)
	}
	e.Action = model.ActionWait
	f.answers[explainTrain] = e
	if got := f.call(nil, jobFileText, "run", "-"); got.code != CodeQueued {
		t.Errorf("waiting: code %d\n%s", got.code, got.out)
	}
}

// A planner that has much to do may see a job later than its answer is due. It is
// not taken for one that leaves the job to Nomad.
func TestRunWaitsToBeSeen(t *testing.T) {
	for name, never := range map[string]bool{"soon": false, "never": true} {
		t.Run(name, func(t *testing.T) {
			f := newFakePlanner(t)
			seen, looks := f.answers[explainTrain], 0
			f.answers[explainTrain] = func([]byte) (any, error) {
				if looks++; !never && looks > 4 {
					return seen, nil
				}
				return nil, errNotThere
			}
			got := f.call(nil, jobFileText, "run", "--wait", "-")
			switch {
			case !never && (got.code != CodeOK || got.sleeps < 3 || !strings.Contains(got.out, "running, 2 of 2 members placed")):
				t.Errorf("code %d after %d sleeps\n%s%s", got.code, got.sleeps, got.out, got.errOut)
			case never && (got.code != CodeFailure || got.sleeps != unseenLooks-1 || !strings.Contains(got.errOut, "caravan explain train-gang")):
				t.Errorf("code %d after %d sleeps\n%s%s", got.code, got.sleeps, got.out, got.errOut)
			}
		})
	}
}

// What runs is not ended for a version that can never start.
func TestRunReplacesNothingByTheHopeless(t *testing.T) {
	job, err := jobhcl.Parse([]byte(jobFileText), "job.hcl", nil)
	if err != nil {
		t.Fatal(err)
	}
	running := httpapi.Job{Namespace: "default", ID: "train-gang", State: model.StateRunning, Members: 2, Placed: 2}
	tests := map[string]struct {
		job  httpapi.Job
		hash string
		code string
		want int
	}{
		"too large":                        {running, "another", "too_large", 0},
		"no room now":                      {running, "another", "no_capacity", 1},
		"the same version":                 {running, gangspec.Hash(job), "no_node", 1},
		"the one before waits":             {httpapi.Job{State: model.StateQueued}, "another", "too_large", 1},
		"the one before is left to itself": {httpapi.Job{State: model.StateRunning, Released: true}, "another", "too_large", 1},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			f := newFakePlanner(t)
			f.answers[explainTrain] = httpapi.Explain{Job: tc.job, SpecHash: tc.hash}
			f.answers["POST /caravan/v1/plan"] = httpapi.PlanResult{Managed: true, Decision: model.Decision{Action: model.ActionWait, Reason: "needs 32 GPUs", Detail: model.Detail{Code: tc.code}}}
			got := f.call(nil, jobFileText, "run", "-")
			if len(f.registered) != tc.want {
				t.Errorf("%d registered, want %d\n%s%s", len(f.registered), tc.want, got.out, got.errOut)
			}
			if refused := got.code == CodeFailure && strings.Contains(got.errOut, "needs 32 GPUs; nothing was registered"); refused != (tc.want == 0) {
				t.Errorf("code %d\n%s", got.code, got.errOut)
			}
		})
	}
}

// Nomad itself is not taken for a planner, not even by who does not look at
// the decision.
func TestRunRegistersNothingPastThePlanner(t *testing.T) {
	for _, flag := range []string{"--detach", "--wait", "--json"} {
		f := newFakePlanner(t)
		for key := range f.answers {
			if strings.Contains(key, httpapi.Prefix) {
				delete(f.answers, key)
			}
		}
		got := f.call(nil, jobFileText, "run", flag, "-")
		if got.code != CodeFailure || len(f.registered) > 0 || !strings.Contains(got.errOut, "is no Caravan planner") {
			t.Errorf("%s: code %d, %d registered\n%s", flag, got.code, len(f.registered), got.errOut)
		}
	}
	f := newFakePlanner(t)
	f.fail["GET /caravan/v1/status"] = http.StatusForbidden
	if got := f.call(nil, jobFileText, "run", "--detach", "-"); got.code != CodeOK || len(f.registered) != 1 {
		t.Errorf("who may not see the status: code %d\n%s", got.code, got.errOut)
	}
}

// A job that has ended is explained from what Nomad remembers.
func TestExplainWhatHasEnded(t *testing.T) {
	dead, stop := "dead", true
	tests := map[string]struct {
		job     api.Job
		summary api.TaskGroupSummary
		want    string
	}{
		"ended":   {api.Job{Status: &dead}, api.TaskGroupSummary{Complete: 2}, "it has ended: allocations complete 2, failed 0, lost 0"},
		"failed":  {api.Job{Status: &dead}, api.TaskGroupSummary{Failed: 2}, "it has failed: allocations complete 0, failed 2, lost 0"},
		"stopped": {api.Job{Status: &dead, Stop: &stop}, api.TaskGroupSummary{Complete: 1}, "it was stopped"},
	}
	for state, tc := range tests {
		t.Run(state, func(t *testing.T) {
			f := newFakePlanner(t)
			delete(f.answers, explainTrain)
			f.answers["GET /v1/job/train-gang"] = tc.job
			f.answers["GET /v1/job/train-gang/summary"] = api.JobSummary{Summary: map[string]api.TaskGroupSummary{"g": tc.summary}}
			for _, args := range [][]string{{"explain", "train-gang"}, {"status", "train-gang"}, {"run", "-"}} {
				got := f.call(nil, jobFileText, args...)
				if got.code != CodeOK || !strings.Contains(got.out, state) || args[0] != "status" && !strings.Contains(got.out, tc.want) {
					t.Errorf("%v: code %d\n%s%s", args, got.code, got.out, got.errOut)
				}
			}
			var e httpapi.Explain
			if err := json.Unmarshal([]byte(f.call(nil, "", "explain", "--json", "train-gang").out), &e); err != nil || string(e.State) != state {
				t.Errorf("state %q, %v", e.State, err)
			}
			if got := f.call(nil, "", "release", "train-gang"); got.code != CodeFailure {
				t.Errorf("release: code %d\n%s", got.code, got.out)
			}
		})
	}
}

// Settings that nobody reads are warned of.
func TestIdleSettings(t *testing.T) {
	text := strings.Replace(jobFileText, `type = "batch"`, `type = "system"
  meta {
    caravan_gang = "job"
  }`, 1)
	path := writeFile(t, "system.hcl", text)
	for _, command := range []string{"run", "plan", "validate"} {
		f := newFakePlanner(t)
		if got := f.call(nil, "", command, path); got.code != CodeOK || !strings.Contains(got.out, "caravan_gang: no effect, the job is left to Nomad: a gate would stop a system job") {
			t.Errorf("%s: code %d\n%s%s", command, got.code, got.out, got.errOut)
		}
	}
}

// Plan shows what Nomad refuses, and then decides nothing.
func TestPlanLetsNomadCheck(t *testing.T) {
	f := newFakePlanner(t)
	f.answers["PUT /v1/validate/job"] = api.JobValidateResponse{
		Error: "2 errors occurred", ValidationErrors: []string{"Job ID contains a space", "job priority must be between [1, 100]"}, Warnings: "1 warning:\n\n* old syntax",
	}
	got := f.call(nil, jobFileText, "plan", "-")
	for _, want := range []string{"Job ID contains a space", "must be between [1, 100]", "* old syntax", "none: it would be refused"} {
		if got.code != CodeFailure || !strings.Contains(got.out, want) {
			t.Errorf("code %d, output lacks %q:\n%s%s", got.code, want, got.out, got.errOut)
		}
	}
	var out struct {
		Refused  []string
		Decision *model.Decision
	}
	if err := json.Unmarshal([]byte(f.call(nil, jobFileText, "plan", "--json", "-").out), &out); err != nil || len(out.Refused) != 2 || out.Decision != nil {
		t.Errorf("JSON: %+v, %v", out, err)
	}
	f.fail["PUT /v1/validate/job"] = http.StatusForbidden
	if got := f.call(nil, jobFileText, "plan", "-"); got.code != CodeOK || !strings.Contains(got.out, "Nomad's own checks were not made") {
		t.Errorf("without the right: code %d\n%s%s", got.code, got.out, got.errOut)
	}
	f.fail["PUT /v1/validate/job"] = http.StatusInternalServerError
	if got := f.call(nil, jobFileText, "plan", "-"); got.code != CodeFailure || !strings.Contains(got.errOut, "made to fail") {
		t.Errorf("when Nomad fails: code %d\n%s%s", got.code, got.out, got.errOut)
	}
}

func TestRunSubmits(t *testing.T) {
	f := newFakePlanner(t)
	vars := writeFile(t, "vars.hcl", "members = 3\n")
	got := f.call(map[string]string{"NOMAD_TOKEN": "secret"}, jobFileText, "run", "--namespace", "research", "--detach", "-var", "gpus=[4]", "-var-file", vars, "-")
	if got.code != CodeOK || len(f.registered) != 1 {
		t.Fatalf("code %d, %d jobs registered\n%s", got.code, len(f.registered), got.errOut)
	}
	req := f.registered[0]
	want := &api.JobSubmission{Source: jobFileText, Format: "hcl2", Variables: "gpus = [4]\nmembers = 3\n"}
	if diff := cmp.Diff(want, req.Submission); diff != "" {
		t.Errorf("submission (-want +got):\n%s", diff)
	}
	g := req.Job.TaskGroups[0]
	if *g.Count != 3 || *g.Tasks[0].Resources.Devices[0].Count != 4 || *req.Job.Namespace != "research" {
		t.Errorf("count %d, GPUs %d, namespace %q", *g.Count, *g.Tasks[0].Resources.Devices[0].Count, *req.Job.Namespace)
	}
	namespaces := map[string]string{"GET /caravan/v1/status": "", "PUT /v1/jobs/parse": "research", "GET /caravan/v1/explain/research/train-gang": "", "PUT /v1/jobs": "research"}
	if diff := cmp.Diff(namespaces, f.namespaces); diff != "" {
		t.Errorf("namespaces (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(map[string]bool{"secret": true}, f.tokens); diff != "" {
		t.Errorf("tokens (-want +got):\n%s", diff)
	}
}

// The reason is in the register response's warnings too; it is shown once.
func TestRunShowsTheReasonOnce(t *testing.T) {
	f := newFakePlanner(t)
	const reason = "placed 2 members in rack r1"
	f.answers["PUT /v1/jobs"] = api.JobRegisterResponse{Warnings: "Nomad warns\nCaravan: admitted: " + reason}
	f.answers["GET /caravan/v1/explain/default/train-gang"] = httpapi.Explain{Job: httpapi.Job{State: model.StateAdmitted, Reason: reason}, Action: model.ActionAdmit}
	out := f.call(nil, jobFileText, "run", "-").out
	if strings.Count(out, reason) != 1 || !strings.Contains(out, "  Nomad warns\n") {
		t.Errorf("output:\n%s", out)
	}
	f.answers["GET /caravan/v1/explain/default/train-gang"] = nil
	if out := f.call(nil, jobFileText, "run", "--detach", "-").out; !strings.Contains(out, reason) {
		t.Errorf("detached, the reason is missing:\n%s", out)
	}
}

func TestRunWaits(t *testing.T) {
	path := "GET /caravan/v1/explain/default/train-gang"
	step := func(states ...httpapi.Job) func([]byte) (any, error) {
		i := 0
		return func([]byte) (any, error) {
			e := httpapi.Explain{Job: states[min(i, len(states)-1)]}
			i++
			return e, nil
		}
	}
	queued := httpapi.Job{ID: "train-gang", State: model.StateQueued, Members: 2, Reason: "full"}
	admitted := httpapi.Job{ID: "train-gang", State: model.StateAdmitted, Members: 2, Placed: 1, Reason: "fits"}
	running := httpapi.Job{ID: "train-gang", State: model.StateRunning, Members: 2, Placed: 2, Reason: "fits"}

	t.Run("until all are placed", func(t *testing.T) {
		f := newFakePlanner(t)
		// The first look is for what would be replaced.
		f.answers[path] = step(queued, queued, queued, admitted, running)
		got := f.call(nil, jobFileText, "run", "--wait", "-")
		if got.code != CodeOK || got.sleeps != 3 {
			t.Errorf("code %d after %d sleeps\n%s", got.code, got.sleeps, got.errOut)
		}
		if diff := cmp.Diff("queued: full\nadmitted: fits\n", got.errOut); diff != "" {
			t.Errorf("progress (-want +got):\n%s", diff)
		}
	})
	t.Run("until it has ended", func(t *testing.T) {
		f := newFakePlanner(t)
		looks := 0
		f.answers[path] = func([]byte) (any, error) {
			if looks++; looks == 2 {
				f.fail[path] = http.StatusNotFound
			}
			return httpapi.Explain{Job: admitted}, nil
		}
		got := f.call(nil, jobFileText, "run", "--wait", "-")
		if got.code != CodeOK || looks != 2 || strings.Contains(got.out, "to Nomad") {
			t.Errorf("code %d after %d looks\n%s%s", got.code, looks, got.out, got.errOut)
		}
	})
	t.Run("until it is stopped", func(t *testing.T) {
		f := newFakePlanner(t)
		f.answers[path] = step(queued)
		got := f.call(nil, jobFileText, "run", "--wait", "-")
		if got.code != CodeFailure || !strings.Contains(got.errOut, "the job stays registered") {
			t.Errorf("code %d\n%s", got.code, got.errOut)
		}
	})
}
