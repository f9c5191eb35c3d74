package queue

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/caravan-sched/caravan/planner/core/model"
)

// The textbook's example of four jobs of 6, 8, 7 and 3 minutes, one after the
// other: 3, 6, 7, 8, an average wait of 7 minutes instead of 10.25 in the order
// in which they came.
func TestSJF(t *testing.T) {
	tasks := func() (out []*task) {
		for i, minutes := range []time.Duration{6, 8, 7, 3} {
			out = append(out, &task{id: string(rune('1' + i)), long: minutes * time.Minute, says: minutes * time.Minute, gpus: 1})
		}
		return out
	}
	wait := func(p Policy, list []*task) time.Duration {
		ends, _ := play(t, p, nil, 1, time.Minute, list...)
		sum := time.Duration(0)
		for _, k := range list {
			sum += ends[k.id] - k.long
		}
		return sum / time.Duration(len(list))
	}
	if got := wait(Policy{}, tasks()); got != 10*time.Minute+15*time.Second {
		t.Errorf("average wait %s as they came, want 10m15s", got)
	}
	if got := wait(Policy{Order: OrderSJF}, tasks()); got != 7*time.Minute {
		t.Errorf("average wait %s, want 7m0s", got)
	}
	more := append(tasks(), &task{id: "unknown", long: time.Minute, gpus: 1}, &task{id: "urgent", long: time.Minute, gpus: 1, priority: 9})
	_, rows := play(t, Policy{Order: OrderSJF}, nil, 1, time.Minute, more...)
	if got := strings.Join(strings.Fields(strings.Join(rows, " ")), " "); got != "urgent 4 4 4 1 1 1 1 1 1 3 3 3 3 3 3 3 2 2 2 2 2 2 2 2 unknown" {
		t.Errorf("order %s", got)
	}
}

func TestSJFStanding(t *testing.T) {
	for name, tt := range map[string]struct {
		job  model.Job
		ran  time.Duration
		want Standing
	}{
		"said":         {model.Job{Duration: time.Hour, Estimate: time.Minute, EstimateRuns: 3}, 0, Standing{Key: 3600, Why: "said to run for 1h0m0s"}},
		"predicted":    {model.Job{Estimate: time.Hour, EstimateSpread: 5 * time.Minute, EstimateRuns: 4}, 0, Standing{Key: 3600, Why: "predicted to run for 1h0m0s (± 5m0s, the median of 4 like it)"}},
		"after one":    {model.Job{Estimate: time.Hour, EstimateRuns: 1}, 0, Standing{Key: 3600, Why: "predicted to run for 1h0m0s, as the one like it did"}},
		"in part":      {model.Job{Duration: time.Hour}, 20 * time.Minute, Standing{Key: 2400, Why: "said to run for 1h0m0s, of which 40m0s are left"}},
		"was too long": {model.Job{Duration: time.Hour}, 2 * time.Hour, Standing{Key: 7200, Why: "said to run for 1h0m0s, but has for 2h0m0s already and is taken to run as long again"}},
		"unknown":      {model.Job{}, time.Hour, Standing{Key: math.Inf(1), Why: "run time unknown, so it comes after all that are known: set caravan_duration"}},
	} {
		t.Run(name, func(t *testing.T) {
			got := Policy{Order: OrderSJF}.Discipline().Stand(Situation{Jobs: []Entry{{Job: &tt.job, Ran: tt.ran, Left: EstimateOf(&tt.job, tt.ran)}}})
			if diff := cmp.Diff([]Standing{tt.want}, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
