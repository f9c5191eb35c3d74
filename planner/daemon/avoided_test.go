package daemon

import (
	"strings"
	"testing"
	"time"

	"github.com/caravan-sched/caravan/planner/core"
	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/observe"
	"github.com/caravan-sched/caravan/planner/record"
)

// TestAvoidedNodesAreNamed lets the core decide on a job whose preflights have
// ruled out nodes.
func TestAvoidedNodesAreNamed(t *testing.T) {
	tests := map[string]struct {
		avoided []string
		count   int
		want    []string
		not     string
	}{
		"all of them":         {[]string{"a", "b", "c"}, 1, []string{"no node can take a member", "found it unfit: gpu-a (XID 79)", "gpu-b", "gpu-c"}, "${node.unique.id}"},
		"too many of them":    {[]string{"a", "b"}, 2, []string{"it is not placed on nodes that its preflights have found unfit: gpu-a (XID 79), gpu-b (XID 79)"}, "${node.unique.id}"},
		"none of them":        {nil, 4, nil, "preflight"},
		"one that went since": {[]string{"gone"}, 4, nil, "gpu-gone"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			now := time.Date(2031, 1, 1, 0, 0, 0, 0, time.UTC)
			rec := &record.Record{}
			job := model.Job{Namespace: "ml", ID: "train", State: model.StateQueued, Gang: model.GangJob, Submitted: now,
				Groups: []model.TaskGroup{{Name: "w", Count: tt.count, Devices: []model.DeviceAsk{{Task: "t", Name: "gpu", Count: 2}}}}}
			for _, id := range tt.avoided {
				rec.Avoid(id, "gpu-"+id, "XID 79", now, time.Hour)
			}
			for _, a := range rec.Avoided {
				job.Constraints = append(job.Constraints, observe.Avoid(a))
			}
			snap := &model.Snapshot{Now: now, Jobs: []model.Job{job}}
			for _, id := range []string{"a", "b", "c"} {
				snap.Nodes = append(snap.Nodes, model.Node{ID: id, Name: "gpu-" + id, Attributes: map[string]string{"node.unique.id": id},
					GPUs: []model.GPU{{UUID: id + "0", Type: "gpu"}, {UUID: id + "1", Type: "gpu", Island: 1}}})
			}
			plan, err := core.Decide(snap, core.Policy{})
			if err != nil {
				t.Fatal(err)
			}
			tellAvoided(plan, &observe.View{Managed: []observe.Managed{{Namespace: "ml", ID: "train", Record: rec}}})
			d := plan.Decisions[0]
			if d.Action != model.ActionWait {
				t.Fatalf("decided to %s", d.Action)
			}
			for _, want := range tt.want {
				if !strings.Contains(d.Reason, want) {
					t.Errorf("reason %q, want %q", d.Reason, want)
				}
			}
			if strings.Contains(d.Reason, tt.not) {
				t.Errorf("reason %q has %q", d.Reason, tt.not)
			}
			for what := range d.Detail.Filtered {
				if strings.Contains(what, "${node.unique.id}") && tt.avoided != nil {
					t.Errorf("filtered by %q", what)
				}
			}
		})
	}
}
