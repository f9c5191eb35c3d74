package report

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caravan-sched/caravan/planner/sim"
	"github.com/caravan-sched/caravan/planner/sim/trace"
)

func TestWrite(t *testing.T) {
	jobs, err := trace.Synthetic{Jobs: 60, Days: 2, GPUsPerNode: 8, MaxNodes: 2, Small: 0.6, Seed: 4}.Make()
	if err != nil {
		t.Fatal(err)
	}
	c, err := sim.Regular(32, 8)
	if err != nil {
		t.Fatal(err)
	}
	policies := []string{"gang", "fifo"}
	cmp := sim.Comparison{Cluster: c, Jobs: jobs, Policies: policies, Load: 0.8, Seeds: 2, Interval: 30, Restart: sim.DefaultRestart, Spans: 32}
	results, err := cmp.Run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "new")
	if err := Write(dir, Input{Title: "A <title>", Setup: [][2]string{{"GPUs", "32"}}, Policies: policies, Results: results, GPUs: 32}); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(filepath.Join(dir, "index.html"))
	if err != nil {
		t.Fatal(err)
	}
	html := string(b)
	for _, want := range []string{"A &lt;title&gt;", "against gang", "Completion times", "Stranded GPUs", "data:image/png;base64,"} {
		if !strings.Contains(html, want) {
			t.Errorf("the page lacks %q", want)
		}
	}
	if n := strings.Count(html, "<svg"); n != 4 {
		t.Errorf("%d plots: want 4", n)
	}
	for _, outside := range []string{"<script", "http-equiv", "<link", "src=\"http"} {
		if strings.Contains(html, outside) {
			t.Errorf("the page is not self-contained: %q", outside)
		}
	}
	for name, want := range map[string]int{"metrics.csv": 1 + 4*scalars(t, results[0].Metrics), "sizes.csv": 1 + sizes(results), "jobs.csv": 1 + len(results[0].Outcome.Done()) + len(results[1].Outcome.Done()), "time.csv": 1 + len(results[0].Outcome.Samples()) + len(results[1].Outcome.Samples())} {
		b, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		if n := strings.Count(string(b), "\n"); n != want {
			t.Errorf("%s: %d lines, want %d", name, n, want)
		}
	}
	if err := Write("/dev/null/x", Input{}); err == nil {
		t.Error("a report is written where none can be")
	}
}

// scalars counts the metrics that are one number, by the JSON.
func scalars(t *testing.T, m sim.Metrics) (n int) {
	text, err := json.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	var all map[string]any
	if err := json.Unmarshal(text, &all); err != nil {
		t.Fatal(err)
	}
	for _, value := range all {
		if _, is := value.(float64); is {
			n++
		}
	}
	return n
}

func sizes(results []sim.Result) (n int) {
	for i := range results {
		n += len(results[i].Metrics.Sizes)
	}
	return n
}

// Deadlines, bought nodes, and jobs that never end are told where there are such; what is
// paid is drawn against the deadlines that are met.
func TestWhatIsAtStake(t *testing.T) {
	run := func(policy string, seed int, met, bought float64, unfinished int) sim.Result {
		return sim.Result{Policy: policy, Seed: seed, Metrics: sim.Metrics{Deadlines: 4, DeadlinesMet: met, CostPerRun: 3, Bought: 4 * bought, BoughtPerRun: bought, Unfinished: unfinished}}
	}
	in := Input{Policies: []string{"p", "q"}, GPUs: 8, Results: []sim.Result{run("p", 1, 0.5, 0, 0), run("q", 1, 0.75, 2, 0), run("p", 2, 0.25, 0, 0), run("q", 2, 1, 4, 1)}}
	dir := t.TempDir()
	if err := Write(dir, in); err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile(filepath.Join(dir, "index.html"))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"<th>deadlines met</th>", "<td>37.5 %</td>", "<td>87.5 %</td>", "<th>bought (pools&#39; currency)</th>", "<td>12.00</td>", "<th>unfinished</th>", "Cost against deadlines", "Bought against deadlines", "95 % confidence"} {
		if !strings.Contains(string(page), want) {
			t.Errorf("the page lacks %q", want)
		}
	}
	data, err := os.ReadFile(filepath.Join(dir, "metrics.csv"))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"q,2,deadlines_met,1\n", "q,2,bought_per_run,4\n", "p,1,jct_p99_bound_s,0\n"} {
		if !strings.Contains(string(data), want) {
			t.Errorf("metrics.csv lacks %q", want)
		}
	}
	for i := range in.Results {
		in.Results[i].Metrics.Deadlines, in.Results[i].Metrics.Bought = 0, 0
	}
	if plots, err := deadlineCosts(in); err != nil || len(plots) > 0 {
		t.Errorf("without deadlines there are %d plots of them, error %v", len(plots), err)
	}
}

// A seed with nobody in the middle half is in no mean of completion times.
func TestEmptyCohort(t *testing.T) {
	in := Input{Policies: []string{"gang", "fifo"}}
	for seed, m := range []sim.Metrics{{Cohort: 1, JCTMean: 60, JCTP99: 60}, {}} {
		in.Results = append(in.Results, sim.Result{Policy: "gang", Seed: seed + 1, Metrics: m}, sim.Result{Policy: "fifo", Seed: seed + 1, Metrics: m})
	}
	if _, rows := table(in); rows[0][4] != "1m0s" {
		t.Errorf("JCT mean %s: want that of the first seed, 1m0s", rows[0][4])
	}
	if _, rows := compared(in); rows[0][2] != "+0.0 %" {
		t.Errorf("difference %s: want that of the first seed, without an interval", rows[0][2])
	}
	in.Results = in.Results[2:]
	if _, rows := table(in); rows[0][4] != "-" {
		t.Errorf("JCT mean %s: want none", rows[0][4])
	}
}

// One seed has no confidence interval.
func TestOneSeedHasNoInterval(t *testing.T) {
	p, q := sim.Metrics{Cohort: 1, JCTMean: 100, UtilisationProductive: 0.5}, sim.Metrics{Cohort: 1, JCTMean: 150, UtilisationProductive: 0.75}
	in := Input{Policies: []string{"p", "q"}, Results: []sim.Result{{Policy: "p", Seed: 1, Metrics: p}, {Policy: "q", Seed: 1, Metrics: q}}}
	if _, rows := compared(in); rows[0][1] != "+25.0 points" || rows[0][2] != "+50.0 %" {
		t.Errorf("the differences of one seed are %q: want +25.0 points and +50.0 %%", rows[0][1:3])
	}
	in.Results = append(in.Results, sim.Result{Policy: "p", Seed: 2, Metrics: p}, sim.Result{Policy: "q", Seed: 2, Metrics: q})
	if _, rows := compared(in); rows[0][1] != "+25.0 points (+25.0 to +25.0)" || rows[0][2] != "+50.0 % (+50.0 to +50.0)" {
		t.Errorf("the differences of two seeds are %q", rows[0][1:3])
	}
}

// Each queue has a row for each policy, the one with most jobs first, and means are
// over the jobs of all seeds.
func TestQueues(t *testing.T) {
	part := func(name string, jobs int, wait, hours float64) sim.Part {
		return sim.Part{Name: name, Jobs: jobs, QueueMean: wait, QueueP95: 2 * wait, JCTMean: 100 * wait, GPUHours: hours, FairnessMean: 0.5}
	}
	in := Input{Policies: []string{"p", "q"}, Results: []sim.Result{
		{Policy: "p", Seed: 1, Metrics: sim.Metrics{Queues: []sim.Part{part("few", 1, 10, 5), part("many", 3, 20, 6)}}},
		{Policy: "q", Seed: 1, Metrics: sim.Metrics{Queues: []sim.Part{part("many", 4, 30, 7)}}},
		{Policy: "p", Seed: 2, Metrics: sim.Metrics{Queues: []sim.Part{part("many", 1, 40, 8)}}},
	}}
	_, rows := queues(in)
	want := []string{"many p 2 7 25s 1m0s 41m40s 0.50", "many q 4 7 30s 1m0s 50m0s 0.50", "few p 1 5 10s 20s 16m40s 0.50"}
	if len(rows) != len(want) {
		t.Fatalf("rows %v: want %d", rows, len(want))
	}
	for i := range rows {
		if got := strings.Join(rows[i], " "); got != want[i] {
			t.Errorf("row %d: %s, want %s", i, got, want[i])
		}
	}
	if _, rows := queueData(in); len(rows) != 4 {
		t.Errorf("%d rows of data: want 4", len(rows))
	}
	if _, rows := queues(Input{Policies: []string{"p"}, Results: []sim.Result{{Policy: "p"}}}); len(rows) != 0 {
		t.Errorf("rows without queues: %v", rows)
	}
}
