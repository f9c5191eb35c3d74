package daemon

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/planner/apply"
	"github.com/caravan-sched/caravan/planner/config"
	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/httpapi"
	"github.com/caravan-sched/caravan/planner/record"
)

func TestOutcome(t *testing.T) {
	admit := model.Decision{Namespace: "default", Job: "a", Action: model.ActionAdmit, Reason: "placed", Members: []model.Member{{Group: "g"}}}
	wait := model.Decision{Namespace: "default", Job: "b", Action: model.ActionWait, Reason: "no room"}
	refusedAs := func(why string) model.Decision {
		return model.Decision{Namespace: "default", Job: "a", Action: model.ActionWait, Reason: why, Detail: model.Detail{Code: codeRefused}}
	}
	result := func(kind apply.Kind, changed bool, err error) []apply.Result {
		return []apply.Result{{Namespace: "default", Job: "a", Kind: kind, Reason: "said", Changed: changed, Err: err}}
	}
	tests := map[string]struct {
		results                           []apply.Result
		want                              []model.Decision
		changed, overtaken, halted, fault bool
	}{
		"done":               {result(apply.KindAdmit, true, nil), []model.Decision{admit, wait}, true, false, false, false},
		"does not fit":       {result(apply.KindAdmit, true, apply.ErrNoFit), []model.Decision{refusedAs(apply.ErrNoFit.Error()), wait}, true, false, false, false},
		"too early":          {result(apply.KindAdmit, false, nil), []model.Decision{refusedAs("said"), wait}, false, false, false, false},
		"not tried":          {result(apply.KindGate, true, nil), []model.Decision{wait}, true, false, false, false},
		"somebody was first": {result(apply.KindAdmit, false, fmt.Errorf("x: %w", record.ErrConflict)), []model.Decision{wait}, false, true, false, false},
		"no right":           {result(apply.KindAdmit, false, apply.ErrForbidden), []model.Decision{refusedAs(apply.ErrForbidden.Error()), wait}, false, false, false, true},
		"Nomad is away":      {result(apply.KindGate, false, apply.ErrUnavailable), []model.Decision{wait}, false, false, true, true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got := outcomeOf(&model.Plan{Decisions: []model.Decision{admit, wait}}, test.results)
			if diff := cmp.Diff(test.want, got.plan.Decisions); diff != "" {
				t.Errorf("decisions (-want +got):\n%s", diff)
			}
			if got.changed != test.changed || got.overtaken != test.overtaken || got.halted != test.halted || (got.trouble != nil) != test.fault {
				t.Errorf("outcome = %+v", got)
			}
		})
	}
}

func TestRelease(t *testing.T) {
	d, f := testDaemon(t, job("a"), job("stuck"))
	for name, test := range map[string]struct {
		req     httpapi.ReleaseRequest
		want    []httpapi.Released
		wantErr bool
	}{
		"all": {req: httpapi.ReleaseRequest{All: true}, want: []httpapi.Released{
			{Namespace: "default", Job: "a", Done: true}, {Namespace: "default", Job: "stuck", Note: "a member has completed"}}},
		"one":     {req: httpapi.ReleaseRequest{Namespace: "default", Job: "a"}, want: []httpapi.Released{{Namespace: "default", Job: "a", Done: true}}},
		"unknown": {req: httpapi.ReleaseRequest{Namespace: "default", Job: "x"}, wantErr: true},
	} {
		got, err := backend{d}.Release(t.Context(), "token", test.req)
		if (err != nil) != test.wantErr {
			t.Errorf("%s: error = %v", name, err)
		}
		if diff := cmp.Diff(test.want, got.Jobs); !test.wantErr && diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	if len(f.carrier.released) != 3 || f.carrier.released[0][:6] != "token@" {
		t.Errorf("released = %v, want three with the caller's token", f.carrier.released)
	}
	d.leader.set(nil, "other", nil)
	if _, err := (backend{d}).Release(t.Context(), "", httpapi.ReleaseRequest{All: true}); err == nil {
		t.Error("a follower releases")
	}
}

func TestPlanChangesNothing(t *testing.T) {
	d, f := testDaemon(t, job("a"))
	if _, err := d.refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	gpu := func(id, gang string) *api.Job {
		j := api.NewBatchJob(id, id, "global", 50).SetMeta("caravan_gang", gang)
		task := api.NewTask("t", "raw_exec")
		count := uint64(1)
		task.Resources = &api.Resources{Devices: []*api.RequestedDevice{{Name: "nvidia/gpu", Count: &count}}}
		return j.AddTaskGroup(api.NewTaskGroup("g", 1).AddTask(task))
	}
	plain := api.NewBatchJob("p", "p", "global", 50).AddTaskGroup(api.NewTaskGroup("g", 1).AddTask(api.NewTask("t", "raw_exec")))
	if r, err := d.Plan(t.Context(), gpu("new", "job")); err != nil || r.Decision.Reason != "no room for new" {
		t.Errorf("plan = %+v, %v", r, err)
	}
	if r, err := d.Plan(t.Context(), gpu("new", "sure")); err != nil || len(r.Faults) != 1 {
		t.Errorf("plan of a job with a fault = %+v, %v", r, err)
	}
	two := gpu("new", "sure").SetMeta("caravan_budget", "0")
	if r, err := d.Plan(t.Context(), two); err != nil || len(r.Faults) != 2 || strings.Contains(r.Faults[0], "; job:") {
		t.Errorf("plan of a job with two faults = %q, %v; want a sentence each", r.Faults, err)
	}
	if r, err := d.Plan(t.Context(), plain); err != nil || r.Managed || r.Why == "" {
		t.Errorf("plan of a job without GPUs = %+v, %v", r, err)
	}
	if n := len(d.view.Load().Snapshot.Jobs); n != 1 || f.carrier.executed != 0 {
		t.Errorf("%d jobs in the view, executed %d times", n, f.carrier.executed)
	}
}

// A token that was rotated is read again after a refusal; a caller's own token
// is left alone.
func TestTokenIsReadAgain(t *testing.T) {
	path := filepath.Join(t.TempDir(), "token")
	write := func(token string) {
		if err := os.WriteFile(path, []byte(token), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("old")
	var seen []string
	nomad := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		token := r.Header.Get(httpapi.TokenHeader)
		seen = append(seen, token)
		if token != "new" {
			http.Error(w, "Permission denied", http.StatusForbidden)
			return
		}
		_, _ = w.Write([]byte("[]"))
	}))
	defer nomad.Close()
	planner, nobody, err := clients(config.Nomad{Address: nomad.URL, TokenFile: path}, new(nomadClock))
	if err != nil {
		t.Fatal(err)
	}
	write("new")
	if _, _, err := planner.Nodes().List(nil); err == nil {
		t.Error("the old token is accepted")
	}
	if _, _, err := planner.Nodes().List(nil); err != nil {
		t.Errorf("the new token is not used: %v", err)
	}
	_, _, _ = planner.Nodes().List(&api.QueryOptions{AuthToken: "caller"})
	err = authorizer{nobody}.check(t.Context(), "", httpapi.RightReadNode, "")
	var e *httpapi.Error
	if !errors.As(err, &e) || e.Status != http.StatusForbidden {
		t.Errorf("nobody may read nodes: %v", err)
	}
	if diff := cmp.Diff([]string{"old", "new", "caller", ""}, seen); diff != "" {
		t.Errorf("tokens (-want +got):\n%s", diff)
	}
}
