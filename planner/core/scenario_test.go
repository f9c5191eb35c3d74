package core

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/caravan-sched/caravan/planner/core/model"
)

func TestDecide(t *testing.T) {
	tests := map[string]struct {
		cluster, jobs, want string
		policy              Policy
		// wantCodes are by job; "placed" is left out.
		wantCodes map[string]string
		wantHeld  map[string][]string
		set       func(*model.Snapshot)
	}{
		"a gang takes whole nodes of one rack": {
			cluster: `b1 r1 n1 ....|....
			          b1 r1 n2 a...|....
			          b1 r2 n3 ....|....
			          b1 r2 n4 ....|....`,
			jobs: `M 2x8`,
			want: `b1 r1 n1 ....|....
			       b1 r1 n2 a...|....
			       b1 r2 n3 MMMM|MMMM
			       b1 r2 n4 MMMM|MMMM`,
		},
		"of two racks the one that is left with less": {
			cluster: `b1 r1 n1 ........
			          b1 r1 n2 ........
			          b1 r1 n3 ........
			          b1 r2 n4 ........
			          b1 r2 n5 ........
			          b1 r2 n6 aaaaaaaa`,
			jobs: `M 2x8`,
			want: `b1 r1 n1 ........
			       b1 r1 n2 ........
			       b1 r1 n3 ........
			       b1 r2 n4 MMMMMMMM
			       b1 r2 n5 MMMMMMMM
			       b1 r2 n6 aaaaaaaa`,
		},
		"one-GPU jobs fill broken islands and leave pairs whole": {
			cluster: `b1 r1 n1 ..|..|..|..
			          b1 r1 n2 a.|..|b.|..`,
			jobs: `P 1x1
			       Q 1x1
			       R 1x1`,
			want: `b1 r1 n1 ..|..|..|..
			       b1 r1 n2 aP|R.|bQ|..`,
		},
		"four GPUs in one island rather than across two": {
			cluster: `b1 r1 n1 aa..|..bb
			          b1 r1 n2 ....|...c`,
			jobs: `M 1x4`,
			want: `b1 r1 n1 aa..|..bb
			       b1 r1 n2 MMMM|...c`,
		},
		"across islands when it must": {
			cluster: `b1 r1 n1 aa..|..bb`,
			jobs:    `M 1x4`,
			want:    `b1 r1 n1 aaMM|MMbb`,
		},
		"required node is shared by the members": {
			cluster: `b1 r1 n1 ....|aaaa
			          b1 r1 n2 ....|aaaa
			          b1 r1 n3 ....|....`,
			jobs: `M 2x4 require:node`,
			want: `b1 r1 n1 ....|aaaa
			       b1 r1 n2 ....|aaaa
			       b1 r1 n3 MMMM|MMMM`,
		},
		"required island": {
			cluster: `b1 r1 n1 aa..|..aa
			          b1 r1 n2 a...|....`,
			jobs: `M 2x2 require:island`,
			want: `b1 r1 n1 aa..|..aa
			       b1 r1 n2 a...|MMMM`,
		},
		"required rack that is not free waits": {
			cluster: `b1 r1 n1 aaaa|aaaa
			          b1 r1 n2 ....|....
			          b1 r2 n3 ....|....
			          b1 r2 n4 a...|....`,
			jobs: `M 2x8 require:rack`,
			want: `b1 r1 n1 aaaa|aaaa
			       b1 r1 n2 ....|....
			       b1 r2 n3 ....|....
			       b1 r2 n4 a...|....`,
			wantCodes: map[string]string{"M": "no_domain"},
			wantHeld:  map[string][]string{"M": {"n3", "n4"}},
		},
		"preferred rack goes outward": {
			cluster: `b1 r1 n1 ....|....
			          b1 r1 n2 aaaa|aaaa
			          b1 r2 n3 ....|....
			          b2 r3 n4 ....|....`,
			jobs: `M 2x8 prefer:rack`,
			want: `b1 r1 n1 MMMM|MMMM
			       b1 r1 n2 aaaa|aaaa
			       b1 r2 n3 MMMM|MMMM
			       b2 r3 n4 ....|....`,
		},
		"a node without the level required is not used": {
			cluster: `b1 - n1 ....
			          b1 - n2 ....
			          b1 r1 n3 ....`,
			jobs: `M 2x4 require:rack
			       N 1x4 require:rack`,
			want: `b1 - n1 ....
			       b1 - n2 ....
			       b1 r1 n3 NNNN`,
			wantCodes: map[string]string{"M": "too_large"},
		},
		"later jobs flow around what a waiting gang keeps": {
			cluster: `b1 r1 n1 ....|....
			          b1 r1 n2 aaaa|a...
			          b1 r2 n3 bbbb|bb..`,
			jobs: `M 2x8 require:rack
			       P 1x1
			       Q 1x2`,
			want: `b1 r1 n1 ....|....
			       b1 r1 n2 aaaa|a...
			       b1 r2 n3 bbbb|bbP.`,
			wantCodes: map[string]string{"M": "no_capacity", "Q": "behind"},
			wantHeld:  map[string][]string{"M": {"n1", "n2"}},
		},
		"two gangs keep two racks": {
			cluster: `b1 r1 n1 aaaa|aaaa
			          b1 r1 n2 aaaa|aaaa
			          b1 r2 n3 bbbb|bbbb
			          b1 r2 n4 bbbb|bbbb
			          b1 r3 n5 cccc|ccc.`,
			jobs: `M 2x8 require:rack
			       N 2x8 require:rack
			       P 1x1`,
			want: `b1 r1 n1 aaaa|aaaa
			       b1 r1 n2 aaaa|aaaa
			       b1 r2 n3 bbbb|bbbb
			       b1 r2 n4 bbbb|bbbb
			       b1 r3 n5 cccc|cccP`,
			wantCodes: map[string]string{"M": "no_capacity", "N": "no_capacity"},
			wantHeld:  map[string][]string{"M": {"n1", "n2"}, "N": {"n3", "n4"}},
		},
		"groups that share nodes keep them": {
			cluster: `b1 r1 n1 aaaa|....
			          b1 r1 n2 aaaa|....
			          b1 r2 n3 bbbb|bbb.`,
			jobs: `M 2x6+2x2 require:rack
			       P 1x1
			       Q 1x1`,
			want: `b1 r1 n1 aaaa|....
			       b1 r1 n2 aaaa|....
			       b1 r2 n3 bbbb|bbbP`,
			wantCodes: map[string]string{"M": "no_capacity", "Q": "behind"},
			wantHeld:  map[string][]string{"M": {"n1", "n2"}},
		},
		"members told apart keep a node each": {
			cluster: `b1 r1 n1 aaaa|....
			          b1 r1 n2 aaaa|aaaa
			          b1 r2 n3 aaaa|aaa.`,
			jobs: `M 2x4
			       P 1x4
			       Q 1x1`,
			set: func(s *model.Snapshot) {
				s.Jobs[1].Constraints = []model.Constraint{{Left: "${node.unique.id}", Operand: "distinct_property"}}
			},
			want: `b1 r1 n1 aaaa|....
			       b1 r1 n2 aaaa|aaaa
			       b1 r2 n3 aaaa|aaaQ`,
			wantCodes: map[string]string{"M": "no_capacity", "P": "behind"},
			wantHeld:  map[string][]string{"M": {"n1", "n2"}},
		},
		"best effort keeps nothing": {
			cluster: `b1 r1 n1 ....|....
			          b1 r1 n2 aaaa|a...`,
			jobs: `M 2x8 require:rack
			       P 1x1`,
			policy: Policy{Order: "besteffort"},
			want: `b1 r1 n1 ....|....
			       b1 r1 n2 aaaa|aP..`,
			wantCodes: map[string]string{"M": "no_capacity"},
		},
		"strict lets nobody pass": {
			cluster: `b1 r1 n1 ....|....
			          b1 r1 n2 aaaa|a...
			          b1 r2 n3 ....|....`,
			jobs: `M 2x8 require:rack
			       P 1x1`,
			policy: Policy{Strict: true},
			want: `b1 r1 n1 ....|....
			       b1 r1 n2 aaaa|a...
			       b1 r2 n3 ....|....`,
			wantCodes: map[string]string{"M": "no_domain", "P": "behind"},
		},
		"what can never fit keeps nothing": {
			cluster: `b1 r1 n1 ....|....
			          b1 r1 n2 ....|....`,
			jobs: `M 3x8
			       N 1x9
			       P 1x1`,
			want: `b1 r1 n1 P...|....
			       b1 r1 n2 ....|....`,
			wantCodes: map[string]string{"M": "too_large", "N": "too_large"},
		},
		"a closed node is waited for without keeping others": {
			cluster: `b1 r1 n1 ....|....
			          b1 r1 n2 !....|....`,
			jobs: `M 2x8
			       P 1x1`,
			want: `b1 r1 n1 P...|....
			       b1 r1 n2 !....|....`,
			wantCodes: map[string]string{"M": "no_capacity"},
		},
		"nodes that services never leave are kept last": {
			cluster: `b1 r1 n1 SSSS|SSS.
			          b1 r1 n2 aaaa|aaaa
			          b1 r2 n3 bbbb|bbbb
			          b1 r2 n4 cccc|cccc`,
			jobs: `M 2x8 require:rack`,
			want: `b1 r1 n1 SSSS|SSS.
			       b1 r1 n2 aaaa|aaaa
			       b1 r2 n3 bbbb|bbbb
			       b1 r2 n4 cccc|cccc`,
			wantCodes: map[string]string{"M": "no_capacity"},
			wantHeld:  map[string][]string{"M": {"n3", "n4"}},
		},
		"unhealthy GPUs and other people's work are left alone": {
			cluster: `b1 r1 n1 x...|#...`,
			jobs: `P 1x3
			       Q 1x3`,
			want: `b1 r1 n1 xPPP|#QQQ`,
		},
		"6 + 2 free devices against an island of 8": {
			cluster: `b1 r1 n1 aa......
			          b1 r2 n2 ..bbbbbb`,
			jobs: `M 1x8 require:island
			       N 2x4 require:node`,
			want: `b1 r1 n1 aa......
			       b1 r2 n2 ..bbbbbb`,
			wantCodes: map[string]string{"M": "no_capacity", "N": "no_capacity"},
			wantHeld:  map[string][]string{"M": {"n1"}, "N": {"n2"}},
		},
		"6 + 2 free devices are 4 and 2 pairs": {
			cluster: `b1 r1 n1 aa......
			          b1 r2 n2 ..bbbbbb`,
			jobs: `M 2x4
			       N 4x2`,
			want: `b1 r1 n1 aaNNNNNN
			       b1 r2 n2 NNbbbbbb`,
			wantCodes: map[string]string{"M": "no_capacity"},
			policy:    Policy{Order: "besteffort"},
		},
		"single-GPU jobs split no pairs that others need": {
			cluster: `b1 r1 n1 ..|..|..|..`,
			jobs: `P 1x1
			       Q 1x1
			       R 1x1
			       M 1x2
			       N 1x2`,
			want: `b1 r1 n1 PQ|R.|MM|NN`,
		},
		"single-GPU jobs that leave break no pairs for good": {
			cluster: `b1 r1 n1 .a|.b|..|..`,
			jobs: `P 1x1
			       Q 1x1
			       M 2x2`,
			want: `b1 r1 n1 Pa|Qb|MM|MM`,
		},
		"a required-topology gang against a full clique": {
			cluster: `b1 r1 n1 aaaa
			          b1 r1 n2 aaaa
			          b1 r1 n3 ....
			          b1 r2 n4 ....
			          b1 r2 n5 b...`,
			jobs: `M 2x4 require:rack
			       P 1x4`,
			want: `b1 r1 n1 aaaa
			       b1 r1 n2 aaaa
			       b1 r1 n3 PPPP
			       b1 r2 n4 ....
			       b1 r2 n5 b...`,
			wantCodes: map[string]string{"M": "no_domain"},
			wantHeld:  map[string][]string{"M": {"n4", "n5"}},
		},
		"groups of different shape": {
			cluster: `b1 r1 n1 ....|....
			          b1 r1 n2 aaaa|....`,
			jobs: `M 1x8+2x2`,
			want: `b1 r1 n1 MMMM|MMMM
			       b1 r1 n2 aaaa|MMMM`,
		},
		"gang none admits what fits": {
			cluster: `b1 r1 n1 ....|aaaa`,
			jobs:    `M 3x2 gang:none`,
			want:    `b1 r1 n1 MMMM|aaaa`,
		},
		"gang group starts the groups that fit": {
			cluster: `b1 r1 n1 ....|aaaa`,
			jobs:    `M 2x4+1x2 gang:group`,
			want:    `b1 r1 n1 MM..|aaaa`,
		},
		"small members are spread over few nodes": {
			cluster: `b1 r1 n1 a...
			          b1 r1 n2 ....
			          b1 r1 n3 ....
			          b1 r1 n4 ....`,
			jobs: `M 8x1`,
			want: `b1 r1 n1 a...
			       b1 r1 n2 MMMM
			       b1 r1 n3 MMMM
			       b1 r1 n4 ....`,
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			s := draw(t, tt.cluster)
			submit(t, s, tt.jobs)
			if tt.set != nil {
				tt.set(s)
			}
			plan, err := Decide(s, tt.policy)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(trimLines(tt.want), redraw(s, plan)); diff != "" {
				t.Errorf("placements (-want +got):\n%s", diff)
			}
			codes, held := map[string]string{}, map[string][]string{}
			for _, d := range plan.Decisions {
				t.Logf("%s: %s: %s", d.Job, d.Action, d.Reason)
				if d.Detail.Code != "placed" {
					codes[d.Job] = d.Detail.Code
				}
				if len(d.Detail.Held) > 0 {
					held[d.Job] = slices.Sorted(slices.Values(d.Detail.Held))
				}
			}
			if tt.wantCodes == nil {
				tt.wantCodes = map[string]string{}
			}
			if diff := cmp.Diff(tt.wantCodes, codes); diff != "" {
				t.Errorf("codes (-want +got):\n%s", diff)
			}
			for job, want := range tt.wantHeld {
				if diff := cmp.Diff(want, held[job]); diff != "" {
					t.Errorf("held for %s (-want +got):\n%s", job, diff)
				}
			}
			checkPlan(t, s, plan)
		})
	}
}
