package gateway

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/rewrite"
)

// sleeper is a managed job of these tests that runs until it is stopped.
func sleeper(change ...func(*api.Job)) *api.Job {
	job := api.NewServiceJob("train", "train", "", 50)
	job.Region, job.Datacenters = nil, []string{"*"}
	job.SetMeta("managed", "yes")
	task := api.NewTask("main", "raw_exec")
	task.SetConfig("command", "/bin/sh").SetConfig("args", []string{"-c", "echo started; exec sleep 100000"})
	task.Resources = &api.Resources{CPU: new(50), MemoryMB: new(32)}
	job.AddTaskGroup(api.NewTaskGroup("train", 1).AddTask(task))
	for _, c := range change {
		c(job)
	}
	return job
}

// TestNomadAPI is the life of a service job as API clients see it.
func TestNomadAPI(t *testing.T) {
	onEachBackend(t, func(t *testing.T, r *real) {
		client := r.through(t)
		register := func(job *api.Job, opts *api.RegisterOptions) *api.JobRegisterResponse {
			t.Helper()
			resp, _, err := client.Jobs().RegisterOpts(job, opts, nil)
			if err != nil {
				t.Fatalf("register: %v", err)
			}
			return resp
		}
		first := register(sleeper(), nil)
		contains(t, first.Warnings, "Caravan: queued: needs 1 node")
		if !rewrite.IsGated(r.job(t)) {
			t.Fatal("the job is not gated")
		}
		again := register(sleeper(), nil)
		if again.JobModifyIndex != first.JobModifyIndex || again.EvalID != first.EvalID {
			t.Errorf("unchanged: %+v, want what was answered first, %+v", again, first)
		}
		r.admit(t)
		running := r.running(t, 1)

		// The job as Nomad has it, sent back as it was read: its pins are no
		// change, and no field of it is unknown.
		r.sendBack(t)

		plan, _, err := client.Jobs().Plan(sleeper(), true, nil)
		if err != nil || plan.Diff.Type != diffNone {
			t.Errorf("plan without a change: %+v, %v", plan, err)
		}
		changed := sleeper(func(j *api.Job) { j.Priority = new(60) })
		plan, _, err = client.Jobs().Plan(changed, true, nil)
		if err != nil || plan.Diff.Type != diffEdited || len(plan.Diff.Fields) != 1 || len(plan.Diff.TaskGroups) != 0 {
			t.Errorf("plan of another priority: %s, %v", encode(t, plan), err)
		}
		// The user's index is that of the first answer: what came since was the
		// pin.
		kept := register(changed, &api.RegisterOptions{EnforceIndex: true, ModifyIndex: first.JobModifyIndex})
		contains(t, kept.Warnings, "stays on its nodes")
		if after := r.running(t, 0); after.ID != running.ID {
			t.Errorf("another priority restarted the gang: %s, was %s", after.ID, running.ID)
		}
		_, _, err = client.Jobs().RegisterOpts(sleeper(), &api.RegisterOptions{EnforceIndex: true, ModifyIndex: first.JobModifyIndex}, nil)
		if err == nil || !strings.Contains(err.Error(), api.RegisterEnforceIndexErrPrefix) {
			t.Errorf("an index of the version before: %v, want a refusal", err)
		}

		// More than fits where it is: the job is gated, and what runs, runs on
		// until the planner stops it.
		r.decide(model.ActionWait, "needs 2 nodes", nil)
		grown := register(sleeper(func(j *api.Job) { j.TaskGroups[0].Count = new(2) }), nil)
		contains(t, grown.Warnings, "queued: needs 2 nodes")
		if !rewrite.IsGated(r.job(t)) {
			t.Error("the new submission is not gated")
		}
		if after := r.running(t, 0); after.ID != running.ID {
			t.Errorf("a queued submission disturbed the gang: %s runs, it was %s", after.ID, running.ID)
		}
		if _, _, err := client.Jobs().Deregister("train", true, nil); err != nil {
			t.Errorf("stop: %v", err)
		}
	})
}

// sendBack reads the job as JSON and registers the same bytes.
func (r *real) sendBack(t *testing.T) {
	t.Helper()
	send := func(method, path string, body []byte) []byte {
		req, err := http.NewRequest(method, r.address+path, bytes.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("X-Nomad-Token", r.cluster.Token())
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		out, err := io.ReadAll(resp.Body)
		if err != nil || resp.StatusCode != http.StatusOK {
			t.Fatalf("%s %s: %d %s, %v", method, path, resp.StatusCode, out, err)
		}
		return out
	}
	job := send("GET", "/v1/job/train", nil)
	var resp api.JobRegisterResponse
	if err := json.Unmarshal(send("PUT", "/v1/jobs", []byte(`{"Job":`+string(job)+`}`)), &resp); err != nil {
		t.Fatal(err)
	}
	contains(t, resp.Warnings, "unchanged, nothing was registered")
	if strings.Contains(resp.Warnings, "does not know") {
		t.Errorf("warnings = %q", resp.Warnings)
	}
}
