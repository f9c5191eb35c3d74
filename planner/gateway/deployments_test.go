package gateway

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/record"
	"github.com/caravan-sched/caravan/planner/rewrite"
)

// update begins an update with a canary, which is placed, and returns its
// deployment as a user sees it.
func (r *rig) update(t *testing.T) *api.Deployment {
	t.Helper()
	decodeAnswer[api.JobRegisterResponse](t, r.do("PUT", "/v1/jobs", registration(t, served("1"))))
	r.admit(t, record.PhaseRunning)
	decodeAnswer[api.JobRegisterResponse](t, r.do("PUT", "/v1/jobs", registration(t, served("2"))))
	rec := r.records.data[key]
	rec.Rollout.Canary.Members = []model.Member{{Group: "train", Index: 0, Node: "bbbbbbbb-0002", GPUs: gpus("c"), Slot: 7}}
	r.records.data[key] = rec
	r.beside(t, rec)
	d := decodeAnswer[*api.Deployment](t, r.do("GET", "/v1/job/train/deployment", nil))
	if d == nil {
		t.Fatal("the update is no deployment")
	}
	return d
}

// beside places the canaries of a record's update beside the members.
func (r *rig) beside(t *testing.T, rec record.Record) {
	t.Helper()
	cluster, err := r.gateway.cfg.Cluster(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	mixed, err := rewrite.Roll(nil, rewrite.Update{Before: rec.Rollout.Original, Next: rec.Original, Members: rec.Members, Canaries: rec.Rollout.Beside()}, cluster)
	if err != nil {
		t.Fatal(err)
	}
	mixed.Namespace = new("default")
	r.nomad.mu.Lock()
	r.nomad.store(key, mixed)
	r.nomad.mu.Unlock()
	r.nomad.place(key)
}

// healthy is what the planner writes when it finds the canaries healthy.
func (r *rig) healthy() {
	rec := r.records.data[key]
	rollout := *rec.Rollout
	canary := *rollout.Canary
	canary.Healthy = true
	rollout.Canary, rec.Rollout = &canary, &rollout
	r.records.data[key] = rec
}

// TestUpdateIsADeployment: what Nomad's CLI and UI ask for.
func TestUpdateIsADeployment(t *testing.T) {
	r := newRig(t)
	d := r.update(t)
	want := &api.DeploymentState{DesiredTotal: 2, DesiredCanaries: 1, PlacedAllocs: 1, PlacedCanaries: []string{"alloc-train-0-v7-0"},
		ProgressDeadline: 10 * time.Minute, RequireProgressBy: submitted.Add(10 * time.Minute)}
	if diff := cmp.Diff(want, d.TaskGroups["train"]); diff != "" || len(d.TaskGroups) != 1 {
		t.Errorf("group (-want +got):\n%s", diff)
	}
	if d.Status != api.DeploymentStatusRunning || d.JobID != "train" || d.Namespace != "default" || len(d.ID) != 36 || !strings.Contains(d.StatusDescription, "canaries beside them (1)") {
		t.Errorf("deployment %+v", d)
	}
	for _, path := range []string{"/v1/deployments", "/v1/deployments?prefix=" + d.ID[:8], "/v1/job/train/deployments", "/v1/deployments?namespace=*"} {
		list := decodeAnswer[[]*api.Deployment](t, r.do("GET", path, nil))
		if len(list) != 1 || list[0].ID != d.ID {
			t.Errorf("%s lists %+v", path, list)
		}
	}
	for _, path := range []string{"/v1/deployments?prefix=0000", "/v1/deployments?namespace=other"} {
		if list := decodeAnswer[[]*api.Deployment](t, r.do("GET", path, nil)); len(list) != 0 {
			t.Errorf("%s lists %+v", path, list)
		}
	}
	if one := decodeAnswer[*api.Deployment](t, r.do("GET", "/v1/deployment/"+d.ID, nil)); one.ID != d.ID {
		t.Errorf("deployment %+v", one)
	}
	allocs := decodeAnswer[[]*api.AllocationListStub](t, r.do("GET", "/v1/deployment/allocations/"+d.ID, nil))
	if len(allocs) != 1 || allocs[0].ID != "alloc-train-0-v7-0" {
		t.Errorf("allocations %+v", allocs)
	}
	if w := r.do("GET", "/v1/deployment/00000000-0000-0000-0000-000000000000", nil); w.Code != http.StatusNotFound {
		t.Errorf("one that is not there: %d", w.Code)
	}
	rec := r.records.data[key]
	rec.End(submitted.Add(time.Minute), false, "the update is through")
	r.records.data[key] = rec
	over := decodeAnswer[*api.Deployment](t, r.do("GET", "/v1/deployment/"+d.ID, nil))
	if over.Status != api.DeploymentStatusSuccessful || !over.TaskGroups["train"].Promoted || over.TaskGroups["train"].PlacedAllocs != 2 {
		t.Errorf("in the end it is %+v", over)
	}
}

// TestDeploymentIsChanged as its user asks, and only as far as it can be.
func TestDeploymentIsChanged(t *testing.T) {
	tests := map[string]struct {
		before           func(*rig)
		path, body, want string // want is in the refusal; "" is none
		is               func(*record.Rollout) bool
	}{
		"promote":               {(*rig).healthy, "promote/%", `{"All":true}`, "", func(ro *record.Rollout) bool { return ro.Canary.Promote == "alice (acc-1)" }},
		"promote its groups":    {(*rig).healthy, "promote/%", `{"Groups":["train"]}`, "", func(ro *record.Rollout) bool { return ro.Canary.Promote == "alice (acc-1)" }},
		"promote another group": {(*rig).healthy, "promote/%", `{"Groups":["x"]}`, "promoted together", nil},
		"promote too early":     {nil, "promote/%", `{"All":true}`, "not healthy yet", nil},
		"promote twice": {func(r *rig) { r.healthy(); r.records.data[key].Rollout.Canary.Promote = "bob" }, "promote/%", `{"All":true}`,
			"promoted already", nil},
		"promote what failed": {func(r *rig) { r.healthy(); r.records.data[key].Rollout.Failed = "it was ill" }, "promote/%", `{"All":true}`, "it was ill", nil},
		"fail":                {nil, "fail/%", `{}`, "", func(ro *record.Rollout) bool { return strings.Contains(ro.GivenUp, "alice") && !ro.Undo }},
		"fail twice":          {func(r *rig) { r.records.data[key].Rollout.Failed = "it was ill" }, "fail/%", `{}`, "failed already", nil},
		"roll back":           {func(r *rig) { r.records.data[key].Rollout.Failed = "it was ill" }, "fail/%?caravan=rollback", `{}`, "", func(ro *record.Rollout) bool { return ro.Undo }},
		"pause":               {nil, "pause/%", `{"Pause":true}`, "", func(ro *record.Rollout) bool { return ro.Paused }},
		"mark":                {nil, "allocation-health/%", `{"HealthyAllocationIDs":["a"],"UnhealthyAllocationIDs":["b"]}`, "", func(ro *record.Rollout) bool { well, ok := ro.Marked["b"]; return ro.Marked["a"] && ok && !well }},
		"without the right": {func(r *rig) { r.healthy(); r.nomad.tokens = map[string]bool{"planner": true} }, "promote/%", `{"All":true}`,
			"Permission denied", nil},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			d := r.update(t)
			if test.before != nil {
				test.before(r)
			}
			registered := len(r.nomad.registrations())
			puts := r.records.puts
			w := r.do("PUT", "/v1/deployment/"+strings.Replace(test.path, "%", d.ID, 1), []byte(test.body), "X-Nomad-Token", "secret")
			if test.want != "" {
				if w.Code < 400 || !strings.Contains(w.Body.String(), test.want) || r.records.puts != puts {
					t.Errorf("answer %d %s, want %q", w.Code, w.Body, test.want)
				}
				return
			}
			resp := decodeAnswer[api.DeploymentUpdateResponse](t, w)
			rec := r.records.data[key]
			if !test.is(rec.Rollout) || resp.DeploymentModifyIndex != rec.ModifyIndex || resp.EvalID != "" {
				t.Errorf("answer %+v, update %+v", resp, rec.Rollout)
			}
			if len(r.nomad.registrations()) != registered {
				t.Error("the job was registered")
			}
		})
	}
}

// TestDeploymentIsHidden from whoever may not read the job.
func TestDeploymentIsHidden(t *testing.T) {
	r := newRig(t)
	d := r.update(t)
	r.nomad.fail = func(w http.ResponseWriter, req *http.Request, _ []byte) bool {
		hidden := req.URL.Path == "/v1/job/train" && req.Header.Get("X-Nomad-Token") != "planner"
		if hidden {
			refuse(w, http.StatusForbidden, "Permission denied")
		}
		return hidden
	}
	if list := decodeAnswer[[]*api.Deployment](t, r.do("GET", "/v1/deployments?namespace=*", nil)); len(list) != 0 {
		t.Errorf("it is listed: %+v", list)
	}
	if w := r.do("GET", "/v1/deployment/"+d.ID, nil); w.Code != http.StatusNotFound {
		t.Errorf("it is shown: %d %s", w.Code, w.Body)
	}
	if w := r.do("PUT", "/v1/deployment/fail/"+d.ID, []byte(`{}`)); w.Code != http.StatusNotFound || r.records.data[key].Rollout.GivenUp != "" {
		t.Errorf("it is failed: %d %s", w.Code, w.Body)
	}
}

// TestStoppedCanaryStopsNoGang: neither the gang beside it, nor it with that.
func TestStoppedCanaryStopsNoGang(t *testing.T) {
	r := newRig(t)
	together := func(version string) *api.Job {
		j := served(version)
		j.Meta["caravan_gang"] = "job"
		return j
	}
	decodeAnswer[api.JobRegisterResponse](t, r.do("PUT", "/v1/jobs", registration(t, together("1"))))
	r.admit(t, record.PhaseRunning)
	decodeAnswer[api.JobRegisterResponse](t, r.do("PUT", "/v1/jobs", registration(t, together("2"))))
	rec := r.records.data[key]
	if !rec.Rollout.Canary.Open() {
		t.Fatalf("update %+v", rec.Rollout)
	}
	for i, node := range []string{"aaaaaaaa-0001", "bbbbbbbb-0002"} {
		rec.Rollout.Canary.Members = append(rec.Rollout.Canary.Members, model.Member{Group: "train", Index: i, Node: node, GPUs: gpus("c" + node), Slot: 7})
	}
	r.beside(t, rec)
	for _, stop := range []struct {
		id       string
		recalled int
	}{{"alloc-train-v7-0", 0}, {"alloc-train-0", 1}} {
		if w := r.do("PUT", "/v1/allocation/"+stop.id+"/stop", nil); w.Code != http.StatusOK {
			t.Fatalf("stop %s: %d %s", stop.id, w.Code, w.Body)
		}
		if got := len(r.records.data[key].Recalls); got != stop.recalled {
			t.Errorf("after %s %d gangs are recalled, want %d", stop.id, got, stop.recalled)
		}
	}
}
