package sim

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/caravan-sched/caravan/planner/core"
	"github.com/caravan-sched/caravan/planner/sim/trace"
)

// Where jobs run for years the decisions are not many more than where they run for days:
// who waits is looked at again ever more seldom while nothing happens.
func TestYearsTakeFewDecisions(t *testing.T) {
	const year = 365 * 86400.0
	for policy, most := range map[string]int{"fifo": 5000, "caravan": 5000, "backfill": 5000} {
		var jobs []trace.Job
		for i := range 10 {
			jobs = append(jobs, trace.Job{ID: fmt.Sprint(i), Submit: float64(i), Duration: 3 * year, GPUs: 8})
		}
		c := small(t)
		_, out := story(t, Setup{Cluster: c, Jobs: jobs, Scheduler: planned(t, c, core.Policy{Order: policy})})
		m := out.Metrics()
		// One after the other, each as soon as the one before has ended.
		near(t, policy+" ends", m.MakespanS, 30*year)
		if m.Decisions > most {
			t.Errorf("%s: %d decisions for ten jobs: want %d at most", policy, m.Decisions, most)
		}
	}
}

// What would take more than a hundred years is refused, before it is played where that is known.
func TestTooLong(t *testing.T) {
	const year = 365.25 * 86400
	tests := map[string]struct {
		jobs []trace.Job
		load float64
		want string
	}{
		"a job":            {[]trace.Job{{ID: "a", Duration: 101 * year, GPUs: 1}, {ID: "b", Submit: year, Duration: 1, GPUs: 1}}, 0.9, "it would take 101 years"},
		"all of them":      {[]trace.Job{{ID: "a", Duration: 90 * year, GPUs: 8}, {ID: "b", Submit: 10, Duration: 90 * year, GPUs: 8}}, 1.5, "it would take 210 years"},
		"the load":         {[]trace.Job{{ID: "a", Duration: year, GPUs: 8}, {ID: "b", Submit: 10, Duration: year, GPUs: 8}}, 0.01, "it would take 201 years"},
		"what fits is not": {[]trace.Job{{ID: "a", Duration: year, GPUs: 8}, {ID: "b", Submit: 10, Duration: year, GPUs: 8}}, 1, ""},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			c := Comparison{Cluster: small(t), Jobs: test.jobs, Policies: []string{"gang"}, Load: test.load, Seeds: 1, Replay: true, Interval: 10}
			_, err := c.Run(t.Context())
			if test.want == "" {
				if err != nil {
					t.Fatal(err)
				}
				return
			}
			if !errors.Is(err, ErrSetup) || !strings.Contains(err.Error(), test.want) || !strings.Contains(err.Error(), "--time-unit") {
				t.Errorf("error %v: want %q", err, test.want)
			}
		})
	}
}

// idler is a Scheduler that starts nobody, and asks every hour.
type idler struct{}

func (idler) Submit(float64, Ask) error                                 { return nil }
func (idler) Finish(float64, int) error                                 { return nil }
func (idler) Left(float64, int) error                                   { return nil }
func (idler) Fail(float64, int, bool, []int) error                      { return nil }
func (idler) Decide(now float64) (list []Action, at float64, err error) { return nil, now + 3600, nil }

// A scheduler that never starts who waits is stopped, though nodes fail and come back.
func TestNobodyWaitsForEver(t *testing.T) {
	for _, failures := range []float64{0, 20} {
		_, err := Run(t.Context(), Setup{Cluster: small(t), Jobs: []trace.Job{{ID: "a", Duration: 60, GPUs: 8}}, Scheduler: idler{}, Failures: Failures{PerNodeDay: failures, Repair: 3600}})
		if !errors.Is(err, ErrWaits) || !strings.Contains(err.Error(), "the first is a, of 8 GPUs") {
			t.Errorf("with %g failures of a node in a day: %v: want that a waits in vain", failures, err)
		}
	}
}

// A row in which a job waits for ever, or never ends, is told with its reason, and the others
// come to what they come to without it.
func TestRowsThatComeToNoEnd(t *testing.T) {
	jobs := []trace.Job{{ID: "a", Duration: 600, GPUs: 8}, {ID: "b", Submit: 600, Duration: 600, GPUs: 8}, {ID: "c", Submit: 1200, Duration: 60, GPUs: 4}}
	c := Comparison{Cluster: small(t), Jobs: jobs, Policies: []string{"caravan+reserve=30", "gang", "caravan+reserve", "fifo"}, Load: 1, Seeds: 2, Replay: true, Sigma: 1, Interval: 10}
	broken := c
	broken.Failures, broken.Policies = Failures{PerNodeDay: 20, Repair: 3600}, []string{"caravan+reserve"}
	if _, err := broken.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "not beside 1 GPU kept") {
		t.Errorf("error with nodes that fail: %v: want that the reserve is why", err)
	}
	broken.Failures, broken.Policies = Failures{PerNodeDay: 500, Repair: 1e6}, []string{"gang"}
	if _, err := broken.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "it could start if no node was down") {
		t.Errorf("error with nodes that are hardly ever up: %v: want that this is why", err)
	}
	got, err := c.Run(t.Context())
	var rows *RowsError
	if !errors.As(err, &rows) || !errors.Is(err, ErrWaits) {
		t.Fatalf("error %v: want rows that come to no end", err)
	}
	for _, want := range []string{"caravan+reserve=30, seed 1: ", "caravan+reserve, seed 1: ", "which would fit, but not beside 3 GPUs kept for interactive jobs", "not beside 1 GPU kept", "(other seeds that come to no end: 1)"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("error lacks %q: %v", want, err)
		}
	}
	if len(rows.Runs) != 4 || len(rows.Rows()) != 2 || !rows.Has("caravan+reserve") || rows.Has("gang") {
		t.Errorf("runs that come to no end: %+v", rows.Runs)
	}
	c.Policies = []string{"gang", "fifo"}
	want, err := c.Run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	measured := func(list []Result) (out []Result) {
		for _, r := range list {
			r.Outcome, r.Metrics.DecideMean, r.Metrics.DecideEvent = nil, 0, 0
			out = append(out, r)
		}
		return out
	}
	if diff := cmp.Diff(measured(want), measured(got)); diff != "" {
		t.Errorf("the other rows (-want +got):\n%s", diff)
	}
}
