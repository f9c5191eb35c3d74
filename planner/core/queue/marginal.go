package queue

// Marginal gives each GPU to the elastic gang whose end it brings nearer (Peng et
// al., Optimus, EuroSys 2018, section 4.1): all begin with their least size, and
// then the members go, one after the other, where they save most time for each
// GPU. Where one member more makes a gang slower and several make it faster, they
// go together. What a change of size costs a gang is part of its time (Or et al.,
// Resource Elasticity in Distributed Deep Learning, MLSys 2020), so sizes change
// only where that is repaid. Of those that wait the one that needs the fewest
// GPU-seconds starts first, since its first GPUs save most.

// OrderMarginal gives each GPU to whom it saves most time.
const OrderMarginal = "marginal"

func newMarginal(p Policy) Discipline {
	return sizer{policy: p, key: work, told: workWords,
		worth: func(g *gangSize, k int, _ *Situation) float64 { return -g.seconds(k) }}
}

// workWords says what work goes by.
func workWords(e *Entry) string {
	needs := number(work(e)/3600) + " GPU-hours"
	if !e.Left.Known {
		return "taken to need " + needs + ", since nobody has said how long it runs"
	}
	return "may still need " + needs
}

// work is what a job may still need, in GPU-seconds. Nobody knows of one that has
// not been said anything of; it is taken to need an hour.
func work(e *Entry) float64 {
	left := e.Left.Left.Seconds()
	if !e.Left.Known {
		left = 3600
	}
	return left * float64(max(e.Asked, 1))
}
