package gateway

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/planner/rewrite"
)

func launchCommands() []command {
	parent := gang(func(j *api.Job) {
		j.ParameterizedJob = &api.ParameterizedJobConfig{Payload: "optional", MetaRequired: []string{"lr"}}
		j.TaskGroups[0].Tasks[0].DispatchPayload = &api.DispatchPayloadConfig{File: "input.bin"}
	})
	periodic := func(change ...func(*api.PeriodicConfig)) *api.Job {
		p := &api.PeriodicConfig{Specs: []string{"0 3 * * *"}}
		for _, c := range change {
			c(p)
		}
		return gang(func(j *api.Job) { j.Periodic = p })
	}
	return []command{
		{name: "`job run` of a parameterized job", effect: "As in Nomad: it runs nothing itself.", alone: true, show: func(t *testing.T, r *rig) {
			r.passed(t, "PUT", "/v1/jobs", string(registration(t, parent)))
		}},
		{name: "`job dispatch`", effect: "An ordinary job `PARENT/dispatch-…` with the same meta, priority and payload file, queued and placed whole; the right `dispatch-job` is enough. To Nomad it is no child of its parent: it is not counted there, and `/dispatch/payload` does not have its payload.", alone: true,
			show: func(t *testing.T, r *rig) { showDispatch(t, r, parent) }},
		{name: "`job run` of a periodic job", effect: "Nomad launches it, and each launch is queued and placed whole: the gate is in the parent. Once admitted, a launch is an ordinary job to Nomad and no longer listed below its parent. `prohibit_overlap` is refused, since Nomad could not keep it.", alone: true,
			show: func(t *testing.T, r *rig) {
				contains(t, r.submit(t, periodic()).Warnings, "nomad says", "each launch")
				if !rewrite.IsGated(r.nomad.job(t, key)) {
					t.Error("the parent is not gated")
				}
				if job := r.shown(t, "/v1/job/train"); rewrite.IsGated(&job) {
					t.Error("the gate shows")
				}
				gate := &api.ObjectDiff{Type: diffAdded, Name: "Constraint", Fields: []*api.FieldDiff{{Type: diffAdded, Name: "LTarget", New: rewrite.GateAttribute}}}
				r.nomad.plan = func(api.JobPlanRequest) api.JobPlanResponse {
					return api.JobPlanResponse{Diff: &api.JobDiff{Type: diffEdited, Objects: []*api.ObjectDiff{gate}}}
				}
				resp := decodeAnswer[api.JobPlanResponse](t, r.do("PUT", "/v1/job/train/plan", planRequest(t, periodic())))
				if resp.Diff.Type != diffNone || len(resp.Diff.Objects) != 0 {
					t.Errorf("plan that changes the gate alone: %s", encode(t, resp.Diff))
				}
				w := r.do("PUT", "/v1/jobs", registration(t, periodic(func(p *api.PeriodicConfig) { p.ProhibitOverlap = new(true) })))
				if w.Code != http.StatusBadRequest || !strings.Contains(w.Body.String(), "prohibit_overlap") {
					t.Errorf("prohibit_overlap: %d %s, want a refusal", w.Code, w.Body)
				}
			}},
		{name: "`job periodic force`", effect: "As in Nomad: the launch is queued and placed whole like any other.", alone: true, show: func(t *testing.T, r *rig) {
			r.submit(t, periodic())
			r.passed(t, "PUT", "/v1/job/train/periodic/force", "")
		}},
	}
}

func showDispatch(t *testing.T, r *rig, parent *api.Job) {
	r.submit(t, parent)
	r.nomad.tokens = map[string]bool{"dispatcher": true, "planner": true}
	send := func(token, query string, req api.JobDispatchRequest) (*api.JobDispatchResponse, int, string) {
		w := r.do("PUT", "/v1/job/train/dispatch"+query, encode(t, req), "X-Nomad-Token", token)
		var resp api.JobDispatchResponse
		_ = json.Unmarshal(w.Body.Bytes(), &resp)
		return &resp, w.Code, w.Body.String()
	}
	payload := []byte("binary \xff\x00 {{ key \"x\" }}")
	req := api.JobDispatchRequest{Payload: payload, Meta: map[string]string{"lr": "0.1"}, Priority: 70}
	resp, code, text := send("dispatcher", "", req)
	if code != http.StatusOK || !strings.HasPrefix(resp.DispatchedJobID, "train/dispatch-") || resp.EvalID == "" {
		t.Fatalf("dispatch: %d %s", code, text)
	}
	child := r.whole(t, "default/"+resp.DispatchedJobID)
	task := child.TaskGroups[0].Tasks[0]
	if child.Meta["lr"] != "0.1" || *child.Priority != 70 || child.ParameterizedJob != nil || task.Env[envParent] != "train" {
		t.Errorf("child = %s", encode(t, child))
	}
	if want := `{{ base64Decode "YmluYXJ5IP8AIHt7IGtleSAieCIgfX0=" }}`; len(task.Templates) != 1 || *task.Templates[0].EmbeddedTmpl != want || *task.Templates[0].DestPath != "local/input.bin" {
		t.Errorf("templates = %s, want %s", encode(t, task.Templates), want)
	}
	first, _, _ := send("dispatcher", "?idempotency_token=once", req)
	again, _, _ := send("dispatcher", "?idempotency_token=once", req)
	if first.DispatchedJobID == "" || first.DispatchedJobID != again.DispatchedJobID || first.JobCreateIndex == 0 {
		t.Errorf("the same token: %+v, then %+v", first, again)
	}
	for name, test := range map[string]struct {
		token string
		req   api.JobDispatchRequest
		want  string
	}{
		"no right":   {"nobody", req, "Permission denied"},
		"no meta":    {"dispatcher", api.JobDispatchRequest{}, "required meta keys: [lr]"},
		"wrong meta": {"dispatcher", api.JobDispatchRequest{Meta: map[string]string{"lr": "1", "x": "y"}}, "unpermitted metadata keys: [x]"},
	} {
		if _, code, text := send(test.token, "", test.req); code < 400 || !strings.Contains(text, test.want) {
			t.Errorf("%s: %d %s, want %q", name, code, text, test.want)
		}
	}
}
