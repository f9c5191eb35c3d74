package gateway

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/httpapi"
	"github.com/caravan-sched/caravan/planner/record"
	"github.com/caravan-sched/caravan/planner/rewrite"
)

func TestDecisionInTheAnswer(t *testing.T) {
	tests := map[string]struct {
		wait     waiterFunc
		pinned   bool
		want     string
		wantEval string
	}{
		"admitted and pinned": {func(context.Context, string, string, string) (httpapi.Explain, error) {
			return httpapi.Explain{Job: httpapi.Job{Reason: "2 nodes in rack r1"}, Action: model.ActionAdmit}, nil
		}, true, "Caravan: admitted: 2 nodes in rack r1", "eval-103"},
		"the reason is in the record only": {func(context.Context, string, string, string) (httpapi.Explain, error) {
			return httpapi.Explain{Action: model.ActionAdmit}, nil
		}, true, "Caravan: admitted: as recorded", "eval-103"},
		"held": {func(context.Context, string, string, string) (httpapi.Explain, error) {
			return httpapi.Explain{Faults: []string{"a", "b"}, Action: model.ActionWait}, nil
		}, false, "Caravan: queued: a; b", "eval-101"},
		"behind one": {func(context.Context, string, string, string) (httpapi.Explain, error) {
			return httpapi.Explain{Job: httpapi.Job{Reason: "r"}, Action: model.ActionWait, Detail: model.Detail{Ahead: 1}}, nil
		}, false, "Caravan: queued: r; 1 job ahead", "eval-101"},
		"nothing decided in time": {func(ctx context.Context, _, _, _ string) (httpapi.Explain, error) {
			<-ctx.Done()
			return httpapi.Explain{}, ctx.Err()
		}, false, "Caravan: queued; the decision is not there yet. See `caravan explain train`.", "eval-101"},
		"no leader": {func(context.Context, string, string, string) (httpapi.Explain, error) {
			return httpapi.Explain{}, errors.New("no leader")
		}, false, "Caravan: queued; the planner does not decide at the moment: no leader. The job starts when it does.", "eval-101"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			if strings.Contains(test.want, "not there yet") {
				r.gateway.cfg.Wait = time.Millisecond
			}
			r.wait = func(ctx context.Context, ns, job, hash string) (httpapi.Explain, error) {
				if rec := r.records.data[key]; ns != "default" || job != "train" || hash != rec.SpecHash || !rewrite.IsGated(r.nomad.job(t, key)) {
					t.Errorf("waited for %s/%s %s before it was there", ns, job, hash)
				}
				if test.pinned {
					pinned := r.place(t, record.PhaseAdmitted)
					go func() {
						r.nomad.mu.Lock()
						defer r.nomad.mu.Unlock()
						r.nomad.store(key, pinned)
					}()
				}
				return test.wait(ctx, ns, job, hash)
			}
			resp := decodeAnswer[api.JobRegisterResponse](t, r.do("PUT", "/v1/jobs", registration(t, gang())))
			if want := "nomad says\n" + test.want; resp.Warnings != want {
				t.Errorf("warnings = %q, want %q", resp.Warnings, want)
			}
			if resp.EvalID != test.wantEval {
				t.Errorf("evaluation = %s, want %s", resp.EvalID, test.wantEval)
			}
		})
	}
}

func TestForeignRegion(t *testing.T) {
	tests := map[string]struct {
		query, write, job string
		// want says whether it passes as it came, for Nomad to forward.
		want bool
	}{
		"none":               {"", "", "", false},
		"global":             {"", "", "global", false},
		"ours":               {"?region=us", "", "", false},
		"another, in query":  {"?region=eu", "", "us", true},
		"another, in job":    {"", "", "eu", true},
		"the request's wins": {"?region=us", "eu", "us", true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			for what, region := range map[string]string{"told": "us", "learned": ""} {
				r := newRig(t, func(c *Config) { c.Region = region })
				r.nomad.region = "us"
				body := registration(t, gang(func(j *api.Job) {
					if test.job != "" {
						j.Region = &test.job
					}
				}), func(req *api.JobRegisterRequest) { req.Region = test.write })
				if w := r.do("PUT", "/v1/jobs"+test.query, body); w.Code != http.StatusOK {
					t.Errorf("%s: answer = %d %s", what, w.Code, w.Body)
				}
				if gated, recorded := rewrite.IsGated(r.nomad.job(t, key)), len(r.records.data) == 1; gated == test.want || recorded == test.want {
					t.Errorf("%s: gated %v, recorded %v; want it to pass: %v", what, gated, recorded, test.want)
				}
			}
		})
	}
}

func TestReference(t *testing.T) {
	for want, s := range map[string]*submission{
		"train":    {namespace: "default", id: "train"},
		"ml/train": {namespace: "ml", id: "train"},
	} {
		if got := s.ref(); got != want {
			t.Errorf("ref() = %q, want %q", got, want)
		}
	}
}

// TestOtherRegionsPass: what is asked of another region's jobs has nothing to do
// with those of the same name here.
func TestOtherRegionsPass(t *testing.T) {
	r := newRig(t, func(c *Config) { c.Region = "us" })
	r.running(t)
	for _, path := range []string{"/v1/job/train", "/v1/job/train/versions", "/v1/job/train/summary", "/v1/job/train/scale", "/v1/job/train/evaluations", "/v1/allocation/alloc-train-0"} {
		r.passed(t, "GET", path+"?region=eu", "")
	}
	before := r.records.data[key]
	r.passed(t, "PUT", "/v1/job/train/plan?region=eu", string(planRequest(t, gang(priority(80)))))
	r.passed(t, "PUT", "/v1/job/train/scale?region=eu", `{"Count":3,"Target":{"Job":"train","Group":"train"}}`)
	r.passed(t, "PUT", "/v1/client/allocation/alloc-train-0/restart?region=eu", `{}`)
	r.passed(t, "PUT", "/v1/allocation/alloc-train-0/stop?region=eu", ``)
	if after := r.records.data[key]; after.ModifyIndex != before.ModifyIndex {
		t.Errorf("the record of the job here was written: %+v", after)
	}
}
