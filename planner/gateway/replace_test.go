package gateway

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/gangspec"
	"github.com/caravan-sched/caravan/planner/httpapi"
	"github.com/caravan-sched/caravan/planner/record"
)

// TestVersionThatCannotStart does not end the one that runs.
func TestVersionThatCannotStart(t *testing.T) {
	tooLarge := httpapi.PlanResult{Managed: true, Decision: model.Decision{Action: model.ActionWait, Reason: "needs 9 nodes, the cluster has 2", Detail: model.Detail{Code: "too_large"}}}
	more := gang(func(j *api.Job) { j.TaskGroups[0].Count = new(9) })
	tests := map[string]struct {
		alone   bool // nothing of the job runs
		preview httpapi.PlanResult
		fails   error
		prepare func(*record.Record)
		path    string
		body    string
		// want is the text of a refusal; "" takes it in.
		want string
	}{
		"too large":        {preview: tooLarge, want: "needs 9 nodes, the cluster has 2"},
		"no such node":     {preview: httpapi.PlanResult{Managed: true, Decision: model.Decision{Reason: "no node has 16 GPUs", Detail: model.Detail{Code: "no_node"}}}, want: "no node has 16 GPUs"},
		"faults":           {preview: httpapi.PlanResult{Managed: true, Faults: []string{"meta caravan_min is 12"}}, want: "meta caravan_min is 12"},
		"a GPU is divided": {preview: httpapi.PlanResult{Managed: true, Decision: model.Decision{Reason: "GPU a of n1 is divided for it", Detail: model.Detail{Code: "dividing"}}}},
		"it would wait":    {preview: httpapi.PlanResult{Managed: true, Decision: model.Decision{Reason: "1 of 9 nodes is free", Detail: model.Detail{Code: "no_capacity"}}}},
		"not managed":      {preview: httpapi.PlanResult{Decision: tooLarge.Decision}},
		"nobody can tell":  {preview: tooLarge, fails: errors.New("no view yet")},
		"a new job":        {preview: tooLarge, alone: true},
		"a job that waits": {preview: tooLarge, prepare: func(rec *record.Record) { rec.Phase, rec.Members = record.PhaseQueued, nil }},
		"insisted on":      {preview: tooLarge, path: "/v1/jobs?caravan=insist"},
		"scaled":           {preview: tooLarge, path: "/v1/job/train/scale", body: `{"Count":9,"Target":{"Job":"train","Group":"train"}}`, want: "needs 9 nodes"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			var asked *api.Job
			r := newRig(t, func(c *Config) {
				c.Preview = func(_ context.Context, job *api.Job) (httpapi.PlanResult, error) {
					asked = job
					return test.preview, test.fails
				}
			})
			if !test.alone {
				r.running(t)
			}
			before := r.records.data[key]
			if test.prepare != nil {
				test.prepare(&before)
				r.records.data[key] = before
			}
			registered, path, body := len(r.nomad.versions[key]), test.path, []byte(test.body)
			if path == "" {
				path = "/v1/jobs"
			}
			if test.body == "" {
				body = registration(t, more)
			}
			w := r.do("PUT", path, body)
			if test.want == "" {
				if w.Code != http.StatusOK || r.records.data[key].SpecHash != gangspec.Hash(more) {
					t.Errorf("answer = %d %s, want it taken in", w.Code, w.Body)
				}
				return
			}
			if w.Code != http.StatusConflict || !strings.Contains(w.Body.String(), test.want) || !strings.Contains(w.Body.String(), "nomad job stop train") {
				t.Errorf("answer = %d %s, want a refusal with %q and what to do", w.Code, w.Body, test.want)
			}
			if n := len(r.nomad.versions[key]) - registered; n != 0 || r.records.data[key].ModifyIndex != before.ModifyIndex {
				t.Errorf("%d versions more, record of %s: want nothing changed", n, r.records.data[key].SpecHash)
			}
			if asked == nil || *asked.TaskGroups[0].Count != 9 || *asked.Namespace != "default" {
				t.Errorf("asked about %+v, want the new version", asked)
			}
		})
	}
}
