package gateway

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/gangspec"
	"github.com/caravan-sched/caravan/planner/httpapi"
	"github.com/caravan-sched/caravan/planner/record"
	"github.com/caravan-sched/caravan/planner/rewrite"
)

const key = "default/train"

var unexported = cmpopts.IgnoreUnexported(record.Record{})

func TestNewJobIsRecordedAndGated(t *testing.T) {
	for _, target := range []string{"/v1/jobs", "/v1/job/train"} {
		t.Run(target, func(t *testing.T) {
			r := newRig(t)
			recorded := false
			r.nomad.fail = func(_ http.ResponseWriter, req *http.Request, body []byte) bool {
				if req.Method == "PUT" && !strings.Contains(string(body), "9223372036854775807") {
					_, recorded = r.records.data[key]
				}
				return false
			}
			resp := decodeAnswer[api.JobRegisterResponse](t, r.do("PUT", target, registration(t, gang()), "X-Nomad-Token", "alices"))
			if !recorded {
				t.Error("the job was registered before its record was written")
			}
			job := r.nomad.job(t, key)
			if !rewrite.IsGated(job) {
				t.Error("the job is not gated")
			}
			rec := r.records.data[key]
			want := record.Record{
				Namespace: "default", JobID: "train", SpecHash: gangspec.Hash(gang()), Submitter: "alice (acc-1)",
				Submitted: submitted, Arriving: submitted, Phase: record.PhaseQueued, Source: &api.JobSubmission{Source: "job \"train\" {}", Format: "hcl2"},
				ModifyIndex: 1,
			}
			if diff := cmp.Diff(want, rec, cmpopts.IgnoreFields(record.Record{}, "Original"), unexported); diff != "" {
				t.Errorf("record (-want +got):\n%s", diff)
			}
			if rewrite.IsGated(rec.Original) || gangspec.Hash(rec.Original) != rec.SpecHash {
				t.Error("the record's original is not the user's job")
			}
			if resp.EvalID != "eval-101" || resp.JobModifyIndex != 101 || resp.EvalCreateIndex != 101 {
				t.Errorf("answer = %+v, want the evaluation of the gated job", resp)
			}
			if want := "nomad says\nCaravan: queued: needs 2 nodes; 1 is free; 3 jobs ahead"; resp.Warnings != want {
				t.Errorf("warnings = %q, want %q", resp.Warnings, want)
			}
			for _, s := range r.nomad.requests {
				if s.Method == "PUT" && s.Header.Get("X-Nomad-Token") != "alices" {
					t.Errorf("%s %s went with the token %q", s.Method, s.Path, s.Header.Get("X-Nomad-Token"))
				}
			}
			regs := r.nomad.registrations()
			if len(regs) != 1 || regs[0].Submission == nil || !regs[0].EnforceIndex || regs[0].JobModifyIndex != 0 {
				t.Errorf("registrations = %+v, want one, of a job that is new, with its source", regs)
			}
		})
	}
}

func TestAnswerKeepsNomadsOwnFields(t *testing.T) {
	r := newRig(t)
	w := r.do("PUT", "/v1/jobs?pretty", registration(t, gang()))
	answer := decodeAnswer[map[string]any](t, w)
	if answer["Newer"] != "field" || w.Header().Get("X-Nomad-Index") == "" || !strings.Contains(w.Body.String(), "\n    ") {
		t.Errorf("answer = %v, headers %v: want what Nomad sent, indented", w.Body, w.Header())
	}
}

func TestUserGateIsOurs(t *testing.T) {
	r := newRig(t)
	job := gang(func(j *api.Job) { j.Constrain(api.NewConstraint(rewrite.GateAttribute, "=", rewrite.GateValue)) })
	decodeAnswer[api.JobRegisterResponse](t, r.do("PUT", "/v1/jobs", registration(t, job)))
	if got, want := r.records.data[key].SpecHash, gangspec.Hash(gang()); got != want {
		t.Errorf("hash = %s, want that of the job without the gate, %s", got, want)
	}
}

func TestFaultsAreAllListed(t *testing.T) {
	r := newRig(t)
	w := r.do("PUT", "/v1/jobs", registration(t, gang(func(j *api.Job) {
		j.SetMeta("caravan_gang", "pack").SetMeta("caravan_duration", "soon")
	})))
	for _, want := range []string{`"pack"`, `"soon"`, "nothing was registered"} {
		if w.Code != http.StatusBadRequest || !strings.Contains(w.Body.String(), want) {
			t.Errorf("answer = %d %s, want 400 with %s", w.Code, w.Body, want)
		}
	}
	if len(r.nomad.requests) != 0 || len(r.records.data) != 0 {
		t.Errorf("%d requests, %d records, want none", len(r.nomad.requests), len(r.records.data))
	}
}

func TestNothingStaysBehindWhenNomadRefuses(t *testing.T) {
	before := record.Record{Namespace: "default", JobID: "train", SpecHash: "old", Phase: record.PhaseRunning, ModifyIndex: 5}
	refuse := func(status int, text string, rehearsalToo bool) func(http.ResponseWriter, *http.Request, []byte) bool {
		return func(w http.ResponseWriter, r *http.Request, body []byte) bool {
			rehearsal := strings.Contains(string(body), "9223372036854775807")
			if r.Method != "PUT" || (rehearsal && !rehearsalToo) {
				return false
			}
			w.WriteHeader(status)
			_, _ = w.Write([]byte(text))
			return true
		}
	}
	tests := map[string]struct {
		before *record.Record
		fail   func(http.ResponseWriter, *http.Request, []byte) bool
		tokens map[string]bool
		status int
		text   string
		puts   int
	}{
		"no right to submit":           {nil, nil, map[string]bool{"other": true}, 403, "Permission denied", 0},
		"no right, a running gang":     {&before, nil, map[string]bool{"other": true}, 403, "Permission denied", 0},
		"an invalid job":               {nil, refuse(500, "1 error occurred", true), nil, 500, "1 error occurred", 0},
		"a policy after the record":    {nil, refuse(403, "Sentinel says no", false), nil, 403, "Sentinel says no", 1},
		"too many, with an old record": {&before, refuse(429, "slow down", false), nil, 429, "slow down", 2},
		"garbage":                      {nil, refuse(502, "<html>", false), nil, 502, "<html>", 1},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.records.index = 10
			if test.before != nil {
				r.records.data[key] = *test.before
			}
			r.nomad.fail, r.nomad.tokens = test.fail, test.tokens
			w := r.do("PUT", "/v1/jobs", registration(t, gang()), "X-Nomad-Token", "mine")
			if w.Code != test.status || w.Body.String() != test.text {
				t.Errorf("answer = %d %s, want Nomad's own %d %s", w.Code, w.Body, test.status, test.text)
			}
			got, ok := r.records.data[key]
			if ok != (test.before != nil) {
				t.Fatalf("record there: %v, want as before: %v", ok, test.before != nil)
			}
			if test.before != nil {
				if diff := cmp.Diff(*test.before, got, cmpopts.IgnoreFields(record.Record{}, "ModifyIndex"), unexported); diff != "" {
					t.Errorf("record (-before +after):\n%s", diff)
				}
			}
			if r.records.puts != test.puts {
				t.Errorf("the record was written %d times, want %d", r.records.puts, test.puts)
			}
			if r.nomad.job(t, key) != nil {
				t.Error("Nomad has the job")
			}
		})
	}
}

func TestRecordsUnavailable(t *testing.T) {
	r := newRig(t)
	r.records.beforePut = func(*record.Record) error { return errors.New("no leader") }
	w := r.do("PUT", "/v1/jobs", registration(t, gang()))
	if w.Code != http.StatusServiceUnavailable || !strings.Contains(w.Body.String(), "no leader") {
		t.Errorf("answer = %d %s, want 503 with the reason", w.Code, w.Body)
	}
	if r.nomad.job(t, key) != nil {
		t.Error("Nomad has the job without a record")
	}
}

func TestConflictMeansLookAgain(t *testing.T) {
	r := newRig(t)
	first := true
	r.records.beforePut = func(rec *record.Record) error {
		if first {
			first = false
			// The planner found the job by itself in the meantime.
			r.records.mu.Lock()
			r.records.data[key] = record.Record{Namespace: "default", JobID: "train", SpecHash: "other", ModifyIndex: 77}
			r.records.mu.Unlock()
		}
		return nil
	}
	decodeAnswer[api.JobRegisterResponse](t, r.do("PUT", "/v1/jobs", registration(t, gang())))
	if rec := r.records.data[key]; rec.SpecHash != gangspec.Hash(gang()) || !rewrite.IsGated(r.nomad.job(t, key)) {
		t.Errorf("record = %+v, want the new submission's", rec)
	}
}

func TestAlwaysConflictingGivesUp(t *testing.T) {
	r := newRig(t)
	r.records.beforePut = func(*record.Record) error { return record.ErrConflict }
	if w := r.do("PUT", "/v1/jobs", registration(t, gang())); w.Code != http.StatusConflict {
		t.Errorf("answer = %d %s, want 409", w.Code, w.Body)
	}
}

// admit does what the planner does: pin the job in Nomad and say so in the
// record.
func (r *rig) admit(t *testing.T, phase record.Phase) {
	t.Helper()
	pinned := r.place(t, phase)
	r.nomad.mu.Lock()
	defer r.nomad.mu.Unlock()
	r.nomad.store(key, pinned)
}

// place writes the record of a placement and returns the job to be registered.
func (r *rig) place(t *testing.T, phase record.Phase) *api.Job {
	t.Helper()
	rec := r.records.data[key]
	members := []model.Member{
		{Group: "train", Index: 0, Rank: 0, Node: "aaaaaaaa-0001", GPUs: gpus("a")},
		{Group: "train", Index: 1, Rank: 1, Node: "bbbbbbbb-0002", GPUs: gpus("b")},
	}
	cluster, err := r.gateway.cfg.Cluster(t.Context())
	if err != nil {
		t.Fatalf("look at the cluster: %v", err)
	}
	pinned, err := rewrite.Pin(rec.Original, members, cluster)
	if err != nil {
		t.Fatalf("pin: %v", err)
	}
	pinned.Namespace = new("default")
	rec.Phase, rec.Members, rec.PlacedHash = phase, members, rec.SpecHash
	r.records.index++
	rec.ModifyIndex = r.records.index
	r.records.data[key] = rec
	return pinned
}

func gpus(prefix string) []string {
	var out []string
	for _, d := range "01234567" {
		out = append(out, "GPU-"+prefix+string(d))
	}
	return out
}

func TestUnchangedSubmissionChangesNothing(t *testing.T) {
	tests := map[string]struct {
		admitted bool
		job      func(r *rig) *api.Job
		evals    []*api.Evaluation
		wantEval string
	}{
		"queued":                     {false, func(*rig) *api.Job { return gang() }, nil, "eval-101"},
		"running":                    {true, func(*rig) *api.Job { return gang() }, nil, "eval-103"},
		"as read from Nomad, gated":  {false, func(r *rig) *api.Job { return r.nomad.jobs[key] }, nil, "eval-101"},
		"as read from Nomad, pinned": {true, func(r *rig) *api.Job { return r.nomad.jobs[key] }, nil, "eval-103"},
		"evaluations were collected": {true, func(*rig) *api.Job { return gang() }, []*api.Evaluation{}, "eval-forced-104"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			decodeAnswer[api.JobRegisterResponse](t, r.do("PUT", "/v1/jobs", registration(t, gang())))
			if test.admitted {
				r.admit(t, record.PhaseRunning)
				r.wait = func(context.Context, string, string, string) (httpapi.Explain, error) {
					t.Error("waited for a decision on a job that runs")
					return httpapi.Explain{}, nil
				}
			}
			if test.evals != nil {
				r.nomad.evals[key] = test.evals
			}
			before, rec := *r.nomad.job(t, key), r.records.data[key]
			resp := decodeAnswer[api.JobRegisterResponse](t, r.do("PUT", "/v1/jobs", registration(t, test.job(r))))
			if got := *r.nomad.job(t, key).JobModifyIndex; got != *before.JobModifyIndex {
				t.Errorf("the job was registered again: index %d, was %d", got, *before.JobModifyIndex)
			}
			if diff := cmp.Diff(rec, r.records.data[key], unexported); diff != "" {
				t.Errorf("record (-before +after):\n%s", diff)
			}
			if resp.EvalID != test.wantEval || resp.JobModifyIndex != *before.JobModifyIndex {
				t.Errorf("answer = %+v, want evaluation %s at index %d", resp, test.wantEval, *before.JobModifyIndex)
			}
			if !strings.Contains(resp.Warnings, "unchanged, nothing was registered") {
				t.Errorf("warnings = %q", resp.Warnings)
			}
		})
	}
}

func TestUnchangedNeedsTheRightToSubmit(t *testing.T) {
	r := newRig(t)
	decodeAnswer[api.JobRegisterResponse](t, r.do("PUT", "/v1/jobs", registration(t, gang())))
	r.nomad.tokens = map[string]bool{"other": true}
	if w := r.do("PUT", "/v1/jobs", registration(t, gang())); w.Code != http.StatusForbidden {
		t.Errorf("answer = %d %s, want 403", w.Code, w.Body)
	}
}

func TestStoppedJobIsANewSubmission(t *testing.T) {
	r := newRig(t)
	decodeAnswer[api.JobRegisterResponse](t, r.do("PUT", "/v1/jobs", registration(t, gang())))
	r.admit(t, record.PhaseRunning)
	stop := true
	r.nomad.jobs[key].Stop = &stop
	decodeAnswer[api.JobRegisterResponse](t, r.do("PUT", "/v1/jobs", registration(t, gang())))
	rec := r.records.data[key]
	if rec.Phase != record.PhaseQueued || len(rec.Members) != 0 || rec.PriorIndex != 103 || !rewrite.IsGated(r.nomad.job(t, key)) {
		t.Errorf("record = %+v, want a queued one without a placement", rec)
	}
}

func TestReleasedJobIsNomads(t *testing.T) {
	r := newRig(t)
	rec := record.Record{Namespace: "default", JobID: "train", SpecHash: gangspec.Hash(gang()), Phase: record.PhaseReleased, ModifyIndex: 1}
	r.records.data[key] = rec
	r.nomad.store(key, gang())
	body := registration(t, gang())
	decodeAnswer[api.JobRegisterResponse](t, r.do("PUT", "/v1/jobs", body))
	if regs := r.nomad.registrations(); len(regs) != 1 || rewrite.IsGated(regs[0].Job) {
		t.Errorf("registrations = %+v, want the user's own", regs)
	}
	if diff := cmp.Diff(rec, r.records.data[key], unexported); diff != "" {
		t.Errorf("record (-before +after):\n%s", diff)
	}
}

func TestChangedSubmissionOfARunningGang(t *testing.T) {
	env := func(j *api.Job) { j.TaskGroups[0].Tasks[0].Env = map[string]string{"LR": "0.1"} }
	tests := map[string]struct {
		change   func(*api.Job)
		phase    record.Phase
		plan     api.JobPlanResponse
		wantKept bool
	}{
		"environment": {env, record.PhaseRunning, api.JobPlanResponse{}, true},
		"priority":    {func(j *api.Job) { j.Priority = new(80) }, record.PhaseRunning, api.JobPlanResponse{}, true},
		"environment, not yet placed": {env, record.PhaseAdmitted, api.JobPlanResponse{
			Annotations: &api.PlanAnnotations{DesiredTGUpdates: map[string]*api.DesiredUpdates{"train": {Place: 2}}}}, true},
		"count":                        {func(j *api.Job) { j.TaskGroups[0].Count = new(1) }, record.PhaseRunning, api.JobPlanResponse{}, false},
		"devices":                      {func(j *api.Job) { j.TaskGroups[0].Tasks[0].Resources.Devices[0].Count = new(uint64(4)) }, record.PhaseRunning, api.JobPlanResponse{}, false},
		"memory":                       {func(j *api.Job) { j.TaskGroups[0].Tasks[0].Resources.MemoryMB = new(9000) }, record.PhaseRunning, api.JobPlanResponse{}, false},
		"constraint":                   {func(j *api.Job) { j.Constrain(api.NewConstraint("${meta.x}", "=", "y")) }, record.PhaseRunning, api.JobPlanResponse{}, false},
		"topology":                     {func(j *api.Job) { j.SetMeta("caravan_topology", "require:rack") }, record.PhaseRunning, api.JobPlanResponse{}, false},
		"group":                        {func(j *api.Job) { j.TaskGroups[0].Name = new("other") }, record.PhaseRunning, api.JobPlanResponse{}, false},
		"in the middle of a roll-back": {env, record.PhaseRollback, api.JobPlanResponse{}, false},
		"Nomad finds no room for it there": {env, record.PhaseRunning, api.JobPlanResponse{
			FailedTGAllocs: map[string]*api.AllocationMetric{"train": {}}}, false},
		"somebody would be preempted": {env, record.PhaseRunning, api.JobPlanResponse{
			Annotations: &api.PlanAnnotations{PreemptedAllocs: []*api.AllocationListStub{{ID: "x"}}}}, false},
		"a member would run again": {env, record.PhaseRunning, api.JobPlanResponse{
			Annotations: &api.PlanAnnotations{DesiredTGUpdates: map[string]*api.DesiredUpdates{"train": {Place: 1}}}}, false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			decodeAnswer[api.JobRegisterResponse](t, r.do("PUT", "/v1/jobs", registration(t, gang())))
			r.admit(t, test.phase)
			old := r.records.data[key]
			r.nomad.plan = func(api.JobPlanRequest) api.JobPlanResponse { return test.plan }
			r.gateway.cfg.Now = func() time.Time { return submitted.Add(time.Hour) }
			job := gang(test.change)
			resp := decodeAnswer[api.JobRegisterResponse](t, r.do("PUT", "/v1/jobs", registration(t, job)))
			rec, current := r.records.data[key], r.nomad.job(t, key)
			if rec.SpecHash != gangspec.Hash(job) || rec.PriorIndex != 103 {
				t.Errorf("record = %+v, want the new submission's", rec)
			}
			if diff := cmp.Diff(old.Members, rec.Members); diff != "" {
				t.Errorf("members (-before +after):\n%s", diff)
			}
			if test.wantKept {
				if rewrite.IsGated(current) || !rewrite.IsPinned(current) {
					t.Error("the job is not pinned as it was")
				}
				if rec.Phase != test.phase || rec.PlacedHash != rec.SpecHash || !rec.Submitted.Equal(submitted) {
					t.Errorf("record = %+v, want one whose placement is for this submission", rec)
				}
				if !strings.Contains(resp.Warnings, "stays on its nodes") || resp.EvalID != "eval-104" {
					t.Errorf("answer = %+v", resp)
				}
				return
			}
			if !rewrite.IsGated(current) {
				t.Error("the job is not gated")
			}
			if rec.Phase != record.PhaseQueued || rec.PlacedHash == rec.SpecHash || rec.Submitted.Equal(submitted) {
				t.Errorf("record = %+v, want a queued one whose placement is for another submission", rec)
			}
		})
	}
}

func TestClusterUnknownDisturbsNothing(t *testing.T) {
	r := newRig(t)
	decodeAnswer[api.JobRegisterResponse](t, r.do("PUT", "/v1/jobs", registration(t, gang())))
	r.admit(t, record.PhaseRunning)
	r.gateway.cfg.Cluster = func(context.Context) (*rewrite.Cluster, error) { return nil, errors.New("no view yet") }
	before := r.records.data[key]
	w := r.do("PUT", "/v1/jobs", registration(t, gang(func(j *api.Job) { j.Priority = new(80) })))
	if w.Code != http.StatusServiceUnavailable || !strings.Contains(w.Body.String(), "no view yet") {
		t.Errorf("answer = %d %s, want 503", w.Code, w.Body)
	}
	if diff := cmp.Diff(before, r.records.data[key], unexported); diff != "" {
		t.Errorf("record (-before +after):\n%s", diff)
	}
}

func TestEnforceIndexMeansTheUsersVersions(t *testing.T) {
	// The job was submitted at 101 and pinned at 103.
	tests := map[string]struct {
		index  uint64
		wantOK bool
	}{
		"only if new":                {0, false},
		"before the submission":      {100, false},
		"the submission's own":       {101, true},
		"between submission and pin": {102, true},
		"the pin's":                  {103, true},
		"one that has not yet been":  {104, false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.nomad.store("default/other", gang(func(j *api.Job) { j.ID = new("other") }))
			r.nomad.index = 100
			stop := true
			old := gang()
			r.nomad.index = 99
			r.nomad.store(key, old)
			old.Stop = &stop
			decodeAnswer[api.JobRegisterResponse](t, r.do("PUT", "/v1/jobs", registration(t, gang())))
			r.admit(t, record.PhaseRunning)
			body := registration(t, gang(func(j *api.Job) { j.Priority = new(80) }), func(req *api.JobRegisterRequest) {
				req.EnforceIndex, req.JobModifyIndex = true, test.index
			})
			w := r.do("PUT", "/v1/jobs", body)
			if ok := w.Code == http.StatusOK; ok != test.wantOK {
				t.Errorf("answer = %d %s, want accepted: %v", w.Code, w.Body, test.wantOK)
			}
			if !test.wantOK && (w.Code != http.StatusInternalServerError || !strings.HasPrefix(w.Body.String(), api.RegisterEnforceIndexErrPrefix)) {
				t.Errorf("answer = %d %s, want the error that the CLI knows", w.Code, w.Body)
			}
		})
	}
}

func TestEnforceIndexOfAJobThatIsNotThere(t *testing.T) {
	for index, wantStatus := range map[uint64]int{0: http.StatusOK, 7: http.StatusInternalServerError} {
		r := newRig(t)
		w := r.do("PUT", "/v1/jobs", registration(t, gang(), func(req *api.JobRegisterRequest) { req.EnforceIndex, req.JobModifyIndex = true, index }))
		if w.Code != wantStatus {
			t.Errorf("index %d: answer = %d %s, want %d", index, w.Code, w.Body, wantStatus)
		}
	}
}

func TestPreserveCountsAndResources(t *testing.T) {
	r := newRig(t)
	decodeAnswer[api.JobRegisterResponse](t, r.do("PUT", "/v1/jobs", registration(t, gang())))
	changed := gang(func(j *api.Job) {
		j.TaskGroups[0].Count = new(4)
		j.TaskGroups[0].Tasks[0].Resources.MemoryMB = new(4000)
	})
	decodeAnswer[api.JobRegisterResponse](t, r.do("PUT", "/v1/jobs", registration(t, changed, func(req *api.JobRegisterRequest) { req.PreserveCounts = true })))
	g := r.records.data[key].Original.TaskGroups[0]
	if *g.Count != 2 || *g.Tasks[0].Resources.MemoryMB != 4000 {
		t.Errorf("count = %d, memory = %d, want the last submission's 2 and the new 4000", *g.Count, *g.Tasks[0].Resources.MemoryMB)
	}
	back := gang(func(j *api.Job) { j.TaskGroups[0].Count = new(4) })
	decodeAnswer[api.JobRegisterResponse](t, r.do("PUT", "/v1/jobs", registration(t, back, func(req *api.JobRegisterRequest) { req.PreserveResources = true })))
	g = r.records.data[key].Original.TaskGroups[0]
	if *g.Count != 4 || *g.Tasks[0].Resources.MemoryMB != 4000 {
		t.Errorf("count = %d, memory = %d, want the new 4 and the last submission's 4000", *g.Count, *g.Tasks[0].Resources.MemoryMB)
	}
	for _, reg := range r.nomad.registrations() {
		if reg.PreserveCounts || reg.PreserveResources {
			t.Error("Nomad was told to preserve what the rewritten job has")
		}
	}
}

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
		want              int
	}{
		"none":               {"", "", "", 200},
		"global":             {"", "", "global", 200},
		"ours":               {"?region=us", "", "", 200},
		"another, in query":  {"?region=eu", "", "us", 400},
		"another, in job":    {"", "", "eu", 400},
		"the request's wins": {"?region=us", "eu", "us", 400},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, func(c *Config) { c.Region = "us" })
			body := registration(t, gang(func(j *api.Job) {
				if test.job != "" {
					j.Region = &test.job
				}
			}), func(req *api.JobRegisterRequest) { req.Region = test.write })
			if w := r.do("PUT", "/v1/jobs"+test.query, body); w.Code != test.want {
				t.Errorf("answer = %d %s, want %d", w.Code, w.Body, test.want)
			}
		})
	}
}
