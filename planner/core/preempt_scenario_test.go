package core

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/core/preempt"
)

var preempting = Policy{Preempt: preempt.Policy{Enabled: true}}

func TestPreempt(t *testing.T) {
	tests := map[string]struct {
		cluster, running, jobs string
		set                    func(*model.Snapshot)
		policy                 func(*Policy)
		// want is who gives way to whom, wantEnd the cluster when all of them
		// have stopped and the next decision is made.
		want      []string
		wantEnd   string
		wantCodes map[string]string
		wantSaid  map[string]string
	}{
		"the cheapest gang inside the rack, not one elsewhere": {
			cluster: `b1 r1 n1 aaaa|aaaa
			          b1 r1 n2 bbbb|bbbb
			          b1 r1 n3 ....|....
			          b1 r2 n4 cccc|cccc`,
			running: `a 50 2h
			          b 50 10m
			          c 50 1s`,
			jobs: `M 2x8 require:rack priority:80`,
			want: []string{"b to M"},
			wantEnd: `b1 r1 n1 aaaa|aaaa
			          b1 r1 n2 MMMM|MMMM
			          b1 r1 n3 MMMM|MMMM
			          b1 r2 n4 cccc|cccc`,
			wantCodes: map[string]string{"M": "preempting"},
			wantSaid: map[string]string{
				"b": "gives way to M (priority 80 against 50): 80 GPU-minutes since its start, 8 GPU-minutes to start again, 80 GPU-seconds for a place that was good are lost; it is queued again",
				"M": "needs 2 members with 8 GPUs each (16 GPUs) in one rack; starts in rack b1/r1 when b has stopped",
			},
		},
		"victims freed on scattered nodes are of no use": {
			cluster: `b1 r1 n1 aaaa|aaa.
			          b1 r1 n2 bccc|cc..
			          b1 r2 n3 dddd|dddd`,
			running: `a 10 1h
			          b 10 1s
			          c 90 1h
			          d 10 2h`,
			jobs: `M 1x8 priority:80`,
			want: []string{"a to M"},
			wantEnd: `b1 r1 n1 MMMM|MMMM
			          b1 r1 n2 bccc|cc..
			          b1 r2 n3 dddd|dddd`,
			wantCodes: map[string]string{"M": "preempting"},
		},
		"a required-topology gang against a full clique": {
			cluster: `b1 r1 n1 aaaa
			          b1 r1 n2 aaaa
			          b1 r1 n3 bbbb
			          b1 r1 n4 bbbb
			          b1 r2 n5 cccc
			          b1 r2 n6 dddd
			          b1 r2 n7 ....
			          b1 r2 n8 ....`,
			running: `a 50 1m
			          b 50 1m
			          c 50 30m
			          d 50 30m`,
			jobs: `M 4x4 require:rack priority:80`,
			want: []string{"a to M", "b to M"},
			wantEnd: `b1 r1 n1 MMMM
			          b1 r1 n2 MMMM
			          b1 r1 n3 MMMM
			          b1 r1 n4 MMMM
			          b1 r2 n5 cccc
			          b1 r2 n6 dddd
			          b1 r2 n7 ....
			          b1 r2 n8 ....`,
			wantCodes: map[string]string{"M": "preempting"},
		},
		"whose clique a higher priority holds waits": {
			cluster: `b1 r1 n1 aaaa
			          b1 r1 n2 bbbb
			          b1 r2 n3 ....
			          b1 r2 n4 bbbb`,
			running: `a 50 1m
			          b 80 1m`,
			jobs: `M 2x4 require:rack priority:80`,
			want: []string{},
			wantEnd: `b1 r1 n1 aaaa
			          b1 r1 n2 bbbb
			          b1 r2 n3 ....
			          b1 r2 n4 bbbb`,
			wantCodes: map[string]string{"M": "no_capacity"},
		},
		"what fits displaces nobody": {
			cluster: `b1 r1 n1 aaaa|aaaa
			          b1 r2 n2 ....|....`,
			running: `a 0 1s`,
			jobs:    `M 1x8 priority:100`,
			want:    []string{},
			wantEnd: `b1 r1 n1 aaaa|aaaa
			          b1 r2 n2 MMMM|MMMM`,
			wantCodes: map[string]string{"M": "placed"},
		},
		"who has a checkpoint loses what came after it": {
			cluster: `b1 r1 n1 aaaa|aaaa
			          b1 r2 n2 bbbb|bbbb`,
			running: `a 50 9h again:1x8
			          b 50 2m`,
			set: func(s *model.Snapshot) {
				s.Jobs[0].Members = []model.Member{{Group: "g0", Node: "n1", GPUs: s.Allocs[0].GPUs, SinceCheckpoint: new(int64(30))}}
			},
			jobs: `M 1x8 priority:80`,
			want: []string{"a to M"},
			wantEnd: `b1 r1 n1 MMMM|MMMM
			          b1 r2 n2 bbbb|bbbb`,
			wantCodes: map[string]string{"M": "preempting"},
			wantSaid:  map[string]string{"a": "4 GPU-minutes since its checkpoint"},
		},
		"one that has told of no checkpoint for ever is not the cheapest": {
			cluster: `b1 r1 n1 aaaa|aaaa
			          b1 r2 n2 bbbb|bbbb`,
			running: `a 50 9h again:1x8
			          b 50 9h again:1x8`,
			set: func(s *model.Snapshot) {
				s.Jobs[0].Members = []model.Member{{Group: "g0", Node: "n1", GPUs: s.Allocs[0].GPUs, SinceCheckpoint: new(int64(1e15))}}
			},
			jobs: `M 1x8 priority:80`,
			want: []string{"b to M"},
			wantEnd: `b1 r1 n1 aaaa|aaaa
			          b1 r2 n2 MMMM|MMMM`,
			wantCodes: map[string]string{"M": "preempting"},
		},
		"who makes one every so often loses no more than what comes after it": {
			cluster: `b1 r1 n1 aaaa|aaaa
			          b1 r2 n2 bbbb|bbbb`,
			running: `a 50 9h again:1x8
			          b 50 20m`,
			set:  func(s *model.Snapshot) { s.Jobs[0].Checkpoint, s.Jobs[1].Checkpoint = 15*time.Minute, time.Hour },
			jobs: `M 1x8 priority:80`,
			want: []string{"a to M"},
			wantEnd: `b1 r1 n1 MMMM|MMMM
			          b1 r2 n2 bbbb|bbbb`,
			wantCodes: map[string]string{"M": "preempting"},
			wantSaid:  map[string]string{"a": "2 GPU-hours since a checkpoint that it makes every 15m, 8 GPU-minutes to start again"},
		},
		"an elastic gang shrinks rather than that one stops": {
			cluster: `b1 r1 n1 aaaa|aaaa
			          b1 r1 n2 aaaa|aaaa
			          b1 r1 n3 aaaa|aaaa
			          b1 r1 n4 bbbb|bbbb`,
			running: `a 50 9h elastic:1
			          b 50 1m`,
			jobs: `M 1x8 priority:80`,
			want: []string{"a gives 1 to M"},
			wantEnd: `b1 r1 n1 aaaa|aaaa
			          b1 r1 n2 aaaa|aaaa
			          b1 r1 n3 MMMM|MMMM
			          b1 r1 n4 bbbb|bbbb`,
			wantCodes: map[string]string{"M": "preempting"},
			wantSaid: map[string]string{
				"a": "gives 1 member to M (priority 80 against 50) and runs on with the others: nothing of its work, 8 GPU-minutes to start again are lost",
				"M": "starts in node b1/r1/n3 when a has given it 1 member; that costs",
			},
		},
		"an elastic gang keeps its least": {
			cluster: `b1 r1 n1 aaaa|aaaa
			          b1 r1 n2 aaaa|aaaa
			          b1 r1 n3 aaaa|aaaa`,
			running: `a 50 9h elastic:2`,
			jobs:    `M 2x8 priority:80`,
			want:    []string{"a to M"},
			wantEnd: `b1 r1 n1 MMMM|MMMM
			          b1 r1 n2 MMMM|MMMM
			          b1 r1 n3 ....|....`,
			wantCodes: map[string]string{"M": "preempting"},
		},
		"never means never": {
			cluster: `b1 r1 n1 aaaa|aaaa
			          b1 r2 n2 bbbb|bbbb`,
			running: `a 0 1s never
			          b 0 9h`,
			jobs: `M 1x8 priority:100`,
			want: []string{"b to M"},
			wantEnd: `b1 r1 n1 aaaa|aaaa
			          b1 r2 n2 MMMM|MMMM`,
			wantCodes: map[string]string{"M": "preempting"},
		},
		"who loses nothing goes before who started late": {
			cluster: `b1 r1 n1 aaaa|aaaa
			          b1 r2 n2 bbbb|bbbb`,
			running: `a 50 9h always
			          b 50 2m`,
			jobs: `M 1x8 priority:100`,
			want: []string{"a to M"},
			wantEnd: `b1 r1 n1 MMMM|MMMM
			          b1 r2 n2 bbbb|bbbb`,
			wantCodes: map[string]string{"M": "preempting"},
		},
		"the gang that runs over two racks gives way whole": {
			cluster: `b1 r1 n1 aaaa|aaaa
			          b1 r2 n2 aaaa|aaaa`,
			running: `a 50 1m`,
			jobs: `M 1x8 priority:100
			       N 1x1 priority:50`,
			want: []string{"a to M"},
			wantEnd: `b1 r1 n1 MMMM|MMMM
			          b1 r2 n2 N...|....`,
			wantCodes: map[string]string{"M": "preempting", "N": "preempting"},
			wantSaid:  map[string]string{"N": "starts in node b1/r2/n2 when a has stopped"},
		},
		"one that moves at once": {
			cluster: `b1 r1 n1 aaaa|....
			          b1 r2 n2 bbbb|b...`,
			running: `a 50 1m again:1x3
			          b 50 9h`,
			jobs: `M 1x8 priority:100`,
			want: []string{"a to M, moves to island b1/r2/n2/1"},
			wantEnd: `b1 r1 n1 MMMM|MMMM
			          b1 r2 n2 bbbb|baaa`,
			wantCodes: map[string]string{"M": "preempting"},
			wantSaid:  map[string]string{"a": "it starts again at once in island b1/r2/n2/1, which is kept for it"},
		},
		"no job goes back and forth": {
			cluster: `b1 r1 n1 aaaa|aaaa
			          b1 r2 n2 bbbb|bbbb`,
			running: `a 50 1s
			          b 50 9h`,
			jobs: `M 1x8 priority:100`,
			set:  func(s *model.Snapshot) { s.Jobs[2].Preempted = []model.Preempted{{At: s.Now, By: "a"}} },
			want: []string{"b to M"},
			wantEnd: `b1 r1 n1 aaaa|aaaa
			          b1 r2 n2 MMMM|MMMM`,
			wantCodes: map[string]string{"M": "preempting"},
		},
		"a gang is granted its time and its turns": {
			cluster: `b1 r1 n1 aaaa|aaaa
			          b1 r2 n2 bbbb|bbbb
			          b1 r3 n3 cccc|cccc`,
			running: `a 50 59s
			          b 50 2m gave:x gave:y
			          c 50 3m gave:x`,
			jobs:   `M 1x8 priority:100`,
			policy: func(p *Policy) { p.Preempt.MinRunTime, p.Preempt.MaxPerJob = time.Minute, 2 },
			want:   []string{"c to M"},
			wantEnd: `b1 r1 n1 aaaa|aaaa
			          b1 r2 n2 bbbb|bbbb
			          b1 r3 n3 MMMM|MMMM`,
			wantCodes: map[string]string{"M": "preempting"},
		},
		"no more than may give way within an hour": {
			cluster: `b1 r1 n1 aaaa|bbbb
			          b1 r2 n2 cccc|cccc`,
			running: `a 50 1m
			          b 50 1m
			          c 90 1m gave:x`,
			jobs:   `M 1x8 priority:80`,
			policy: func(p *Policy) { p.Preempt.MaxPerHour = 2 },
			want:   []string{},
			wantEnd: `b1 r1 n1 aaaa|bbbb
			          b1 r2 n2 cccc|cccc`,
			wantCodes: map[string]string{"M": "no_capacity"},
		},
		"one after the other": {
			cluster: `b1 r1 n1 aaaa|bbbb`,
			running: `a 50 1m
			          b 50 1m`,
			jobs:      `M 1x8 priority:80`,
			policy:    func(p *Policy) { p.Preempt.MaxAtOnce = 1 },
			want:      []string{"a to M"},
			wantEnd:   `b1 r1 n1 ....|bbbb`,
			wantCodes: map[string]string{"M": "preempting"},
			wantSaid:  map[string]string{"M": "1 of 2 stop first, since at most 1 may at once"},
		},
		"6 + 2 free devices against an 8-GPU domain": {
			cluster: `b1 r1 n1 ....|..aa
			          b1 r1 n2 bbbb|bb..
			          b1 r2 n3 ccdd|dddd`,
			running: `a 50 2h
			          b 50 1h
			          c 50 1s
			          d 90 1h`,
			jobs: `M 1x8 require:node priority:80`,
			want: []string{"a to M"},
			wantEnd: `b1 r1 n1 MMMM|MMMM
			          b1 r1 n2 bbbb|bb..
			          b1 r2 n3 ccdd|dddd`,
			wantCodes: map[string]string{"M": "preempting"},
		},
		"a failed node and a preemption book nothing twice": {
			cluster: `b1 r1 n1 !aaaa|aaaa
			          b1 r1 n2 bbbb|bbbb
			          b1 r1 n3 cccc|cccc`,
			running: `a 50 1h
			          b 50 1m
			          c 50 2m`,
			// a's gang is lost with its node and waits; both need eight GPUs.
			set: func(s *model.Snapshot) {
				for i := range s.Allocs {
					if s.Allocs[i].Job == "a" {
						s.Allocs[i].Lost = true
					}
				}
				s.Jobs[0].State = model.StateStopping
			},
			jobs: `M 1x8 priority:90
			       N 1x8 priority:80`,
			want: []string{"b to M", "c to N"},
			wantEnd: `b1 r1 n1 !aaaa|aaaa
			          b1 r1 n2 MMMM|MMMM
			          b1 r1 n3 NNNN|NNNN`,
			wantCodes: map[string]string{"M": "preempting", "N": "preempting"},
		},
		"sick GPUs that a victim leaves behind are of no use": {
			cluster: `b1 r1 n1 aaaa|aaaa
			          b1 r1 n2 bbbb|bbbb`,
			running: `a 50 1s
			          b 50 1h`,
			set:  func(s *model.Snapshot) { s.Nodes[0].GPUs[3].Unhealthy = "fell off the bus" },
			jobs: `M 1x8 priority:90`,
			want: []string{"b to M"},
			wantEnd: `b1 r1 n1 aaaa|aaaa
			          b1 r1 n2 MMMM|MMMM`,
			wantCodes: map[string]string{"M": "preempting"},
		},
		"what a job gets first brings no other group of it before its turn": {
			cluster: `b1 r1 n1 aa
			          b1 r1 n2 b##`,
			running: `a 50 1h
			          b 50 1h`,
			// K keeps n2, so nobody gives way to M's second group; M goes first as soon
			// as a gives way to its first one.
			jobs: `K 1x3 priority:80
			       M 1x2+1x1 gang:group priority:80`,
			want: []string{"a to M"},
			wantEnd: `b1 r1 n1 MM
			          b1 r1 n2 b##`,
			wantCodes: map[string]string{"K": "no_capacity", "M": "preempting"},
		},
		"members of no gang give way one by one": {
			cluster: `b1 r1 n1 aaaa|aaaa
			          b1 r1 n2 aaaa|aaaa`,
			running: `a 50 1h gang:none`,
			set: func(s *model.Snapshot) {
				for i := range s.Allocs {
					s.Allocs[i].Index = i
				}
			},
			jobs: `M 1x2 require:island priority:90`,
			want: []string{"a to M", "a to M"},
			wantEnd: `b1 r1 n1 MMaa|aaaa
			          b1 r1 n2 aaaa|aaaa`,
			wantCodes: map[string]string{"M": "preempting"},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			s := draw(t, tt.cluster)
			describe(t, s, tt.running)
			submit(t, s, tt.jobs)
			if tt.set != nil {
				tt.set(s)
			}
			policy := preempting
			if tt.policy != nil {
				tt.policy(&policy)
			}
			plan, err := Decide(s, policy)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, gaveWay(plan)); diff != "" {
				t.Errorf("who gives way (-want +got):\n%s", diff)
			}
			codes, said := map[string]string{}, map[string]string{}
			for _, d := range plan.Decisions {
				t.Logf("%s: %s", d.Job, d.Reason)
				codes[d.Job], said[d.Job] = d.Detail.Code, d.Reason
			}
			for _, p := range plan.Preemptions {
				t.Logf("%s: %s", p.Job, p.Reason)
				said[p.Job] = p.Reason
			}
			if diff := cmp.Diff(tt.wantCodes, codes); diff != "" {
				t.Errorf("codes (-want +got):\n%s", diff)
			}
			for job, want := range tt.wantSaid {
				if !strings.Contains(said[job], want) {
					t.Errorf("%s is told %q, want %q", job, said[job], want)
				}
			}
			checkPlan(t, s, plan)
			end := stopping(s, plan)
			again, err := Decide(end, policy)
			if err != nil {
				t.Fatal(err)
			}
			if len(again.Preemptions) > 0 {
				t.Errorf("while they stop more give way: %v", gaveWay(again))
			}
			end = stopped(end)
			if again, err = Decide(end, policy); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(trimLines(tt.wantEnd), redraw(end, again)); diff != "" {
				t.Errorf("in the end (-want +got):\n%s", diff)
			}
			checkPlan(t, end, again)
		})
	}
}
