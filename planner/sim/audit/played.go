package audit

import (
	"slices"
	"strings"
)

// compare looks for each job in the trace.
func (c *checker) compare(in Input) {
	jobs := make(map[string]Job, len(in.Trace))
	for _, j := range in.Trace {
		jobs[j.ID] = j
	}
	for _, j := range c.order {
		name := j.id
		if at := strings.LastIndexByte(name, '.'); !in.Replay && at >= 0 {
			name = name[:at]
		}
		t, known := jobs[name]
		switch {
		case !known:
			c.fault("%q is not in the trace", j.id)
		case t.GPUs != j.asks.GPUs || !near(t.Duration, j.Duration):
			c.fault("%q asks for %d GPUs for %g s: in the trace it is %d for %g s", j.id, j.asks.GPUs, j.Duration, t.GPUs, t.Duration)
		}
	}
	if !in.Replay {
		return
	}
	for _, t := range in.Trace {
		if c.jobs[t.ID] == nil && could(c.nodes, t.GPUs) {
			c.fault("%q of the trace is never submitted", t.ID)
		}
	}
}

// could says whether a gang of so many GPUs has a place on the nodes that are not
// bought, and on all: it fills the largest nodes, and what is left of it is on one.
func could(nodes []Node, gpus int) bool {
	for _, bought := range []bool{false, true} {
		largest := 1
		for _, n := range nodes {
			if bought || !n.Bought {
				largest = max(largest, n.GPUs)
			}
		}
		full, left := gpus/largest, gpus%largest
		var places []int // what is not filled
		for _, n := range nodes {
			switch {
			case n.Bought && !bought:
			case n.GPUs == largest && full > 0:
				full--
			default:
				places = append(places, n.GPUs)
			}
		}
		if full > 0 || left > 0 && (len(places) == 0 || slices.Max(places) < left) {
			return false
		}
	}
	return true
}
