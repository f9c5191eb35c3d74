package observe

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/record"
)

// A job whose member may still run on a node that is cut off waits until its
// own fence has stopped it.
func TestCutOffMembersAreWaitedFor(t *testing.T) {
	const down, disconnected, ready = api.NodeStatusDown, api.NodeStatusDisconnected, api.NodeStatusReady
	at := func(seconds int64) time.Time { return time.Unix(seconds, 0).UTC() }
	tests := map[string]struct {
		// driver and fenceAfter are the task's.
		driver, fenceAfter string
		status, client     string
		retryAfter         time.Time
		want               time.Time
		wantFor            string
	}{
		"down":                   {"caravan", "", down, "lost", time.Time{}, at(980 + 65), "the fence of a"},
		"disconnected":           {"caravan", "", disconnected, "unknown", time.Time{}, at(980 + 65), "the fence of a"},
		"told to stop meanwhile": {"caravan", "", down, "running", time.Time{}, at(980 + 65), "the fence of a"},
		"a fence of its own":     {"caravan", "2m", down, "lost", time.Time{}, at(980 + 125), "the fence of a"},
		"no fence":               {"caravan", "0", down, "lost", time.Time{}, time.Time{}, ""},
		"another driver":         {"exec", "", down, "lost", time.Time{}, time.Time{}, ""},
		"ended before":           {"caravan", "", down, "complete", time.Time{}, time.Time{}, ""},
		"back":                   {"caravan", "", ready, "lost", time.Time{}, time.Time{}, ""},
		"waits longer anyway":    {"caravan", "", down, "lost", at(2000), at(2000), ""},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			f := newFake(t)
			n := node("a", 2)
			n.Status, n.StatusUpdatedAt = test.status, 980
			f.putNode(n)
			job := gpuJob("train", 2, 2)
			task := job.TaskGroups[0].Tasks[0]
			task.Driver, task.Config = test.driver, map[string]any{}
			if test.fenceAfter != "" {
				task.Config["fence_after"] = test.fenceAfter
			}
			f.putJob(gated(job))
			rec := queuedRecord(job, record.PhaseQueued)
			rec.RetryAfter = test.retryAfter
			f.putRecord(rec)
			a := alloc("x", "train", "workers", "id-a", 0, "a-1")
			a.DesiredStatus, a.ClientStatus = api.AllocDesiredStatusStop, test.client
			f.putAlloc(a)
			m := refresh(t, f.observer(t)).Managed[0].Model
			if !m.RetryAfter.Equal(test.want) || m.RetryFor != test.wantFor {
				t.Errorf("waits until %v for %q, want %v and %q", m.RetryAfter, m.RetryFor, test.want, test.wantFor)
			}
		})
	}
}

// A job is not placed on nodes that it has found unfit, for a while.
func TestUnfitNodesAreAvoided(t *testing.T) {
	f := newFake(t)
	f.putNode(node("a", 2))
	job := gpuJob("train", 2, 2)
	job.Constraints = []*api.Constraint{api.NewConstraint("${attr.cpu.arch}", "=", "amd64")}
	f.putJob(job)
	rec := queuedRecord(job, record.PhaseQueued)
	rec.Avoid("id-b", "b", "old", time.Unix(10, 0), time.Hour/4)
	rec.Avoid("id-a", "a", "XID 79", time.Unix(900, 0), time.Hour)
	f.putRecord(rec)
	o := f.observer(t)
	for range 2 {
		want := []model.Constraint{
			{Left: "${attr.cpu.arch}", Operand: "=", Right: "amd64"},
			{Left: "${node.unique.id}", Operand: "!=", Right: "id-a"},
		}
		if diff := cmp.Diff(want, refresh(t, o).Managed[0].Model.Constraints); diff != "" {
			t.Errorf("constraints (-want +got):\n%s", diff)
		}
	}
}
