package gateway

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/planner/gangspec"
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
			if job.UI == nil || job.UI.Description != heldNote || len(job.UI.Links) != 1 || job.UI.Links[0].URL != "http://caravan/default/train" {
				t.Errorf("ui = %+v, want the reason with a link", job.UI)
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
			if rec.Original.UI != nil || rewrite.IsGated(rec.Original) || gangspec.Hash(rec.Original) != rec.SpecHash {
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

// TestTaskConfigs: what the driver would refuse on the node, with the gang's GPUs
// taken, is refused at once.
func TestTaskConfigs(t *testing.T) {
	r := newRig(t)
	w := r.do("PUT", "/v1/jobs", registration(t, gang(func(j *api.Job) {
		task := j.TaskGroups[0].Tasks[0]
		task.Driver, task.Config = "caravan", map[string]any{"command": "x", "member": "king", "checkpoint": []map[string]any{{"signal": "SIGFOO"}}}
	})))
	for _, want := range []string{`config.member = "king": allowed is rank, follow, none`, `config.checkpoint.signal = "SIGFOO"`, "nothing was registered"} {
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

// What no cluster has is refused before anything is registered.
func TestRegisterRefusesAbsurdAsks(t *testing.T) {
	for want, change := range map[string]func(*api.Job){
		"allowed is at most 1048576": func(j *api.Job) { j.TaskGroups[0].Count = new(1<<20 + 1) },
		"count of device":            func(j *api.Job) { j.TaskGroups[0].Tasks[0].Resources.Devices[0].Count = new(uint64(0)) },
	} {
		r := newRig(t)
		job := gang()
		change(job)
		a := r.do("PUT", "/v1/jobs", registration(t, job))
		if a.Code != http.StatusBadRequest || !strings.Contains(a.Body.String(), want) {
			t.Errorf("answer %d %q lacks %q", a.Code, a.Body.String(), want)
		}
	}
}

// TestVersionThatNomadNeverGot: neither the registration nor the putting back of
// the record comes through. What is submitted then is compared with what runs.
func TestVersionThatNomadNeverGot(t *testing.T) {
	more := func(j *api.Job) { j.TaskGroups[0].Count = new(3) }
	tests := map[string]struct {
		next     func(*api.Job)
		wantText string
		wantHash string
		// wantRegistered is how many registrations reach Nomad.
		wantRegistered int
	}{
		"the same new version again": {more, "queued", gangspec.Hash(gang(more)), 1},
		"the version that runs":      {func(*api.Job) {}, "unchanged", "", 0},
		"another change of it":       {priority(80), "stays on its nodes", gangspec.Hash(gang(priority(80))), 1},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.running(t)
			before := r.records.data[key]
			puts := 0
			r.records.beforePut = func(*record.Record) error {
				if puts++; puts > 1 {
					return errors.New("no leader")
				}
				return nil
			}
			r.nomad.fail = func(w http.ResponseWriter, req *http.Request, body []byte) bool {
				if req.Method != http.MethodPut || req.URL.Path != "/v1/jobs" || bytes.Contains(body, []byte(strconv.FormatUint(neverIndex, 10))) {
					return false
				}
				_, _ = io.WriteString(w, "{]<html>")
				return true
			}
			if w := r.do("PUT", "/v1/jobs", registration(t, gang(more))); w.Code != http.StatusBadGateway {
				t.Fatalf("answer = %d %s", w.Code, w.Body)
			}
			r.records.beforePut, r.nomad.fail = nil, nil
			if got := r.records.data[key]; got.Prior == nil || got.Prior.SpecHash != before.SpecHash || got.Prior.Phase != record.PhaseRunning {
				t.Fatalf("record = %+v, want the one before in it", got)
			}
			registered := len(r.nomad.registrations())
			contains(t, r.submit(t, gang(test.next)).Warnings, test.wantText)
			if n := len(r.nomad.registrations()) - registered; n != test.wantRegistered {
				t.Errorf("%d registrations, want %d", n, test.wantRegistered)
			}
			rec := r.records.data[key]
			if test.wantHash != "" && rec.SpecHash != test.wantHash {
				t.Errorf("record of %s, want of what was submitted", rec.SpecHash)
			}
			if test.wantRegistered > 0 && (rec.Prior == nil || rec.Prior.SpecHash != before.SpecHash || rec.Prior.Prior != nil) {
				t.Errorf("prior = %+v, want the version that ran", rec.Prior)
			}
		})
	}
}
