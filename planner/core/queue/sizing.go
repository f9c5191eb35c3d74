package queue

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/core/speed"
)

// What goodput and marginal have in common: they choose how large elastic gangs
// should be by what is known of their speed. Gangs that run keep their least size
// in any case; those that wait get theirs in the order, as far as the GPUs go;
// what is left is apportioned by worth. Nobody is displaced.

// leastReturn is what a member of an elastic gang must add at least, as a part of
// what one adds in the smallest gang: GPUs that do less are better left idle, for
// whoever comes next (Or et al., Resource Elasticity in Distributed Deep Learning,
// MLSys 2020: workers are added while their marginal gain is above a
// threshold).
const leastReturn = 0.1

// gangSize is an elastic gang whose size is to be chosen.
type gangSize struct {
	e *Entry
	// rates are its speeds by the sizes of the claim.
	rates []float64
	claim claim
	// fast is the speed that its time is told by: that of its present size, or
	// that of the size it asks for.
	fast float64
	// left is how long it may still run at that speed, and change how long it
	// does not work when its size changes, 0 if it does not run; in seconds.
	left, change float64
}

// elastic reports whether a job's size can be chosen.
func (e *Entry) elastic() bool { return e.Max > 0 && e.GPUsPerMember > 0 }

// gangSizeOf looks at the sizes that a gang may have, and of these at those whose
// members each add enough.
func gangSizeOf(e *Entry, p Policy, gpus int) *gangSize {
	least := max(e.Min, 1)
	// Of what is far beyond the sizes known nothing is known: a gang at most
	// doubles at a time (as in Pollux, section 4).
	known := max(e.Speed.Explored(), e.Members, e.Count)
	most := max(min(e.Max, gpus/e.GPUsPerMember, 2*known), least)
	g := &gangSize{e: e, claim: claim{each: e.GPUsPerMember, sizes: sizesOf(least, most, e.Members, e.Count)}}
	rate := func(n int) float64 { return e.Speed.Goodput(e.Speed.Sized(n, n*e.GPUsPerMember)).Rate }
	g.rates = make([]float64, len(g.claim.sizes))
	for k, n := range g.claim.sizes {
		g.rates[k] = rate(n)
	}
	g.useful()
	g.fast, g.left = rate(max(e.Count, 1)), e.Left.Left.Seconds()
	if e.Running {
		g.fast = rate(e.Members)
		if !e.Left.Known {
			g.left = e.Turn.Seconds() // as long again as it has run
		}
		g.change = changeSeconds(e.Job, p)
	}
	if !e.Left.Known && g.left < 1 {
		g.left = time.Hour.Seconds()
	}
	return g
}

// useful cuts off the sizes from which on a member adds too little.
func (g *gangSize) useful() {
	c := claim{each: 1, sizes: g.claim.sizes, worth: g.rates}
	c.hull()
	last, enough := 0, leastReturn*g.rates[0]/float64(c.sizes[0])
	for _, s := range c.steps {
		if s.slope < enough {
			break
		}
		last = s.at
	}
	g.claim.sizes, g.rates = c.sizes[:last+1], g.rates[:last+1]
}

// changeSeconds is how long a gang's members do no work, and what they have to do
// again, when its size changes.
func changeSeconds(j *model.Job, p Policy) float64 {
	out := p.Preempt.WithDefaults().RestartTime.Seconds()
	if j.ResizeRestarts && j.Preempt != model.PreemptAlways {
		lost := int64(0)
		for i := range j.Members {
			if since := j.Members[i].SinceCheckpoint; since != nil {
				lost = max(lost, *since)
			}
		}
		out += float64(lost)
	}
	return out
}

// seconds is how long the gang still takes with its k-th size.
func (g *gangSize) seconds(k int) float64 {
	out := g.left * g.fast / g.rates[k]
	if g.e.Running && g.claim.sizes[k] != g.e.Members {
		out += g.change
	}
	return out
}

// sizer is a discipline that chooses sizes.
type sizer struct {
	policy Policy
	// worth is what a size of a gang is worth, among so many jobs.
	worth func(g *gangSize, k int, s *Situation) float64
	// key is the order of those that wait, lower first.
	key func(*Entry) float64
	// told says the key of one that waits, nil if it is the same for all.
	told func(*Entry) string
}

// Stand implements Discipline.
func (z sizer) Stand(s Situation) []Standing {
	out := make([]Standing, len(s.Jobs))
	var gangs []*gangSize
	var at []int // of the gangs among the jobs
	left := s.GPUs
	take := func(i int) {
		e := &s.Jobs[i]
		if !e.elastic() {
			left -= max(e.Held, e.Asked)
			return
		}
		g := gangSizeOf(e, z.policy, s.GPUs)
		left -= g.claim.sizes[0] * e.GPUsPerMember
		gangs, at = append(gangs, g), append(at, i)
	}
	for _, i := range z.inOrder(s.Jobs) {
		e := &s.Jobs[i]
		out[i].Key = z.key(e)
		if z.told != nil && !e.Running {
			out[i].Why = z.told(e)
		}
		least := e.Asked
		if e.elastic() {
			least, out[i].Members = max(e.Min, 1)*e.GPUsPerMember, max(e.Min, 1)
		}
		if e.Running || least <= left {
			take(i)
		}
	}
	claims := make([]claim, len(gangs))
	for i, g := range gangs {
		g.claim.worth = make([]float64, len(g.rates))
		for k := range g.rates {
			g.claim.worth[k] = z.worth(g, k, &s)
		}
		claims[i] = g.claim
		left += g.claim.sizes[0] * g.e.GPUsPerMember
	}
	sizes, _ := apportion(left, claims)
	for i, k := range sizes {
		out[at[i]].Members, out[at[i]].Why = gangs[i].claim.sizes[k], gangs[i].why(k)
	}
	return out
}

// inOrder are those that run, and then those that wait, by priority, key and age.
func (z sizer) inOrder(jobs []Entry) []int {
	order := make([]int, len(jobs))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(i, k int) int {
		a, b := &jobs[i], &jobs[k]
		return cmp.Or(Before(a.Running, b.Running), cmp.Compare(b.Priority, a.Priority), cmp.Compare(z.key(a), z.key(b)))
	})
	return order
}

// why says what the size does, and what a larger one would.
func (g *gangSize) why(k int) string {
	e, n, first := g.e, g.claim.sizes[k], g.claim.sizes[0]
	out := fmt.Sprintf("%d of %d to %d members", n, max(e.Min, 1), e.Max)
	estimate := e.Speed.At(e.Speed.Sized(n, n*e.GPUsPerMember))
	if k > 0 {
		out += fmt.Sprintf(", %s times as fast as %d", number(g.rates[k]/g.rates[0]), first)
	}
	switch {
	case !e.Speed.Known():
		out += " if each GPU adds as much as the first, which nobody knows"
	default:
		out += " (give or take " + speed.Percent(estimate.Error) + ")"
	}
	if n < e.Max {
		more := e.Speed.Goodput(e.Speed.Sized(n+1, (n+1)*e.GPUsPerMember)).Rate
		out += fmt.Sprintf(", one more adds %.0f %%", 100*(more/g.rates[k]-1))
	}
	if limit := e.Speed.Limit(); limit.GPUs > 0 && n*e.GPUsPerMember <= limit.GPUs && limit.GPUs < e.Max*e.GPUsPerMember {
		out += ", since " + limit.Why
	}
	return out
}

func number(x float64) string { return strconv.FormatFloat(x, 'g', 3, 64) }
