package sim

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/sim/trace"
)

// A part of the whole-node jobs gets bounds, the same ones for the same seed.
func TestElasticShare(t *testing.T) {
	var jobs []trace.Job
	for i := range 400 {
		jobs = append(jobs, trace.Job{ID: fmt.Sprint(i), GPUs: []int{1, 8, 32, 64}[i%4], Duration: 1})
	}
	jobs[1].Min, jobs[1].Max = 8, 8
	if diff := cmp.Diff(jobs, Elastic(jobs, 0, 8, 64, 1)); diff != "" {
		t.Error(diff)
	}
	got, some := Elastic(jobs, 0.3, 8, 64, 1), 0
	for i := range got {
		if got[i].Max == 0 {
			continue
		}
		some++
		want := map[int][2]int{8: {8, 16}, 32: {16, 64}, 64: {32, 64}}[got[i].GPUs]
		if i == 1 {
			want = [2]int{8, 8}
		}
		if want != [2]int{got[i].Min, got[i].Max} {
			t.Errorf("%d GPUs: %d to %d: want %v", got[i].GPUs, got[i].Min, got[i].Max, want)
		}
	}
	if some < 70 || some > 110 {
		t.Errorf("%d of 300 whole-node jobs are elastic: want about 90", some)
	}
	if diff := cmp.Diff(got, Elastic(jobs, 0.3, 8, 64, 1)); diff != "" {
		t.Error(diff)
	}
}

// What has ended is learned from, as in the daemon.
func TestLearner(t *testing.T) {
	l := newLearner()
	job := func(i int, ask Ask) *model.Job {
		ask.Job = i
		j := model.Job{Namespace: "default", ID: fmt.Sprintf("%08d", i), Queue: ask.Queue, Duration: time.Duration(ask.Estimate * 1e9), Started: clock(0), Members: []model.Member{{GPUs: []string{"a", "b"}}}}
		l.estimate(&ask, &j)
		return &j
	}
	if _, news := l.past(0); news {
		t.Error("there is news before anything has ended")
	}
	first := job(1, Ask{ID: "train-1", Queue: "q"})
	if first.EstimateRuns != 0 {
		t.Errorf("an estimate of %d runs: want none", first.EstimateRuns)
	}
	l.add(100, 1, first)
	if h, news := l.past(100); !news || !cmp.Equal(h.Demands, []float64{200}) {
		t.Errorf("the past is %v, %v: want 100 s of two GPUs", h.Demands, news)
	}
	if like := job(2, Ask{ID: "train-2", Queue: "q"}); like.Estimate != 100*time.Second {
		t.Errorf("one like it is thought to run %s: want 100 s", like.Estimate)
	}
	if said := job(3, Ask{ID: "train-3", Queue: "q", Estimate: 5}); said.Estimate != 0 {
		t.Errorf("one that says how long it runs is thought to run %s: want what it says", said.Estimate)
	}
	if other := job(4, Ask{ID: "train-4", Queue: "r"}); other.Estimate != 0 {
		t.Errorf("one of others is thought to run %s: want nothing to be known", other.Estimate)
	}
	for i := range tellFirst {
		l.add(200, i, job(i, Ask{ID: "x", Queue: "q"}))
	}
	for _, test := range []struct {
		at   float64
		want bool
	}{{200, true}, {200, false}, {200 + tellEvery, false}} {
		if _, news := l.past(test.at); news != test.want {
			t.Errorf("at %g s there is news: %t, want %t", test.at, news, test.want)
		}
	}
}

// Seed 2 has no cohort, and seed 3 no interactive jobs: such zeros are no part of any mean.
func TestEmptyCohort(t *testing.T) {
	results := []Result{
		{Policy: "gang", Seed: 1, Metrics: Metrics{Cohort: 9, Interactive: 2, InteractiveP95: 30, JCTMean: 100, QueueP95: 10, FairnessMean: 2, UtilisationProductive: 0.5}},
		{Policy: "fifo", Seed: 1, Metrics: Metrics{Cohort: 9, Interactive: 2, InteractiveP95: 70, JCTMean: 150, QueueP95: 60, FairnessMean: 3, UtilisationProductive: 0.4}},
		{Policy: "gang", Seed: 2, Metrics: Metrics{UtilisationProductive: 0.25}},
		{Policy: "fifo", Seed: 2, Metrics: Metrics{UtilisationProductive: 0.25}},
		{Policy: "gang", Seed: 3, Metrics: Metrics{Cohort: 9, JCTMean: 100, QueueP95: 10, FairnessMean: 2, UtilisationProductive: 0.25}},
		{Policy: "fifo", Seed: 3, Metrics: Metrics{Cohort: 9, JCTMean: 150, QueueP95: 60, FairnessMean: 3, UtilisationProductive: 0.25}},
	}
	mean := func(m *Metrics) float64 { return m.JCTMean }
	if got := Known(results, "fifo", OfCohort(mean)); !slices.Equal(got, []float64{150, 150}) {
		t.Errorf("mean completion times %v: want those of seeds 1 and 3", got)
	}
	if got := Known(results, "fifo", func(m *Metrics) float64 { return m.UtilisationProductive }); !slices.Equal(got, []float64{0.4, 0.25, 0.25}) {
		t.Errorf("utilisation %v: want that of all seeds", got)
	}
	d := Differences([]string{"gang", "fifo"}, results)[0].Metrics
	for name, want := range map[string]Interval{"jct_mean_s": {50, 50, 50}, "queue_p95_s": {50, 50, 50}, "finish_time_fairness_mean": {1, 1, 1}, "interactive_start_p95_s": {40, 40, 40}} {
		if d[name] != want {
			t.Errorf("%s: %+v, want %+v", name, d[name], want)
		}
	}
	if got := d["utilisation_productive"].Mean; math.Abs(got+0.1/3) > 1e-12 {
		t.Errorf("utilisation differs by %v: want -0.1/3", got)
	}
	if _, there := Differences([]string{"gang", "fifo"}, results[2:4])[0].Metrics["jct_p99_s"]; there {
		t.Error("completion times differ where nothing is known of any")
	}
}

// Rows differ in what is known, not in the jobs.
func TestVariants(t *testing.T) {
	jobs, err := trace.Synthetic{Jobs: 40, Days: 1, GPUsPerNode: 4, MaxNodes: 2, Small: 0.5, Seed: 1}.Make()
	if err != nil {
		t.Fatal(err)
	}
	cluster, err := Regular(16, 4)
	if err != nil {
		t.Fatal(err)
	}
	c := Comparison{Cluster: cluster, Jobs: jobs, Policies: []string{"sjf", "sjf@oracle", "sjf@no-estimates", "sjf@elastic100@oracle"}, Load: 1, Seeds: 2, Sigma: 1}
	prepared, err := c.prepareRows(t.Context(), 2)
	if err != nil {
		t.Fatal(err)
	}
	for k, row := range c.Policies {
		p := prepared[k]
		switch exact := p.Estimates != nil && p.Estimates[3] == p.Jobs[3].Duration; {
		case p.Jobs[3].Submit != prepared[0].Jobs[3].Submit:
			t.Errorf("%s: another submission", row)
		case (p.Estimates == nil) != (k == 2) || exact != (k == 1 || k == 3):
			t.Errorf("%s: estimates %v", row, p.Estimates)
		}
	}
	results, err := c.Run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	d := Differences(c.Policies, results)
	if len(d) != 3 || d[0].Policy != "sjf@oracle" || d[0].Metrics["utilisation_bound"] != (Interval{}) {
		t.Errorf("differences: %+v", d)
	}
	if e := d[2].Metrics["jct_mean_s"]; !(e.Low <= e.Mean && e.Mean <= e.High) || e.Mean == 0 {
		t.Errorf("elastic jobs take %+v s longer", e)
	}
}
