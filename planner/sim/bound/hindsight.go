package bound

import (
	"cmp"
	"math"
	"slices"
)

// A bound says where no schedule comes, and not where one does. So some are played by
// rules that know all run times: GPUs are only counted, any of them are as good as
// others, and who runs is stopped and started again for nothing.

// rule says who goes first: at each time those of the greatest urgency have the GPUs, and
// who needs more than are left is passed.
type rule struct {
	// left is by how much a second of what is left counts, where one of age counts 1: 0 is
	// the order of age, 1 of how long jobs take in all if they run from now on.
	left float64
	// lost: who takes longer than lost times the bound in all, even if he runs from now
	// on, is taken back by wait times the bound.
	lost, wait float64
}

// rules are those that are tried.
func rules() []rule {
	out := []rule{{left: 0}, {left: 0.25}, {left: 0.5}, {left: 2}, {left: 4}}
	for _, lost := range []float64{1, 1.1, 1.2, 1.4, 1.7} {
		for _, wait := range []float64{0.25, 0.5, 1, 2, math.Inf(1)} {
			out = append(out, rule{1, lost, wait})
		}
	}
	return append(out, rule{left: 1})
}

// Rules is how many schedules are tried.
func Rules() int { return len(rules()) }

// steps is in how many parts the bound is divided: who goes first is found anew after
// each, and whenever a job comes or ends.
const steps = 100

// Found is the smallest percentile of the schedules that are tried and keep the
// conditions: at least least, a bound, and at most most, which a schedule has.
func (p *Problem) Found(least, most float64) float64 {
	if !(least > 0) {
		return most
	}
	counted, all := p.chosen(true), p.chosen(false)
	for _, r := range rules() {
		took := p.play(r, least)
		if at := percentile(took, counted, p.Part); at < most && p.keeps(&p.Counted, took, counted) && p.keeps(&p.All, took, all) {
			most = at
		}
	}
	return most
}

// chosen are the numbers of the jobs that count, or of all.
func (p *Problem) chosen(counted bool) (out []int) {
	for i := range p.Jobs {
		if p.Jobs[i].Counted || !counted {
			out = append(out, i)
		}
	}
	return out
}

// percentile is the smallest time that so large a part of some jobs does not exceed.
func percentile(took []float64, of []int, part float64) float64 {
	if len(of) == 0 {
		return 0
	}
	list := make([]float64, len(of))
	for i, at := range of {
		list[i] = took[at]
	}
	slices.Sort(list)
	return list[len(list)-1-late(part, len(list))]
}

// keeps reports whether some jobs that took so long keep limits.
func (p *Problem) keeps(l *Limits, took []float64, of []int) bool {
	for _, limit := range l.Parts {
		if percentile(took, of, limit.Part) > limit.Within {
			return false
		}
	}
	work, weighted := 0.0, 0.0
	for _, at := range of {
		work += p.Jobs[at].work()
		weighted += p.Jobs[at].work() * took[at]
	}
	return l.Weighted == 0 || weighted <= l.Weighted*work
}

// playing is a job that has come and has not ended.
type playing struct {
	at            int
	left, urgency float64
	runs          bool
}

// play is how long each job takes by a rule, where unit is the bound.
func (p *Problem) play(r rule, unit float64) []float64 {
	took := make([]float64, len(p.Jobs))
	order := p.chosen(false)
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(p.Jobs[a].Release, p.Jobs[b].Release) })
	var here []playing
	for next, now := 0, 0.0; next < len(order) || len(here) > 0; {
		if len(here) == 0 {
			now = max(now, p.Jobs[order[next]].Release)
		}
		for ; next < len(order) && p.Jobs[order[next]].Release <= now; next++ {
			here = append(here, playing{at: order[next], left: p.Jobs[order[next]].Shortest})
		}
		until := now + unit/steps
		if next < len(order) {
			until = min(until, p.Jobs[order[next]].Release)
		}
		p.choose(here, r, now, unit)
		for i := range here {
			if here[i].runs {
				until = min(until, now+here[i].left)
			}
		}
		stay := here[:0]
		for _, j := range here {
			// What ends at that moment has nothing left, however it is rounded.
			if j.runs && now+j.left <= until {
				took[j.at] = until - p.Jobs[j.at].Release
				continue
			}
			if j.runs {
				j.left -= until - now
			}
			stay = append(stay, j)
		}
		here, now = stay, until
	}
	return took
}

// choose gives the GPUs out.
func (p *Problem) choose(here []playing, r rule, now, unit float64) {
	for i := range here {
		j := &here[i]
		age := now - p.Jobs[j.at].Release
		j.urgency = age + r.left*j.left
		if r.wait > 0 && age+j.left > r.lost*unit {
			j.urgency -= r.wait * unit
		}
	}
	slices.SortFunc(here, func(a, b playing) int {
		return cmp.Or(cmp.Compare(b.urgency, a.urgency), cmp.Compare(p.Jobs[a.at].Release, p.Jobs[b.at].Release), cmp.Compare(a.at, b.at))
	})
	free := p.GPUs
	for i := range here {
		j := &here[i]
		if j.runs = p.Jobs[j.at].Width <= free; j.runs {
			free -= p.Jobs[j.at].Width
		}
	}
}
