package core

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/core/preempt"
)

func TestReclaim(t *testing.T) {
	tests := map[string]struct {
		cluster, jobs string
		queues        []model.Queue
		in            map[string]string
		set           func(*model.Snapshot)
		// want are the victims.
		want   []string
		reason string // of the first
	}{
		"what is borrowed comes back, and no more": {
			cluster: `b r n xyzw`, jobs: "o 1x1",
			queues: []model.Queue{{Path: "a", Guarantee: gpusOf(2)}, {Path: "b", Guarantee: gpusOf(2)}},
			in:     map[string]string{"x": "a", "y": "a", "z": "a", "w": "a", "o": "b"},
			want:   []string{"w"},
			reason: "gives way to o (guaranteed to queue b, borrowed by queue a): nothing of its work, 60 GPU-seconds to start again are lost; it is queued again",
		},
		"a borrower displaces nobody": {
			cluster: `b r n xyzw`, jobs: "o 1x1",
			queues: []model.Queue{{Path: "a", Guarantee: gpusOf(2)}, {Path: "b"}},
			in:     map[string]string{"x": "a", "y": "a", "z": "a", "w": "a", "o": "b"},
			set:    func(s *model.Snapshot) { s.Jobs[len(s.Jobs)-1].Priority = 90 },
		},
		"who may not reclaim waits": {
			cluster: `b r n xyzw`, jobs: "o 1x1",
			queues: []model.Queue{{Path: "a"}, {Path: "b", Guarantee: gpusOf(2), Reclaim: "none"}},
			in:     map[string]string{"x": "a", "y": "a", "z": "a", "w": "a", "o": "b"},
		},
		"from those only whom it names": {
			cluster: `b r n xyzw`, jobs: "o 1x1",
			queues: []model.Queue{{Path: "a"}, {Path: "c"}, {Path: "b", Guarantee: gpusOf(2), ReclaimFrom: []string{"c"}}},
			in:     map[string]string{"x": "a", "y": "c", "z": "a", "w": "a", "o": "b"},
			want:   []string{"y"},
		},
		"not from who has just begun": {
			cluster: `b r n xyzw`, jobs: "o 1x1",
			queues: []model.Queue{{Path: "a", MinRun: time.Hour}, {Path: "b", Guarantee: gpusOf(2)}},
			in:     map[string]string{"x": "a", "y": "a", "z": "a", "w": "a", "o": "b"},
			set: func(s *model.Snapshot) {
				for i := range s.Jobs {
					s.Jobs[i].Started = s.Now.Add(-time.Minute)
				}
			},
		},
		"no more of a queue in an hour than it grants": {
			cluster: `b r n xyzw`, jobs: "o 1x1\np 1x1",
			queues: []model.Queue{{Path: "a", MaxPreemptedPerHour: 1}, {Path: "b", Guarantee: gpusOf(2)}},
			in:     map[string]string{"x": "a", "y": "a", "z": "a", "w": "a", "o": "b", "p": "b"},
			want:   []string{"w"},
		},
		"a gang that needs more than its victims' queue grants displaces none": {
			cluster: `b r n xyzw`, jobs: "o 1x2",
			queues: []model.Queue{{Path: "a", MaxPreemptedPerHour: 1}, {Path: "b", Guarantee: gpusOf(2)}},
			in:     map[string]string{"x": "a", "y": "a", "z": "a", "w": "a", "o": "b"},
		},
		"what gave way within the hour counts, in the queues above too": {
			cluster: `b r n xyzw`, jobs: "o 1x1",
			queues: []model.Queue{{Path: "a", MaxPreemptedPerHour: 1}, {Path: "a/x"}, {Path: "b", Guarantee: gpusOf(2)}},
			in:     map[string]string{"x": "a/x", "y": "a/x", "z": "a/x", "w": "a/x", "o": "b"},
			set: func(s *model.Snapshot) {
				s.Jobs[0].Preempted = []model.Preempted{{At: s.Now.Add(-59 * time.Minute), By: "q"}}
			},
		},
		"what gave way before does not": {
			cluster: `b r n xyzw`, jobs: "o 1x1",
			queues: []model.Queue{{Path: "a", MaxPreemptedPerHour: 1}, {Path: "b", Guarantee: gpusOf(2)}},
			in:     map[string]string{"x": "a", "y": "a", "z": "a", "w": "a", "o": "b"},
			set: func(s *model.Snapshot) {
				s.Jobs[0].Preempted = []model.Preempted{{At: s.Now.Add(-61 * time.Minute), By: "q"}}
			},
			want: []string{"w"},
		},
		"within a queue the higher priority": {
			cluster: `b r n xyzw`, jobs: "o 1x1",
			queues: []model.Queue{{Path: "a", Guarantee: gpusOf(4), Priorities: map[string]int{"high": 90}}},
			in:     map[string]string{"x": "a", "y": "a", "z": "a", "w": "a", "o": "a"},
			set:    func(s *model.Snapshot) { s.Jobs[len(s.Jobs)-1].PriorityClass = "high" },
			want:   []string{"w"},
		},
		"an org's guarantee against another org's, from the team that borrows": {
			cluster: `b r n xyzw`, jobs: "o 1x1",
			queues: []model.Queue{{Path: "p", Guarantee: gpusOf(2)}, {Path: "p/x", Guarantee: gpusOf(2)}, {Path: "p/y"}, {Path: "q", Guarantee: gpusOf(2)}, {Path: "q/z"}},
			in:     map[string]string{"x": "p/x", "y": "p/x", "z": "p/y", "w": "p/y", "o": "q/z"},
			want:   []string{"w"},
		},
		"not from a team that lends within its org": {
			cluster: `b r n xyzw`, jobs: "o 1x1",
			queues: []model.Queue{{Path: "p", Guarantee: gpusOf(4)}, {Path: "p/x", Guarantee: gpusOf(2)}, {Path: "p/y"}, {Path: "q", Guarantee: gpusOf(2)}, {Path: "q/z"}},
			in:     map[string]string{"x": "p/x", "y": "p/x", "z": "p/y", "w": "p/y", "o": "q/z"},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			s := draw(t, tt.cluster)
			submit(t, s, tt.jobs)
			for i := range s.Jobs {
				if s.Jobs[i].State == model.StateRunning {
					s.Jobs[i].Submitted = testNow.Add(time.Duration(i-1000) * time.Minute)
					s.Jobs[i].Preempt = model.PreemptAlways
				}
			}
			inQueues(s, tt.in)
			if tt.set != nil {
				tt.set(s)
			}
			s.Queues = tt.queues
			plan := mustDecide(t, s, Policy{Preempt: preempt.Policy{Enabled: true}})
			var got []string
			for _, p := range plan.Preemptions {
				got = append(got, p.Job)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("victims (-want +got):\n%s\n%s", diff, plan.Decisions[0].Reason)
			}
			if tt.reason != "" && (len(plan.Preemptions) == 0 || plan.Preemptions[0].Reason != tt.reason) {
				t.Errorf("%+v\nwant the reason %s", plan.Preemptions, tt.reason)
			}
		})
	}
}

// With jobs that give way, no queue that is below its guarantee waits for what
// another one has borrowed; nobody within a guarantee gives way to another
// queue; and it comes to rest: nobody goes back and forth.
func TestGuaranteesAreReclaimed(t *testing.T) {
	reclaimed := 0
	rapid.Check(t, func(t *rapid.T) {
		s := flat(rapid.IntRange(2, 10).Draw(t, "places"))
		left := len(s.Nodes[0].GPUs)
		for _, path := range []string{"a", "b", "c"} {
			g := rapid.IntRange(0, left).Draw(t, "guarantee")
			left -= g
			s.Queues = append(s.Queues, model.Queue{Path: path, Guarantee: gpusOf(g)})
		}
		free := len(s.Nodes[0].GPUs)
		for i := range rapid.IntRange(1, 20).Draw(t, "jobs") {
			j := flatJob(string(rune('A'+i)), s.Queues[rapid.IntRange(0, 2).Draw(t, "queue")].Path, testNow.Add(time.Duration(i)*time.Second))
			j.Priority = rapid.SampledFrom([]int{10, 50, 90}).Draw(t, "priority")
			if free > 0 && rapid.Bool().Draw(t, "runs") {
				free--
				j.State, j.Started = model.StateRunning, testNow.Add(-time.Hour)
				j.Members = []model.Member{{Group: "g", Node: "n", GPUs: []string{s.Nodes[0].GPUs[free].UUID}}}
			}
			s.Jobs = append(s.Jobs, j)
		}
		policy := Policy{Order: rapid.SampledFrom([]string{"fifo", "fairshare", "sjf"}).Draw(t, "order"), Preempt: preempt.Policy{Enabled: true}}
		find := func(id string) *model.Job {
			return &s.Jobs[slices.IndexFunc(s.Jobs, func(j model.Job) bool { return j.ID == id })]
		}
		for round := 0; ; round++ {
			if round > 20 {
				t.Fatal("it does not come to rest")
			}
			plan := mustDecide(t, s, policy)
			moved := carryOut(s, plan)
			for _, p := range plan.Preemptions {
				victim, by := find(p.Job), find(p.For.ID)
				used := gpusInUse(s, nil)
				if victim.Queue != by.Queue {
					reclaimed++
					if used[victim.Queue] <= guaranteed(s, victim.Queue) || used[by.Queue] >= guaranteed(s, by.Queue) {
						t.Fatalf("%s of %s gives way to %s of %s: %v", victim.ID, victim.Queue, by.ID, by.Queue, used)
					}
				}
				victim.State, victim.Members = model.StateQueued, nil
				victim.Preempted = append(victim.Preempted, model.Preempted{At: s.Now, By: by.ID})
				moved++
			}
			s.Now = s.Now.Add(time.Minute)
			if moved == 0 {
				break
			}
		}
		used := gpusInUse(s, nil)
		for _, j := range s.Jobs {
			if j.State != model.StateQueued || used[j.Queue] >= guaranteed(s, j.Queue) {
				continue
			}
			for _, q := range s.Queues {
				if used[q.Path] > guaranteed(s, q.Path) {
					t.Fatalf("%s waits, with %d of %d of queue %s in use, while queue %s has %d of %d", j.ID, used[j.Queue], guaranteed(s, j.Queue), j.Queue, q.Path, used[q.Path], guaranteed(s, q.Path))
				}
			}
		}
	})
	if reclaimed == 0 {
		t.Error("nothing was ever reclaimed")
	}
}
