package queue

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/caravan-sched/caravan/planner/core/model"
)

// The textbook's example of four jobs of 6, 8, 7 and 3 minutes, one after the
// other: 3, 6, 7, 8, an average wait of 7 minutes instead of 10.25 in the order
// in which they came.
func TestSJF(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	var jobs []*model.Job
	for i, minutes := range []int{6, 8, 7, 3} {
		jobs = append(jobs, &model.Job{ID: string(rune('1' + i)), Submitted: at.Add(time.Duration(i) * time.Second), Duration: time.Duration(minutes) * time.Minute})
	}
	wait := func() (sum time.Duration) {
		end := time.Duration(0)
		for _, j := range jobs {
			sum += end
			end += j.Duration
		}
		return sum / time.Duration(len(jobs))
	}
	if got := wait(); got != 10*time.Minute+15*time.Second {
		t.Errorf("average wait %s as they came, want 10m15s", got)
	}
	Policy{Order: OrderSJF}.Sort(nil, jobs)
	if got := wait(); got != 7*time.Minute {
		t.Errorf("average wait %s, want 7m0s", got)
	}
	jobs = append(jobs, &model.Job{ID: "unknown"}, &model.Job{ID: "estimated", Submitted: at, Estimate: time.Minute}, &model.Job{ID: "urgent", Priority: 9})
	Policy{Order: OrderSJF}.Sort(nil, jobs)
	var got []string
	for _, j := range jobs {
		got = append(got, j.ID)
	}
	if diff := cmp.Diff([]string{"urgent", "estimated", "4", "1", "3", "2", "unknown"}, got); diff != "" {
		t.Errorf("order (-want +got):\n%s", diff)
	}
}
