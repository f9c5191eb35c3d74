package gateway

import (
	"net/http"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/planner/record"
)

// replicas is a service of two members that Caravan splits, on parts of nodes.
func replicas(j *api.Job) {
	j.Type = new("service")
	j.SetMeta("caravan_gang", "none")
	j.Update = &api.UpdateStrategy{MaxParallel: new(2)}
	j.TaskGroups[0].Scaling = &api.ScalingPolicy{Min: new(int64(1)), Max: new(int64(6)), Policy: map[string]any{}}
}

// TestSplitGroupsShowAsOne reads everything that tools compare.
func TestSplitGroupsShowAsOne(t *testing.T) {
	for name, forgotten := range map[string]bool{"with its record": false, "by its file": true} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.running(t, replicas)
			if n := len(r.nomad.job(t, key).TaskGroups); n != 2 {
				t.Fatalf("the gang is in %d groups, want it split in 2", n)
			}
			if forgotten {
				source := gang(replicas)
				r.nomad.fail = func(w http.ResponseWriter, req *http.Request, _ []byte) bool {
					if req.URL.Path != "/v1/job/train/submission" {
						return false
					}
					_, _ = w.Write(encode(t, api.JobSubmission{Format: "json", Source: string(encode(t, source))}))
					return true
				}
				delete(r.records.data, key)
			}
			job := r.shown(t, "/v1/job/train")
			if len(job.TaskGroups) != 1 {
				t.Fatalf("%d groups are shown, want the user's one", len(job.TaskGroups))
			}
			group := job.TaskGroups[0]
			got := []any{*group.Name, *group.Count, len(group.Meta), *group.Update.MaxParallel, *group.Update.ProgressDeadline > 0, *group.Scaling.Max, len(group.Tasks[0].Env)}
			if diff := cmp.Diff([]any{"train", 2, 0, 2, true, int64(6), 0}, got); diff != "" {
				t.Errorf("name, count, meta, max_parallel, default deadline, scaling, env (-want +got):\n%s", diff)
			}
			if forgotten {
				return
			}
			sum := decodeAnswer[api.JobSummary](t, r.do("GET", "/v1/job/train/summary", nil))
			scale := decodeAnswer[api.JobScaleStatusResponse](t, r.do("GET", "/v1/job/train/scale", nil))
			if diff := cmp.Diff(map[string]api.TaskGroupSummary{"train": {Running: 2}}, sum.Summary); diff != "" {
				t.Errorf("summary (-want +got):\n%s", diff)
			}
			if got := scale.TaskGroups["train"]; len(scale.TaskGroups) != 1 || got.Desired != 2 || got.Running != 2 {
				t.Errorf("scale status = %+v, want the two in one", scale.TaskGroups)
			}
		})
	}
}

// TestTerraformSeesNoDrift reads what its nomad_job resource keeps in its state
// (task groups, and the index that its plan compares), queued and running.
func TestTerraformSeesNoDrift(t *testing.T) {
	read := func(r *rig) []any {
		job := r.shown(t, "/v1/job/train")
		plan := decodeAnswer[api.JobPlanResponse](t, r.do("PUT", "/v1/job/train/plan", planRequest(t, gang())))
		if plan.JobModifyIndex != *job.JobModifyIndex {
			t.Errorf("plan is at %d, the job at %d: Terraform refuses to go on", plan.JobModifyIndex, *job.JobModifyIndex)
		}
		out := []any{*job.ID, *job.Type, job.Datacenters, *job.Namespace}
		for _, g := range job.TaskGroups {
			out = append(out, *g.Name, *g.Count, g.Meta, g.Tasks[0].Name, g.Tasks[0].Driver, g.Tasks[0].Meta)
		}
		return out
	}
	r := newRig(t)
	r.submit(t, gang())
	queued := read(r)
	r.admit(t, record.PhaseRunning)
	if diff := cmp.Diff(queued, read(r)); diff != "" {
		t.Errorf("what is read (-queued +running):\n%s", diff)
	}
}

// TestOtherJobsShowAsTheyAre keeps every byte of what Caravan has no part in.
func TestOtherJobsShowAsTheyAre(t *testing.T) {
	for _, path := range []string{"/v1/job/logs", "/v1/job/logs/versions", "/v1/job/logs/summary", "/v1/job/logs/scale"} {
		r := newRig(t)
		odd := []byte(`{"ID": "logs",  "Newer": 1e2, "TaskGroups":[], "Summary": {"a-0":{"Running":1}}}` + "\n")
		r.nomad.fail = func(w http.ResponseWriter, _ *http.Request, _ []byte) bool {
			w.Header().Set("X-Nomad-Index", "42")
			_, _ = w.Write(odd)
			return true
		}
		w := r.do("GET", path, nil)
		if diff := cmp.Diff(string(odd), w.Body.String()); diff != "" || w.Header().Get("X-Nomad-Index") != "42" {
			t.Errorf("%s: index %q (-want +got):\n%s", path, w.Header().Get("X-Nomad-Index"), diff)
		}
	}
}
