package audit

import (
	"math"
	"math/rand/v2"
)

// Estimates say how long jobs were thought to run: what they do run, times exp(Sigma·z).
// The z are the standard normal numbers that a generator of this seed draws one after the
// other, one for each job in the order of the submissions: who decides has no part in them.
type Estimates struct {
	// Sigma is 0 where estimates are exact, and below 0 where there are none.
	Sigma float64
	Seed  uint64
}

// stream is the generator's second number.
const stream = 0xe571

// Noise is what the estimates of a log are like: the mean of the logarithm of what a job
// was thought to run by what it does run, and its standard deviation.
type Noise struct {
	Jobs  int     `json:"jobs"`
	Mean  float64 `json:"log_error_mean"`
	Sigma float64 `json:"log_error_sigma"`
}

// estimates looks at how long each job was thought to run.
func (c *checker) estimates(said *Estimates) {
	n, sum, squares := 0, 0.0, 0.0
	for _, j := range c.order {
		if j.Estimate > 0 {
			z := math.Log(j.Estimate / j.Duration)
			n, sum, squares = n+1, sum+z, squares+z*z
		}
	}
	if n > 0 {
		mean := sum / float64(n)
		c.report.Noise = &Noise{Jobs: n, Mean: mean, Sigma: math.Sqrt(max(0, squares/float64(n)-mean*mean))}
	}
	if said == nil {
		return
	}
	rng := rand.New(rand.NewPCG(said.Seed, stream))
	for _, j := range c.order {
		want := 0.0
		if said.Sigma >= 0 {
			want = j.Duration * math.Exp(said.Sigma*rng.NormFloat64())
		}
		if !near(j.Estimate, want) {
			c.fault("%q is thought to run for %g s: with an error of σ = %g and seed %d it is %g s", j.id, j.Estimate, said.Sigma, said.Seed, want)
		}
	}
}
