package core

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/core/queue"
)

// What a discipline sees of jobs: those that run have had what they had in
// earlier runs, and since then what they hold.
func TestEntries(t *testing.T) {
	at := func(ago time.Duration) time.Time { return testNow.Add(-ago) }
	pair := []model.DeviceAsk{{Name: "nvidia/gpu", Count: 2}}
	members := []model.Member{
		{Group: "g", Index: 0, Node: "n1", GPUs: []string{"a", "b"}},
		{Group: "g", Index: 1, Node: "n1", GPUs: []string{"c", "d"}},
		{Group: "g", Index: 2, Node: "n1", GPUs: []string{"e", "f"}, Ended: true},
	}
	tests := map[string]struct {
		job      model.Job
		want     queue.Entry
		wantNone bool
	}{
		"waits, and is new": {
			job:  model.Job{State: model.StateQueued, Submitted: at(time.Hour), Priority: 50, Duration: 2 * time.Hour, Groups: []model.TaskGroup{{Name: "g", Count: 3, Devices: pair}}},
			want: queue.Entry{Priority: 50, Waiting: true, Asked: 6, Count: 3, GPUsPerMember: 2, Waited: time.Hour, Rest: time.Hour, Left: queue.Estimate{Known: true, Total: 2 * time.Hour, Left: 2 * time.Hour}},
		},
		"runs again": {
			job: model.Job{State: model.StateRunning, Gang: model.GangNone, Submitted: at(5 * time.Hour), Started: at(time.Hour), Accounted: at(2 * time.Hour), AttainedGPUs: 1000, Ran: time.Hour, Estimate: 90 * time.Minute,
				Groups: []model.TaskGroup{{Name: "g", Count: 3, Devices: pair}}, Members: members},
			want: queue.Entry{Running: true, Held: 4, Asked: 6, Members: 2, Count: 3, GPUsPerMember: 2, Attained: 1000 + 4*3600, Ran: 2 * time.Hour, Waited: 3 * time.Hour, Turn: time.Hour,
				Left: queue.Estimate{Known: true, Total: 90 * time.Minute}},
		},
		"was accounted for while it ran": {
			job: model.Job{State: model.StateRunning, Gang: model.GangJob, Submitted: at(time.Hour), Started: at(time.Hour), Accounted: at(time.Minute), AttainedGPUs: 500, Ran: 59 * time.Minute,
				Groups: []model.TaskGroup{{Name: "g", Count: 2, Min: 1, Max: 4, Devices: pair}}, Members: members[:2]},
			want: queue.Entry{Running: true, Held: 4, Asked: 4, Members: 2, Count: 2, Min: 1, Max: 4, GPUsPerMember: 2, Attained: 500 + 4*60, Ran: time.Hour, Turn: time.Hour},
		},
		"groups that differ, after a run": {
			job: model.Job{State: model.StateQueued, Gang: model.GangJob, Submitted: at(time.Hour), Accounted: at(time.Minute), AttainedGPUs: 500, Ran: 30 * time.Minute,
				Groups: []model.TaskGroup{{Name: "g", Count: 2, Max: 4, Devices: pair}, {Name: "cpu", Count: 1}}},
			want: queue.Entry{Waiting: true, Asked: 4, Count: 3, Attained: 500, Ran: 30 * time.Minute, Waited: 30 * time.Minute, Rest: time.Minute},
		},
		"is not to be decided on": {job: model.Job{State: model.StateQueued, Hold: "no"}, wantNone: true},
		"is stopping":             {job: model.Job{State: model.StateStopping, Members: members}, wantNone: true},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			c := &cycle{Prepared: new(Prepared), now: testNow}
			got := *c.lastingOf(&agedJob{job: &tt.job})
			if ok := c.complete(&got); ok == tt.wantNone {
				t.Fatalf("counts: %t", ok)
			}
			if diff := cmp.Diff(tt.want, got, cmpopts.IgnoreFields(queue.Entry{}, "Job")); diff != "" && !tt.wantNone {
				t.Errorf("entry (-want +got):\n%s", diff)
			}
		})
	}
}

func TestTargetMembersStaysWithinBounds(t *testing.T) {
	for _, tt := range []struct{ wish, least, most, want int }{{0, 2, 8, 0}, {1, 2, 8, 2}, {5, 2, 8, 5}, {9, 2, 8, 8}, {5, 0, 0, 0}} {
		j := &model.Job{ID: "j", Groups: []model.TaskGroup{{Name: "g", Min: tt.least, Max: tt.most}}}
		c := &cycle{stands: &standings{of: map[*model.Job]*agedJob{j: {job: j}}, list: []queue.Standing{{Members: tt.wish}}}}
		if got := c.targetMembers(j); got != tt.want {
			t.Errorf("%+v: %d", tt, got)
		}
	}
}
