package core

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/caravan-sched/caravan/planner/core/model"
)

// Reasons are read by people: they say what is asked for, what there is, and
// what would help.
func TestReasons(t *testing.T) {
	tests := map[string]struct {
		cluster, jobs string
		set           func(j *model.Job, s *model.Snapshot)
		job, want     string
		filtered      map[string]int
	}{
		"placed": {
			cluster: "b1 r1 n1 ....\nb1 r1 n2 ....", jobs: "M 2x4", job: "M",
			want: "placed 2 members with 8 GPUs in rack b1/r1, on 2 nodes",
		},
		"one GPU": {
			cluster: "b1 r1 n1 a...", jobs: "M 1x1", job: "M",
			want: "placed 1 member with 1 GPU in node b1/r1/n1",
		},
		"no room": {
			cluster: "b1 r1 n1 aabb\nb1 r1 n2 ...c", jobs: "M 2x4", job: "M",
			want:     "needs 2 members with 4 GPUs each (8 GPUs); the cluster has room for 0 of 2 now; it can start when n2 has room (c holds 1 GPU) and n1 has room (a holds 2 GPUs, b holds 2 GPUs); kept for it: n1, n2",
			filtered: map[string]int{"too few free GPUs": 2},
		},
		"a gang that is being replaced holds its GPUs once": {
			cluster: "b1 r1 n1 aaaa", jobs: "M 1x4", job: "M",
			set: func(_ *model.Job, s *model.Snapshot) {
				old := s.Allocs[0]
				old.ID, old.Stopping = "old", true
				s.Allocs = append(s.Allocs, old)
			},
			want:     "needs 1 member with 4 GPUs; node b1/r1/n1 comes nearest with 0 GPUs free; it can start when n1 has room (a holds 4 GPUs); kept for it: n1",
			filtered: map[string]int{"too few free GPUs": 1},
		},
		"a purged job has its kill_timeout": {
			cluster: "b1 r1 n1 aaab", jobs: "M 1x4", job: "M",
			set: func(_ *model.Job, s *model.Snapshot) {
				for i := range s.Allocs {
					if a := &s.Allocs[i]; a.Job == "a" {
						a.Stopping, a.Until = true, time.Date(2026, 1, 1, 12, 3, 4+i, 0, time.UTC)
					}
				}
			},
			want:     "needs 1 member with 4 GPUs; node b1/r1/n1 comes nearest with 0 GPUs free; it can start when n1 has room (the purged job a holds 3 GPUs until 12:03:06, when it has had its kill_timeout, b holds 1 GPU); kept for it: n1",
			filtered: map[string]int{"too few free GPUs": 1},
		},
		"no room for one": {
			cluster: "b1 r1 n1 aaaa\nb1 r1 n2 ..#c", jobs: "M 1x3", job: "M",
			want:     "needs 1 member with 3 GPUs; node b1/r1/n2 comes nearest with 2 GPUs free; it can start when n2 has room (alloc n2.2! holds 1 GPU, c holds 1 GPU); kept for it: n2",
			filtered: map[string]int{"too few free GPUs": 2},
		},
		"room in the wrong places": {
			cluster: "b1 r1 n1 ....\nb1 r1 n2 a...\nb1 r2 n3 ....", jobs: "M 2x4 require:rack", job: "M",
			want:     "needs 2 members with 4 GPUs each (8 GPUs) in one rack; rack b1/r1 has room for 1 of 2 now, the rest that is free is elsewhere; it can start when n2 has room (a holds 1 GPU); kept for it: n1, n2",
			filtered: map[string]int{"too few free GPUs": 1},
		},
		"behind": {
			cluster: "b1 r1 n1 ..aa", jobs: "K 1x4\nM 1x1", job: "M",
			want: "needs 1 member with 1 GPU, which would fit, but not beside the nodes kept for K, ahead in the queue",
		},
		"a constraint that no node meets": {
			cluster: "b1 r1 n1 ....\nb1 r1 n2 ....", jobs: "M 1x1", job: "M",
			set: func(j *model.Job, s *model.Snapshot) {
				s.Nodes[0].Attributes = map[string]string{"meta.color": "red"}
				j.Constraints = []model.Constraint{{Left: "${meta.color}", Operand: "=", Right: "red"}, {Left: "${meta.color}", Operand: "is_not_set"}}
			},
			want:     "no node can take a member with 1 GPU, not even an empty one; refused are 1 node (constraint ${meta.color} = red), 1 node (constraint ${meta.color} is_not_set); change what the job asks for there, or add nodes that have it",
			filtered: map[string]int{"constraint ${meta.color} = red": 1, "constraint ${meta.color} is_not_set": 1},
		},
		"a device that no node has": {
			cluster: "b1 r1 n1 ....", jobs: "M 1x1", job: "M",
			set:      func(j *model.Job, _ *model.Snapshot) { j.Groups[0].Devices[0].Name = "amd/gpu" },
			want:     "no node can take a member with 1 GPU, not even an empty one; refused are 1 node (no such device); the nodes have 4 nvidia/gpu/H100: correct the job's device, or add nodes",
			filtered: map[string]int{"no such device": 1},
		},
		"larger than the level": {
			cluster: "b1 r1 n1 ....\nb1 r2 n2 ....", jobs: "M 2x4 require:rack", job: "M",
			want: "needs 2 members with 4 GPUs each (8 GPUs) in one rack; rack b1/r1 has room for 1 of 2 even when everything in it is free and healthy; require a wider level, or ask for fewer or smaller members",
		},
		"nodes are away": {
			cluster: "b1 r1 n1 ....\nb1 r1 n2 !....\nb1 r1 n3 x...", jobs: "M 2x4", job: "M",
			want:     "needs 2 members with 4 GPUs each (8 GPUs); the cluster has room for 1 of 2 now; it waits until nodes come back: n2 (draining), n3 (1 GPU unhealthy)",
			filtered: map[string]int{"unschedulable": 1, "too few free GPUs": 1},
		},
		"a property that there are too few of": {
			cluster: "b1 r1 n1 ....\nb1 r1 n2 ....", jobs: "M 3x1", job: "M",
			set: func(j *model.Job, _ *model.Snapshot) {
				j.Constraints = []model.Constraint{{Left: "${node.unique.id}", Operand: "distinct_property"}}
			},
			want: "needs 3 members with 1 GPU each (3 GPUs); the cluster has room for 2 of 3 even when everything in it is free and healthy, 3 if it were not for distinct_property; loosen that, ask for fewer members, or add nodes",
		},
		"groups that do not fit together": {
			cluster: "b1 r1 n1 ....\nb1 r1 n2 ....", jobs: "M 2x3+1x2", job: "M",
			want: "needs 2 members of g0 with 3 GPUs each and 1 member of g1 with 2 GPUs (8 GPUs); the cluster has room for 2 of 3 even when everything in it is free and healthy, 3 if each group is counted by itself; loosen that, ask for fewer members, or add nodes",
		},
		"the only host is taken": {
			cluster: "b1 r1 n1 ....", jobs: "M 1x1", job: "M",
			set: func(j *model.Job, s *model.Snapshot) {
				j.Constraints = []model.Constraint{{Operand: "distinct_hosts"}}
				s.Allocs = append(s.Allocs, model.Alloc{ID: "old", Job: "M", Group: "g0", Node: "n1"})
			},
			want: "needs 1 member with 1 GPU; the cluster comes nearest with 4 GPUs free, but not on other hosts than the job's other members; it waits until its other members end: beside them it does not fit even when all else is free",
		},
		"more GPUs than any node has": {
			cluster: "b1 r1 n1 ....\nb1 r1 n2 ..", jobs: "M 2x8", job: "M",
			want:     "no node can take a member with 8 GPUs, not even an empty one; refused are 2 nodes (too few free GPUs); the largest node that it may use has 4 GPUs: ask for no more a member, or add larger nodes",
			filtered: map[string]int{"too few free GPUs": 2},
		},
		"a level that no node is in": {
			cluster: "b1 r1 n1 ....", jobs: "M 2x2 require:zone", job: "M",
			set:  func(_ *model.Job, s *model.Snapshot) { s.Levels = append([]string{"zone"}, s.Levels...) },
			want: "needs 2 members with 2 GPUs each (4 GPUs) in one zone, but no node says in which zone it is; set the level's key in the nodes' meta (caravan_zone unless configured otherwise), or require another level",
		},
		"memory": {
			cluster: "b1 r1 n1 ....", jobs: "M 1x1", job: "M",
			set:      func(j *model.Job, _ *model.Snapshot) { j.Groups[0].Resources.MemoryMiB = 9000 },
			want:     "no node can take a member with 1 GPU, not even an empty one; refused are 1 node (memory); the largest node that it may use has 8000 MiB of memory: ask for no more a member, or add larger nodes",
			filtered: map[string]int{"memory": 1},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			s := draw(t, tt.cluster)
			submit(t, s, tt.jobs)
			if tt.set != nil {
				tt.set(&s.Jobs[len(s.Jobs)-1], s)
			}
			d := decision(t, s, tt.job)
			if diff := cmp.Diff(tt.want, d.Reason); diff != "" {
				t.Errorf("reason (-want +got):\n%s", diff)
			}
			if len(tt.filtered)+len(d.Detail.Filtered) > 0 {
				if diff := cmp.Diff(tt.filtered, d.Detail.Filtered); diff != "" {
					t.Errorf("filtered (-want +got):\n%s", diff)
				}
			}
		})
	}
}

// What is said of one gang's group is not said of another's by another name.
func TestImpossibleGroupsAreToldByTheirNames(t *testing.T) {
	s := draw(t, "b1 r1 n1 ..")
	submit(t, s, "one 1x9 gang:group\nboth 1x9+1x9 gang:group")
	s.Jobs[1].Groups[1].Name = "other"
	plan := mustDecide(t, s, Policy{})
	for i, want := range [][]string{{"a member with 9 GPUs"}, {"a member of g0 with 9 GPUs", "a member of other with 9 GPUs"}} {
		for _, text := range want {
			if !strings.Contains(plan.Decisions[i].Reason, text) {
				t.Errorf("%s: %s; want it to tell of %s", plan.Decisions[i].Job, plan.Decisions[i].Reason, text)
			}
		}
	}
}
