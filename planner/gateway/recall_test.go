package gateway

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/record"
)

// showStop: Nomad stops the one, the planner is told to stop all.
func showStop(t *testing.T, r *rig) {
	for i := range 2 {
		if w := r.do("PUT", fmt.Sprintf("/v1/allocation/alloc-train-%d/stop", i), nil, "X-Nomad-Token", "alice"); w.Code != http.StatusOK {
			t.Errorf("member %d: %d %s", i, w.Code, w.Body)
		}
		if diff := cmp.Diff([]string{"stop alloc-train-0"}, r.nomad.did()); diff != "" {
			t.Errorf("done after member %d (-want +got):\n%s", i, diff)
		}
	}
	want := []record.Recall{{Alloc: "alloc-train-0", By: "alice (acc-1)", At: submitted}}
	if diff := cmp.Diff(want, r.records.data[key].Recalls); diff != "" {
		t.Errorf("recalls (-want +got):\n%s", diff)
	}
	if next := r.alloc(t, "alloc-train-1").NextAllocation; next != "" {
		t.Errorf("a successor is shown before there is one: %q", next)
	}
	r.replace(t)
	for i := range 2 {
		if got, want := r.alloc(t, fmt.Sprintf("alloc-train-%d", i)).NextAllocation, fmt.Sprintf("new-%d", i); got != want {
			t.Errorf("successor of member %d = %q, want %q", i, got, want)
		}
		// The old ones are not the gang's any more.
		r.do("PUT", fmt.Sprintf("/v1/allocation/alloc-train-%d/stop", i), nil)
	}
	if n := len(r.records.data[key].Recalls); n != 0 {
		t.Errorf("%d recalls after the gang runs again, want none", n)
	}
}

// alloc reads an allocation through the gateway.
func (r *rig) alloc(t *testing.T, id string) api.Allocation {
	t.Helper()
	return decodeAnswer[api.Allocation](t, r.do("GET", "/v1/allocation/"+id+"?wait=1ms", nil))
}

// replace does what the planner does about a recall: the gang is stopped whole,
// and runs again.
func (r *rig) replace(t *testing.T) {
	t.Helper()
	r.nomad.mu.Lock()
	defer r.nomad.mu.Unlock()
	for i := range 2 {
		old := r.nomad.allocs[fmt.Sprintf("alloc-train-%d", i)]
		old.DesiredStatus, old.ClientStatus = api.AllocDesiredStatusStop, api.AllocClientStatusComplete
		r.nomad.index++
		next := *old
		next.ID, next.CreateIndex = fmt.Sprintf("new-%d", i), r.nomad.index
		next.DesiredStatus, next.ClientStatus = api.AllocDesiredStatusRun, api.AllocClientStatusRunning
		r.nomad.allocs[next.ID] = &next
	}
	r.records.mu.Lock()
	defer r.records.mu.Unlock()
	rec := r.records.data[key]
	rec.Recalls = nil
	r.records.data[key] = rec
}

// TestStopOfAMember: which stops take a gang along, and which do not.
func TestStopOfAMember(t *testing.T) {
	tests := map[string]struct {
		job     func(*api.Job)
		prepare func(r *rig)
		token   string
		// wantCode is 200 if it is not set.
		wantCode    int
		wantText    string
		wantPassed  bool
		wantRecalls []record.Recall
	}{
		"a gang that is the job":     {wantPassed: true, wantRecalls: []record.Recall{{Alloc: "alloc-train-0", At: submitted}}},
		"a gang that is a group":     {job: func(j *api.Job) { j.SetMeta("caravan_gang", "group") }, wantPassed: true, wantRecalls: []record.Recall{{Group: "train", Alloc: "alloc-train-0", At: submitted}}},
		"a member that ended before": {prepare: func(r *rig) { r.nomad.allocs["alloc-train-0"].ClientStatus = "complete" }, wantPassed: true},
		"it is told to stop already": {prepare: func(r *rig) { r.nomad.allocs["alloc-train-0"].DesiredStatus = "stop" }, wantPassed: true},
		"the others have ended":      {prepare: func(r *rig) { r.nomad.allocs["alloc-train-1"].ClientStatus = "failed" }, wantPassed: true},
		"the gang is being stopped": {prepare: func(r *rig) {
			rec := r.records.data[key]
			rec.Phase = record.PhaseRollback
			r.records.data[key] = rec
		}},
		"another user was first": {prepare: func(r *rig) {
			rec := r.records.data[key]
			rec.Recalls = []record.Recall{{Alloc: "alloc-train-1"}}
			r.records.data[key] = rec
		}, wantRecalls: []record.Recall{{Alloc: "alloc-train-1"}}},
		"it was recalled before and waits": {prepare: func(r *rig) {
			rec := r.records.data[key]
			rec.Recalls = []record.Recall{{Alloc: "old", Taken: true}}
			r.records.data[key] = rec
		}, wantPassed: true, wantRecalls: []record.Recall{{Alloc: "alloc-train-0", At: submitted}}},
		"without the right": {token: "nobody", prepare: func(r *rig) { r.nomad.tokens = map[string]bool{"planner": true} }, wantCode: http.StatusForbidden, wantPassed: true},
		"the record changes meanwhile": {prepare: func(r *rig) {
			once := false
			r.records.beforePut = func(*record.Record) error {
				if !once {
					once = true
					return record.ErrConflict
				}
				return nil
			}
		}, wantPassed: true, wantRecalls: []record.Recall{{Alloc: "alloc-train-0", At: submitted}}},
		"the record cannot be written": {prepare: func(r *rig) {
			r.records.beforePut = func(*record.Record) error { return errors.New("no leader") }
		}, wantCode: http.StatusBadGateway, wantText: "stop another of its members", wantPassed: true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			var change []func(*api.Job)
			if test.job != nil {
				change = append(change, test.job)
			}
			r.running(t, change...)
			if test.prepare != nil {
				test.prepare(r)
			}
			var header []string
			if test.token != "" {
				header = []string{"X-Nomad-Token", test.token}
			}
			w := r.do("PUT", "/v1/allocation/alloc-train-0/stop", nil, header...)
			if want := max(test.wantCode, http.StatusOK); w.Code != want || !strings.Contains(w.Body.String(), test.wantText) {
				t.Errorf("answer = %d %s, want %d with %q", w.Code, w.Body, want, test.wantText)
			}
			if got := len(r.nomad.did()) == 1; got != test.wantPassed {
				t.Errorf("reached Nomad: %v, want %v", r.nomad.did(), test.wantPassed)
			}
			if diff := cmp.Diff(test.wantRecalls, r.records.data[key].Recalls); diff != "" {
				t.Errorf("recalls (-want +got):\n%s", diff)
			}
		})
	}
}

// TestSuccessorIsWaitedFor: who waits for a member's successor with a blocking
// query has it when it is there, and none that Nomad placed by itself before.
func TestSuccessorIsWaitedFor(t *testing.T) {
	r := newRig(t)
	r.running(t)
	r.do("PUT", "/v1/allocation/alloc-train-0/stop", nil)
	r.nomad.mu.Lock()
	r.nomad.allocs["alloc-train-0"].NextAllocation = "by-nomad"
	r.nomad.mu.Unlock()
	looked := make(chan struct{}, 100)
	r.nomad.mu.Lock()
	r.nomad.fail = func(_ http.ResponseWriter, req *http.Request, _ []byte) bool {
		if req.URL.Query().Get("wait") == successorEvery.String() {
			select {
			case looked <- struct{}{}:
			default:
			}
		}
		return false
	}
	r.nomad.mu.Unlock()
	answered := make(chan api.Allocation, 1)
	go func() {
		answered <- decodeAnswer[api.Allocation](t, r.do("GET", "/v1/allocation/alloc-train-0?index=1&wait=10m", nil))
	}()
	<-looked
	<-looked
	select {
	case a := <-answered:
		t.Fatalf("answered with successor %q before there is one", a.NextAllocation)
	default:
	}
	r.replace(t)
	if got := (<-answered).NextAllocation; got != "new-0" {
		t.Errorf("successor = %q, want new-0", got)
	}
}

// TestGateIsNoPlacementFailure of a gang that was told to stop a moment ago.
func TestGateIsNoPlacementFailure(t *testing.T) {
	now := submitted
	r := newRig(t, func(c *Config) { c.Now = func() time.Time { return now } })
	r.running(t)
	r.do("PUT", "/v1/allocation/alloc-train-0/stop", nil)
	failed := map[string]*api.AllocationMetric{"train": {ConstraintFiltered: map[string]int{"computed class ineligible": 3}}}
	r.nomad.evals[key] = []*api.Evaluation{{ID: "blocked", Status: api.EvalStatusBlocked, FailedTGAllocs: failed}}
	rec := r.records.data[key]
	rec.Phase, rec.Members = record.PhaseQueued, []model.Member(nil)
	rec.Recalls[0].Taken = true
	r.records.data[key] = rec
	failures := func() int {
		return len(decodeAnswer[[]*api.Evaluation](t, r.do("GET", "/v1/job/train/evaluations", nil))[0].FailedTGAllocs)
	}
	if n := failures(); n != 0 {
		t.Errorf("%d failures are shown at once, want none", n)
	}
	now = now.Add(2 * recallShown)
	if n := failures(); n != 1 {
		t.Errorf("%d failures are shown when the gang still waits, want 1", n)
	}
}

// TestOneStopAtATime: two that stop members of one job take turns.
func TestOneStopAtATime(t *testing.T) {
	var c recalls
	done, err := c.turn(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	if other, err := c.turn(t.Context(), "b"); err != nil {
		t.Errorf("another job: %v", err)
	} else {
		other()
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := c.turn(ended, "a"); !errors.Is(err, context.Canceled) {
		t.Errorf("the same job, and nobody waits: %v", err)
	}
	next := make(chan error)
	go func() {
		done, err := c.turn(t.Context(), "a")
		if err == nil {
			done()
		}
		next <- err
	}()
	done()
	if err := <-next; err != nil {
		t.Errorf("the next of the same job: %v", err)
	}
}
