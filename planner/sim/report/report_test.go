package report

import (
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
	for name, want := range map[string]int{"metrics.csv": 1 + 4*len(columns), "jobs.csv": 1 + len(results[0].Outcome.Done()) + len(results[1].Outcome.Done()), "time.csv": 1 + len(results[0].Outcome.Samples()) + len(results[1].Outcome.Samples())} {
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
