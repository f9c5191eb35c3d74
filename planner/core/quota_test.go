package core

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/caravan-sched/caravan/planner/core/model"
)

// inQueues puts jobs into queues: "JOB QUEUE" for each.
func inQueues(s *model.Snapshot, list map[string]string) {
	for i := range s.Jobs {
		s.Jobs[i].Queue = list[s.Jobs[i].ID]
	}
}

func gpusOf(n int) map[string]int { return map[string]int{"gpu": n} }

func TestQuota(t *testing.T) {
	tests := map[string]struct {
		cluster, jobs string
		queues        []model.Queue
		in            map[string]string
		never         string
		policy        Policy
		// want are the decisions in order: "JOB code", with the GPUs borrowed.
		want   []string
		reason string // of the last
	}{
		"the guarantee of the later comes before what the earlier borrows": {
			cluster: `b r n ........`, jobs: "a1 1x4\na2 1x4\nb1 1x4",
			queues: []model.Queue{{Path: "a", Guarantee: gpusOf(4)}, {Path: "b", Guarantee: gpusOf(4)}},
			in:     map[string]string{"a1": "a", "a2": "a", "b1": "b"},
			want:   []string{"a1 placed", "b1 placed", "a2 no_capacity"},
		},
		"what others leave idle is borrowed": {
			cluster: `b r n ........`, jobs: "a1 1x4\na2 1x4",
			queues: []model.Queue{{Path: "a", Guarantee: gpusOf(4)}, {Path: "b", Guarantee: gpusOf(4)}},
			in:     map[string]string{"a1": "a", "a2": "a"},
			want:   []string{"a1 placed", "a2 placed 4"},
			reason: "placed 1 member with 4 GPUs in island b/r/n/0; 4 GPUs of it beyond what queue a is guaranteed, so others may claim it back",
		},
		"no more than the limit": {
			cluster: `b r n ........`, jobs: "a1 1x4\na2 1x2\na3 1x2\na4 1x1",
			queues: []model.Queue{{Path: "a", Guarantee: gpusOf(4), Borrow: gpusOf(3)}},
			in:     map[string]string{"a1": "a", "a2": "a", "a3": "a", "a4": "a"},
			want:   []string{"a1 placed", "a2 placed 2", "a3 quota", "a4 quota"},
			reason: "needs 1 member with 1 GPU; queue a uses 4 of 4 GPUs guaranteed, borrows 2 of 3, and 2 are kept for jobs ahead; the job needs 1; it can start when 2 are given back",
		},
		"no smaller one passes who waits for what its queue has": {
			cluster: `b r n ............`, jobs: "a1 1x2\na2 2x4\na3 1x1",
			queues: []model.Queue{{Path: "a", Guarantee: gpusOf(9), Borrow: gpusOf(0)}},
			in:     map[string]string{"a1": "a", "a2": "a", "a3": "a"},
			want:   []string{"a1 placed", "a2 quota", "a3 quota"},
			reason: "needs 1 member with 1 GPU; queue a uses 2 of 9 GPUs guaranteed, borrows 0 of 0, and 8 are kept for jobs ahead; the job needs 1; it can start when 2 are given back",
		},
		"best effort keeps nothing": {
			cluster: `b r n ........`, jobs: "a1 1x4\na2 1x2\na3 1x2\na4 1x1",
			queues: []model.Queue{{Path: "a", Guarantee: gpusOf(4), Borrow: gpusOf(3)}},
			in:     map[string]string{"a1": "a", "a2": "a", "a3": "a", "a4": "a"}, policy: Policy{Order: "besteffort"},
			want: []string{"a1 placed", "a2 placed 2", "a3 quota", "a4 placed 1"},
		},
		"a queue without a right keeps no nodes": {
			cluster: `b r n1 bbbb....
			          b r n2 bbbb....`, jobs: "big 1x8\nsmall 1x4",
			queues: []model.Queue{{Path: "a", Borrow: gpusOf(4)}, {Path: "b"}},
			in:     map[string]string{"big": "a", "small": "b", "b": "b"},
			want:   []string{"big quota", "small placed 4"},
		},
		"never only within the guarantee": {
			cluster: `b r n ........`, jobs: "a1 1x4\na2 1x4",
			queues: []model.Queue{{Path: "a", Guarantee: gpusOf(4)}}, never: "a1 a2",
			in:     map[string]string{"a1": "a", "a2": "a"},
			want:   []string{"a1 placed", "a2 quota"},
			reason: "needs 1 member with 4 GPUs; asks never to be preempted, which queue a grants within its guarantee only, and of that 4 of 4 GPUs are held so; it needs 4; it can start when 4 are given back, or with another caravan_preempt",
		},
		"members alone are borrowed one by one": {
			cluster: `b r n ........`, jobs: "a1 6x1 gang:none\nb1 4x1 gang:none",
			queues: []model.Queue{{Path: "a", Guarantee: gpusOf(4)}, {Path: "b", Guarantee: gpusOf(4)}},
			in:     map[string]string{"a1": "a", "b1": "b"},
			want:   []string{"b1 placed", "a1 placed"},
			reason: "placed 4 of 6 members with 4 GPUs on 1 node; 2 more wait: needs 1 member with 1 GPU; node b/r/n comes nearest with 0 GPUs free; it can start when n has room (b1 holds 4 GPUs, the job itself holds 4 GPUs); kept for it: n",
		},
		"who can never start does not keep the quota": {
			cluster: `b r n ........`, jobs: "a1 1x9\na2 1x1",
			queues: []model.Queue{{Path: "a", Borrow: gpusOf(9)}},
			in:     map[string]string{"a1": "a", "a2": "a"},
			want:   []string{"a1 too_large", "a2 placed 1"},
		},
		"of two parents the one below its guarantee": {
			cluster: `b r n ........`, jobs: "p1 1x4\np2 1x2\nq1 1x4",
			queues: []model.Queue{{Path: "p", Guarantee: gpusOf(4)}, {Path: "p/x", Guarantee: gpusOf(2)}, {Path: "p/y"}, {Path: "q", Guarantee: gpusOf(4)}, {Path: "q/x"}},
			in:     map[string]string{"p1": "p/x", "p2": "p/y", "q1": "q/x"},
			want:   []string{"p1 placed 2", "q1 placed 4", "p2 no_capacity"},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			s := draw(t, tt.cluster)
			submit(t, s, tt.jobs)
			inQueues(s, tt.in)
			for i := range s.Jobs {
				if slices.Contains(strings.Fields(tt.never), s.Jobs[i].ID) {
					s.Jobs[i].Preempt = model.PreemptNever
				}
			}
			s.Queues = tt.queues
			plan := mustDecide(t, s, tt.policy)
			var got []string
			for _, d := range plan.Decisions {
				text := d.Job + " " + d.Detail.Code
				if d.Detail.BorrowedGPUs > 0 {
					text += fmt.Sprint(" ", d.Detail.BorrowedGPUs)
				}
				got = append(got, text)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("decisions (-want +got):\n%s", diff)
			}
			if last := plan.Decisions[len(plan.Decisions)-1].Reason; tt.reason != "" && last != tt.reason {
				t.Errorf("reason: %s\nwant:   %s", last, tt.reason)
			}
			for _, fault := range planFaults(s, plan) {
				t.Error(fault)
			}
		})
	}
}

// A gang gets the model of which its queue may have more, and none other.
func TestQuotaByModel(t *testing.T) {
	s := draw(t, `b r n1 ..
	              b r n2 ....`)
	for i := range s.Nodes[1].GPUs {
		s.Nodes[1].GPUs[i].Model = "A100"
	}
	submit(t, s, "a 1x2\nb 1x2\nc 1x2")
	s.Queues = []model.Queue{{Path: "q", Guarantee: map[string]int{"gpu/A100": 4}, Borrow: map[string]int{"gpu/H100": 0}}}
	inQueues(s, map[string]string{"a": "q", "b": "q", "c": "q"})
	plan := mustDecide(t, s, Policy{})
	for i, want := range []string{"n2", "n2", ""} {
		d := plan.Decisions[i]
		got := ""
		if len(d.Members) > 0 {
			got = d.Members[0].Node
		}
		if got != want {
			t.Errorf("%s is on %q, want %q: %s", d.Job, got, want, d.Reason)
		}
	}
	if want := "needs 1 member with 2 GPUs; queue q uses 0 of 0 H100 GPUs guaranteed, borrows 0 of 0; the job needs 2; it never may have so many: ask for fewer, or have the limit raised"; plan.Decisions[2].Reason != want {
		t.Errorf("reason: %s\nwant:   %s", plan.Decisions[2].Reason, want)
	}
}

// flat is a cluster of one-GPU places and one-GPU jobs, where nothing but the
// queues decides.
func flat(places int) *model.Snapshot {
	s := &model.Snapshot{Now: testNow}
	n := model.Node{ID: "n"}
	for i := range places {
		n.GPUs = append(n.GPUs, model.GPU{UUID: fmt.Sprint("g", i), Vendor: "nvidia", Type: "gpu", Model: "A"})
	}
	s.Nodes = []model.Node{n}
	return s
}

func flatJob(id, queue string, at time.Time) model.Job {
	return model.Job{ID: id, Queue: queue, Type: "batch", State: model.StateQueued, Gang: model.GangJob, Submitted: at,
		Groups: []model.TaskGroup{{Name: "g", Count: 1, Devices: []model.DeviceAsk{{Name: "gpu", Count: 1}}}}}
}

// carryOut makes a plan's placements the snapshot's.
func carryOut(s *model.Snapshot, plan *model.Plan) (admitted int) {
	for _, d := range plan.Decisions {
		if d.Action != model.ActionAdmit {
			continue
		}
		at := slices.IndexFunc(s.Jobs, func(j model.Job) bool { return j.ID == d.Job })
		s.Jobs[at].State, s.Jobs[at].Members = model.StateRunning, d.Members
		admitted++
	}
	return admitted
}

// While a job that fits waits in a queue that is below its guarantee, or below
// one that is, nothing is admitted beyond a guarantee; and what has been decided
// is not decided anew.
func TestNobodyBorrowsFromWhoWaits(t *testing.T) {
	borrowed := 0
	rapid.Check(t, func(t *rapid.T) {
		s := flat(rapid.IntRange(1, 12).Draw(t, "places"))
		s.Queues = []model.Queue{{Path: "a"}, {Path: "b"}, {Path: "c/x"}, {Path: "c/y"}}
		for i := range s.Queues {
			s.Queues[i].Guarantee = gpusOf(rapid.IntRange(0, 4).Draw(t, "guarantee"))
		}
		free := len(s.Nodes[0].GPUs)
		for i := range rapid.IntRange(0, 20).Draw(t, "jobs") {
			j := flatJob(fmt.Sprint("j", i), s.Queues[rapid.IntRange(0, 3).Draw(t, "queue")].Path, testNow.Add(time.Duration(i)*time.Second))
			if free > 0 && rapid.IntRange(0, 3).Draw(t, "runs") == 0 {
				free--
				j.State, j.Members = model.StateRunning, []model.Member{{Group: "g", Node: "n", GPUs: []string{fmt.Sprint("g", free)}}}
			}
			s.Jobs = append(s.Jobs, j)
		}
		policy := anyOrder(t)
		plan := mustDecide(t, s, policy)
		used, taken := gpusInUse(s, plan), 0
		for _, d := range plan.Decisions {
			taken += d.Detail.BorrowedGPUs
		}
		borrowed += taken
		for _, d := range plan.Decisions {
			j := s.Jobs[slices.IndexFunc(s.Jobs, func(j model.Job) bool { return j.ID == d.Job })]
			if g := guaranteed(s, j.Queue); d.Action == model.ActionWait && used[j.Queue] < g && taken > 0 {
				t.Fatalf("%s of %s waits with %d of %d while %d are lent", j.ID, j.Queue, used[j.Queue], g, taken)
			}
		}
		carryOut(s, plan)
		if again := carryOut(s, mustDecide(t, s, policy)); again > 0 {
			t.Fatalf("%d more are admitted although nothing has happened", again)
		}
	})
	if borrowed == 0 {
		t.Error("nothing was ever borrowed")
	}
}

// In the long run, with work waiting always, queues have used what their
// weights say, whatever they have submitted and although one was alone at
// first.
func TestWeightsInTheLongRun(t *testing.T) {
	const places, alone, steps, halfLife = 12, 10, 110, 10
	for _, weights := range []map[string]float64{{"a": 1, "b": 1, "c": 1}, {"a": 1, "b": 2, "c": 4}, {"a": 3, "b": 1, "c": 1}} {
		s := flat(places)
		for _, path := range []string{"a", "b", "c"} {
			s.Queues = append(s.Queues, model.Queue{Path: path, Weight: weights[path], History: map[string]float64{}})
		}
		got, ends, serial := map[string]float64{}, map[string]int{}, 0
		for step := range steps {
			s.Now = testNow.Add(time.Duration(step) * time.Minute)
			s.Jobs = slices.DeleteFunc(s.Jobs, func(j model.Job) bool { return j.State == model.StateQueued || ends[j.ID] <= step })
			for i, q := range s.Queues {
				for range places {
					if serial++; i == 0 || step > 0 {
						s.Jobs = append(s.Jobs, flatJob(fmt.Sprint("j", serial), q.Path, s.Now))
					}
				}
			}
			plan := mustDecide(t, s, Policy{Order: "fairshare"})
			for i, d := range plan.Decisions {
				ends[d.Job] = step + 1 + (7*step+3*i)%5
			}
			carryOut(s, plan)
			for path, used := range gpusInUse(s, nil) {
				q := &s.Queues[strings.Index("abc", path)]
				q.History["gpu"] += (float64(used) - q.History["gpu"]) * (1 - math.Exp2(-1.0/halfLife))
				if step >= alone {
					got[path] += float64(used) / ((steps - alone) * places)
				}
			}
		}
		for path, w := range weights {
			if want := w / (weights["a"] + weights["b"] + weights["c"]); math.Abs(got[path]-want) > 0.03 {
				t.Errorf("queue %s has used %.3f, want %.3f: %v of %v", path, got[path], want, got, weights)
			}
		}
	}
}

// A policy that changes leaves alone what runs.
func TestChangeOfPolicyDisturbsNothing(t *testing.T) {
	s := flat(4)
	s.Queues = []model.Queue{{Path: "a"}, {Path: "b"}}
	for i := range 8 {
		s.Jobs = append(s.Jobs, flatJob(fmt.Sprint("j", i), []string{"a", "b"}[i/4], testNow.Add(time.Duration(i)*time.Second)))
	}
	if n := carryOut(s, mustDecide(t, s, Policy{})); n != 4 {
		t.Fatalf("%d admitted, want 4", n)
	}
	for _, order := range []string{"fairshare", "sjf", "besteffort"} {
		plan := mustDecide(t, s, Policy{Order: order})
		if len(plan.Decisions) != 4 || carryOut(s, plan) > 0 || len(plan.Preemptions) > 0 {
			t.Errorf("%s: %+v", order, plan)
		}
	}
}
