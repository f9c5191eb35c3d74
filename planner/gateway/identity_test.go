package gateway

import (
	"net/http"
	"testing"

	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/planner/gangspec"
	"github.com/caravan-sched/caravan/planner/record"
	"github.com/caravan-sched/caravan/planner/rewrite"
)

// driven makes a job's tasks Caravan's driver's.
func driven(j *api.Job) {
	for _, g := range j.TaskGroups {
		for _, t := range g.Tasks {
			t.Driver = gangspec.DriverName
		}
	}
}

// TestReleasedJobShowsNoIdentity: its members keep theirs, and it is not its
// author's. What its author wrote into a job that Caravan has no part in is.
func TestReleasedJobShowsNoIdentity(t *testing.T) {
	identified := func(j *api.Job) {
		driven(j)
		for _, g := range j.TaskGroups {
			g.Tasks[0].Identities = append(g.Tasks[0].Identities, gangspec.MemberIdentity())
		}
	}
	tests := map[string]struct {
		phase record.Phase
		want  int
	}{
		"released":              {record.PhaseReleased, 0},
		"not Caravan's at all":  {"", 1},
		"on its way to Caravan": {record.PhaseQueued, 1},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.nomad.store(key, gang(identified))
			if tt.phase != "" {
				r.records.data[key] = record.Record{Namespace: "default", JobID: "train", Original: gang(driven), SpecHash: gangspec.Hash(gang(driven)), Phase: tt.phase, ModifyIndex: 1}
			}
			count := func(j *api.Job) (n int) {
				for _, id := range j.TaskGroups[0].Tasks[0].Identities {
					if id.Name == gangspec.IdentityName {
						n++
					}
				}
				return n
			}
			job := r.shown(t, "/v1/job/train")
			if got := count(&job); got != tt.want {
				t.Errorf("the job shows %d identities, want %d", got, tt.want)
			}
			versions := decodeAnswer[struct{ Versions []*api.Job }](t, r.do(http.MethodGet, "/v1/job/train/versions", nil))
			if len(versions.Versions) == 0 || count(versions.Versions[0]) != tt.want {
				t.Errorf("the versions show %+v", versions.Versions)
			}
		})
	}
}

// TestMembersFromBeforeTheIdentity are not restarted for its sake, whoever has
// placed them, where they need none: they wait for nobody. Those that wait for
// their gang wait in vain without one, and are placed anew.
func TestMembersFromBeforeTheIdentity(t *testing.T) {
	for name, unpinned := range map[string]bool{"placed by Nomad itself": true, "pinned": false} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.submit(t, gang(driven, joinsNobody))
			r.admit(t, record.PhaseRunning)
			rec := r.records.data[key]
			rec.Unpinned = unpinned
			r.records.data[key] = rec
			cur := r.nomad.job(t, key)
			if unpinned {
				cur = gang(driven, joinsNobody)
			}
			for _, g := range cur.TaskGroups {
				g.Tasks[0].Identities = nil
			}
			r.nomad.store(key, cur)
			r.submit(t, gang(driven, joinsNobody, func(j *api.Job) { j.Priority = new(80) }))
			now := r.nomad.job(t, key)
			if !rewrite.IsPinned(now) || rewrite.IsGated(now) {
				t.Fatal("it was not kept")
			}
			for _, g := range now.TaskGroups {
				if n := len(g.Tasks[0].Identities); n != 0 {
					t.Errorf("group %s has %d identities now", *g.Name, n)
				}
			}
		})
	}
}

// joinsNobody has no task wait at the barrier.
func joinsNobody(j *api.Job) {
	for _, g := range j.TaskGroups {
		for _, t := range g.Tasks {
			t.SetConfig("member", "none")
		}
	}
}
