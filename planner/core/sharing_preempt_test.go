package core

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/core/preempt"
)

// Who gives way on a shared GPU is who has to, so that the GPU is enough: for a
// slice, for the memory, or for the time.
func TestSharingPreempts(t *testing.T) {
	tests := map[string]struct{ cluster, uses, want string }{
		"no slice is free":                {"b1 r1 n1 abc", "", "a"},
		"the memory is not enough":        {"b1 r1 n1 ab.", "a 50000 little\nb 10000 little\nP 50000 little", "a"},
		"whoever has it":                  {"b1 r1 n1 ab.", "b 50000 little\na 10000 little\nP 50000 little", "b"},
		"both are busy at the same times": {"b1 r1 n1 ab.", "a 10000 night\nb 10000 day\nP 10000 day", "b"},
		"there is room":                   {"b1 r1 n1 ab.", "a 10000 night\nb 10000 little\nP 10000 little", ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			s := draw(t, tt.cluster)
			inSlices(s)
			for i := range s.Jobs {
				j := &s.Jobs[i]
				j.Priority, j.Groups = 10, []model.TaskGroup{{Name: "g", Count: 1, Devices: []model.DeviceAsk{{Name: "nvidia/gpu", Count: 1}}}}
				for _, a := range s.Allocs {
					if a.Job == j.ID {
						j.Members = append(j.Members, model.Member{Group: "g", Node: a.Node, GPUs: a.GPUs})
					}
				}
			}
			submit(t, s, "P 1x1 priority:90")
			takeSlices(s, model.SharedOnly)
			uses(t, s, tt.uses)
			plan := mustDecide(t, s, Policy{Preempt: preempt.Policy{Enabled: true}})
			var victims []string
			for _, p := range plan.Preemptions {
				victims = append(victims, p.Job)
			}
			if diff := cmp.Diff(tt.want, strings.Join(victims, " ")); diff != "" {
				t.Errorf("victims (-want +got):\n%s%+v", diff, plan.Decisions)
			}
		})
	}
}
