package render

import (
	"fmt"
	"io"

	"github.com/caravan-sched/caravan/planner/sim/study"
)

// Studied writes what came of many comparisons: a table for each.
func Studied(w io.Writer, s Style, played []study.Played) error {
	for i := range played {
		p := &played[i]
		if _, err := fmt.Fprintf(w, "%s\n", s.paint(bold, fmt.Sprintf("%s: %d GPUs, %s, load %g, %d seeds", p.Cell.Kind, p.Cell.GPUs, p.Cell.Trace, p.Cell.Load, p.Cell.Seeds))); err != nil {
			return err
		}
		g := newGrid(append([]string{"POLICY"}, heads(columns)...)...)
		for _, policy := range p.Cell.Policies {
			line := []string{policy}
			for _, c := range columns {
				line = append(line, c.mean(p.Results, policy))
			}
			g.add(line...)
		}
		if err := g.write(w, ""); err != nil {
			return err
		}
		if _, err := fmt.Fprintln(w); err != nil {
			return err
		}
	}
	return nil
}

func heads(list []column) []string {
	var out []string
	for _, c := range list {
		out = append(out, c.name)
	}
	return out
}
