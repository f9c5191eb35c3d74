package audit

import "math/rand/v2"

// Unsaved says which jobs save nothing of what they do: so large a part of them, those for
// which a generator of this seed draws less than that, one number for each job in the order
// of the submissions; but no job that can change its size. Who decides has no part in it.
type Unsaved struct {
	Part float64
	Seed uint64
}

// unsavedStream is the generator's second number.
const unsavedStream = 0x105e

// unsaved looks at which jobs save nothing.
func (c *checker) unsaved(said *Unsaved) {
	if said == nil {
		return
	}
	rng := rand.New(rand.NewPCG(said.Seed, unsavedStream))
	for _, j := range c.order {
		if want := rng.Float64() < said.Part && j.Max == 0; j.Unsaved != want {
			c.fault("%q saves nothing: %t: with %g %% of all jobs and seed %d it is %t", j.id, j.Unsaved, 100*said.Part, said.Seed, want)
		}
	}
}

// loses looks at the work that a job loses as it gives up its GPUs: who saves nothing
// loses all that it has done, and who does loses nothing but by failures.
func (c *checker) loses(j *tracked, l *line) {
	done := j.work - j.lost
	switch {
	case j.Unsaved && l.Event != "finish":
		if !near(l.Lost, done) {
			c.fault("%s of %q, which saves nothing, loses %g s of work: it had %g", l.Event, j.id, l.Lost, done)
		}
	case l.Lost != 0 && (l.Event != "fail" || !(l.Lost > 0 && l.Lost <= done+1e-6)):
		c.fault("%s of %q loses %g s of work: it had %g", l.Event, j.id, l.Lost, done)
	}
}
