package gateway

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/planner/record"
	"github.com/caravan-sched/caravan/planner/rewrite"
)

var update = flag.Bool("update", false, "write the table of commands into docs/gateway.md")

const (
	tableFile  = "../../docs/gateway.md"
	tableBegin = "<!-- commands: go test ./planner/gateway -run TestCommands -update -->\n"
	tableEnd   = "<!-- end of commands -->\n"
)

// command is a row of the table in docs/gateway.md, and what shows that it is
// true.
type command struct {
	name, effect string
	// alone leaves out the gang of two that runs otherwise.
	alone bool
	show  func(t *testing.T, r *rig)
}

// TestCommands shows for each of Nomad's commands what it does to a gang, and
// that the documentation says just that.
func TestCommands(t *testing.T) {
	commands := append(append(jobCommands(), memberCommands()...), launchCommands()...)
	var table strings.Builder
	table.WriteString("| command | with a gang that Caravan manages |\n|---|---|\n")
	for _, c := range commands {
		fmt.Fprintf(&table, "| %s | %s |\n", c.name, c.effect)
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t)
			if !c.alone {
				r.running(t)
			}
			c.show(t, r)
		})
	}
	doc, err := os.ReadFile(tableFile)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, found := bytes.Cut(doc, []byte(tableBegin))
	was, after, closed := bytes.Cut(rest, []byte(tableEnd))
	if !found || !closed {
		t.Fatalf("%s lacks the marks of the table of commands", tableFile)
	}
	if diff := cmp.Diff(string(was), table.String()); diff != "" && !*update {
		t.Errorf("%s is stale; run `go test ./planner/gateway -run TestCommands -update` (-doc +tests):\n%s", tableFile, diff)
	} else if diff != "" {
		out := bytes.Join([][]byte{before, []byte(tableBegin), []byte(table.String()), []byte(tableEnd), after}, nil)
		if err := os.WriteFile(tableFile, out, 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// running submits the gang and lets it run: two members on two nodes.
func (r *rig) running(t *testing.T, change ...func(*api.Job)) {
	t.Helper()
	r.submit(t, gang(change...))
	r.admit(t, record.PhaseRunning)
	r.nomad.place(key)
}

func (r *rig) submit(t *testing.T, job *api.Job) api.JobRegisterResponse {
	t.Helper()
	return decodeAnswer[api.JobRegisterResponse](t, r.do("PUT", "/v1/jobs", registration(t, job)))
}

func (r *rig) shown(t *testing.T, path string) api.Job {
	t.Helper()
	return decodeAnswer[api.Job](t, r.do("GET", path, nil))
}

// passed checks that a request reached Nomad as it came, and nothing else did.
func (r *rig) passed(t *testing.T, method, path, body string) {
	t.Helper()
	r.nomad.mu.Lock()
	before := len(r.nomad.requests)
	r.nomad.mu.Unlock()
	r.do(method, path, []byte(body))
	r.nomad.mu.Lock()
	defer r.nomad.mu.Unlock()
	after := r.nomad.requests[before:]
	if len(after) != 1 || after[0].Method != method || string(after[0].Body) != body {
		t.Errorf("%s %s: %d requests reached Nomad: %+v, want the one as it came", method, path, len(after), after)
	}
}

// whole checks that the job is gated, so that it starts as a whole or not at
// all, and returns the user's version in the record.
func (r *rig) whole(t *testing.T, key string) *api.Job {
	t.Helper()
	job := r.nomad.job(t, key)
	if job == nil || !rewrite.IsGated(job) {
		t.Fatalf("job %s is not gated: %s", key, encode(t, job))
	}
	rec, ok := r.records.data[key]
	if !ok || rec.Phase != record.PhaseQueued {
		t.Fatalf("record of %s = %+v, want a queued one", key, rec)
	}
	return rec.Original
}

func priority(n int) func(*api.Job) { return func(j *api.Job) { j.Priority = &n } }

func jobCommands() []command {
	return []command{
		{name: "`job run` of a new job", effect: "Held at the door, then placed whole. The decision is among the warnings.", alone: true,
			show: func(t *testing.T, r *rig) {
				r.submit(t, gang())
				r.whole(t, key)
			}},
		{name: "`job run` of the same file", effect: "Nothing: no version, no evaluation, no restart.",
			show: func(t *testing.T, r *rig) {
				before := len(r.nomad.registrations())
				contains(t, r.submit(t, gang()).Warnings, "unchanged")
				if n := len(r.nomad.registrations()); n != before {
					t.Errorf("%d registrations, want none", n-before)
				}
			}},
		{name: "`job run` of a change that asks for the same placement", effect: "The gang stays on its nodes; Nomad restarts only what the change calls for.",
			show: func(t *testing.T, r *rig) {
				contains(t, r.submit(t, gang(priority(80))).Warnings, "stays on its nodes")
				if rec := r.records.data[key]; rec.Phase != record.PhaseRunning || !rewrite.IsPinned(r.nomad.job(t, key)) {
					t.Errorf("record = %+v, want running with its pins", rec)
				}
			}},
		{name: "`job run` of any other change", effect: "A new submission: queued as a whole; what runs of the old version is stopped as a whole first.",
			show: func(t *testing.T, r *rig) {
				contains(t, r.submit(t, gang(func(j *api.Job) { j.TaskGroups[0].Count = new(3) })).Warnings, "queued")
				r.whole(t, key)
			}},
		{name: "`job run -check-index`", effect: "An index is good as long as the user's version is: gate and pins do not outdate it.",
			show: func(t *testing.T, r *rig) {
				index := r.records.data[key].PriorIndex + 1
				w := r.do("PUT", "/v1/jobs", registration(t, gang(priority(80)), func(req *api.JobRegisterRequest) { req.EnforceIndex, req.JobModifyIndex = true, index }))
				if w.Code != http.StatusOK {
					t.Errorf("answer = %d %s", w.Code, w.Body)
				}
			}},
		{name: "`job plan`", effect: "The difference between the user's versions, and what the planner would decide.",
			show: func(t *testing.T, r *rig) {
				resp := decodeAnswer[api.JobPlanResponse](t, r.do("PUT", "/v1/job/train/plan", planRequest(t, gang())))
				if resp.Diff.Type != diffNone {
					t.Errorf("diff = %s, want none", resp.Diff.Type)
				}
			}},
		{name: "`job inspect`, `job status`, Terraform's and nomad-pack's reads", effect: "The job as its user wrote it, with Nomad's defaults, state and indexes; no gate, no pins. `?caravan=raw` shows it as Nomad has it.", show: showInspect},
		{name: "`job history`", effect: "The user's versions: a submission with its gates and pins is one, under the number that its allocations have.", show: showHistory},
		{name: "`job revert`", effect: "What was submitted then is submitted again: gated and placed whole, or kept where it runs if it asks for the same placement. Any number that `job history` shows, or that is folded into it, will do.", show: showRevert},
		{name: "`job scale`", effect: "The last submission with another count. Where it can be, the job is resized where it runs (see above, a changed count); a gang that is not elastic is stopped and placed anew as a whole. A count outside of `caravan_min` and `caravan_max` is refused. The right `scale-job` is enough.", show: showScale},
		{name: "`job stop`", effect: "Nomad stops all members at once; the planner forgets the job when the last has ended.", show: func(t *testing.T, r *rig) {
			r.passed(t, "DELETE", "/v1/job/train", "")
			for id, a := range r.nomad.allocs {
				if a.DesiredStatus != api.AllocDesiredStatusStop {
					t.Errorf("%s is to %s, want stop", id, a.DesiredStatus)
				}
			}
		}},
		{name: "`job stop -purge`", effect: "The same; Nomad forgets the job, and so does the planner.", show: func(t *testing.T, r *rig) {
			r.passed(t, "DELETE", "/v1/job/train?purge=true", "")
			contains(t, r.submit(t, gang()).Warnings, "queued")
			r.whole(t, key)
		}},
		{name: "`job start`", effect: "A submission of what was stopped, with its job file: queued and placed whole.", show: func(t *testing.T, r *rig) {
			r.do("DELETE", "/v1/job/train", nil)
			job := r.shown(t, "/v1/job/train")
			if !*job.Stop {
				t.Error("the job is not shown as stopped")
			}
			job.Stop = new(false)
			contains(t, r.submit(t, &job).Warnings, "queued")
			if diff := cmp.Diff(gang().TaskGroups[0].Constraints, r.whole(t, key).TaskGroups[0].Constraints); diff != "" {
				t.Errorf("constraints (-want +got):\n%s", diff)
			}
		}},
		{name: "`job tag apply`, `job tag unset`", effect: "As in Nomad; the tag shows on the user's version, stays there, and may be reverted to.", show: func(t *testing.T, r *rig) {
			r.passed(t, "POST", "/v1/job/train/versions/good/tag", `{"Version":0}`)
			r.nomad.versions[key][0].VersionTag = &api.JobVersionTag{Name: "good"}
			versions := decodeAnswer[api.JobVersionsResponse](t, r.do("GET", "/v1/job/train/versions", nil)).Versions
			if len(versions) != 1 || versions[0].VersionTag == nil || versions[0].VersionTag.Name != "good" {
				t.Errorf("versions = %s, want one with the tag", encode(t, versions))
			}
		}},
		{name: "`job eval`", effect: "As in Nomad: gate or pins hold, so nothing is placed elsewhere.", show: func(t *testing.T, r *rig) {
			r.passed(t, "PUT", "/v1/job/train/evaluate", `{"JobID":"train"}`)
		}},
		{name: "`job validate`, the UI's and others' `/v1/jobs/parse`", effect: "As in Nomad.", show: func(t *testing.T, r *rig) {
			r.passed(t, "PUT", "/v1/validate/job", `{"Job":{"ID":"train"}}`)
			r.passed(t, "POST", "/v1/jobs/parse", `{"JobHCL":"job \"train\" {}"}`)
		}},
	}
}

func showInspect(t *testing.T, r *rig) {
	job := r.shown(t, "/v1/job/train")
	if rewrite.IsGated(&job) || rewrite.IsPinned(&job) || len(job.TaskGroups[0].Constraints) != 0 || deref(job.AllAtOnce) || job.UI != nil {
		t.Errorf("shown: %s, want the user's own", encode(t, job))
	}
	if *job.JobModifyIndex != *r.nomad.job(t, key).JobModifyIndex {
		t.Errorf("index = %d, want Nomad's", *job.JobModifyIndex)
	}
	if raw := r.shown(t, "/v1/job/train?caravan=raw"); !rewrite.IsPinned(&raw) {
		t.Errorf("raw: %s, want the pins", encode(t, raw))
	}
}

func showHistory(t *testing.T, r *rig) {
	r.submit(t, gang(func(j *api.Job) { j.TaskGroups[0].Count = new(3) }))
	got := decodeAnswer[api.JobVersionsResponse](t, r.do("GET", "/v1/job/train/versions?diffs=true", nil))
	var numbers []uint64
	for _, v := range got.Versions {
		numbers = append(numbers, *v.Version)
		if rewrite.IsGated(v) || rewrite.IsPinned(v) {
			t.Errorf("version %d shows gate or pins", *v.Version)
		}
	}
	if diff := cmp.Diff([]uint64{2, 1}, numbers); diff != "" {
		t.Errorf("versions (-want +got):\n%s", diff)
	}
	if len(got.Diffs) != 1 || got.Diffs[0].Type != diffEdited || bytes.Contains(encode(t, got.Diffs), mark) {
		t.Errorf("differences = %s, want the count alone", encode(t, got.Diffs))
	}
}

func showRevert(t *testing.T, r *rig) {
	r.submit(t, gang(func(j *api.Job) { j.TaskGroups[0].Count = new(3) }))
	for _, number := range []uint64{0, 1} {
		resp := decodeAnswer[api.JobRegisterResponse](t, r.do("PUT", "/v1/job/train/revert", encode(t, api.JobRevertRequest{JobID: "train", JobVersion: number})))
		contains(t, resp.Warnings, "queued")
		if n := *r.whole(t, key).TaskGroups[0].Count; n != 2 {
			t.Errorf("reverted to version %d: count %d, want 2", number, n)
		}
		r.submit(t, gang(func(j *api.Job) { j.TaskGroups[0].Count = new(3) }))
	}
}

func showScale(t *testing.T, r *rig) {
	body := `{"Count":4,"Target":{"Job":"train","Group":"train"}}`
	r.nomad.tokens = map[string]bool{"scaler": true, "planner": true}
	contains(t, decodeAnswer[api.JobRegisterResponse](t, r.do("PUT", "/v1/job/train/scale", []byte(body), "X-Nomad-Token", "scaler")).Warnings, "queued")
	if n := *r.whole(t, key).TaskGroups[0].Count; n != 4 {
		t.Errorf("count = %d, want 4", n)
	}
	if diff := cmp.Diff([]string{"Caravan took in the count 4, it was 2"}, r.nomad.events); diff != "" {
		t.Errorf("scaling events (-want +got):\n%s", diff)
	}
	if w := r.do("PUT", "/v1/job/train/scale", []byte(body), "X-Nomad-Token", "nobody"); w.Code != http.StatusForbidden {
		t.Errorf("without the right: %d %s, want Nomad's 403", w.Code, w.Body)
	}
}

func memberCommands() []command {
	return []command{
		{name: "`alloc stop`, `job restart -reschedule`", effect: "All members of its gang are stopped with it, and when all have ended the gang is queued and placed again as a whole. A member that left with its gang is shown with the one that has its place then, so that `job restart` goes on when it runs; for those the gang is not stopped a second time.",
			show: showStop},
		{name: "`alloc restart`, `job restart`", effect: "All members of its gang are restarted with it, in place, and once: `job restart` goes through the members, and those that were restarted already are left alone.",
			show: showMemberRestart},
		{name: "the same, with members that are no gang (`caravan_gang = \"none\"`)", effect: "That member alone.", alone: true, show: func(t *testing.T, r *rig) {
			r.running(t, func(j *api.Job) { j.SetMeta("caravan_gang", "none") })
			r.do("PUT", "/v1/allocation/alloc-train-0-0/stop", nil)
			if diff := cmp.Diff([]string{"stop alloc-train-0-0"}, r.nomad.did()); diff != "" {
				t.Errorf("done (-want +got):\n%s", diff)
			}
		}},
		{name: "`alloc signal`, `alloc exec`, `alloc logs`, `alloc fs`, `alloc pause`", effect: "As in Nomad: that member alone.", show: func(t *testing.T, r *rig) {
			r.passed(t, "PUT", "/v1/client/allocation/alloc-train-0/signal", `{"Signal":"SIGUSR1"}`)
			r.passed(t, "GET", "/v1/client/allocation/alloc-train-0/exec?command=%5B%22sh%22%5D", "")
			r.passed(t, "GET", "/v1/client/fs/logs/alloc-train-0?task=main&type=stdout", "")
			r.passed(t, "GET", "/v1/client/fs/ls/alloc-train-0?path=/", "")
			r.passed(t, "PUT", "/v1/client/allocation/alloc-train-0/pause", `{}`)
		}},
		{name: "`deployment list\\|status\\|promote\\|fail\\|pause`, `job promote`, `job deployments`", effect: "As in Nomad. An update of a managed service that the planner rolls out is shown as the deployment that Nomad would have made, and may be promoted, failed and paused as one: `submit-job` is enough. All canaries of a job are promoted together. `/v1/deployment/allocation-health` marks members where `health_check` is `manual`.", alone: true, show: func(t *testing.T, r *rig) {
			r.passed(t, "PUT", "/v1/deployment/promote/d1", `{"DeploymentID":"d1","All":true}`)
			r.passed(t, "GET", "/v1/deployments", "")
			d := r.update(t)
			r.healthy()
			if w := r.do("PUT", "/v1/deployment/promote/"+d.ID, []byte(`{"DeploymentID":"`+d.ID+`","All":true}`)); w.Code != http.StatusOK || r.records.data[key].Rollout.Canary.Promote == "" {
				t.Errorf("promote: %d %s", w.Code, w.Body)
			}
		}},
		{name: "`node drain`, `node eligibility`, `system gc`, `operator …`", effect: "As in Nomad; the planner moves the gang whole from a node that is drained.", show: func(t *testing.T, r *rig) {
			r.passed(t, "PUT", "/v1/node/n1/drain", `{"DrainSpec":{}}`)
			r.passed(t, "PUT", "/v1/node/n1/eligibility", `{"Eligibility":"ineligible"}`)
			r.passed(t, "PUT", "/v1/system/gc", "")
			r.passed(t, "GET", "/v1/operator/raft/configuration", "")
		}},
	}
}

func showMemberRestart(t *testing.T, r *rig) {
	t.Helper()
	both := []string{"restart alloc-train-0", "restart alloc-train-1"}
	for i := range 2 {
		if w := r.do("PUT", fmt.Sprintf("/v1/client/allocation/alloc-train-%d/restart", i), []byte(`{"TaskName":""}`)); w.Code != http.StatusOK || !json.Valid(w.Body.Bytes()) {
			t.Errorf("member %d: %d %s", i, w.Code, w.Body)
		}
		if diff := cmp.Diff(both, r.nomad.did()); diff != "" {
			t.Errorf("done after member %d (-want +got):\n%s", i, diff)
		}
	}
}
