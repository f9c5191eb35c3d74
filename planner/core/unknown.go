package core

import (
	"slices"
	"strings"
)

// unknown says why it is not known when a gang starts.
func (a *ahead) unknown(g *gang, tried bool) string {
	if a.c.terse {
		return ""
	}
	if tried {
		return "each of its groups will have room, but not all of them together as far as can be seen"
	}
	key := unknownKey{g.unit.Within, g.gpus > 0}
	if known, asked := a.why[key]; asked {
		return known
	}
	d := a.c.tree.Domains[key.within]
	var names []string
	for node := d.Lo; node < d.Hi && len(names) <= maxNames; node++ {
		for i := range a.c.held[node] {
			h := &a.c.held[node][i]
			if j := h.of; j != nil && j.Type != typeService && (h.gpus != 0 || g.gpus == 0) && a.leaves(h) == eternity && !slices.Contains(names, jobName(h.job)) {
				names = append(names, jobName(h.job))
			}
		}
	}
	if len(names) == 0 { // who is ahead may be others for the next gang
		if names = a.endlessAhead(d.Lo, d.Hi, g.gpus > 0); len(names) > 0 {
			return nobodySays(names, ", ahead of it,")
		}
		a.why[key] = "nothing says when what it waits for ends"
		return a.why[key]
	}
	a.why[key] = nobodySays(names, "")
	return a.why[key]
}

// endlessAhead names jobs that start before, or have been placed just now, and do not
// say how long they run; services, of which that is known, are not among them.
func (a *ahead) endlessAhead(lo, hi int32, gpus bool) []string {
	var names []string
	for _, node := range a.given {
		if node < lo || node >= hi {
			continue
		}
		for i := range a.on[node] {
			b := &a.on[node][i]
			if b.until < eternity || b.job.id == "" || gpus && b.claim.GPUs == 0 {
				continue
			}
			j := a.c.jobs[b.job]
			if j == nil || j.Type == typeService || slices.Contains(names, jobName(b.job)) {
				continue
			}
			if runs, _ := a.c.expected(j); runs == eternity {
				names = append(names, jobName(b.job))
			}
		}
	}
	slices.Sort(names)
	return names
}

// nobodySays names jobs that may run for ever, as far as is known.
func nobodySays(names []string, which string) string {
	text := "nobody says how long " + strings.Join(names[:min(len(names), maxNames)], ", ")
	if len(names) > maxNames {
		text += " and others"
	}
	in := "it"
	if len(names) > 1 {
		in = "them"
	}
	return text + which + " will run; set caravan_duration in " + in
}

type unknownKey struct {
	within int32
	gpus   bool
}
