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
		case t.Profile != j.Profile && j.Profile != "" || t.Profile == "" && j.Share != 0 && !near(t.Share, j.Share):
			c.fault("%q asks for %g of a GPU, %q: in the trace it is %g, %q", j.id, j.Share, j.Profile, t.Share, t.Profile)
		case t.Queue != j.Queue || t.Class != j.Class || t.Model != j.Model:
			c.fault("%q is of queue %q, class %q, model %q: in the trace it is %q, %q, %q", j.id, j.Queue, j.Class, j.Model, t.Queue, t.Class, t.Model)
		case t.Timed != (j.Deadline != 0):
			c.fault("%q has a deadline of %g s: in the trace one is given: %t", j.id, j.Deadline, t.Timed)
		}
	}
	if !in.Replay {
		return
	}
	for _, t := range in.Trace {
		if c.jobs[t.ID] == nil && couldJob(c.nodes, &t) {
			c.fault("%q of the trace is never submitted", t.ID)
		}
	}
}

// could says whether a gang of so many GPUs has a place on the nodes that are not
// bought, and on all: it fills the largest nodes, and what is left of it is on one.
func could(nodes []Node, gpus int) bool { return couldAs(nodes, nodes, gpus) }

// couldAs is could of a gang that is cut by the largest of other nodes.
func couldAs(nodes, cut []Node, gpus int) bool {
	for _, bought := range []bool{false, true} {
		largest := 1
		for _, n := range cut {
			if bought || !n.Bought {
				largest = max(largest, n.able())
			}
		}
		full, left := gpus/largest, gpus%largest
		var places []int // what is not filled
		for _, n := range nodes {
			switch {
			case n.Bought && !bought:
			case n.able() == largest && full > 0:
				full--
			default:
				places = append(places, n.able())
			}
		}
		if full > 0 || left > 0 && (len(places) == 0 || slices.Max(places) < left) {
			return false
		}
	}
	return true
}
