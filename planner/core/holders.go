package core

import (
	"fmt"
	"math/bits"
	"slices"
	"sort"
	"strings"
	"time"

	"github.com/caravan-sched/caravan/planner/core/model"
)

// Who holds what a gang waits for, and which nodes are away, in words.

func nameList(names []string) string {
	if len(names) > maxNames+1 {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:maxNames], ", "), len(names)-maxNames)
	}
	return strings.Join(names, ", ")
}

// busyList says who is to leave the nodes kept for a gang: "n7 has room (train-a holds
// 3 GPUs)".
func (c *cycle) busyList(j *model.Job, g *gang, nodes []int32) string {
	var parts []string
	for i, node := range nodes {
		if i == maxNames {
			parts = append(parts, fmt.Sprintf("%d more", len(nodes)-maxNames))
			break
		}
		text := nodeName(c.tree.Nodes[node].Model) + " has room"
		if list := c.holderList(j, node, c.kindsFor(g, node)); list != "" {
			text += " (" + list + ")"
		}
		parts = append(parts, text)
	}
	return strings.Join(parts, " and ")
}

// holderList says who holds how much of some GPUs of a node, the largest holder first:
// what is there, and what this plan has put there.
func (c *cycle) holderList(j *model.Job, node int32, of uint64) string {
	self, at := keyOf(j), c.givenAt(node)
	if h, known := c.holding[node]; known && h.given == len(at) && h.of == of && !slices.Contains(h.jobs, self) {
		return h.text
	}
	masks := map[string]uint64{}
	until := map[string]time.Time{}
	var jobs []jobKey
	for _, h := range c.holders(node) {
		if h.gpus != 0 && h.gpus&of == 0 {
			continue
		}
		name := c.holderName(j, h.job, h.alloc)
		if h.on != nil && !h.on.Until.IsZero() {
			name = "the purged job " + jobName(h.job)
			if h.on.Until.After(until[name]) {
				until[name] = h.on.Until
			}
		}
		// One that is being replaced holds the same GPUs twice.
		masks[name] |= h.gpus & of
		jobs = append(jobs, h.job)
	}
	for _, i := range at {
		if c.given[i].gpus != 0 && c.given[i].gpus&of == 0 {
			continue
		}
		masks[c.holderName(j, c.given[i].job, "")] |= c.given[i].gpus & of
		jobs = append(jobs, c.given[i].job)
	}
	gpus := map[string]int{}
	for name, mask := range masks {
		gpus[name] = bits.OnesCount64(mask)
	}
	names := make([]string, 0, len(gpus))
	for name := range gpus {
		names = append(names, name)
	}
	sort.Slice(names, func(a, b int) bool {
		x, y := names[a], names[b]
		return gpus[x] > gpus[y] || gpus[x] == gpus[y] && x < y
	})
	for i, name := range names {
		names[i] = fmt.Sprintf("%s holds %s", name, plural(gpus[name], "GPU"))
		if at := until[name]; !at.IsZero() {
			names[i] += fmt.Sprintf(" until %s, when it has had its kill_timeout", at.UTC().Format(time.TimeOnly))
		}
	}
	text := nameList(names)
	if !slices.Contains(jobs, self) {
		if c.holding == nil {
			c.holding = map[int32]holding{}
		}
		c.holding[node] = holding{len(at), of, jobs, text}
	}
	return text
}

// givenAt lists what this plan has placed on a node so far, as indexes in
// given.
func (c *cycle) givenAt(node int32) []int {
	for ; c.indexed < len(c.given); c.indexed++ {
		at := c.given[c.indexed].node
		c.givenOn[at] = append(c.givenOn[at], c.indexed)
	}
	return c.givenOn[node]
}

// holderName names who holds something, for a reason that job j is given.
func (c *cycle) holderName(j *model.Job, job jobKey, alloc string) string {
	switch {
	case job == keyOf(j):
		return "the job itself"
	case job.id == "":
		return "alloc " + alloc
	default:
		return jobName(job)
	}
}

// awayList names the nodes that nothing may be placed on, with the reason.
func (c *cycle) awayList() string {
	var names []string
	for node, m := range c.present {
		unhealthy := 0
		for k := range m.GPUs {
			if m.GPUs[k].Unhealthy != "" || beingDivided(m, &m.GPUs[k]) {
				unhealthy++
			}
		}
		switch {
		case c.closed[int32(node)] != "":
			names = append(names, fmt.Sprintf("%s (%s)", nodeName(m), c.closed[int32(node)]))
		case m.Unschedulable != "":
			names = append(names, fmt.Sprintf("%s (%s)", nodeName(m), m.Unschedulable))
		case unhealthy > 0:
			names = append(names, fmt.Sprintf("%s (%s unhealthy)", nodeName(m), plural(unhealthy, "GPU")))
		}
	}
	return nameList(names)
}
