package report

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
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

func tenth(x float64) string { return strconv.FormatFloat(x, 'f', 1, 64) }

func hundredth(x float64) string { return strconv.FormatFloat(x, 'f', 2, 64) }

func whole(x float64) string { return strconv.FormatFloat(x, 'f', 0, 64) }

var columns = []column{
	{"utilisation_allocated", "allocated", func(m *sim.Metrics) float64 { return m.UtilisationAllocated }, percent},
	{"utilisation_productive", "productive", func(m *sim.Metrics) float64 { return m.UtilisationProductive }, percent},
	{"utilisation_bound", "bound", func(m *sim.Metrics) float64 { return m.UtilisationBound }, percent},
	{"jct_mean_s", "JCT mean", sim.OfCohort(func(m *sim.Metrics) float64 { return m.JCTMean }), seconds},
	{"jct_p50_s", "JCT P50", sim.OfCohort(func(m *sim.Metrics) float64 { return m.JCTP50 }), seconds},
	{"jct_p99_s", "JCT P99", sim.OfCohort(func(m *sim.Metrics) float64 { return m.JCTP99 }), seconds},
	{"jct_p999_s", "JCT P99.9", sim.OfCohort(func(m *sim.Metrics) float64 { return m.JCTP999 }), seconds},
	{"jct_max_s", "JCT max", sim.OfCohort(func(m *sim.Metrics) float64 { return m.JCTMax }), seconds},
	{"jct_gpu_weighted_s", "JCT by GPU time", sim.OfCohort(func(m *sim.Metrics) float64 { return m.JCTWeighted }), seconds},
	{"queue_p95_s", "wait P95", sim.OfCohort(func(m *sim.Metrics) float64 { return m.QueueP95 }), seconds},
	{"interactive_start_p95_s", "interactive P95", sim.Among(func(m *sim.Metrics) int { return m.Interactive }, func(m *sim.Metrics) float64 { return m.InteractiveP95 }), seconds},
	{"free_fillable", "fillable", func(m *sim.Metrics) float64 { return m.FreeFillable }, percent},
	{"free_fragmented", "fragmented", func(m *sim.Metrics) float64 { return m.FreeFragmented }, percent},
	{"free_indivisible", "indivisible", func(m *sim.Metrics) float64 { return m.FreeIndivisible }, percent},
	{"cost_per_run", "GPU-hours paid per job", func(m *sim.Metrics) float64 { return m.CostPerRun }, tenth},
	{"finish_time_fairness_mean", "fairness ρ", sim.OfCohort(func(m *sim.Metrics) float64 { return m.FairnessMean }), hundredth},
	{"preemptions", "preempted", func(m *sim.Metrics) float64 { return float64(m.Preemptions) }, whole},
	{"gpu_hours_lost", "GPU-hours lost", func(m *sim.Metrics) float64 { return m.GPUHoursLost }, whole},
	{"decide_mean_us", "decision", func(m *sim.Metrics) float64 { return m.DecideMean }, func(x float64) string { return whole(x) + " µs" }},
}

// atStake are the columns that count where there is something of the kind.
var atStake = []struct {
	column
	there func(*sim.Metrics) bool
}{
	{column{"free_parts", "free parts", func(m *sim.Metrics) float64 { return m.FreeParts }, percent}, func(m *sim.Metrics) bool { return m.FreeParts > 0 }},
	{column{"deadlines_met", "deadlines met", sim.Among(func(m *sim.Metrics) int { return m.Deadlines }, func(m *sim.Metrics) float64 { return m.DeadlinesMet }), percent}, func(m *sim.Metrics) bool { return m.Deadlines > 0 }},
	{column{"bought", "bought (pools' currency)", func(m *sim.Metrics) float64 { return m.Bought }, hundredth}, func(m *sim.Metrics) bool { return m.Bought > 0 }},
	{column{"unfinished", "unfinished", func(m *sim.Metrics) float64 { return float64(m.Unfinished) }, whole}, func(m *sim.Metrics) bool { return m.Unfinished > 0 }},
}

// shown are the columns of the table of these results.
func shown(in Input) []column {
	out := slices.Clone(columns)
	for _, c := range atStake {
		if slices.ContainsFunc(in.Results, func(r sim.Result) bool { return c.there(&r.Metrics) }) {
			out = append(out, c.column)
		}
	}
	return out
}

// mean is the metric's mean over the seeds in which there is one.
func (c column) mean(in Input, policy string) string {
	list := sim.Known(in.Results, policy, c.of)
	if len(list) == 0 {
		return "-"
	}
	return c.text(sim.Of(list).Mean)
}

// table has a row for each policy, with the means over the seeds.
func table(in Input) (head []string, rows [][]string) {
	head = []string{"policy"}
	list := shown(in)
	for _, c := range list {
		head = append(head, c.name)
	}
	for _, policy := range in.Policies {
		row := []string{policy}
		for _, c := range list {
			row = append(row, c.mean(in, policy))
		}
		rows = append(rows, row)
	}
	return head, rows
}

// compared says how far the others are from the first policy, seed by seed, with
// 95 % confidence intervals where there are several seeds.
func compared(in Input) (head []string, rows [][]string) {
	if len(in.Policies) < 2 {
		return nil, nil
	}
	base := in.Policies[0]
	head = []string{"against " + base}
	which := []int{1, 3, 5, 6, 7, 8, 9}
	for _, i := range which {
		head = append(head, columns[i].name)
	}
	for _, policy := range in.Policies[1:] {
		row := []string{policy}
		for _, i := range which {
			c := columns[i]
			was, unit := sim.Of(sim.Known(in.Results, base, c.of)).Mean, "%"
			if c.key == "utilisation_productive" { // a part itself, so its difference is one of parts
				was, unit = 1, "points"
			}
			all := sim.Known(in.Results, policy, c.of)
			d := sim.Paired(all, sim.Known(in.Results, base, c.of))
			switch {
			case was == 0:
				row = append(row, "-")
				continue
			case len(all) < 2:
				row = append(row, fmt.Sprintf("%+.1f %s", 100*d.Mean/was, unit))
				continue
			}
			row = append(row, fmt.Sprintf("%+.1f %s (%+.1f to %+.1f)", 100*d.Mean/was, unit, 100*d.Low/was, 100*d.High/was))
		}
		rows = append(rows, row)
	}
	return head, rows
}

// metricData has all metrics of all runs, in the order and by the names of the JSON.
func metricData(in Input) (rows [][]string, err error) {
	for i := range in.Results {
		r := &in.Results[i]
		text, err := json.Marshal(&r.Metrics)
		if err != nil {
			return nil, fmt.Errorf("write metrics.csv: %w", err)
		}
		d := json.NewDecoder(bytes.NewReader(text))
		if _, err := d.Token(); err != nil {
			return nil, fmt.Errorf("write metrics.csv: %w", err)
		}
		for d.More() {
			key, err := d.Token()
			if err != nil {
				return nil, fmt.Errorf("write metrics.csv: %w", err)
			}
			var value any
			if err := d.Decode(&value); err != nil {
				return nil, fmt.Errorf("write metrics.csv: %w", err)
			}
			if x, is := value.(float64); is { // by_size and by_queue have files of their own
				rows = append(rows, []string{r.Policy, strconv.Itoa(r.Seed), fmt.Sprint(key), number(x)})
			}
		}
	}
	return rows, nil
}

// sizeData are the size classes of each seed, as CSV.
func sizeData(in Input) (header []string, rows [][]string) {
	for i := range in.Results {
		r := &in.Results[i]
		for _, p := range r.Metrics.Sizes {
			rows = append(rows, []string{r.Policy, strconv.Itoa(r.Seed), p.Name, strconv.Itoa(p.Jobs), number(p.JCTMean), number(p.JCTP99), number(p.QueueP95)})
		}
	}
	return []string{"policy", "seed", "gpus", "jobs", "jct_mean_s", "jct_p99_s", "queue_p95_s"}, rows
}
