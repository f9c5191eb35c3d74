package study

import (
	"fmt"
	"slices"

	"github.com/caravan-sched/caravan/planner/sim"
)

// soonWithin is within what time 95 % of the interactive jobs are to start, in seconds.
const soonWithin = 60

// usefulPart is the part of what no schedule exceeds that is to be productive.
const usefulPart = 0.97

// Soon is what it takes that interactive jobs start soon, in one seed, and which part
// of them does so by each policy.
type Soon struct {
	sim.Soon
	Started map[string]float64 `json:"started_in_time"`
}

// soon finds that out for each seed.
func soon(results []sim.Result) (out []Soon) {
	for i := range results {
		r := &results[i]
		for len(out) < r.Seed {
			out = append(out, Soon{Started: map[string]float64{}})
		}
		one := &out[r.Seed-1]
		if one.Started[r.Policy] = r.Outcome.StartedWithin(soonWithin); r.Policy == backfill {
			one.Soon = r.Outcome.Soon(soonWithin)
		}
	}
	return out
}

// ofSoon is one of its figures over the seeds.
func (p *Played) ofSoon(of func(*Soon) float64) sim.Interval {
	var list []float64
	for i := range p.Soon {
		list = append(list, of(&p.Soon[i]))
	}
	return sim.Of(list)
}

// partOfBound is one of its utilisations by the one that no schedule exceeds.
func (p *Played) partOfBound(of func(*Soon) float64) sim.Interval {
	bounds, i := p.values(backfill, "utilisation_bound"), -1
	return p.ofSoon(func(s *Soon) float64 { i++; return of(s) / bounds[i] })
}

func kept(s *Soon) float64       { return s.Kept }
func planned(s *Soon) float64    { return s.Planned }
func plannedP95(s *Soon) float64 { return s.PlannedP95 }

// interactive shows how many GPUs have to be kept from others so that interactive jobs
// start soon where nobody is stopped, and what that costs.
func (p *page) interactive(all []Played) {
	cells := slices.DeleteFunc(append(kind(all, KindHeadline, KindTraces), fullLoad(all)...), func(c Played) bool { return len(c.Soon) == 0 })
	if len(cells) == 0 {
		return
	}
	p.say("### Interactive jobs where nobody is stopped\n")
	p.say(`Interactive jobs come many at a time. *At once* is on how many GPUs those of the cohort run at
some moment in every schedule that starts 95 %% of them within %d s and stops nobody, whoever decides,
whatever he knows, and whichever the late ones are. Who does not know when they come has to keep so
many from all others, all the time: *at most, with these kept* is the utilisation that no such
schedule exceeds. Who knows need not: *planned* knows all run times and all that will come, has each
interactive job start when it comes, and puts all others around these by age; GPUs are only counted. How they
are derived is in [the simulator's page](simulator.md#interactive-jobs-that-start-at-once).
`, soonWithin)
	rows := [][]string{{"comparison", "load", "interactive jobs", "GPUs in use on average", "at once", "of all GPUs", "at most, with these kept", "of the bound", "planned: P95", "of the bound"}}
	shown := append([]string{backfill}, ours...)
	for _, policy := range shown {
		rows[0] = append(rows[0], "in time: "+policy)
	}
	for i := range cells {
		c := &cells[i]
		atOnce := c.ofSoon(func(s *Soon) float64 { return float64(s.AtOnce) }).Mean
		row := []string{
			c.Cell.name(), fmt.Sprint(c.Cell.Load), whole(c.ofSoon(func(s *Soon) float64 { return float64(s.Jobs) }).Mean),
			fmt.Sprintf("%.1f", c.ofSoon(func(s *Soon) float64 { return s.Used }).Mean), whole(atOnce), percent(atOnce / float64(c.Cell.GPUs)),
			percent(c.ofSoon(kept).Mean), ratio(c.partOfBound(kept).Mean), span(c.ofSoon(plannedP95).Mean), ratio(c.partOfBound(planned).Mean),
		}
		for _, policy := range shown {
			row = append(row, percent(c.ofSoon(func(s *Soon) float64 { return s.Started[policy] }).Mean))
		}
		rows = append(rows, row)
	}
	p.table(rows)
	for _, c := range fullLoad(cells) {
		p.fullySoon(&c, all)
	}
}

// fullySoon says of a comparison at a load of 1 whether interactive jobs can start soon
// where nobody is stopped.
func (p *page) fullySoon(c *Played, all []Played) {
	with, atOnce := c.partOfBound(kept), c.ofSoon(func(s *Soon) float64 { return float64(s.AtOnce) })
	verdict := "so both may be had together by keeping GPUs"
	switch judge(with, usefulPart, false) {
	case notReached:
		verdict = "so both are not to be had together by keeping GPUs"
	case undecided:
		verdict = "so whether both are to be had together by keeping GPUs depends on the days"
	}
	p.say("At a load of 1 (%s) %.0f GPUs (%.0f to %.0f; %s) are needed at once for jobs that use %.1f on average. With so many\nkept at most %s (%s to %s) of the bound is productive, where %g is wanted: %s.",
		c.Cell.name(), atOnce.Mean, atOnce.Low, atOnce.High, count(len(c.Soon), "seed"), c.ofSoon(func(s *Soon) float64 { return s.Used }).Mean,
		ratio(with.Mean), ratio(with.Low), ratio(with.High), usefulPart, verdict)
	if at := c.ofSoon(plannedP95).Mean; at <= soonWithin {
		p.say("Planned, P95 is %s at %s of the bound, so it is not for want of stopping anybody that\n`%s` does not reach it, but for want of knowing when they come.", span(at), ratio(c.partOfBound(planned).Mean), staying)
	}
	p.say("`%s` starts %s of them in time, and `%s`, which stops others, %s.", staying, percent(c.ofSoon(func(s *Soon) float64 { return s.Started[staying] }).Mean), caravan, percent(c.ofSoon(func(s *Soon) float64 { return s.Started[caravan] }).Mean))
	for _, other := range kind(all, KindInteractive) {
		for _, policy := range []string{reserving, reservingMost} {
			if slices.Contains(other.Cell.Policies, policy) {
				p.say("Played, `%s` comes to %s with %s productive.", policy, span(other.mean(policy, "interactive_start_p95_s")), percent(other.mean(policy, "utilisation_productive")))
			}
		}
	}
	p.say("")
}
