package render

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/caravan-sched/caravan/planner/sim"
	"github.com/caravan-sched/caravan/planner/sim/trace"
)

// column is a metric of the table that compares policies.
type column struct {
	name string
	of   func(*sim.Metrics) float64
	text func(float64) string
}

func percent(x float64) string { return strconv.FormatFloat(100*x, 'f', 1, 64) + " %" }

func seconds(s float64) string {
	return time.Duration(s * float64(time.Second)).Round(time.Second).String()
}

var columns = []column{
	{"UTILISATION", func(m *sim.Metrics) float64 { return m.UtilisationProductive }, percent},
	{"BOUND", func(m *sim.Metrics) float64 { return m.UtilisationBound }, percent},
	{"JCT MEAN", sim.OfCohort(func(m *sim.Metrics) float64 { return m.JCTMean }), seconds},
	{"JCT P99", sim.OfCohort(func(m *sim.Metrics) float64 { return m.JCTP99 }), seconds},
	{"JCT MAX", sim.OfCohort(func(m *sim.Metrics) float64 { return m.JCTMax }), seconds},
	{"QUEUE P95", sim.OfCohort(func(m *sim.Metrics) float64 { return m.QueueP95 }), seconds},
	{"STRANDED", func(m *sim.Metrics) float64 { return m.FreeFillable + m.FreeFragmented }, percent},
	{"PREEMPTED", func(m *sim.Metrics) float64 { return float64(m.Preemptions) }, func(x float64) string { return strconv.FormatFloat(x, 'f', 0, 64) }},
	{"DECISION", func(m *sim.Metrics) float64 { return m.DecideMean }, func(x float64) string { return strconv.FormatFloat(x, 'f', 0, 64) + " µs" }},
}

// atStake are the columns that count where there is something of the kind: deadlines,
// and nodes that were bought, in the pools' currency.
var atStake = []struct {
	column
	there func(*sim.Metrics) bool
}{
	{column{"DEADLINES MET", sim.Among(func(m *sim.Metrics) int { return m.Deadlines }, func(m *sim.Metrics) float64 { return m.DeadlinesMet }), percent}, func(m *sim.Metrics) bool { return m.Deadlines > 0 }},
	{column{"BOUGHT", func(m *sim.Metrics) float64 { return m.Bought }, func(x float64) string { return strconv.FormatFloat(x, 'f', 2, 64) }}, func(m *sim.Metrics) bool { return m.Bought > 0 }},
}

// Simulated compares policies: a line for each, with the means over the seeds,
// and how far the first of them is away, with its 95 % confidence interval.
func Simulated(w io.Writer, s Style, policies []string, results []sim.Result) error {
	head, shown := []string{"POLICY"}, slices.Clone(columns)
	for _, c := range atStake {
		if slices.ContainsFunc(results, func(r sim.Result) bool { return c.there(&r.Metrics) }) {
			shown = append(shown, c.column)
		}
	}
	for _, c := range shown {
		head = append(head, c.name)
	}
	g := newGrid(head...)
	for _, policy := range policies {
		line := []string{s.paint(bold, policy)}
		for _, c := range shown {
			line = append(line, c.mean(results, policy))
		}
		g.add(line...)
	}
	if err := g.write(w, ""); err != nil || len(policies) < 2 {
		return err
	}
	first := policies[0]
	against := newGrid("AGAINST "+first, "JCT MEAN", "JCT P99", "UTILISATION")
	for _, policy := range policies[1:] {
		against.add(policy, relative(results, policy, first, columns[2].of), relative(results, policy, first, columns[3].of), difference(results, policy, first, columns[0].of))
	}
	if _, err := fmt.Fprintln(w); err != nil {
		return err
	}
	return against.write(w, "")
}

// mean is the metric's mean over the seeds in which there is one.
func (c column) mean(results []sim.Result, policy string) string {
	list := sim.Known(results, policy, c.of)
	if len(list) == 0 {
		return "-"
	}
	return c.text(sim.Of(list).Mean)
}

// Omitted says below a table what of the trace was not played.
func Omitted(w io.Writer, s Style, lines []string) error {
	for i, line := range lines {
		before := ""
		if i == 0 {
			before = "\n"
		}
		if _, err := fmt.Fprintf(w, "%s%s %s\n", before, s.paint(red, "Not played:"), line); err != nil {
			return err
		}
	}
	return nil
}

// relative is the mean difference by the mean of the other policy, seed by seed.
func relative(results []sim.Result, policy, other string, of func(*sim.Metrics) float64) string {
	a, b := sim.Known(results, policy, of), sim.Known(results, other, of)
	base := sim.Of(b).Mean
	if base == 0 {
		return "-"
	}
	d := sim.Paired(a, b)
	if len(a) < 2 {
		return fmt.Sprintf("%+.1f %%", 100*d.Mean/base) // one seed has no interval
	}
	return fmt.Sprintf("%+.1f %% (%+.1f to %+.1f)", 100*d.Mean/base, 100*d.Low/base, 100*d.High/base)
}

func difference(results []sim.Result, policy, other string, of func(*sim.Metrics) float64) string {
	a := sim.Known(results, policy, of)
	d := sim.Paired(a, sim.Known(results, other, of))
	if len(a) < 2 {
		return fmt.Sprintf("%+.1f points", 100*d.Mean)
	}
	return fmt.Sprintf("%+.1f points (%+.1f to %+.1f)", 100*d.Mean, 100*d.Low, 100*d.High)
}

// Trace sums a trace up.
func Trace(w io.Writer, s Style, t trace.Summary, rep trace.Report) error {
	g := newGrid()
	g.add("Jobs", fmt.Sprintf("%d in %.1f days, of %d rows", t.Jobs, t.Days, rep.Rows))
	g.add("GPU time", fmt.Sprintf("%.0f GPU-hours, %.1f GPUs on average", t.GPUHours, t.MeanGPUs))
	g.add("Run times", fmt.Sprintf("%s mean, %s median, %s P99", seconds(t.DurationMean), seconds(t.DurationP50), seconds(t.DurationP99)))
	g.add("Queues", strconv.Itoa(t.Queues))
	g.add("Elastic", count(t.Elastic, "job"))
	g.add("Deadlines", count(t.Deadlines, "job"))
	if rep.Broken > 0 {
		g.add(s.paint(red, "Broken"), fmt.Sprintf("%d rows; the first is %s", rep.Broken, rep.First))
	}
	for _, why := range slices.Sorted(maps.Keys(rep.Left)) {
		g.add("Left out", fmt.Sprintf("%d rows: %s", rep.Left[why], why))
	}
	if rep.FirstLeft != "" {
		g.add("", "the first is "+rep.FirstLeft)
	}
	if err := g.write(w, ""); err != nil {
		return err
	}
	sizes := newGrid("GPUS", "JOBS", "OF ALL", "GPU TIME")
	for _, size := range t.Sizes {
		sizes.add(strconv.Itoa(size.GPUs), strconv.Itoa(size.Jobs), percent(float64(size.Jobs)/float64(t.Jobs)), percent(size.GPUHours/t.GPUHours))
	}
	if _, err := fmt.Fprintln(w); err != nil {
		return err
	}
	return sizes.write(w, "")
}
