package gateway

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/httpapi"
	"github.com/caravan-sched/caravan/planner/record"
	"github.com/caravan-sched/caravan/planner/rewrite"
)

func planRequest(t *testing.T, job *api.Job) []byte {
	t.Helper()
	return encode(t, api.JobPlanRequest{Job: job, Diff: true})
}

func TestPlanIsInTheUsersTerms(t *testing.T) {
	inPlace := api.JobPlanResponse{Annotations: &api.PlanAnnotations{DesiredTGUpdates: map[string]*api.DesiredUpdates{"train": {DestructiveUpdate: 2}}}}
	tests := map[string]struct {
		submitted, admitted bool
		change              func(*api.Job)
		plan                *api.JobPlanResponse
		wantType            string
		wantUpdates         map[string]*api.DesiredUpdates
		wantWarning         string
	}{
		"new": {
			change: func(*api.Job) {}, wantType: diffAdded,
			wantUpdates: map[string]*api.DesiredUpdates{"train": {Place: 2}}, wantWarning: "would be queued: 3 jobs are ahead",
		},
		"unchanged and queued": {
			submitted: true, change: func(*api.Job) {}, wantType: diffNone,
			wantUpdates: map[string]*api.DesiredUpdates{"train": {Ignore: 2}}, wantWarning: "unchanged",
		},
		"unchanged and running": {
			submitted: true, admitted: true, change: func(*api.Job) {}, wantType: diffNone,
			wantUpdates: map[string]*api.DesiredUpdates{"train": {Ignore: 2}}, wantWarning: "unchanged",
		},
		"changed, stays where it is": {
			submitted: true, admitted: true, plan: &inPlace,
			change:      func(j *api.Job) { j.TaskGroups[0].Tasks[0].Env = map[string]string{"LR": "0.1"} },
			wantType:    diffEdited,
			wantUpdates: map[string]*api.DesiredUpdates{"train": {DestructiveUpdate: 2}}, wantWarning: "would stay on its nodes",
		},
		"changed, queued anew": {
			submitted: true, admitted: true, change: func(j *api.Job) { j.TaskGroups[0].Count = new(3) }, wantType: diffEdited,
			wantUpdates: map[string]*api.DesiredUpdates{"train": {DestructiveUpdate: 2, Place: 1}}, wantWarning: "would be queued",
		},
		"a group renamed": {
			submitted: true, change: func(j *api.Job) { j.TaskGroups[0].Name = new("other") }, wantType: diffEdited,
			wantUpdates: map[string]*api.DesiredUpdates{"train": {Stop: 2}, "other": {Place: 2}}, wantWarning: "would be queued",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.gateway.cfg.Preview = func(context.Context, *api.Job) (httpapi.PlanResult, error) {
				return httpapi.PlanResult{Managed: true, Decision: model.Decision{Action: model.ActionWait, Reason: "3 jobs are ahead"}}, nil
			}
			if test.submitted {
				decodeAnswer[api.JobRegisterResponse](t, r.do("PUT", "/v1/jobs", registration(t, gang())))
			}
			if test.admitted {
				r.admit(t, record.PhaseRunning)
			}
			if test.plan != nil {
				r.nomad.plan = func(api.JobPlanRequest) api.JobPlanResponse { return *test.plan }
			}
			before := r.nomad.registrations()
			resp := decodeAnswer[api.JobPlanResponse](t, r.do("PUT", "/v1/job/train/plan", planRequest(t, gang(test.change))))
			if resp.Diff.Type != test.wantType {
				t.Errorf("diff = %+v, want type %s", resp.Diff, test.wantType)
			}
			if diff := cmp.Diff(test.wantUpdates, resp.Annotations.DesiredTGUpdates); diff != "" {
				t.Errorf("updates (-want +got):\n%s", diff)
			}
			if len(resp.FailedTGAllocs) != 0 || strings.Contains(string(encode(t, resp.Diff)), "caravan_gate") || strings.Contains(string(encode(t, resp.Diff)), "node.unique.id") {
				t.Errorf("answer = %+v, want nothing of gate and pins", resp)
			}
			if !strings.Contains(resp.Warnings, test.wantWarning) || strings.Contains(resp.Warnings, "does not know") {
				t.Errorf("warnings = %q, want %q", resp.Warnings, test.wantWarning)
			}
			if job := r.nomad.job(t, key); job != nil && resp.JobModifyIndex != *job.JobModifyIndex {
				t.Errorf("index = %d, want %d", resp.JobModifyIndex, *job.JobModifyIndex)
			}
			if after := r.nomad.registrations(); len(after) != len(before) {
				t.Error("a plan registered the job")
			}
		})
	}
}

func TestPlanOfAJobThatEnded(t *testing.T) {
	r := newRig(t)
	decodeAnswer[api.JobRegisterResponse](t, r.do("PUT", "/v1/jobs", registration(t, gang())))
	r.admit(t, record.PhaseRunning)
	dead := "dead"
	r.nomad.jobs[key].Status = &dead
	delete(r.records.data, key)
	resp := decodeAnswer[api.JobPlanResponse](t, r.do("PUT", "/v1/job/train/plan", planRequest(t, gang(func(j *api.Job) { j.Priority = new(80) }))))
	want := &api.JobDiff{Type: diffEdited, ID: "train", Fields: []*api.FieldDiff{{Type: diffEdited, Name: "Priority", Old: "50", New: "80"}}}
	if diff := cmp.Diff(want, resp.Diff); diff != "" {
		t.Errorf("diff (-want +got):\n%s", diff)
	}
	if got := resp.Annotations.DesiredTGUpdates["train"]; got == nil || got.Place != 2 {
		t.Errorf("updates = %+v, want all placed anew", got)
	}
}

func TestPlanShowsNothingToTheUnauthorised(t *testing.T) {
	r := newRig(t)
	decodeAnswer[api.JobRegisterResponse](t, r.do("PUT", "/v1/jobs", registration(t, gang())))
	r.nomad.tokens = map[string]bool{"other": true}
	if w := r.do("PUT", "/v1/job/train/plan", planRequest(t, gang())); w.Code != http.StatusForbidden || w.Body.String() != "Permission denied" {
		t.Errorf("answer = %d %s, want Nomad's own 403", w.Code, w.Body)
	}
}

func TestPlanOfSplitGroupsIsSummedUp(t *testing.T) {
	half := func(j *api.Job) {
		j.TaskGroups[0].Tasks[0].Resources.Devices[0].Count = new(uint64(4))
	}
	r := newRig(t)
	decodeAnswer[api.JobRegisterResponse](t, r.do("PUT", "/v1/jobs", registration(t, gang(half))))
	rec := r.records.data[key]
	rec.Phase, rec.PlacedHash = record.PhaseRunning, rec.SpecHash
	rec.Members = []model.Member{
		{Group: "train", Index: 0, Node: "aaaaaaaa-0001", GPUs: gpus("a")[:4]},
		{Group: "train", Index: 1, Node: "aaaaaaaa-0001", GPUs: gpus("a")[4:]},
	}
	r.records.data[key] = rec
	r.nomad.plan = func(req api.JobPlanRequest) api.JobPlanResponse {
		out := api.JobPlanResponse{Annotations: &api.PlanAnnotations{DesiredTGUpdates: map[string]*api.DesiredUpdates{}}}
		for _, g := range req.Job.TaskGroups {
			out.Annotations.DesiredTGUpdates[*g.Name] = &api.DesiredUpdates{InPlaceUpdate: 1}
		}
		return out
	}
	resp := decodeAnswer[api.JobPlanResponse](t, r.do("PUT", "/v1/job/train/plan", planRequest(t, gang(half, func(j *api.Job) { j.Priority = new(80) }))))
	if diff := cmp.Diff(map[string]*api.DesiredUpdates{"train": {InPlaceUpdate: 2}}, resp.Annotations.DesiredTGUpdates); diff != "" {
		t.Errorf("updates (-want +got):\n%s", diff)
	}
}

func TestDiff(t *testing.T) {
	tests := map[string]struct {
		change func(*api.Job)
		want   *api.JobDiff
	}{
		"nothing": {func(*api.Job) {}, &api.JobDiff{Type: diffNone, ID: "train"}},
		"defaults written out": {func(j *api.Job) {
			j.Priority, j.NodePool = new(50), new("default")
			j.TaskGroups[0].EphemeralDisk = api.DefaultEphemeralDisk()
		}, &api.JobDiff{Type: diffNone, ID: "train"}},
		"priority and meta": {func(j *api.Job) { j.Priority = new(80); j.SetMeta("owner", "ml"); delete(j.Meta, "caravan_gang") },
			&api.JobDiff{Type: diffEdited, ID: "train", Fields: []*api.FieldDiff{
				{Type: diffEdited, Name: "Priority", Old: "50", New: "80"},
				{Type: diffDeleted, Name: "Meta[caravan_gang]", Old: "job"},
				{Type: diffAdded, Name: "Meta[owner]", New: "ml"},
			}}},
		"datacenters and a constraint": {func(j *api.Job) {
			j.Datacenters = []string{"dc1", "dc2"}
			j.Constrain(api.NewConstraint("${attr.arch}", "=", "amd64"))
		}, &api.JobDiff{Type: diffEdited, ID: "train", Objects: []*api.ObjectDiff{
			{Type: diffEdited, Name: "Datacenters", Fields: []*api.FieldDiff{{Type: diffAdded, Name: "Datacenters", New: "dc2"}}},
			{Type: diffAdded, Name: "Constraint", Fields: []*api.FieldDiff{
				{Type: diffAdded, Name: "LTarget", New: "${attr.arch}"}, {Type: diffAdded, Name: "RTarget", New: "amd64"}, {Type: diffAdded, Name: "Operand", New: "="},
			}},
		}}},
		"count": {func(j *api.Job) { j.TaskGroups[0].Count = new(1) },
			&api.JobDiff{Type: diffEdited, ID: "train", TaskGroups: []*api.TaskGroupDiff{{Type: diffEdited, Name: "train", Fields: []*api.FieldDiff{
				{Type: diffEdited, Name: "Count", Old: "2", New: "1", Annotations: []string{"forces destroy"}},
			}}}}},
		"the command's arguments": {func(j *api.Job) { j.TaskGroups[0].Tasks[0].SetConfig("args", []string{"-c", "x"}) },
			taskDiff([]string{"forces create/destroy update"}, nil, []*api.ObjectDiff{{Type: diffEdited, Name: "Config", Fields: []*api.FieldDiff{
				{Type: diffAdded, Name: "args[0]", New: "-c"}, {Type: diffAdded, Name: "args[1]", New: "x"},
			}}})},
		"kill timeout": {func(j *api.Job) { j.TaskGroups[0].Tasks[0].KillTimeout = new(10 * time.Second) },
			taskDiff([]string{"forces in-place update"}, []*api.FieldDiff{{Type: diffEdited, Name: "KillTimeout", Old: "5000000000", New: "10000000000"}}, nil)},
		"devices": {func(j *api.Job) { j.TaskGroups[0].Tasks[0].Resources.Devices[0].Count = new(uint64(4)) },
			taskDiff([]string{"forces create/destroy update"}, nil, []*api.ObjectDiff{{Type: diffEdited, Name: "Resources", Objects: []*api.ObjectDiff{
				{Type: diffEdited, Name: "Device", Fields: []*api.FieldDiff{{Type: diffEdited, Name: "Count", Old: "8", New: "4"}}},
			}}})},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := diffJobs(gang(), gang(test.change))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("diff (-want +got):\n%s", diff)
			}
		})
	}
}

func taskDiff(annotations []string, fields []*api.FieldDiff, objects []*api.ObjectDiff) *api.JobDiff {
	return &api.JobDiff{Type: diffEdited, ID: "train", TaskGroups: []*api.TaskGroupDiff{{Type: diffEdited, Name: "train", Tasks: []*api.TaskDiff{{
		Type: diffEdited, Name: "main", Annotations: annotations, Fields: fields, Objects: objects,
	}}}}}
}

func TestDiffOfGroupsThatComeAndGo(t *testing.T) {
	other := gang(func(j *api.Job) { j.TaskGroups[0].Name = new("other") })
	d, err := diffJobs(gang(), other)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, g := range d.TaskGroups {
		got[g.Name] = g.Type + " " + g.Tasks[0].Type + " " + g.Tasks[0].Annotations[0]
	}
	want := map[string]string{"other": "Added Added forces create", "train": "Deleted Deleted forces destroy"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("groups (-want +got):\n%s", diff)
	}
	added, err := diffJobs(nil, gang())
	if err != nil {
		t.Fatal(err)
	}
	if added.Type != diffAdded || len(added.TaskGroups) != 1 || added.TaskGroups[0].Type != diffAdded || len(added.Fields) == 0 {
		t.Errorf("diff of a new job = %+v, want all of it added", added)
	}
}

func TestGateAndPinsAreInvisibleToTheDiff(t *testing.T) {
	cluster := rewrite.NewCluster([]rewrite.Node{{ID: "aaaaaaaa-0001", GPUs: 8}, {ID: "bbbbbbbb-0002", GPUs: 8}}, nil)
	pinned, err := rewrite.Pin(gang(), []model.Member{
		{Group: "train", Index: 0, Node: "aaaaaaaa-0001", GPUs: gpus("a")}, {Group: "train", Index: 1, Node: "bbbbbbbb-0002", GPUs: gpus("b")},
	}, cluster)
	if err != nil {
		t.Fatal(err)
	}
	gated, err := rewrite.Gate(gang())
	if err != nil {
		t.Fatal(err)
	}
	for name, job := range map[string]*api.Job{"pinned": pinned, "gated": gated} {
		stripped, err := rewrite.Strip(job, gang())
		if err != nil {
			t.Fatal(err)
		}
		d, err := diffJobs(gang(), stripped)
		if err != nil {
			t.Fatal(err)
		}
		if d.Type != diffNone {
			t.Errorf("%s: diff = %s, want none", name, encode(t, d))
		}
	}
}
