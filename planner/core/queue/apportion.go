package queue

import (
	"cmp"
	"math"
	"slices"
)

// claim is what one job makes of GPUs, as a discipline sees it.
type claim struct {
	// sizes are the members that it may have, ascending, and each is how many GPUs
	// one takes.
	sizes []int
	each  int
	// worth is what each size is worth; only differences count.
	worth []float64
	// steps are the sizes on the concave hull of the worths: each step is worth
	// less for each GPU than the one before it.
	steps []step
}

// step is a larger size, and what it is worth more for each GPU that it takes
// more.
type step struct {
	at    int // index of the size
	gpus  int
	slope float64
}

// hull finds the steps. From one size the next is that which is worth most more
// for each GPU, so a size that is worth less than both its neighbours would be on
// average is left out. Steps that are worth nothing end it.
func (c *claim) hull() {
	c.steps = c.steps[:0]
	for at := 0; at < len(c.sizes); {
		best, slope := -1, 0.0
		for k := at + 1; k < len(c.sizes); k++ {
			s := (c.worth[k] - c.worth[at]) / float64((c.sizes[k]-c.sizes[at])*c.each)
			if s > slope*(1+1e-12) {
				best, slope = k, s
			}
		}
		if best < 0 {
			return
		}
		if n := len(c.steps); n > 0 {
			slope = min(slope, c.steps[n-1].slope) // but for rounding it is
		}
		c.steps = append(c.steps, step{best, (c.sizes[best] - c.sizes[at]) * c.each, slope})
		at = best
	}
}

// apportion gives each claim one of its sizes, so that all are worth as much as
// can be together, and says how much is left. All begin with their least size,
// whatever it is worth. Then the step goes first that is worth most for each GPU
// (greedy by marginal gain: Fox, Discrete Optimization via Marginal Analysis,
// Management Science 13, 1966; the best there is where steps have one size). One
// that does not fit any more ends its claim's, and a last look is had at what is
// left over. The order of the claims decides between equals.
func apportion(gpus int, claims []claim) (sizes []int, left int) {
	sizes = make([]int, len(claims)) // indexes
	var steps []nextStep
	for i := range claims {
		gpus -= claims[i].sizes[0] * claims[i].each
		claims[i].hull()
		for _, s := range claims[i].steps {
			steps = append(steps, nextStep{step: s, claim: i})
		}
	}
	// Each claim's are in order already, since each is worth less than the last.
	slices.SortStableFunc(steps, func(a, b nextStep) int { return cmp.Compare(b.slope, a.slope) })
	ended := make([]bool, len(claims))
	for _, s := range steps {
		if ended[s.claim] || s.gpus > gpus {
			ended[s.claim] = true
			continue
		}
		gpus -= s.gpus
		sizes[s.claim] = s.at
	}
	return sizes, fillUp(gpus, claims, sizes)
}

// fillUp uses what no step fits into any more: the size that adds most, one claim
// at a time.
func fillUp(gpus int, claims []claim, sizes []int) int {
	for gpus > 0 {
		best, size, more, used := -1, 0, 0.0, 0
		for i := range claims {
			c := &claims[i]
			if len(c.steps) == 0 || sizes[i] >= c.steps[len(c.steps)-1].at {
				continue
			}
			for k := sizes[i] + 1; k < len(c.sizes) && (c.sizes[k]-c.sizes[sizes[i]])*c.each <= gpus; k++ {
				if gain := c.worth[k] - c.worth[sizes[i]]; gain > more {
					best, size, more, used = i, k, gain, (c.sizes[k]-c.sizes[sizes[i]])*c.each
				}
			}
		}
		if best < 0 {
			return gpus
		}
		sizes[best] = size
		gpus -= used
	}
	return gpus
}

// nextStep is a step of a claim.
type nextStep struct {
	step
	claim int
}

// mostSizes bounds how many sizes of one job are looked at.
const mostSizes = 64

// sizesOf are the members that an elastic gang may have: all from the least to
// the most, or so many of them, evenly spread by proportion, and those named.
func sizesOf(least, most int, named ...int) []int {
	out := []int{least}
	for n := least; n < most; {
		next := n + 1
		if most-least >= mostSizes {
			next = max(next, int(math.Ceil(float64(n)*math.Pow(float64(most)/float64(least), 1.0/mostSizes))))
		}
		n = min(next, most)
		out = append(out, n)
	}
	for _, n := range named {
		if n > least && n < most {
			out = append(out, n)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}
