package gateway

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/gangspec"
	"github.com/caravan-sched/caravan/planner/record"
	"github.com/caravan-sched/caravan/planner/rewrite"
)

// bounds make the gang elastic.
func bounds(low, high string) func(*api.Job) {
	return func(j *api.Job) {
		j.TaskGroups[0].Meta = map[string]string{gangspec.KeyMin: low, gangspec.KeyMax: high}
	}
}

func mode(gang string) func(*api.Job) { return func(j *api.Job) { j.Meta[gangspec.KeyGang] = gang } }

func kindOf(kind string) func(*api.Job) { return func(j *api.Job) { j.Type = &kind } }

// second adds a group of CPU helpers to the job.
func second(j *api.Job) {
	j.AddTaskGroup(api.NewTaskGroup("helpers", 1).AddTask(api.NewTask("main", "raw_exec")))
}

func scaling(n int) []byte {
	return []byte(fmt.Sprintf(`{"Count":%d,"Target":{"Job":"train","Group":"train"}}`, n))
}

// TestCountAlone: a new count keeps in place what can be kept, whether it comes
// as a scaling or as a job file, and `job plan` says so before.
func TestCountAlone(t *testing.T) {
	replicas := []func(*api.Job){mode("none"), kindOf("service")}
	tests := map[string]struct {
		job   []func(*api.Job)
		phase record.Phase
		to    int
		plan  map[string]*api.DesiredUpdates
		// change is the forecast that the user sees, members how many stay in the
		// record.
		change  api.DesiredUpdates
		members int
		groups  []string
		note    string
		// queued: the job is placed anew as a whole.
		queued bool
	}{
		"replicas, more": {job: replicas, to: 4, change: api.DesiredUpdates{InPlaceUpdate: 2, Place: 2}, members: 2,
			groups: []string{"train-0 × 1", "train-1 × 1", "train × 2 gated"}, note: `group "train" from 2 to 4: 2 run on, 2 more are placed when there is room.`},
		"replicas, fewer": {job: replicas, to: 1, change: api.DesiredUpdates{InPlaceUpdate: 1, Stop: 1}, members: 1,
			groups: []string{"train-0 × 1"}, note: `group "train" from 2 to 1: 1 run on, 1 stop.`},
		"replicas that are being placed": {job: replicas, phase: record.PhaseAdmitted, to: 3, change: api.DesiredUpdates{InPlaceUpdate: 2, Place: 1}, members: 2,
			groups: []string{"train-0 × 1", "train-1 × 1", "train × 1 gated"}},
		"a sweep is held, for its members may end": {job: []func(*api.Job){mode("none")}, to: 3, change: api.DesiredUpdates{InPlaceUpdate: 2, Place: 1}, members: 2,
			groups: []string{"train-0 × 1 gated", "train-1 × 1 gated", "train × 1 gated"}},
		"an elastic gang, more": {job: []func(*api.Job){bounds("1", "4")}, to: 4, change: api.DesiredUpdates{InPlaceUpdate: 2, Place: 2}, members: 2, groups: []string{"train × 2"}},
		"an elastic gang, fewer": {job: []func(*api.Job){bounds("1", "4")}, to: 1, change: api.DesiredUpdates{InPlaceUpdate: 1, Stop: 1}, members: 2, groups: []string{"train × 2"},
			note: `group "train" from 2 to 1: 1 run on, 1 stop.`},
		"an elastic gang that is being placed": {job: []func(*api.Job){bounds("1", "4")}, phase: record.PhaseAdmitted, to: 3, change: api.DesiredUpdates{InPlaceUpdate: 2, Place: 1}, members: 2, groups: []string{"train × 2"}},
		"a gang of fixed size":                 {job: nil, to: 3, change: api.DesiredUpdates{DestructiveUpdate: 2, Place: 1}, queued: true},
		"a member has completed and would run again": {job: []func(*api.Job){bounds("1", "4")}, to: 3, queued: true,
			plan: map[string]*api.DesiredUpdates{"train": {InPlaceUpdate: 1, Place: 1}}, change: api.DesiredUpdates{DestructiveUpdate: 2, Place: 1}},
		"Nomad would restart members": {job: append([]func(*api.Job){bounds("1", "4")}, kindOf("service")), to: 3, queued: true,
			plan: map[string]*api.DesiredUpdates{"train": {DestructiveUpdate: 2}}, change: api.DesiredUpdates{DestructiveUpdate: 2, Place: 1}},
	}
	for name, tt := range tests {
		for _, how := range []string{"scale", "run"} {
			t.Run(name+" by "+how, func(t *testing.T) {
				r := newRig(t)
				r.submit(t, gang(tt.job...))
				if tt.phase == "" {
					tt.phase = record.PhaseRunning
				}
				r.admit(t, tt.phase)
				if tt.plan != nil {
					r.nomad.plan = func(api.JobPlanRequest) api.JobPlanResponse {
						return api.JobPlanResponse{Annotations: &api.PlanAnnotations{DesiredTGUpdates: tt.plan}}
					}
				}
				next := gang(append(slices.Clone(tt.job), func(j *api.Job) { j.TaskGroups[0].Count = &tt.to })...)
				plan := decodeAnswer[api.JobPlanResponse](t, r.do("PUT", "/v1/job/train/plan", planRequest(t, next)))
				if diff := cmp.Diff(&tt.change, plan.Annotations.DesiredTGUpdates["train"]); diff != "" {
					t.Errorf("forecast (-want +got):\n%s", diff)
				}
				if !tt.queued {
					contains(t, plan.Warnings, "would be resized where it runs: "+tt.note)
				}
				var resp api.JobRegisterResponse
				if how == "scale" {
					resp = decodeAnswer[api.JobRegisterResponse](t, r.do("PUT", "/v1/job/train/scale", scaling(tt.to)))
				} else {
					resp = decodeAnswer[api.JobRegisterResponse](t, r.do("PUT", "/v1/jobs", registration(t, next)))
				}
				rec, job := r.records.data[key], r.nomad.job(t, key)
				if tt.queued {
					contains(t, resp.Warnings, "queued")
					if rec.Phase != record.PhaseQueued || !rewrite.GatedWhole(job) {
						t.Errorf("record %+v, want it queued", rec)
					}
					return
				}
				contains(t, resp.Warnings, "resized where it runs: "+tt.note)
				if rec.Phase != tt.phase || len(rec.Members) != tt.members || rec.SpecHash != rec.PlacedHash || *rec.Original.TaskGroups[0].Count != tt.to || rec.Floor() != 0 {
					t.Errorf("record %+v", rec)
				}
				var groups []string
				for _, g := range job.TaskGroups {
					text := fmt.Sprintf("%s × %d", *g.Name, *g.Count)
					if !rewrite.MayPlace(g) {
						text += " gated"
					}
					groups = append(groups, text)
				}
				if diff := cmp.Diff(tt.groups, groups); diff != "" {
					t.Errorf("groups (-want +got):\n%s", diff)
				}
				if shown := r.shown(t, "/v1/job/train"); *shown.TaskGroups[0].Count != tt.to || len(shown.TaskGroups) != 1 {
					t.Errorf("shown is a count of %d in %d groups", *shown.TaskGroups[0].Count, len(shown.TaskGroups))
				}
				scale := decodeAnswer[api.JobScaleStatusResponse](t, r.do("GET", "/v1/job/train/scale", nil))
				if got := scale.TaskGroups["train"].Desired; got != tt.to || len(scale.TaskGroups) != 1 {
					t.Errorf("scale status: %d desired in %d groups, want %d", got, len(scale.TaskGroups), tt.to)
				}
				before := *job.JobModifyIndex
				again := decodeAnswer[api.JobRegisterResponse](t, r.do("PUT", "/v1/jobs", registration(t, next)))
				if contains(t, again.Warnings, "unchanged"); *r.nomad.job(t, key).JobModifyIndex != before {
					t.Error("the same again is registered again")
				}
			})
		}
	}
}

// TestCountOfOneGang of several: the others stay, whatever becomes of it.
func TestCountOfOneGang(t *testing.T) {
	r := newRig(t)
	r.submit(t, gang(mode("group"), kindOf("service"), second))
	rec := r.records.data[key]
	rec.Phase, rec.PlacedHash = record.PhaseRunning, rec.SpecHash
	rec.Members = []model.Member{
		{Group: "train", Index: 0, Node: "aaaaaaaa-0001", GPUs: gpus("a")}, {Group: "train", Index: 1, Rank: 1, Node: "bbbbbbbb-0002", GPUs: gpus("b")},
		{Group: "helpers", Index: 0, Node: "aaaaaaaa-0001"},
	}
	cluster, err := r.gateway.cfg.Cluster(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	pinned, err := rewrite.Pin(rec.Original, rec.Members, cluster)
	if err != nil {
		t.Fatal(err)
	}
	pinned.Namespace = new("default")
	r.records.data[key] = rec
	r.nomad.store(key, pinned)
	next := gang(mode("group"), kindOf("service"), second, func(j *api.Job) { j.TaskGroups[0].Count = new(1) })
	plan := decodeAnswer[api.JobPlanResponse](t, r.do("PUT", "/v1/job/train/plan", planRequest(t, next)))
	want := map[string]*api.DesiredUpdates{"train": {DestructiveUpdate: 1, Stop: 1}, "helpers": {InPlaceUpdate: 1}}
	if diff := cmp.Diff(want, plan.Annotations.DesiredTGUpdates); diff != "" {
		t.Errorf("forecast (-want +got):\n%s", diff)
	}
	r.submit(t, next)
	rec = r.records.data[key]
	if rec.Phase != record.PhaseRunning || len(rec.Members) != 1 || rec.Members[0].Group != "helpers" {
		t.Errorf("record %+v, want the helpers in force", rec)
	}
	if job := r.nomad.job(t, key); rewrite.MayPlace(job.LookupTaskGroup("train")) || !rewrite.MayPlace(job.LookupTaskGroup("helpers")) {
		t.Error("want the group gated, and the other one pinned as it was")
	}
}

func TestCountRefused(t *testing.T) {
	tests := map[string]struct {
		to     int
		change func(*record.Record)
		status int
		want   []string
	}{
		"above the maximum": {to: 5, status: http.StatusBadRequest, want: []string{"nothing was registered", `group "train"`, `count`, `"5"`, "allowed is 2 to 4, as caravan_min and caravan_max say"}},
		"below the minimum": {to: 1, status: http.StatusBadRequest, want: []string{`"1"`, "allowed is 2 to 4"}},
		"an update is under way": {to: 3, status: http.StatusConflict, want: []string{"in the middle of an update"}, change: func(rec *record.Record) {
			rec.Rollout = rec.NewRollout(1, submitted)
		}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.submit(t, gang(bounds("2", "4"), func(j *api.Job) { j.TaskGroups[0].Count = new(2) }))
			r.admit(t, record.PhaseRunning)
			rec := r.records.data[key]
			if tt.change != nil {
				tt.change(&rec)
				r.records.data[key] = rec
			}
			before := *r.nomad.job(t, key).JobModifyIndex
			w := r.do("PUT", "/v1/job/train/scale", scaling(tt.to))
			if w.Code != tt.status {
				t.Errorf("status %d: %s", w.Code, w.Body)
			}
			for _, text := range tt.want {
				if !strings.Contains(w.Body.String(), text) {
					t.Errorf("answer %q lacks %q", w.Body, text)
				}
			}
			if diff := cmp.Diff(rec, r.records.data[key], unexported); diff != "" || *r.nomad.job(t, key).JobModifyIndex != before {
				t.Errorf("something was changed (-before +after):\n%s", diff)
			}
		})
	}
}

func TestDescribeOne(t *testing.T) {
	got := describe([]gangspec.CountChange{{Group: "g", From: 1, To: 2}}, map[string]*api.DesiredUpdates{"g": {InPlaceUpdate: 1, Place: 1}}, nil)
	if want := "1 more is placed"; !strings.Contains(got, want) {
		t.Errorf("%q lacks %q", got, want)
	}
}
