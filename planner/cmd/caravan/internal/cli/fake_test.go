package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/internal/jobhcl"
	"github.com/caravan-sched/caravan/planner/burstapi"
	"github.com/caravan-sched/caravan/planner/config"
	"github.com/caravan-sched/caravan/planner/core"
	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/httpapi"
)

var now = time.Date(2031, 5, 17, 12, 0, 0, 0, time.UTC)

// fakePlanner answers like a planner with its gateway. Anything may be made to
// fail or to change between two requests.
type fakePlanner struct {
	*httptest.Server
	mu sync.Mutex
	// answers are by method and path; a func is called for each request.
	answers map[string]any
	// fail are answers with another status than 200, by method and path.
	fail map[string]int
	// registered are the jobs registered, with what was submitted.
	registered []api.JobRegisterRequest
	// tokens are those seen, namespaces those in queries, by method and path.
	tokens     map[string]bool
	namespaces map[string]string
}

// errNotThere is answered with 404.
var errNotThere = errors.New("not there")

func newFakePlanner(t *testing.T) *fakePlanner {
	t.Helper()
	f := &fakePlanner{answers: map[string]any{}, fail: map[string]int{}, tokens: map[string]bool{}, namespaces: map[string]string{}}
	f.Server = httptest.NewServer(f)
	t.Cleanup(f.Close)
	waiting := httpapi.Job{Namespace: "default", ID: "big", Type: "batch", State: model.StateQueued, Position: 1, Queue: "default", Gang: model.GangJob, Members: 4, GPUs: 32, Reason: "needs 4 whole nodes; 1 is free"}
	running := httpapi.Job{Namespace: "default", ID: "train-gang", Type: "batch", State: model.StateRunning, Queue: "default", Gang: model.GangJob, Members: 2, Placed: 2, GPUs: 16}
	f.answers["GET /caravan/v1/status"] = httpapi.Status{Version: "1", Leader: true, Policy: "fifo", Nomad: httpapi.Nomad{Address: "http://nomad.test:4646", OK: true}, ViewTaken: now}
	f.answers["GET /caravan/v1/jobs"] = []httpapi.Job{waiting, running}
	f.answers["GET /caravan/v1/queue"] = []httpapi.Job{waiting}
	f.answers["GET /caravan/v1/explain/default/big"] = httpapi.Explain{Job: waiting, Action: model.ActionWait}
	f.answers["GET /caravan/v1/explain/default/train-gang"] = httpapi.Explain{Job: running, Action: model.ActionAdmit}
	f.answers["GET /caravan/v1/topology"] = httpapi.Topology{Root: httpapi.Domain{Name: "cluster", Nodes: 1, GPUs: 1, FreeGPUs: 1}}
	f.answers["GET /caravan/v1/topology/gpu-1"] = httpapi.NodeTopology{ID: "1", Name: "gpu-1", GPUs: []httpapi.GPUUse{{GPU: model.GPU{UUID: "GPU-1"}}}, Islands: [][]int{{0}}, Links: [][]model.Link{{{Kind: "X"}}}}
	f.answers["POST /caravan/v1/plan"] = httpapi.PlanResult{Managed: true, Decision: model.Decision{Action: model.ActionAdmit, Reason: "fits"}}
	f.answers["POST /caravan/v1/release"] = httpapi.ReleaseResult{Jobs: []httpapi.Released{{Namespace: "default", Job: "train-gang", Done: true}}}
	for _, verb := range []string{"suspend", "resume", "requeue"} {
		f.answers["POST /caravan/v1/"+verb] = httpapi.SteerResult{Namespace: "default", Job: "train-gang", Changed: true, Note: "its members are told to " + verb}
	}
	f.answers["GET /v1/job/serve/deployment"] = api.Deployment{ID: "d1234567-89", JobID: "serve"}
	f.answers["PUT /v1/deployment/promote/d1234567-89"] = api.DeploymentUpdateResponse{}
	f.answers["PUT /v1/deployment/fail/d1234567-89"] = api.DeploymentUpdateResponse{}
	f.answers["GET /caravan/v1/unblock/default/big"] = httpapi.UnblockResult{Unblock: &model.Unblock{Stop: []model.JobName{{ID: "x"}}, Reason: "stopping x would make room in node n1; that costs 2 GPU-minutes"}}
	f.answers["GET /caravan/v1/unblock/default/train-gang"] = httpapi.UnblockResult{}
	f.answers["GET /caravan/v1/reservations"] = []model.ReservationUse{{Name: "tonight", Kind: model.ReserveMaintenance, State: "planned", Nodes: 2, Reason: "2 nodes will be empty by then"}}
	f.answers["GET /caravan/v1/burst"] = burstapi.Answer{Leader: true, Pools: []burstapi.Pool{{Name: "eu", Wanted: 1, Present: 1, Why: "1 node there", PricePerNodeHour: 10, Currency: "EUR",
		Purchases: []burstapi.Purchase{{ID: "eu-1", Gang: "default/m", Nodes: 1, Market: burstapi.Spot, PricePerNodeHour: 4, CostEstimate: 17.32, State: burstapi.Present, Why: "it is late here"}},
		GiveBack:  []burstapi.GiveBack{{Name: "eu-1-0", Why: "idle for 6m0s"}}, Nodes: []burstapi.Node{{Name: "eu-1-0", State: burstapi.GivingBack, Ready: true}}}}}
	settings := httpapi.Settings{Policy: httpapi.PolicySetting{Policy: core.Policy{Order: "fairshare"}, HalfLife: 24 * time.Hour}, Queues: httpapi.QueuesSetting{Queues: []model.Queue{{Path: "a"}}}}
	f.answers["GET /caravan/v1/settings"] = settings
	settings.Policy.Set = &httpapi.SettingText{At: now.Add(-time.Minute)}
	settings.Queues.Set = settings.Policy.Set
	settings.Reservations = httpapi.ReservationsSetting{Reservations: []model.Reservation{{Name: "tonight"}}, Set: settings.Policy.Set}
	settings.Warnings = []httpapi.Warning{{Subject: "reservation tonight", Text: "no node has the name or ID \"x\""}}
	for _, name := range []string{"policy", "queues", "reservations"} {
		f.answers["PUT /caravan/v1/settings/"+name] = settings
		f.answers["DELETE /caravan/v1/settings/"+name] = f.answers["GET /caravan/v1/settings"]
	}
	f.answers["GET /caravan/v1/doctor"] = httpapi.NewDoctor(now, "1", []httpapi.Check{
		{Name: "nomad", Status: httpapi.CheckOK, Detail: "it answers"},
		{Name: "gate", Status: httpapi.CheckWarn, Detail: "1 node opens it", Do: "unset it"},
	})
	f.answers["PUT /v1/jobs"] = api.JobRegisterResponse{EvalID: "e1", Warnings: "1 warning:\n\n* it is first in its queue"}
	f.answers["PUT /v1/validate/job"] = api.JobValidateResponse{DriverConfigValidated: true}
	f.answers["POST /v1/jobs/parse"] = func(body []byte) (any, error) {
		var req api.JobsParseRequest
		if err := json.Unmarshal(body, &req); err != nil {
			return nil, err
		}
		return jobhcl.ParseWith([]byte(req.JobHCL), "input.hcl", jobhcl.Options{VarFiles: []jobhcl.VarFile{{Name: "vars", Src: []byte(req.Variables)}}})
	}
	f.answers["PUT /v1/jobs/parse"] = f.answers["POST /v1/jobs/parse"]
	return f
}

func (f *fakePlanner) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	key := r.Method + " " + r.URL.Path
	f.tokens[r.Header.Get("X-Nomad-Token")] = true
	f.namespaces[key] = r.URL.Query().Get("namespace")
	body, err := io.ReadAll(r.Body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	if status := f.fail[key]; status != 0 {
		w.WriteHeader(status)
		fmt.Fprint(w, `{"error": "it was made to fail"}`)
		return
	}
	answer, ok := f.answers[key]
	if _, isPlanner := f.answers["GET /caravan/v1/status"]; !ok && !isPlanner {
		http.NotFound(w, r)
		return
	}
	if !ok {
		w.WriteHeader(http.StatusNotFound)
		fmt.Fprintf(w, `{"error": "no %s"}`, r.URL.Path)
		return
	}
	if key == "PUT /v1/jobs" {
		var req api.JobRegisterRequest
		if err := json.Unmarshal(body, &req); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		f.registered = append(f.registered, req)
	}
	if call, ok := answer.(func([]byte) (any, error)); ok {
		answer, err = call(body)
		if errors.Is(err, errNotThere) {
			w.WriteHeader(http.StatusNotFound)
			fmt.Fprint(w, `{"error": "not there"}`)
			return
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
	}
	if err := json.NewEncoder(w).Encode(answer); err != nil {
		panic(err)
	}
}

// called is what one command line did.
type called struct {
	code        int
	out, errOut string
	sleeps      int
}

// call runs a command line against the fake.
func (f *fakePlanner) call(env map[string]string, stdin string, args ...string) called {
	var out, errOut bytes.Buffer
	c := called{}
	c.code = Run(context.Background(), args, Env{
		Stdin: strings.NewReader(stdin), Stdout: &out, Stderr: &errOut,
		LookupEnv: func(key string) (string, bool) {
			v, ok := env[key]
			if !ok && key == httpapi.AddressEnv {
				return f.URL, true
			}
			return v, ok
		},
		Environ: func() []string { return nil },
		Now:     func() time.Time { return now },
		Sleep: func(context.Context, time.Duration) error {
			if c.sleeps++; c.sleeps > 10 {
				return context.DeadlineExceeded
			}
			return nil
		},
		Version: "1",
		Doctor: func(_ context.Context, cfg config.Config) (httpapi.Doctor, error) {
			return httpapi.NewDoctor(now, "1", []httpapi.Check{{Name: "acl", Status: httpapi.CheckOK, Detail: cfg.Nomad.Address + " as " + cfg.Nomad.Token}}), nil
		},
	})
	c.out, c.errOut = out.String(), errOut.String()
	return c
}
