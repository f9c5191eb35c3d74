package gateway

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/planner/record"
)

// TestOddRequestsChangeNothing sends what two readers could take differently to
// every path that may register a managed job.
func TestOddRequestsChangeNothing(t *testing.T) {
	bodies := map[string]string{
		"revert":   `{"JobID":"train","JobVersion":0}`,
		"scale":    `{"Count":4,"Target":{"Job":"train","Group":"train"}}`,
		"dispatch": `{"Meta":{"lr":"1"}}`,
	}
	tests := map[string]struct {
		path   func(action string) string
		body   func(body string) string
		header []string
		want   int
	}{
		"a key twice":         {body: func(b string) string { return `{"JobID":"other","Count":1,"Meta":{},` + b[1:] }, want: http.StatusBadRequest},
		"a second value":      {body: func(b string) string { return b + b }, want: http.StatusBadRequest},
		"an encoded body":     {header: []string{"Content-Encoding", "gzip"}, want: http.StatusUnsupportedMediaType},
		"a method override":   {header: []string{"X-HTTP-Method-Override", "GET"}, want: http.StatusBadRequest},
		"double slashes":      {path: func(a string) string { return "/v1//job/train/" + a }, want: http.StatusTemporaryRedirect},
		"escaped dots":        {path: func(a string) string { return "/v1/x/%2e%2e/job/train/" + a }, want: http.StatusBadRequest},
		"an upgrade":          {body: func(string) string { return `{]` }, header: []string{"Connection", "Upgrade", "Upgrade", "websocket"}, want: http.StatusBadRequest},
		"nothing in the body": {body: func(string) string { return "" }, want: http.StatusBadRequest},
	}
	for name, test := range tests {
		for action, body := range bodies {
			t.Run(name+"/"+action, func(t *testing.T) {
				r := newRig(t)
				r.running(t)
				r.submit(t, gang(priority(80)))
				before := len(r.nomad.requests)
				path := "/v1/job/train/" + action
				if test.path != nil {
					path = test.path(action)
				}
				if test.body != nil {
					body = test.body(body)
				}
				if w := r.do("PUT", path, []byte(body), test.header...); w.Code != test.want {
					t.Errorf("answer = %d %s, want %d", w.Code, w.Body, test.want)
				}
				for _, s := range r.nomad.requests[before:] {
					if s.Method != http.MethodGet {
						t.Errorf("%s %s reached Nomad", s.Method, s.Path)
					}
				}
			})
		}
	}
}

// TestEndlessBodies sends more than the gateway reads, in chunks.
func TestEndlessBodies(t *testing.T) {
	const size = 100 << 20
	for path, want := range map[string]int{
		"/v1/job/train/revert": http.StatusRequestEntityTooLarge, "/v1/job/train/scale": http.StatusRequestEntityTooLarge,
		"/v1/job/train/dispatch": http.StatusRequestEntityTooLarge, "/v1/allocation/a/stop": http.StatusBadRequest,
		"/v1/client/allocation/a/restart": http.StatusBadRequest,
	} {
		r := newRig(t)
		w := httptest.NewRecorder()
		r.gateway.ServeHTTP(w, httptest.NewRequest("PUT", path, struct{ io.Reader }{io.LimitReader(zeros{}, size)}))
		if w.Code != want || len(r.nomad.requests) != 0 {
			t.Errorf("%s: answer = %d, %d requests reached Nomad, want %d and none", path, w.Code, len(r.nomad.requests), want)
		}
	}
}

// TestWithoutRightsNothingIsDone sends every write with a token that may nothing.
func TestWithoutRightsNothingIsDone(t *testing.T) {
	for path, body := range map[string]string{
		"/v1/job/train/revert":                      `{"JobID":"train","JobVersion":0}`,
		"/v1/job/train/scale":                       `{"Count":4,"Target":{"Job":"train","Group":"train"}}`,
		"/v1/allocation/alloc-train-0/stop":         "",
		"/v1/client/allocation/alloc-train-0/stop":  "",
		"/v1/client/allocation/alloc-train-0/pause": "",
	} {
		r := newRig(t)
		r.running(t)
		r.submit(t, gang(func(j *api.Job) { j.TaskGroups[0].Count = new(3) }))
		r.admitAgain()
		r.nomad.tokens = map[string]bool{"planner": true}
		versions, rec := len(r.nomad.versions[key]), r.records.data[key]
		w := r.do("PUT", path, []byte(body), "X-Nomad-Token", "nobody")
		if w.Code != http.StatusForbidden {
			t.Errorf("%s: answer = %d %s, want Nomad's 403", path, w.Code, w.Body)
		}
		if now := r.records.data[key]; len(r.nomad.versions[key]) != versions || now.SpecHash != rec.SpecHash {
			t.Errorf("%s: something was registered or recorded", path)
		}
		for _, a := range r.nomad.allocs {
			if a.DesiredStatus != api.AllocDesiredStatusRun {
				t.Errorf("%s: %s was stopped", path, a.ID)
			}
		}
	}
}

// admitAgain marks what is recorded as running, wherever it is.
func (r *rig) admitAgain() {
	rec := r.records.data[key]
	rec.Phase = record.PhaseRunning
	r.records.data[key] = rec
}

// TestRevertSaysWhatNomadSays keeps Nomad's texts, which its CLI prints.
func TestRevertSaysWhatNomadSays(t *testing.T) {
	tests := map[string]struct {
		req  api.JobRevertRequest
		want string
	}{
		"to the version that is":       {api.JobRevertRequest{JobID: "train", JobVersion: 2}, "can't revert to current version"},
		"to one that is not there":     {api.JobRevertRequest{JobID: "train", JobVersion: 99}, "at version 99 not found"},
		"from another than there is":   {api.JobRevertRequest{JobID: "train", JobVersion: 0, EnforcePriorVersion: new(uint64(1))}, "Current job has version 2; enforcing version 1"},
		"of another job than the path": {api.JobRevertRequest{JobID: "other"}, "{"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.running(t)
			r.submit(t, gang(func(j *api.Job) { j.TaskGroups[0].Count = new(3) }))
			if test.req.JobID != "train" {
				r.passed(t, "PUT", "/v1/job/train/revert", string(encode(t, test.req)))
				return
			}
			w := r.do("PUT", "/v1/job/train/revert", encode(t, test.req))
			if w.Code != http.StatusInternalServerError || !strings.Contains(w.Body.String(), test.want) {
				t.Errorf("answer = %d %s, want %q", w.Code, w.Body, test.want)
			}
		})
	}
}

// TestGangOfOneGroup restarts a member of one of two gangs of a job.
func TestGangOfOneGroup(t *testing.T) {
	r := newRig(t)
	two := func(j *api.Job) {
		j.SetMeta("caravan_gang", "group")
		j.TaskGroups[0].Tasks[0].Resources.Devices[0].Count = new(uint64(4))
	}
	r.running(t, two)
	for _, id := range []string{"a", "b"} {
		r.nomad.allocs["eval-"+id] = &api.Allocation{
			ID: "eval-" + id, Namespace: "default", JobID: "train", Job: r.nomad.job(t, key), TaskGroup: "evaluate",
			DesiredStatus: api.AllocDesiredStatusRun, ClientStatus: api.AllocClientStatusRunning,
		}
	}
	r.do("PUT", "/v1/client/allocation/alloc-train-0/restart", []byte(`{}`))
	if got := r.nomad.did(); !slices.Equal(got, []string{"restart alloc-train-0", "restart alloc-train-1"}) {
		t.Errorf("done: %v, want the members of the group alone", got)
	}
}

// TestRestartThatReachesNotAll tells which members were left out.
func TestRestartThatReachesNotAll(t *testing.T) {
	r := newRig(t)
	r.running(t)
	r.nomad.fail = func(w http.ResponseWriter, req *http.Request, _ []byte) bool {
		if !bytes.Contains([]byte(req.URL.Path), []byte("alloc-train-1/restart")) {
			return false
		}
		refuse(w, http.StatusNotFound, "No path to node")
		return true
	}
	w := r.do("PUT", "/v1/client/allocation/alloc-train-0/restart", []byte(`{}`))
	if w.Code != http.StatusBadGateway || !strings.Contains(w.Body.String(), "alloc-train-1") || !strings.Contains(w.Body.String(), "No path to node") {
		t.Errorf("answer = %d %s, want the member and the reason", w.Code, w.Body)
	}
}

// TestDispatchOfAPeriodicParent is refused, since nothing is launched by it at
// once.
func TestDispatchOfAPeriodicParent(t *testing.T) {
	r := newRig(t)
	r.submit(t, gang(func(j *api.Job) {
		j.ParameterizedJob, j.Periodic = &api.ParameterizedJobConfig{}, &api.PeriodicConfig{Specs: []string{"0 3 * * *"}}
	}))
	w := r.do("PUT", "/v1/job/train/dispatch", []byte(`{}`))
	if w.Code != http.StatusBadRequest || !strings.Contains(w.Body.String(), "at once") || len(r.nomad.jobs) != 1 {
		t.Errorf("answer = %d %s, %d jobs, want a refusal", w.Code, w.Body, len(r.nomad.jobs))
	}
}

// TestOtherJobsNeedNoRecords lets Nomad Variables be away.
func TestOtherJobsNeedNoRecords(t *testing.T) {
	r := newRig(t)
	other := gang(func(j *api.Job) {
		j.TaskGroups[0].Tasks[0].Resources.Devices = nil
		j.ParameterizedJob = &api.ParameterizedJobConfig{}
	})
	r.submit(t, other)
	other.Priority = new(60)
	r.submit(t, other)
	r.nomad.allocs["a"] = &api.Allocation{ID: "a", Namespace: "default", JobID: "train", Job: r.nomad.job(t, key), TaskGroup: "train"}
	r.gateway.cfg.Records = away{}
	for path, body := range map[string]string{
		"/v1/job/train/revert": `{"JobID":"train","JobVersion":0}`, "/v1/job/train/scale": `{"Count":4,"Target":{"Group":"train"}}`,
		"/v1/job/train/dispatch": `{}`, "/v1/allocation/a/stop": ``, "/v1/client/allocation/a/restart": `{}`,
	} {
		if w := r.do("PUT", path, []byte(body)); w.Code != http.StatusOK {
			t.Errorf("%s: answer = %d %s, want Nomad's own", path, w.Code, w.Body)
		}
	}
	for _, path := range []string{"/v1/job/train", "/v1/job/train/versions", "/v1/job/train/summary", "/v1/job/train/scale"} {
		if w := r.do("GET", path, nil); w.Code != http.StatusOK {
			t.Errorf("%s: answer = %d %s, want Nomad's own", path, w.Code, w.Body)
		}
	}
}

// away are Records that nobody can reach.
type away struct{ Records }

func (away) Get(context.Context, string, string) (*record.Record, error) {
	return nil, errors.New("no leader")
}
