package core

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/core/queue"
)

// TestPromisesCountPlaces: a deadline is promised only if the nodes that a gang takes
// whole become whole in time, in the domain that it requires, and not because as many
// GPUs are free in pieces. Jobs of one letter run and keep what they have.
func TestPromisesCountPlaces(t *testing.T) {
	tests := map[string]struct {
		cluster, running, jobs string
		deadline               map[string]time.Duration
		// want are parts of the standings, by job.
		want map[string]string
	}{
		"whole nodes that are free": {
			cluster: "b1 r1 n1 ....\nb1 r1 n2 ....", jobs: "gang 2x4 runs:1h", deadline: map[string]time.Duration{"gang": 2 * time.Hour},
			want: map[string]string{"gang": "it can meet its deadline of 2026-01-02T05:04:05Z, in 2h0m0s: it takes up to 1h6m0s; counted in whole nodes"},
		},
		"enough GPUs, but in pieces": {
			cluster: "b1 r1 n1 a...\nb1 r1 n2 b...", running: "a 50 1m runs:4h\nb 50 1m runs:5h", jobs: "gang 1x4 runs:1h", deadline: map[string]time.Duration{"gang": 2 * time.Hour},
			want: map[string]string{"gang": "it cannot meet its deadline of 2026-01-02T05:04:05Z, in 2h0m0s: beside those that were promised theirs before it ends in 5h29m0s at the earliest"},
		},
		"whole again in time": {
			cluster: "b1 r1 n1 a...\nb1 r1 n2 b...", running: "a 50 1m runs:1h\nb 50 1m runs:5h", jobs: "gang 1x4 runs:1h", deadline: map[string]time.Duration{"gang": 3 * time.Hour},
			want: map[string]string{"gang": "it can meet its deadline"},
		},
		"never whole": {
			cluster: "b1 r1 n1 #...\nb1 r1 n2 #...", jobs: "gang 1x4 runs:1h", deadline: map[string]time.Duration{"gang": 3 * time.Hour},
			want: map[string]string{"gang": "as far as is known its 4 GPUs do not become free"},
		},
		"whole nodes, but in two racks": {
			cluster: "b1 r1 n1 ....\nb1 r1 n2 a...\nb1 r2 n3 ....\nb1 r2 n4 b...", running: "a 50 1m runs:4h\nb 50 1m runs:5h", jobs: "gang 2x4 runs:1h require:rack", deadline: map[string]time.Duration{"gang": 2 * time.Hour},
			want: map[string]string{"gang": "it cannot meet its deadline of 2026-01-02T05:04:05Z, in 2h0m0s: beside those that were promised theirs before it ends in 5h29m0s at the earliest; a deadline of 2026-01-02T08:33:06Z or later could be met, and fewer GPUs may help; counted in whole nodes of rack b1/r1"},
		},
		"in another rack than the one before": {
			cluster: "b1 r1 n1 ....\nb1 r1 n2 ....\nb1 r2 n3 ....\nb1 r2 n4 ....", jobs: "one 2x4 runs:1h require:rack\ntwo 2x4 runs:1h require:rack\nthree 1x4 runs:1h",
			deadline: map[string]time.Duration{"one": 2 * time.Hour, "two": 2 * time.Hour, "three": 2 * time.Hour},
			want:     map[string]string{"one": "whole nodes of rack b1/r1", "two": "it can meet its deadline of 2026-01-02T05:04:05Z, in 2h0m0s: it takes up to 1h6m0s; counted in whole nodes of rack b1/r2", "three": "it cannot meet"},
		},
		"the rest of a node is of no use": {
			cluster: "b1 r1 n1 ........\nb1 r1 n2 ........", jobs: "one 1x5 runs:1h\ntwo 1x5 runs:1h\nthree 1x5 runs:1h",
			deadline: map[string]time.Duration{"one": 2 * time.Hour, "two": 2 * time.Hour, "three": 2 * time.Hour},
			want:     map[string]string{"one": "it can meet", "two": "it can meet", "three": "it cannot meet"},
		},
		"nor that of one for several": {
			cluster: "b1 r1 n1 ........", jobs: "one 1x3 runs:1h\ntwo 1x3 runs:1h\nthree 1x2 runs:1h",
			deadline: map[string]time.Duration{"one": 2 * time.Hour, "two": 2 * time.Hour, "three": 2 * time.Hour},
			want:     map[string]string{"one": "it can meet", "two": "it can meet", "three": "it cannot meet"},
		},
		"pieces are told of": {
			cluster: "b1 r1 n1 a...\nb1 r1 n2 b...\nb1 r1 n3 ....", running: "a 50 1m runs:4h\nb 50 1m runs:5h", jobs: "gang 2x2 runs:1h", deadline: map[string]time.Duration{"gang": 2 * time.Hour},
			want: map[string]string{"gang": "it can meet its deadline of 2026-01-02T05:04:05Z, in 2h0m0s: it takes up to 1h6m0s; 2 of the GPUs that are free now are in pieces too small for its members, so it may begin later"},
		},
	}
	for name, tt := range tests {
		for _, order := range []string{queue.OrderDeadline, queue.OrderCaravan} {
			t.Run(name+", "+order, func(t *testing.T) {
				s := draw(t, tt.cluster)
				describe(t, s, tt.running)
				submit(t, s, tt.jobs)
				for i := range s.Jobs {
					if in := tt.deadline[s.Jobs[i].ID]; in > 0 {
						s.Jobs[i].Deadline = s.Now.Add(in)
					}
				}
				checkStandings(t, s, order, tt.want)
			})
		}
	}
}

// checkStandings decides in an order, and wants each decision's standing to contain a
// part.
func checkStandings(t *testing.T, s *model.Snapshot, order string, want map[string]string) {
	t.Helper()
	plan := mustDecide(t, s, Policy{Order: order})
	checkPlan(t, s, plan)
	got := map[string]string{}
	for _, d := range plan.Decisions {
		if got[d.Job] = d.Detail.Standing; strings.Contains(d.Detail.Standing, want[d.Job]) {
			got[d.Job] = want[d.Job]
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
