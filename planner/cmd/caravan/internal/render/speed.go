package render

import (
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/caravan-sched/caravan/internal/budget"
)

// Speed writes what decisions cost beside what they may. What costs more than
// its budget is marked; the budget is the reference machine's.
func (s Style) Speed(w io.Writer, r *budget.Report) error {
	g := newGrid("CASE", "MEDIAN", "LEAST", "CPU", "BUDGET", "RATIO")
	for i := range r.Cases {
		c := &r.Cases[i]
		limit, ratio := "-", "-"
		if c.BudgetMS > 0 {
			limit, ratio = millis(c.BudgetMS), strconv.FormatFloat(c.Ratio, 'f', 2, 64)
			if c.Ratio > 1 {
				ratio = s.paint(red, ratio)
			}
		}
		g.add(c.Name, millis(c.MedianMS), millis(c.LeastMS), millis(c.CPUMS), limit, ratio)
	}
	if _, err := fmt.Fprintf(w, "%d CPUs, %s, %s; medians of %d\n\n", r.Machine.CPUs, r.Machine.Arch, r.Machine.Go, r.Reps); err != nil {
		return err
	}
	if err := g.write(w, ""); err != nil || len(r.Growth) == 0 {
		return err
	}
	g = newGrid("GROWTH OF THE CPU TIME OF", "AGAINST", "EXPONENT", "POINTS")
	for _, grown := range r.Growth {
		points := make([]string, len(grown.Points))
		for i, p := range grown.Points {
			points[i] = fmt.Sprintf("%d: %s", p.Size, millis(p.CPUMS))
		}
		g.add(grown.What, grown.Against, strconv.FormatFloat(grown.Exponent, 'f', 2, 64), strings.Join(points, ", "))
	}
	if _, err := fmt.Fprintln(w); err != nil {
		return err
	}
	if err := g.write(w, ""); err != nil {
		return err
	}
	_, err := fmt.Fprintf(w, "\n%d nodes, ready for decisions, take %.0f MiB (%.1f KiB a node) of at most %.0f MiB\n", r.Memory.Nodes, r.Memory.MiB, r.Memory.BytesPerNode/1024, r.Memory.BudgetMiB)
	return err
}

// millis is a time in milliseconds, with three digits that count.
func millis(ms float64) string { return strconv.FormatFloat(ms, 'g', 3, 64) + " ms" }
