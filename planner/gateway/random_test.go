package gateway

import (
	"encoding/json"
	"fmt"
	"net/http"
	"testing"

	"github.com/hashicorp/nomad/api"
	"pgregory.net/rapid"

	"github.com/caravan-sched/caravan/planner/gangspec"
	"github.com/caravan-sched/caravan/planner/record"
	"github.com/caravan-sched/caravan/planner/rewrite"
)

// TestAnyCommandsInAnyOrder draws what users and the planner do to one job.
// After each step nothing is ungated, job and record are of one version, and
// what a user is shown is that version, without gate and pins.
func TestAnyCommandsInAnyOrder(t *testing.T) {
	done := map[string]int{}
	rapid.Check(t, func(rt *rapid.T) {
		r := newRig(t)
		for range rapid.IntRange(1, 12).Draw(rt, "steps") {
			what := rapid.SampledFrom(r.possible()).Draw(rt, "what")
			code := r.step(t, rt, what)
			if code == http.StatusOK {
				done[what]++
			}
			if code >= 500 && what != "revert" {
				rt.Fatalf("%s: answer %d", what, code)
			}
			if wrong := r.wrong(t); wrong != "" {
				rt.Fatalf("after %s: %s", what, wrong)
			}
		}
	})
	for _, what := range []string{"submit", "admit", "revert", "scale", "stop", "start", "send back"} {
		if done[what] == 0 {
			t.Errorf("no %s has succeeded: nothing was tested", what)
		}
	}
}

// possible are the steps that can do something as things are.
func (r *rig) possible() []string {
	switch job := r.nomad.jobs[key]; {
	case job == nil:
		return []string{"submit"}
	case deref(job.Stop):
		return []string{"start", "submit", "revert"}
	}
	return []string{"submit", "submit", "admit", "admit", "revert", "scale", "stop", "send back", "dispatch"}
}

// step does one thing and returns the answer's status.
func (r *rig) step(t *testing.T, rt *rapid.T, what string) int {
	switch what {
	case "submit":
		count, priority := rapid.IntRange(1, 3).Draw(rt, "count"), rapid.IntRange(50, 51).Draw(rt, "priority")
		kind, mode := rapid.SampledFrom([]string{"batch", "service"}).Draw(rt, "type"), rapid.SampledFrom([]string{"job", "group", "none"}).Draw(rt, "gang")
		return r.do("PUT", "/v1/jobs", registration(t, gang(func(j *api.Job) {
			j.TaskGroups[0].Count, j.Priority, j.Type = &count, &priority, &kind
			j.SetMeta("caravan_gang", mode)
		}))).Code
	case "admit":
		rec, ok := r.records.data[key]
		if !ok || rec.Phase != record.PhaseQueued || deref(r.nomad.jobs[key].Stop) || *rec.Original.TaskGroups[0].Count != 2 {
			return 0
		}
		r.admit(t, record.PhaseRunning)
		return http.StatusOK
	case "revert":
		version := rapid.Uint64Range(0, uint64(len(r.nomad.versions[key]))).Draw(rt, "version")
		return r.do("PUT", "/v1/job/train/revert", encode(t, api.JobRevertRequest{JobID: "train", JobVersion: version})).Code
	case "scale":
		body := fmt.Sprintf(`{"Count":%d,"Target":{"Group":"train"}}`, rapid.IntRange(1, 4).Draw(rt, "count"))
		return r.do("PUT", "/v1/job/train/scale", []byte(body)).Code
	case "stop":
		return r.do("DELETE", "/v1/job/train", nil).Code
	case "start", "send back":
		w := r.do("GET", "/v1/job/train", nil)
		var job api.Job
		if w.Code != http.StatusOK || json.Unmarshal(w.Body.Bytes(), &job) != nil || *job.Stop != (what == "start") {
			return 0
		}
		job.Stop = new(false)
		before := len(r.nomad.versions[key])
		code := r.do("PUT", "/v1/jobs", registration(t, &job)).Code
		if what == "send back" && len(r.nomad.versions[key]) != before {
			rt.Fatal("a job that was read and sent back made a version")
		}
		return code
	}
	return r.do("PUT", "/v1/job/train/dispatch", []byte(`{}`)).Code / 100 // no parameterized job: Nomad's 500
}

// wrong says what is wrong between Nomad, the record and what is shown.
func (r *rig) wrong(t *testing.T) string {
	if job := r.nomad.jobs[key]; job != nil && deref(job.Stop) {
		// A revert to a version that was stopped stops the job, and the planner
		// forgets what it was.
		return ""
	}
	if wrong := r.agree(); wrong != "" || r.nomad.jobs[key] == nil {
		return wrong
	}
	rec := r.records.data[key]
	versions := decodeAnswer[api.JobVersionsResponse](t, r.do("GET", "/v1/job/train/versions?diffs=true", nil))
	if n := len(versions.Versions); len(versions.Diffs) != n-1 {
		return fmt.Sprintf("%d versions and %d differences", n, len(versions.Diffs))
	}
	job := r.shown(t, "/v1/job/train")
	for _, shown := range append(versions.Versions, &job) {
		if rewrite.IsGated(shown) || rewrite.IsPinned(shown) || len(shown.TaskGroups) != 1 {
			return fmt.Sprintf("version %d shows gate or pins", *shown.Version)
		}
	}
	for name, shown := range map[string]*api.Job{"the job": &job, "its newest version": versions.Versions[0]} {
		if gangspec.Hash(shown) != rec.SpecHash {
			return name + " is not what was recorded"
		}
	}
	return ""
}
