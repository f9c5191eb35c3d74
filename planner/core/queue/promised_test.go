package queue

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/core/preempt"
)

// keptSince is a job that was promised its deadline so many minutes ago, when there
// were so many GPUs.
func keptSince(e Entry, minutes, gpus int) Entry {
	e.Job.Promised = &model.Promised{At: deadlineNow.Add(-time.Duration(minutes) * time.Minute), Deadline: e.Job.Deadline, GPUs: gpus}
	return e
}

// footprint is a job that waits and of which each member takes so many GPUs away.
func footprint(e Entry, gpus int) Entry {
	e.Footprint = gpus
	return e
}

// TestPromisesAreKept: who was promised his deadline has it before all who were not,
// the older promise first; what cannot be kept is told, with what has changed.
func TestPromisesAreKept(t *testing.T) {
	plain := Deadline{Safety: 1, Margin: 10 * time.Minute}
	never := func(e Entry) Entry { e.Job.Preempt = model.PreemptNever; return e }
	tests := map[string]struct {
		gpus int
		jobs []Entry
		want []string // "met|" or "|", and what Why has in it
	}{
		// Two jobs that need all 8 GPUs for 2 of the next 3 hours.
		"the older job without memory": {8, []Entry{due("a", 8, 2, 3), due("b", 8, 2, 3)}, []string{"met|", "|"}},
		"the promised one":             {8, []Entry{due("a", 8, 2, 3), keptSince(due("b", 8, 2, 3), 5, 8)}, []string{"|beside those that were promised theirs before", "met|"}},
		"the older promise":            {8, []Entry{keptSince(due("a", 8, 2, 3), 5, 8), keptSince(due("b", 8, 2, 3), 6, 8)}, []string{"|its deadline of 2026-01-02T15:00:00Z was promised at 2026-01-02T11:55:00Z and cannot be met any more (the nodes, limits or run times that it was planned with have changed); it cannot meet", "met|"}},
		"before one that runs":         {8, []Entry{runs(due("a", 8, 2, 3), 0), keptSince(due("b", 8, 2, 3), 5, 8)}, []string{"|", "met|"}},
		"of another deadline": {8, []Entry{due("a", 8, 2, 3), func() Entry {
			e := keptSince(due("b", 8, 2, 3), 5, 8)
			e.Job.Deadline = deadlineNow.Add(3*time.Hour + time.Second)
			return e
		}()}, []string{"met|", "|it cannot meet"}},
		"nodes have failed":             {4, []Entry{keptSince(due("a", 8, 2, 3), 5, 8)}, []string{"|cannot be met any more (4 GPUs can be used, and were 8 then); it cannot meet"}},
		"another one runs for too long": {8, []Entry{never(runs(due("r", 8, 2, 0), 3)), keptSince(due("a", 8, 2, 3), 5, 8)}, []string{"|", "|(r ran for longer than expected)"}},
		"it does itself":                {8, []Entry{keptSince(runs(due("a", 8, 2, 1), 3), 190, 8)}, []string{"|(a ran for longer than expected); its deadline of 2026-01-02T13:00:00Z is not counted on any more, since it has run for 3h0m0s and was to take 2h0m0s"}},
		"a higher priority":             {8, []Entry{func() Entry { e := runs(due("r", 8, 5, 0), 1); e.Priority = 9; return e }(), keptSince(due("a", 8, 2, 3), 5, 8)}, []string{"|", "|(jobs of a higher priority have 8 GPUs)"}},
		// It is to have 8 GPUs, of which it asks for 5; another one has got 3 of them.
		"what it leaves is in use": {8, []Entry{keptSince(runs(due("a", 3, 2, 2), 0), 5, 8), keptSince(footprint(due("b", 5, 2, 2.5), 8), 4, 8), due("c", 1, 1, 9)},
			[]string{"met|", "met|", "|its deadline of 2026-01-02T21:00:00Z is not promised for now"}},
		// What runs and misses its own deadline keeps its GPUs all the same.
		"not of what stays": {8, []Entry{never(runs(due("r", 4, 5, 1), 1)), due("a", 8, 1, 3)}, []string{"|it cannot meet", "|it cannot meet"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			var told []Promise
			got := plain.Promises(Situation{Now: deadlineNow, GPUs: tt.gpus, Jobs: tt.jobs, Told: &told}, preempt.Policy{Enabled: true})
			for i, p := range got {
				met, want := strings.CutPrefix(tt.want[i], "met")
				if text := strings.TrimPrefix(met, "|"); p.Met != want || !strings.Contains(p.Why, text) {
					t.Errorf("%s: met %t, %s; want %s", tt.jobs[i].Job.ID, p.Met, p.Why, tt.want[i])
				}
			}
			if diff := cmp.Diff(got, told); diff != "" {
				t.Errorf("told (-got +told):\n%s", diff)
			}
		})
	}
}
