package gateway

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	"github.com/hashicorp/nomad/api"
	"pgregory.net/rapid"

	"github.com/caravan-sched/caravan/planner/gangspec"
	"github.com/caravan-sched/caravan/planner/record"
	"github.com/caravan-sched/caravan/planner/rewrite"
)

// agree says what is wrong between Nomad's job and the record of it.
func (r *rig) agree() string {
	job, recorded := r.nomad.jobs[key], false
	rec, recorded := r.records.data[key]
	switch {
	case job == nil && !recorded:
		return ""
	case job == nil:
		return "there is a record without a job"
	case !rewrite.IsGated(job) && !rewrite.IsPinned(job):
		return "the job is neither gated nor pinned"
	case !recorded:
		return "there is a job without a record"
	}
	if rec.Rollout != nil {
		// Some members are of the version before; rollouts have tests of their own.
		return ""
	}
	own, err := rewrite.Strip(job, rec.Original)
	if err != nil {
		return err.Error()
	}
	if got := gangspec.Hash(own); got != rec.SpecHash {
		return fmt.Sprintf("the job is of the version %s, its record of %s", got, rec.SpecHash)
	}
	return ""
}

// TestUsersAtOnce lets users submit versions of one job at the same time, while
// the planner pins what it finds queued.
func TestUsersAtOnce(t *testing.T) {
	for round := range 20 {
		r := newRig(t)
		var all sync.WaitGroup
		codes := make([]int, 6)
		for user := range codes {
			body := registration(t, gang(func(j *api.Job) { j.Priority = new(20 + user%4) }))
			all.Go(func() { codes[user] = r.do("PUT", "/v1/jobs", body).Code })
		}
		all.Wait()
		for user, code := range codes {
			if code != http.StatusOK && code != http.StatusConflict {
				t.Errorf("round %d: user %d got %d", round, user, code)
			}
		}
		if wrong := r.agree(); wrong != "" {
			t.Fatalf("round %d: %s", round, wrong)
		}
	}
}

// TestFaultsAnywhere lets Nomad and the records fail at any step of a few
// submissions and admissions. Whatever comes of them, nothing is ungated, and
// record and job agree unless an answer was lost on the way: then the job is
// gated at least, which is how the planner takes it up by itself.
func TestFaultsAnywhere(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		r := newRig(t)
		lost, written := false, false
		faults := rapid.SliceOfN(rapid.SampledFrom([]string{"", "", "", "500", "429", "html", "lost"}), 24, 24).Draw(rt, "faults")
		step := 0
		next := func() string {
			step++
			return faults[step%len(faults)]
		}
		r.nomad.fail = func(w http.ResponseWriter, req *http.Request, body []byte) bool {
			switch next() {
			case "500":
				w.WriteHeader(http.StatusInternalServerError)
			case "429":
				w.WriteHeader(http.StatusTooManyRequests)
			case "html":
				_, _ = w.Write([]byte("<html>"))
			case "lost":
				lost = true
				r.nomad.mux.ServeHTTP(httptest.NewRecorder(), req)
				w.WriteHeader(http.StatusBadGateway)
			default:
				return false
			}
			return true
		}
		r.records.beforePut = func(*record.Record) error {
			if next() == "500" {
				// A record that cannot be put back either is lost, too.
				lost = lost || written
				return errors.New("no leader")
			}
			written = true
			return nil
		}
		for range rapid.IntRange(1, 6).Draw(rt, "submissions") {
			written = false
			count := rapid.IntRange(1, 3).Draw(rt, "count")
			priority := rapid.IntRange(50, 52).Draw(rt, "priority")
			r.do("PUT", "/v1/jobs", registration(t, gang(func(j *api.Job) {
				j.TaskGroups[0].Count, j.Priority = &count, &priority
			})))
			if job := r.nomad.jobs[key]; job != nil && !rewrite.IsGated(job) && !rewrite.IsPinned(job) {
				rt.Fatal("the job is neither gated nor pinned")
			}
			rec, ok := r.records.data[key]
			if ok && *rec.Original.TaskGroups[0].Count == 2 && r.agree() == "" && rec.Phase == record.PhaseQueued && rapid.Bool().Draw(rt, "admit") {
				r.admit(t, record.PhaseRunning)
			}
		}
		if wrong := r.agree(); wrong != "" && !lost {
			rt.Fatal(wrong)
		}
	})
}
