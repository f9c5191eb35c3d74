package model

import "time"

// Promised is when a job was told that it will have ended by its deadline.
type Promised struct {
	At time.Time `json:"at"`
	// Deadline is the one that it was told so of. For another one the promise does
	// not hold.
	Deadline time.Time `json:"deadline"`
	// GPUs is how many GPUs there were then to plan with.
	GPUs int `json:"gpus,omitempty"`
	// Level and Domain are the level and the path of the domain in which it is to be, as
	// in "rack" and "b1/r2"; "" is anywhere.
	Level  string `json:"level,omitempty"`
	Domain string `json:"domain,omitempty"`
}

// Promise is a promise that is made, or one that cannot be kept any more.
type Promise struct {
	Namespace string `json:"namespace,omitempty"`
	Job       string `json:"job"`
	// Promised is what is to be remembered of it from now on; nil: the promise is
	// taken back.
	Promised *Promised `json:"promised,omitempty"`
	// Reason is a sentence for people, with the numbers: what was promised, or why
	// it cannot be kept.
	Reason string `json:"reason"`
}

// Holds reports whether a promise is about a deadline.
func (p *Promised) Holds(deadline time.Time) bool {
	return p != nil && !deadline.IsZero() && p.Deadline.Equal(deadline)
}
