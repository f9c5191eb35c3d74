package study

import (
	"fmt"
	"strings"

	"gonum.org/v1/plot/plotter"

	"github.com/caravan-sched/caravan/planner/sim/report"
)

// plot is one plot of the document.
type plot struct {
	file, title string
	svg         []byte
}

// draw draws all plots.
func draw(all []Played) ([]plot, error) {
	var out []plot
	add := func(file, title, x, y string, logX bool, lines []report.Line) error {
		if len(lines) == 0 {
			return nil
		}
		svg, err := report.Chart(x, y, logX, lines)
		if err != nil {
			return fmt.Errorf("draw %s: %w", file, err)
		}
		if !strings.Contains(string(svg[:200]), "xmlns=") {
			svg = []byte(strings.Replace(string(svg), "<svg", `<svg xmlns="http://www.w3.org/2000/svg"`, 1))
		}
		out = append(out, plot{file, title, svg})
		return nil
	}
	for _, c := range all {
		if !c.Cell.Curves {
			continue
		}
		id := strings.TrimPrefix(c.Cell.ID, KindHeadline+"-")
		if err := add("jct-"+id+".svg", "Completion times, "+c.Cell.name()+": the part of the cohort that is done within a time (first seed).", "hours from submission", "part of jobs", true, c.lines(jctLine)); err != nil {
			return nil, err
		}
		if err := add("stranded-"+id+".svg", "Stranded GPUs over time, "+c.Cell.name()+" (first seed).", "days", "part of all", false, c.lines(strandedLine)); err != nil {
			return nil, err
		}
	}
	load := kind(all, KindLoad)
	for _, key := range []string{"utilisation_productive", "jct_mean_s", "jct_p99_s"} {
		if err := add("load-"+strings.TrimSuffix(key, "_s")+".svg", figureOf(key).name+" by load.", "load", unit(key), false, byLoad(load, key)); err != nil {
			return nil, err
		}
	}
	return out, nil
}

func unit(key string) string {
	if strings.HasSuffix(key, "_s") {
		return "hours"
	}
	return "part of all"
}

// lines are of the cell's policies, the first seed.
func (p *Played) lines(of func(*Curves) plotter.XYs) []report.Line {
	var out []report.Line
	for _, policy := range p.Cell.Policies {
		if c, there := p.Curves[policy]; there {
			out = append(out, report.Line{Name: policy, XY: of(&c)})
		}
	}
	return out
}

func jctLine(c *Curves) plotter.XYs {
	var out plotter.XYs
	for i, x := range c.JCT {
		out = append(out, plotter.XY{X: x, Y: float64(i+1) / float64(len(c.JCT))})
	}
	return out
}

func strandedLine(c *Curves) plotter.XYs {
	var out plotter.XYs
	for i := range c.Day {
		out = append(out, plotter.XY{X: c.Day[i], Y: c.Stranded[i]})
	}
	return out
}

// byLoad has a line for each policy, and for the bound where there is one.
func byLoad(cells []Played, key string) []report.Line {
	if len(cells) == 0 {
		return nil
	}
	scale := 1.0
	if unit(key) == "hours" {
		scale = 3600
	}
	var out []report.Line
	for _, policy := range cells[0].Cell.Policies {
		l := report.Line{Name: policy}
		for i := range cells {
			l.XY = append(l.XY, plotter.XY{X: cells[i].Cell.Load, Y: cells[i].mean(policy, key) / scale})
		}
		out = append(out, l)
	}
	l := report.Line{Name: "bound"}
	for i := range cells {
		l.XY = append(l.XY, plotter.XY{X: cells[i].Cell.Load, Y: cells[i].mean(cells[0].Cell.Policies[0], boundOf[key]) / scale})
	}
	return append(out, l)
}
