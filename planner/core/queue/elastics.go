package queue

import "github.com/caravan-sched/caravan/planner/core/share"

// relativeSpeed is how fast a job is with so many members, at most most, and 1
// with as many as it asks for: that is what its run time is said of. What is not
// known is not counted on: that more members help, or that fewer do better than in
// proportion.
func (e *Entry) relativeSpeed(most int) func(members int) float64 {
	count := max(e.Count, 1)
	if !e.Speed.Known() {
		return func(n int) float64 { return min(float64(n)/float64(count), 1) }
	}
	rates := make([]float64, max(most, count)+1)
	for n := 1; n < len(rates); n++ {
		rate := e.Speed.At(e.Speed.Sized(n, n*e.GPUsPerMember)).Rate
		rates[n] = max(rates[n-1], rate) // nobody has to use all members
	}
	asked := rates[count]
	return func(n int) float64 { return rates[min(max(n, 0), len(rates)-1)] / asked }
}

// spread says how many members elastic gangs that run should have: what lies idle
// beside all that wait goes where it saves most, and what those that wait lack
// comes from where it saved least. Nobody gets less than his standing says.
func spread(s Situation, standings []Standing) {
	idle := s.GPUs
	var growers []share.Grower
	var of []int
	for i := range s.Jobs {
		e := &s.Jobs[i]
		idle -= e.Held
		if !e.Running && e.Waiting {
			idle -= e.Asked
		}
		if !e.Running || !e.elastic() {
			continue
		}
		g := share.Grower{GPUs: e.GPUsPerMember, Members: e.Members, Min: max(1, e.Min), Max: max(e.Max, e.Members)}
		if need := standings[i].Members; need > g.Members {
			idle -= (need - g.Members) * g.GPUs
			g.Members = need
		}
		g.Min = min(max(g.Min, standings[i].Members), g.Members)
		g.Speed = e.relativeSpeed(g.Max)
		growers, of = append(growers, g), append(of, i)
	}
	members, _ := share.Spread(idle, growers)
	for k, i := range of {
		standings[i].Members = members[k]
	}
}
