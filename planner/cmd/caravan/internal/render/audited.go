package render

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"

	"github.com/caravan-sched/caravan/planner/sim/audit"
)

// Audited writes what a check of a simulation's events has found.
func Audited(w io.Writer, s Style, r *audit.Report, differences []audit.Difference, compared bool) error {
	g := newGrid()
	g.add("Events", fmt.Sprintf("%d, of %.0f jobs", r.Events, r.Metrics["jobs"]))
	g.add("Work", fmt.Sprintf("%.3f GPU-hours done: %.3f submitted, %.3f lost, %.3f left", r.Done, r.Submitted, r.Lost, r.Left))
	if n := r.Noise; n != nil {
		g.add("Estimates", fmt.Sprintf("of %s: the logarithm of their error is %.3f on average, σ = %.3f", count(n.Jobs, "job"), n.Mean, n.Sigma))
	}
	if r.FaultCount == 0 {
		g.add("Faults", s.paint(green, "none"))
	} else {
		g.add("Faults", s.paint(red, strconv.Itoa(r.FaultCount)))
	}
	switch {
	case !compared:
	case len(differences) == 0:
		g.add("Results", s.paint(green, "every metric is what the events say"))
	default:
		g.add("Results", s.paint(red, count(len(differences), "metric")+" not what the events say"))
	}
	if err := g.write(w, ""); err != nil {
		return err
	}
	for _, fault := range r.Faults {
		if _, err := fmt.Fprintln(w, fault); err != nil {
			return err
		}
	}
	metrics := newGrid("METRIC", "FROM THE EVENTS")
	for _, name := range slices.Sorted(maps.Keys(r.Metrics)) {
		metrics.add(name, strconv.FormatFloat(r.Metrics[name], 'g', 8, 64))
	}
	if _, err := fmt.Fprintln(w); err != nil {
		return err
	}
	if err := metrics.write(w, ""); err != nil || len(differences) == 0 {
		return err
	}
	others := newGrid("METRIC", "SAID", "FROM THE EVENTS")
	for _, d := range differences {
		others.add(s.paint(red, d.Metric), strconv.FormatFloat(d.Said, 'g', 8, 64), strconv.FormatFloat(d.Found, 'g', 8, 64))
	}
	if _, err := fmt.Fprintln(w); err != nil {
		return err
	}
	return others.write(w, "")
}
