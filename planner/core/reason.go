package core

import (
	"fmt"
	"math/bits"
	"slices"
	"sort"
	"strconv"
	"strings"
	"time"

	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/core/place"
	"github.com/caravan-sched/caravan/planner/core/topo"
)

// wants says what a gang asks for: "4 members with 8 GPUs each (32 GPUs)".
func (g *gang) wants() string {
	parts := make([]string, 0, 1)
	for i := range g.unit.Parts {
		if n := len(g.indexes[i]); n > 0 {
			text := plural(n, "member")
			if len(g.groups) > 1 || g.named {
				text += " of " + g.groups[i].Name
			}
			if k := g.unit.Parts[i].Request.GPUs; k > 0 {
				text += " with " + plural(k, "GPU")
				if n > 1 {
					text += " each"
				}
			}
			parts = append(parts, text)
		}
	}
	text := strings.Join(parts, " and ")
	if g.members > 1 && g.gpus > 0 {
		text += " (" + strconv.Itoa(g.gpus) + " GPUs)"
	}
	return text
}

// where says in what the gang has to be.
func (g *gang) where() string {
	if g.unit.Topology.Mode != model.TopologyRequire {
		return g.inSlices()
	}
	text := " in one " + g.unit.Topology.Level + g.inSlices()
	if g.unit.Only != nil || g.unit.Within != g.home() {
		text += ", where its other members are"
	}
	return text
}

// but says what keeps out members for whom, one by one, the domain has room.
func (g *gang) but(f domainFit) string {
	switch {
	case f.fit == f.apart:
		return ""
	case g.sliced():
		return fmt.Sprintf(", %d if it were not for the slices", f.apart)
	case len(g.unit.Quotas) > 0:
		return fmt.Sprintf(", %d if it were not for distinct_property", f.apart)
	case len(g.unit.Taken)+len(g.unit.TakenByPart) > 0:
		return fmt.Sprintf(", %d if it were not for the hosts of the job's other members", f.apart)
	case g.unit.Apart:
		return fmt.Sprintf(", %d if it were not for distinct_hosts", f.apart)
	default:
		return fmt.Sprintf(", %d if each group is counted by itself", f.apart)
	}
}

// butNot says what keeps out a member for which there is room.
func (g *gang) butNot() string {
	if len(g.unit.Quotas) > 0 {
		return ", but not with its distinct_property"
	}
	return ", but not on other hosts than the job's other members"
}

// astrayReason says why members cannot join others that are apart.
func (g *gang) astrayReason() string {
	if g.unit.Topology.Mode != model.TopologyRequire || g.halved {
		return fmt.Sprintf("needs %s%s, but more than one of its slices lacks members, and which lacks which is not known; stop the job and submit it again", g.wants(), g.inSlices())
	}
	level := g.unit.Topology.Level
	return fmt.Sprintf("needs %s in one %s with its other members, but those are not in one %s; stop the job and submit it again, or prefer the level instead of requiring it",
		g.wants(), level, level)
}

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return strconv.Itoa(n) + " " + what + "s"
}

// domainName is a domain with its level: "block b2", "the cluster".
func domainName(level, path string) string {
	if path == "" {
		return "the cluster"
	}
	return level + " " + path
}

func (c *cycle) placedReason(j *model.Job, d *model.Decision, last place.Result) string {
	gpus := 0
	names := make([]string, len(d.Members))
	for i := range d.Members {
		gpus += len(d.Members[i].GPUs)
		names[i] = d.Members[i].Node
	}
	slices.Sort(names)
	nodes := len(slices.Compact(names))
	where := "in " + domainName(last.Level, last.Domain)
	if gangOf(j) != model.GangJob && len(d.Members) > 1 {
		where = "on " + plural(nodes, "node")
	}
	of := ""
	if d.Detail.MembersWanted > len(d.Members) {
		of = fmt.Sprintf(" of %d", d.Detail.MembersWanted)
	}
	text := fmt.Sprintf("placed %d%s", len(d.Members), of)
	if d.Detail.MembersWanted == 1 {
		text += " member"
	} else {
		text += " members"
	}
	text += " with " + plural(gpus, "GPU") + " " + where
	if nodes > 1 && strings.HasPrefix(where, "in ") {
		text += fmt.Sprintf(", on %d nodes", nodes)
	}
	return text
}

// impossible says why a gang never fits.
func (c *cycle) impossible(whole *place.Engine, g *gang) possibility {
	for i, part := range g.unit.Parts {
		if part.Count == 0 || whole.Summary(part.Request).Members(topo.Root) > 0 {
			continue
		}
		p := possibility{code: codeNoNode, reason: c.noNode(whole, g, i), view: viewWhole, part: i}
		if whole.AnyAllowed(part.Request) {
			p.code = codeTooLarge
		}
		return p
	}
	if nowhere := c.levelNowhere(g); nowhere != "" {
		return possibility{code: codeTooLarge, reason: nowhere, view: viewWhole, part: g.blocker(whole)}
	}
	best := c.bestDomain(whole, g)
	c.refine(whole, g, &best)
	reason := fmt.Sprintf("needs %s%s; %s has room for %d of %d even when everything in it is free and healthy%s",
		g.wants(), g.where(), domainName(best.level, best.path), best.fit, g.members, g.but(best))
	switch {
	case best.apart >= g.members && g.sliced():
		reason += "; make the slices smaller or give them a wider level"
	case best.apart >= g.members:
	case c.fitsApart(whole, g):
		reason += "; require a wider level, or ask for fewer or smaller members"
	default:
		reason += "; ask for fewer or smaller members, or add nodes"
	}
	return possibility{code: codeTooLarge, reason: reason, level: best.level, domain: best.path, fit: best.fit, view: viewWhole, part: g.blocker(whole)}
}

// levelNowhere says that the level required is one that no node is in; "" if some
// are.
func (c *cycle) levelNowhere(g *gang) string {
	t := g.unit.Topology
	level := c.tree.LevelIndex(t.Level)
	if t.Mode != model.TopologyRequire || level < 0 {
		return ""
	}
	for node := range c.tree.Nodes {
		if c.tree.DomainAt(int32(node), level) >= 0 {
			return ""
		}
	}
	return fmt.Sprintf("needs %s%s, but no node says in which %s it is; set the level's key in the nodes' meta (caravan_%s unless configured otherwise), or require another level",
		g.wants(), g.where(), t.Level, t.Level)
}

// noNode says why no node at all can take a member.
func (c *cycle) noNode(whole *place.Engine, g *gang, part int) string {
	of := ""
	if len(g.groups) > 1 || g.named {
		of = " of " + g.groups[part].Name
	}
	if len(c.tree.Nodes) == 0 {
		return fmt.Sprintf("no node can take a member%s: the cluster has no nodes", of)
	}
	counts := countList(whole.Filtered(g.unit.Parts[part].Request))
	if k := g.unit.Parts[part].Request.GPUs; k > 0 {
		of += " with " + plural(k, "GPU")
	}
	return fmt.Sprintf("no node can take a member%s, not even an empty one; refused are %s", of, counts)
}

// countList is "12 (constraint x), 3 (memory)" for counts by reason, the
// greatest first.
func countList(counts map[string]int) string {
	names := make([]string, 0, len(counts))
	for name := range counts {
		names = append(names, name)
	}
	sort.Slice(names, func(a, b int) bool {
		x, y := names[a], names[b]
		return counts[x] > counts[y] || counts[x] == counts[y] && x < y
	})
	for i, name := range names {
		names[i] = fmt.Sprintf("%s (%s)", plural(counts[name], "node"), name)
	}
	return strings.Join(names, ", ")
}

func (c *cycle) behindReason(g *gang) string {
	if c.terse {
		return ""
	}
	names := make([]string, 0, len(c.holds))
	for i, h := range c.holds {
		if i == maxNames {
			names = append(names, fmt.Sprintf("%d more", len(c.holds)-maxNames))
			break
		}
		names = append(names, jobName(h.job))
	}
	return fmt.Sprintf("needs %s%s, which would fit, but not beside the nodes kept for %s, ahead in the queue",
		g.wants(), g.where(), strings.Join(names, ", "))
}

// maxNames is how many nodes or jobs a sentence names.
const maxNames = 3

// waitReason says what a gang waits for and what would let it start.
func (c *cycle) waitReason(j *model.Job, g *gang, code string, best domainFit, k kept, why possibility) string {
	var b strings.Builder
	b.Grow(256)
	b.WriteString("needs " + g.wants() + g.where() + "; ")
	name := domainName(best.level, best.path)
	switch {
	case g.members > 1:
		fmt.Fprintf(&b, "%s has room for %d of %d now%s", name, best.fit, g.members, g.but(best))
	default:
		fmt.Fprintf(&b, "%s comes nearest with %s free", name, plural(best.gpus, "GPU"))
		if best.fit < best.apart {
			b.WriteString(g.butNot())
		}
	}
	if code == codeNoDomain {
		fmt.Fprintf(&b, ", the rest that is free is elsewhere")
	}
	switch {
	case why.joined:
		b.WriteString("; it waits until its other members end: beside them it does not fit even when all else is free")
	case why.code != "":
		if away := c.awayList(); away != "" {
			b.WriteString("; it waits until nodes come back: " + away)
		}
	case len(k.busy) > 0:
		b.WriteString("; it can start when " + c.busyList(j, k.busy))
	case c.policy.Holds() == 0 || g.grown > 0 || k.timed:
	case len(c.holds) > 0:
		b.WriteString("; it keeps no nodes, since jobs ahead do")
	}
	if len(k.nodes) > 0 {
		names := make([]string, len(k.nodes))
		for i, node := range k.nodes {
			names[i] = nodeName(c.tree.Nodes[node].Model)
		}
		if k.timed {
			b.WriteString("; reserved for it from its start on: " + nameList(names))
		} else {
			b.WriteString("; kept for it: " + nameList(names))
		}
	}
	return b.String()
}

func nameList(names []string) string {
	if len(names) > maxNames+1 {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:maxNames], ", "), len(names)-maxNames)
	}
	return strings.Join(names, ", ")
}

// busyList says who is to leave the nodes kept: "n7 has room (train-a holds 3
// GPUs)".
func (c *cycle) busyList(j *model.Job, nodes []int32) string {
	var parts []string
	for i, node := range nodes {
		if i == maxNames {
			parts = append(parts, fmt.Sprintf("%d more", len(nodes)-maxNames))
			break
		}
		text := nodeName(c.tree.Nodes[node].Model) + " has room"
		if list := c.holderList(j, node); list != "" {
			text += " (" + list + ")"
		}
		parts = append(parts, text)
	}
	return strings.Join(parts, " and ")
}

// holderList says who holds how much of a node, the largest holder first: what
// is there, and what this plan has put there.
func (c *cycle) holderList(j *model.Job, node int32) string {
	self, at := keyOf(j), c.givenAt(node)
	if h, known := c.holding[node]; known && h.given == len(at) && !slices.Contains(h.jobs, self) {
		return h.text
	}
	masks := map[string]uint64{}
	until := map[string]time.Time{}
	var jobs []jobKey
	for _, h := range c.holders(node) {
		name := c.holderName(j, h.job, h.alloc)
		if h.on != nil && !h.on.Until.IsZero() {
			name = "the purged job " + jobName(h.job)
			if h.on.Until.After(until[name]) {
				until[name] = h.on.Until
			}
		}
		// One that is being replaced holds the same GPUs twice.
		masks[name] |= h.gpus
		jobs = append(jobs, h.job)
	}
	for _, i := range at {
		masks[c.holderName(j, c.given[i].job, "")] |= c.given[i].gpus
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
		c.holding[node] = holding{len(at), jobs, text}
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
