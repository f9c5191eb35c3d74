package core

import (
	"cmp"
	"fmt"
	"math/bits"
	"slices"
	"strings"
	"time"

	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/core/topo"
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
		if list := c.holderList(j, node, c.kindsFor(g, node), leastGPUs(g)); list != "" {
			text += " (" + list + ")"
		}
		parts = append(parts, text)
	}
	return strings.Join(parts, " and ")
}

// leastGPUs are how many GPUs the member with the fewest of a gang has.
func leastGPUs(g *gang) int {
	least := topo.MaxGPUs
	for _, part := range g.unit.Parts {
		if part.Count > 0 {
			least = min(least, part.Request.GPUs)
		}
	}
	return least
}

// holderList says who holds how much of some GPUs of a node, the largest holder first:
// what is there, and what this plan has put there. Who holds none of them is in the way
// of a member that needs so many only if they are free.
func (c *cycle) holderList(j *model.Job, node int32, of uint64, need int) string {
	self, at := keyOf(j), c.givenAt(node)
	h, known := c.holding[node]
	if !known || h.given != len(at) || h.of != of || slices.Contains(h.jobs, self) {
		list, jobs := c.holdersOf(j, node, of)
		used, withGPUs := uint64(0), len(list)
		for i := range list {
			if used |= list[i].gpus; list[i].gpus == 0 {
				withGPUs--
			}
		}
		h = holding{len(at), of, jobs, bits.OnesCount64(of &^ used), holderText(list), ""}
		h.holdsGPUs = h.all
		if withGPUs < len(list) {
			h.holdsGPUs = holderText(list[:withGPUs])
		}
		if !slices.Contains(jobs, self) {
			if c.holding == nil {
				c.holding = map[int32]holding{}
			}
			c.holding[node] = h
		}
	}
	if h.free < need && h.holdsGPUs != "" {
		return h.holdsGPUs
	}
	return h.all
}

// holdersOf are those that hold some of these GPUs of a node or none of any kind, the
// largest holder first, and their jobs.
func (c *cycle) holdersOf(j *model.Job, node int32, of uint64) (list []nodeHolder, jobs []jobKey) {
	for i := range c.holders(node) {
		h := &c.holders(node)[i]
		if h.gpus != 0 && h.gpus&of == 0 {
			continue
		}
		name, until := c.holderName(j, h.job, h.alloc), time.Time{}
		if h.on != nil && !h.on.Until.IsZero() {
			name, until = "the purged job "+jobName(h.job), h.on.Until
		}
		list = addHolder(list, name, h.gpus&of, until)
		jobs = append(jobs, h.job)
	}
	for _, i := range c.givenAt(node) {
		if c.given[i].gpus != 0 && c.given[i].gpus&of == 0 {
			continue
		}
		list = addHolder(list, c.holderName(j, c.given[i].job, ""), c.given[i].gpus&of, time.Time{})
		jobs = append(jobs, c.given[i].job)
	}
	slices.SortFunc(list, func(a, b nodeHolder) int {
		return cmp.Or(cmp.Compare(bits.OnesCount64(b.gpus), bits.OnesCount64(a.gpus)), strings.Compare(a.name, b.name))
	})
	return list, jobs
}

func holderText(list []nodeHolder) string {
	names := make([]string, len(list))
	for i := range min(len(list), maxNames+1) { // no more are named
		h := &list[i]
		held := "no GPU"
		if h.gpus != 0 {
			held = plural(bits.OnesCount64(h.gpus), "GPU")
		}
		names[i] = h.name + " holds " + held
		if !h.until.IsZero() {
			names[i] += fmt.Sprintf(" until %s, when it has had its kill_timeout", h.until.UTC().Format(time.TimeOnly))
		}
	}
	return nameList(names)
}

// nodeHolder is who holds GPUs of a node, by name, and until when if that is known.
type nodeHolder struct {
	name  string
	gpus  uint64
	until time.Time
}

// addHolder adds one to a list that has each name once. One that is being replaced holds
// the same GPUs twice.
func addHolder(list []nodeHolder, name string, gpus uint64, until time.Time) []nodeHolder {
	for i := range list {
		if h := &list[i]; h.name == name {
			if h.gpus |= gpus; until.After(h.until) {
				h.until = until
			}
			return list
		}
	}
	return append(list, nodeHolder{name, gpus, until})
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
