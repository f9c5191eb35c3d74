package gateway

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/gangspec"
	"github.com/caravan-sched/caravan/planner/httpapi"
	"github.com/caravan-sched/caravan/planner/record"
	"github.com/caravan-sched/caravan/planner/rewrite"
)

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
	rec.Phase, rec.Members, rec.PlacedHash, rec.Reason = phase, members, rec.SpecHash, "as recorded"
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

// TestKeptWhileDevicesAreMissing: a device plugin that restarts lists none for a
// moment. The pins of members that run keep their form, since a list of GPUs that
// comes or goes restarts its member.
func TestKeptWhileDevicesAreMissing(t *testing.T) {
	missing := false
	r := newRig(t, func(c *Config) {
		c.Cluster = func(context.Context) (*rewrite.Cluster, error) {
			n := 8
			if missing {
				n = 0
			}
			return rewrite.NewCluster([]rewrite.Node{{ID: "aaaaaaaa-0001", GPUs: n}, {ID: "bbbbbbbb-0002", GPUs: 8}}, nil), nil
		}
	})
	r.running(t)
	devices := func() any {
		var out []any
		for _, g := range r.nomad.job(t, key).TaskGroups {
			out = append(out, *g.Name, g.Constraints, g.Tasks[0].Resources.Devices)
		}
		return out
	}
	want := devices()
	missing = true
	contains(t, r.submit(t, gang(priority(80))).Warnings, "stays on its nodes")
	if diff := cmp.Diff(want, devices()); diff != "" {
		t.Errorf("groups, their constraints and devices (-before +after):\n%s", diff)
	}
}
