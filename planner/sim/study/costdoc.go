package study

import (
	"fmt"

	"github.com/caravan-sched/caravan/planner/sim"
)

// costs is a figure of a row's seeds, in their order.
func (p *Played) costs(row string, of func(*Cost) float64) (out []float64) {
	for i := range p.Costs {
		if p.Costs[i].Row == row && !p.Costs[i].Size {
			out = append(out, of(&p.Costs[i]))
		}
	}
	return out
}

func (p *Played) cost(row string, of func(*Cost) float64) float64 {
	return sim.Of(p.costs(row, of)).Mean
}

// cheaper is by which part a row costs less than a fleet that buys nothing, with its
// interval over the seeds.
func (p *Played) cheaper(row, premises string, ratio float64, busy bool) sim.Interval {
	is, than := p.costs(row, perRun(ratio, busy)), p.costs(premises, perRun(ratio, busy))
	for i := range is {
		is[i] = 1 - is[i]/than[i]
	}
	return sim.Of(is)
}

// saved is by which part spot costs less than on demand alone, of what is bought; it
// is of those seeds in which anything is bought.
func (p *Played) saved() (sim.Interval, int) {
	demand, spot := p.costs(rowDemand, bought), p.costs(rowSpot, bought)
	var out []float64
	for i := range demand {
		if demand[i] > 0 {
			out = append(out, 1-spot[i]/demand[i])
		}
	}
	return sim.Of(out), len(out)
}

func bought(c *Cost) float64 { return c.Bought }

func perRun(ratio float64, busy bool) func(*Cost) float64 {
	return func(c *Cost) float64 { return c.perRun(ratio, busy) }
}

// cheaperWanted is the target at a price ratio of cheaperRatio, with all hours owned.
const cheaperWanted, cheaperRatio = 0.15, 2

// cost shows what deadlines cost with nodes that are bought, and without.
func (p *page) cost(all []Played) {
	cells := kind(all, KindCost)
	if len(cells) == 0 {
		return
	}
	p.say("## Cost and deadlines\n")
	p.say("Each job is to have ended within s times its run time after it was submitted, and at least an\nhour; s is drawn evenly from %g to %g for each job. A bought GPU costs %g, %g or %g times an owned\none for each hour on demand, and spot %g of that; nodes boot for %d minutes, are billed by the\nsecond, and spot ones live for %d hours on average. Decisions are those of the policy named, with the planner's\nown code for purchases, and do not depend on the ratio: there is one pool, and no budget.\nJobs larger than the smaller fleet are left out for all. *On premises only, smallest* is the\nfleet, by whole nodes and by bisection for each seed, that meets as large a part of the deadlines as the\none that buys on demand. Costs are per job, in owned GPU-hours: all that are owned until the\nlast job has ended, or those that jobs had; and what was bought.\n",
		leastSlack, float64(mostSlack), priceRatios[0], priceRatios[1], priceRatios[2], spotPart, int(bootTime.Minutes()), int(spotLife.Hours()))
	for i := range cells {
		p.costCell(&cells[i])
	}
}

func (p *page) costCell(c *Played) {
	p.say("**`%s`, %s, load %g, %s**\n", c.Cell.Policies[0], c.Cell.name(), c.Cell.Load, count(c.Cell.Seeds, "seed"))
	head := []string{"fleet", "owned GPUs", "deadlines met", "wait P95", "bought GPU-h"}
	for _, busy := range []string{"all hours", "busy hours"} {
		for _, ratio := range priceRatios {
			head = append(head, fmt.Sprintf("%s, × %g", busy, ratio))
		}
	}
	rows := [][]string{head}
	for _, row := range costRows {
		line := []string{
			row, whole(c.cost(row, func(x *Cost) float64 { return float64(x.GPUs) })), percent(c.cost(row, func(x *Cost) float64 { return x.Met })),
			span(c.cost(row, func(x *Cost) float64 { return x.QueueP95 })), whole(c.cost(row, bought)),
		}
		for _, busy := range []bool{false, true} {
			for _, r := range priceRatios {
				line = append(line, ratio(c.cost(row, perRun(r, busy))))
			}
		}
		rows = append(rows, line)
	}
	p.table(rows)
	p.bySize(c)
	p.say("*bought GPU-h* is what was paid, counted in hours on demand: an hour of spot is %g.\n", spotPart)
	short := 0
	for i := range c.Costs {
		if c.Costs[i].Short {
			short++
		}
	}
	if short > 0 {
		p.say("In %d of %d seeds no fleet up to %d times the fixed one meets as many deadlines; the row is of the largest.\n", short, c.Cell.Seeds, most)
	}
	p.waits(c)
	p.say("- By busy hours alone nothing that is bought on demand can lower the cost of a run at a ratio of 1 or more, so at %d either: an hour that is bought does at most the work of one that is owned. The bound is 0 %%, with nothing bought.", cheaperRatio)
	for _, row := range []string{rowDemand, rowSpot} {
		d, b := c.cheaper(row, rowPremises, cheaperRatio, false), c.cheaper(row, rowPremises, cheaperRatio, true)
		p.say("- **Cost per run %s lower at a ratio of %d** (%s): %s by all hours owned, %s (%s to %s); by busy hours %s.", percent(cheaperWanted), cheaperRatio, row, judge(d, cheaperWanted, false), percent(d.Mean), percent(d.Low), percent(d.High), percent(b.Mean))
	}
	limit := bootTime.Seconds() + interval
	wait := sim.Of(c.costs(rowDemand, func(x *Cost) float64 { return x.QueueP95 }))
	p.say("- **P95 wait at most boot time and a decision, %s**: %s, %s (%s to %s). Nodes are bought only when a deadline would be missed, so who has time waits.", span(limit), judge(wait, limit, true), span(wait.Mean), span(wait.Low), span(wait.High))
	if saved, n := c.saved(); n > 0 {
		p.say("- **Spot saves %s** (%s to %s) of what on demand alone costs, with %s of the deadlines met against %s. Published for deadlines: 27 to 84 %% (Wu et al., Can't Be Late, NSDI'24), on traces of spot markets with other prices.\n",
			percent(saved.Mean), percent(saved.Low), percent(saved.High), percent(c.cost(rowSpot, func(x *Cost) float64 { return x.Met })), percent(c.cost(rowDemand, func(x *Cost) float64 { return x.Met })))
	} else {
		p.say("- Nothing is bought in any seed, so nothing can be said of spot.\n")
	}
}

// costCells are the comparisons of fleets.
func costCells(quick bool) []Cell {
	c := Cell{ID: KindCost + "-128", Kind: KindCost, Trace: "cluster06", GPUs: 128, Days: 40, Load: headlineLoad, Sigma: 1, Restart: 1, Policies: []string{caravan}, Seeds: 5}
	if quick {
		c.Days, c.Seeds = 15, 2
		return []Cell{c}
	}
	other := c
	other.ID, other.Policies = c.ID+"-no-preempt", []string{staying}
	return []Cell{c, other}
}
