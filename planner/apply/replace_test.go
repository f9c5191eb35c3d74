package apply_test

import (
	"slices"
	"testing"

	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/planner/apply"
	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/observe"
	"github.com/caravan-sched/caravan/planner/record"
)

// TestFormerPlaces: what a gang had is remembered from when it is stopped because
// of some members' places until it is placed again, and not if it is stopped for
// anything else.
func TestFormerPlaces(t *testing.T) {
	tests := map[string]struct {
		gang   string
		strike func(f *fakeNomad, node string)
		// want are the groups whose places are remembered.
		want []string
		why  string
	}{
		"its node is lost":     {"job", func(f *fakeNomad, node string) { f.down[node] = true }, []string{"w", "w", "w"}, "is lost"},
		"its node is drained":  {"job", func(f *fakeNomad, node string) { f.unusable[node] = "draining" }, []string{"w", "w", "w"}, "is drained"},
		"a GPU is sick":        {"job", func(f *fakeNomad, node string) { f.sick[gpu(node, 1)] = "XID 79" }, []string{"w", "w", "w"}, "has a GPU that is unhealthy"},
		"of one of two groups": {"group", func(f *fakeNomad, node string) { f.unusable[node] = "draining" }, []string{"w", "w", "w"}, "is drained"},
		"a member fails by itself": {"job", func(f *fakeNomad, node string) {
			for _, a := range f.allocs {
				if a.NodeID == node {
					a.ClientStatus = "failed"
				}
			}
		}, nil, ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			f := newFake(t, 6)
			job := gatedJob("train", "batch", tt.gang, 3, 8)
			members := 3
			if tt.gang == "group" {
				other := fakeJob("other", "batch", "group", 2, 8).TaskGroups[0]
				other.Name = ptr("v")
				job.TaskGroups, members = append(job.TaskGroups, other), 5
			}
			f.submit(job)
			e := apply.NewExecutor(f.client, f, options())
			placed(t, f, run(t, f, e, "it runs", phase("train", record.PhaseRunning)), "train", members)
			rec := f.records["default/train"]
			at := slices.IndexFunc(rec.Members, func(m model.Member) bool { return m.Group == "w" })
			struck := rec.Members[at]
			tt.strike(f, struck.Node)
			run(t, f, e, "it is stopped", func(v *observe.View) bool {
				m, _ := v.Job("default", "train")
				return m.Record.Phase != record.PhaseRunning || len(m.Record.Members) < members
			})
			rec = f.records["default/train"]
			if tt.want == nil {
				if rec.Replace != nil {
					t.Errorf("remembered %+v", rec.Replace)
				}
				return
			}
			var groups []string
			for _, m := range rec.Replace.Members {
				groups = append(groups, m.Group)
			}
			want := []model.FailedPlace{{Group: "w", Index: struck.Index, Node: struck.Node, Why: tt.why}}
			if !slices.Equal(groups, tt.want) || !slices.Equal(rec.Replace.Failed, want) {
				t.Errorf("remembered %+v, want %v and %+v", rec.Replace, tt.want, want)
			}
			run(t, f, e, "it runs again", func(v *observe.View) bool {
				m, _ := v.Job("default", "train")
				return m.Record.Phase == record.PhaseRunning && len(m.Record.Members) == members
			})
			if rec = f.records["default/train"]; rec.Replace != nil {
				t.Errorf("remembered when it runs again: %+v", rec.Replace)
			}
			for _, a := range f.allocs {
				if a.NodeID == struck.Node && a.ClientStatus == api.AllocClientStatusRunning && a.DesiredStatus == api.AllocDesiredStatusRun && tt.why != "has a GPU that is unhealthy" && !f.down[struck.Node] {
					t.Errorf("%s runs on %s still", a.ID, struck.Node)
				}
			}
		})
	}
}
