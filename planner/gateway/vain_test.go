package gateway

import (
	"strings"
	"testing"

	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/planner/record"
	"github.com/caravan-sched/caravan/planner/rewrite"
)

// TestSubmittingHealsWhoWaitsInVain: members that Nomad placed past the gateway
// have no identity to join their gang with. The same file is another version
// then, whatever an earlier planner has made of what runs.
func TestSubmittingHealsWhoWaitsInVain(t *testing.T) {
	caravan := func(j *api.Job) { j.TaskGroups[0].Tasks[0].Driver = "caravan" }
	for name, adopted := range map[string]bool{"with the identity": false, "without": true} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.running(t, caravan)
			if adopted {
				rec := r.records.data[key]
				rec.Unpinned = true
				r.records.data[key] = rec
				r.nomad.store(key, gang(caravan))
				r.nomad.place(key)
			}
			plan := decodeAnswer[api.JobPlanResponse](t, r.do("PUT", "/v1/job/train/plan", encode(t, api.JobPlanRequest{Job: gang(caravan)})))
			resp := r.submit(t, gang(caravan))
			for what, text := range map[string]string{"registration": resp.Warnings, "plan": plan.Warnings} {
				if got := strings.Contains(text, "unchanged") || strings.Contains(text, "stay"); got == adopted {
					t.Errorf("%s: warnings %q; unchanged: want %v", what, text, !adopted)
				}
			}
			if !adopted {
				return
			}
			job, rec := r.nomad.job(t, key), r.records.data[key]
			if _, task := rewrite.Unidentified(job); !rewrite.IsGated(job) || task != "" || rec.Phase != record.PhaseQueued || len(rec.Members) != 2 {
				t.Errorf("gated %v, task %q is without identity, record %+v; want it queued with the gate and an identity", rewrite.IsGated(job), task, rec)
			}
		})
	}
}
