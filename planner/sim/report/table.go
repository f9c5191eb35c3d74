package report

import (
	"fmt"
	"strconv"
	"time"

	"github.com/caravan-sched/caravan/planner/sim"
)

// column is a metric of the tables.
type column struct {
	key, name string
	of        func(*sim.Metrics) float64
	text      func(float64) string
}

func percent(x float64) string { return strconv.FormatFloat(100*x, 'f', 1, 64) + " %" }

func seconds(s float64) string {
	return time.Duration(s * float64(time.Second)).Round(time.Second).String()
}

func whole(x float64) string { return strconv.FormatFloat(x, 'f', 0, 64) }

var columns = []column{
	{"utilisation_allocated", "allocated", func(m *sim.Metrics) float64 { return m.UtilisationAllocated }, percent},
	{"utilisation_productive", "productive", func(m *sim.Metrics) float64 { return m.UtilisationProductive }, percent},
	{"utilisation_bound", "bound", func(m *sim.Metrics) float64 { return m.UtilisationBound }, percent},
	{"jct_mean_s", "JCT mean", func(m *sim.Metrics) float64 { return m.JCTMean }, seconds},
	{"jct_p50_s", "JCT P50", func(m *sim.Metrics) float64 { return m.JCTP50 }, seconds},
	{"jct_p99_s", "JCT P99", func(m *sim.Metrics) float64 { return m.JCTP99 }, seconds},
	{"jct_p999_s", "JCT P99.9", func(m *sim.Metrics) float64 { return m.JCTP999 }, seconds},
	{"jct_max_s", "JCT max", func(m *sim.Metrics) float64 { return m.JCTMax }, seconds},
	{"jct_gpu_weighted_s", "JCT by GPU time", func(m *sim.Metrics) float64 { return m.JCTWeighted }, seconds},
	{"queue_p95_s", "wait P95", func(m *sim.Metrics) float64 { return m.QueueP95 }, seconds},
	{"interactive_start_p95_s", "interactive P95", func(m *sim.Metrics) float64 { return m.InteractiveP95 }, seconds},
	{"free_fillable", "fillable", func(m *sim.Metrics) float64 { return m.FreeFillable }, percent},
	{"free_fragmented", "fragmented", func(m *sim.Metrics) float64 { return m.FreeFragmented }, percent},
	{"free_indivisible", "indivisible", func(m *sim.Metrics) float64 { return m.FreeIndivisible }, percent},
	{"preemptions", "preempted", func(m *sim.Metrics) float64 { return float64(m.Preemptions) }, whole},
	{"gpu_hours_lost", "GPU-hours lost", func(m *sim.Metrics) float64 { return m.GPUHoursLost }, whole},
	{"decide_mean_us", "decision", func(m *sim.Metrics) float64 { return m.DecideMean }, func(x float64) string { return whole(x) + " µs" }},
}

func values(in Input, policy string, of func(*sim.Metrics) float64) []float64 {
	var out []float64
	for i := range in.Results {
		if in.Results[i].Policy == policy {
			out = append(out, of(&in.Results[i].Metrics))
		}
	}
	return out
}

// table has a row for each policy, with the means over the seeds.
func table(in Input) (head []string, rows [][]string) {
	head = []string{"policy"}
	for _, c := range columns {
		head = append(head, c.name)
	}
	for _, policy := range in.Policies {
		row := []string{policy}
		for _, c := range columns {
			row = append(row, c.text(sim.Of(values(in, policy, c.of)).Mean))
		}
		rows = append(rows, row)
	}
	return head, rows
}

// compared says how far the others are from the first policy, seed by seed, with
// 95 % confidence intervals.
func compared(in Input) (head []string, rows [][]string) {
	if len(in.Policies) < 2 {
		return nil, nil
	}
	base := in.Policies[0]
	head = []string{"against " + base}
	shown := []int{1, 3, 5, 6, 7, 8, 9}
	for _, i := range shown {
		head = append(head, columns[i].name)
	}
	for _, policy := range in.Policies[1:] {
		row := []string{policy}
		for _, i := range shown {
			c := columns[i]
			was := sim.Of(values(in, base, c.of)).Mean
			d := sim.Paired(values(in, policy, c.of), values(in, base, c.of))
			if was == 0 {
				row = append(row, "-")
				continue
			}
			row = append(row, fmt.Sprintf("%+.1f %% (%+.1f to %+.1f)", 100*d.Mean/was, 100*d.Low/was, 100*d.High/was))
		}
		rows = append(rows, row)
	}
	return head, rows
}
