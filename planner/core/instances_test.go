package core

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/caravan-sched/caravan/planner/core/model"
)

// divide makes what is drawn as islands the instances of divided GPUs, which are
// joined by nothing; profiles are the models of a node's instances, in order.
func divide(s *model.Snapshot, profiles string) {
	for i := range s.Nodes {
		for k := range s.Nodes[i].GPUs {
			g := &s.Nodes[i].GPUs[k]
			g.Parent, g.Island = fmt.Sprintf("%s-%d", s.Nodes[i].ID, g.Island), 100+k
			if profiles != "" {
				g.Model = profiles[k:k+1] + "g"
			}
		}
	}
}

// redrawDivided draws what became of them.
func redrawDivided(s *model.Snapshot, plan *model.Plan) string {
	drawn := *s
	drawn.Nodes = nil
	for _, n := range s.Nodes {
		islands, gpus := map[string]int{}, append([]model.GPU(nil), n.GPUs...)
		for k := range gpus {
			if _, known := islands[gpus[k].Parent]; !known {
				islands[gpus[k].Parent] = len(islands)
			}
			gpus[k].Island = islands[gpus[k].Parent]
		}
		n.GPUs = gpus
		drawn.Nodes = append(drawn.Nodes, n)
	}
	return redraw(&drawn, plan)
}

// MIG instances fill up GPUs that are broken already, so that others stay whole,
// for whoever wants to divide them in another way.
func TestInstances(t *testing.T) {
	tests := map[string]struct{ cluster, profiles, ask, jobs, want string }{
		"the GPU that is broken already": {
			cluster: "b1 r1 n1 ...|a..|...", jobs: "P 1x1\nQ 1x1\nR 1x1",
			want: "b1 r1 n1 R..|aPQ|...",
		},
		"on whatever node it is": {
			cluster: "b1 r1 n1 ...|...\nb1 r2 n2 ...|aa.", jobs: "P 1x1",
			want: "b1 r1 n1 ...|...\nb1 r2 n2 ...|aaP",
		},
		"two of one GPU rather than of two": {
			cluster: "b1 r1 n1 aa.|bb.|...", jobs: "P 1x2",
			want: "b1 r1 n1 aa.|bb.|PP.",
		},
		"of two if it must be": {
			cluster: "b1 r1 n1 aa.|bb.|ccc", jobs: "P 1x2",
			want: "b1 r1 n1 aaP|bbP|ccc",
		},
		"the broken one of two with other profiles, too": {
			cluster: "b1 r1 n1 ..|.a", profiles: "3434", ask: "nvidia/gpu/3g", jobs: "P 1x1",
			want: "b1 r1 n1 ..|Pa",
		},
		"of that profile only": {
			cluster: "b1 r1 n1 .a|..", profiles: "4334", ask: "nvidia/gpu/3g", jobs: "P 1x1",
			want: "b1 r1 n1 .a|P.",
		},
		"the broken one on another node": {
			cluster: "b1 r1 n1 ..|..\nb1 r1 n2 a.|..", profiles: "4334", ask: "nvidia/gpu/3g", jobs: "P 1x1",
			want: "b1 r1 n1 ..|..\nb1 r1 n2 aP|..",
		},
		"a gang inside one GPU": {
			cluster: "b1 r1 n1 .a.|...|...", jobs: "P 3x1",
			want: "b1 r1 n1 .a.|PPP|...",
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			s := draw(t, tt.cluster)
			divide(s, tt.profiles)
			submit(t, s, tt.jobs)
			for i := range s.Jobs {
				for k := range s.Jobs[i].Groups {
					if tt.ask != "" {
						s.Jobs[i].Groups[k].Devices[0].Name = tt.ask
					}
				}
			}
			plan := mustDecide(t, s, Policy{})
			checkPlan(t, s, plan)
			if diff := cmp.Diff(trimLines(tt.want), redrawDivided(s, plan)); diff != "" {
				t.Errorf("placements (-want +got):\n%s", diff)
			}
		})
	}
}
