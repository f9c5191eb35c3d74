package queue

import "math"

// Goodput chooses the sizes of elastic gangs by what they make of their GPUs, each
// measured by itself (Qiao et al., Pollux, OSDI 2021, section 4.2; Jayaram
// Subramanya et al., Sia, SOSP 2023). A gang's speedup is its goodput
// (samples per second, each counting by what it is worth) by the goodput of its
// fair share, the cluster's GPUs by the number of jobs. What is best is the largest
// generalised mean of the speedups, with the power p = −1 as in Pollux, that is the
// least sum of their inverses: it looks after those that are slowest beside their
// fair share, without forgetting the rest. A change of size costs a gang the time
// that it takes, as a part of what it may still run (Pollux's reallocation factor,
// looking ahead), so sizes change only where that is repaid. Jobs start in the
// order of their age, at their least size.

// OrderGoodput gives elastic gangs the sizes with the most goodput.
const OrderGoodput = "goodput"

func newGoodput(p Policy) Discipline {
	return sizer{policy: p, worth: goodputWorth, key: func(*Entry) float64 { return 0 }}
}

// goodputPower is p.
const goodputPower = -1

func goodputWorth(g *gangSize, k int, s *Situation) float64 {
	// The fair share is one of the sizes, so that there is a speed for it.
	share, fair := s.GPUs/max(len(s.Jobs), 1)/g.e.GPUsPerMember, 0
	for i, n := range g.claim.sizes {
		if n <= share {
			fair = i
		}
	}
	part := 1.0
	if g.e.Running && g.claim.sizes[k] != g.e.Members {
		part = g.left / (g.left + g.change)
	}
	return -math.Pow(max(part, 1e-6)*g.rates[k]/g.rates[fair], goodputPower)
}
