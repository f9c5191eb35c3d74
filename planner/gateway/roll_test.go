package gateway

import (
	"strings"
	"testing"

	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/planner/gangspec"
	"github.com/caravan-sched/caravan/planner/record"
	"github.com/caravan-sched/caravan/planner/rewrite"
)

// served is the gang's job as a service of members that stand alone.
func served(version string) *api.Job {
	job := gang()
	job.Type = new("service")
	job.Meta = map[string]string{gangspec.KeyGang: "none"}
	job.Update = &api.UpdateStrategy{MaxParallel: new(1), Canary: new(1)}
	job.TaskGroups[0].Tasks[0].Env = map[string]string{"VERSION": version}
	return job
}

// TestUpdateOfAServiceIsRolled: the gateway writes down that an update begins,
// and registers what changes no member yet.
func TestUpdateOfAServiceIsRolled(t *testing.T) {
	r := newRig(t)
	resp := decodeAnswer[api.JobRegisterResponse](t, r.do("PUT", "/v1/jobs", registration(t, served("1"))))
	if strings.Contains(resp.Warnings, "canary") {
		t.Errorf("warnings %q", resp.Warnings)
	}
	r.admit(t, record.PhaseRunning)
	old := r.records.data[key]
	decodeAnswer[api.JobRegisterResponse](t, r.do("PUT", "/v1/jobs", registration(t, served("2"))))
	rec, job := r.records.data[key], r.nomad.job(t, key)
	if rec.Rollout == nil || rec.Rollout.SpecHash != old.SpecHash || len(rec.Rollout.Rolled) != 0 || rec.Phase != record.PhaseRunning || len(rec.Members) != 2 {
		t.Fatalf("record %+v", rec)
	}
	if c := rec.Rollout.Canary; !c.Open() || c.Wanted["train"] != 1 || !strings.Contains(rec.Reason, "canaries beside them (1)") {
		t.Errorf("canaries %+v, reason %q", c, rec.Reason)
	}
	if rewrite.RollingTo(job) != rec.SpecHash {
		t.Errorf("the job is on its way to %q, want %q", rewrite.RollingTo(job), rec.SpecHash)
	}
	for _, g := range job.TaskGroups {
		if got := g.Tasks[0].Env["VERSION"]; got != "1" {
			t.Errorf("group %s is of version %s already", *g.Name, got)
		}
	}
	// Users see what they submitted, not how far it is.
	shown := r.shown(t, "/v1/job/train")
	if got := gangspec.Hash(&shown); got != rec.SpecHash || shown.Meta[gangspec.KeyGang] != "none" {
		t.Errorf("shown is version %s with meta %v, want %s", got, shown.Meta, rec.SpecHash)
	}
	versions := decodeAnswer[api.JobVersionsResponse](t, r.do("GET", "/v1/job/train/versions", nil)).Versions
	if len(versions) != 2 || gangspec.Hash(versions[0]) != rec.SpecHash || gangspec.Hash(versions[1]) != old.SpecHash {
		t.Errorf("%d versions are shown, want the two that were submitted", len(versions))
	}
}

// TestHeldIsTriedAgain: what has failed too often is queued anew when its file
// is submitted again.
func TestHeldIsTriedAgain(t *testing.T) {
	r := newRig(t)
	decodeAnswer[api.JobRegisterResponse](t, r.do("PUT", "/v1/jobs", registration(t, gang())))
	rec := r.records.data[key]
	rec.Held = "it has failed"
	r.records.data[key] = rec
	before := *r.nomad.job(t, key).JobModifyIndex
	decodeAnswer[api.JobRegisterResponse](t, r.do("PUT", "/v1/jobs", registration(t, gang())))
	if got := r.records.data[key]; got.Held != "" || got.Phase != record.PhaseQueued {
		t.Errorf("record %+v", got)
	}
	if *r.nomad.job(t, key).JobModifyIndex == before {
		t.Error("the job was not registered again")
	}
}

// TestUpdateWhileMembersWait: replicas that have no place yet do not keep the
// others from being updated where they are.
func TestUpdateWhileMembersWait(t *testing.T) {
	three := func(version string) *api.Job {
		job := served(version)
		job.TaskGroups[0].Count = new(3)
		return job
	}
	r := newRig(t)
	r.submit(t, three("1"))
	r.admit(t, record.PhaseRunning)
	r.nomad.plan = func(api.JobPlanRequest) api.JobPlanResponse {
		return api.JobPlanResponse{
			FailedTGAllocs: map[string]*api.AllocationMetric{"train": {}},
			Annotations:    &api.PlanAnnotations{DesiredTGUpdates: map[string]*api.DesiredUpdates{"train": {Place: 1}, "train-0": {DestructiveUpdate: 1}, "train-1": {DestructiveUpdate: 1}}},
		}
	}
	r.submit(t, three("2"))
	if rec := r.records.data[key]; rec.Rollout == nil || rec.Phase != record.PhaseRunning || len(rec.Members) != 2 {
		t.Errorf("record %+v, want an update of the two that run", rec)
	}
}
