package core

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

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
	} else if g.promised != topo.Root {
		text += ", where it was promised its deadline"
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

func (c *cycle) behindReason(g *gang) string {
	if c.terse {
		return ""
	}
	var names, divided []string
	for i := range c.holds {
		h := &c.holds[i]
		if i < maxNames {
			names = append(names, jobName(h.job))
		}
		if h.divides != "" && len(divided) < maxNames {
			divided = append(divided, fmt.Sprintf("; for %s %s", jobName(h.job), h.divides))
		}
	}
	if more := len(c.holds) - maxNames; more > 0 {
		names = append(names, fmt.Sprintf("%d more", more))
	}
	return fmt.Sprintf("needs %s%s, which would fit, but not beside the nodes kept for %s, ahead in the queue%s",
		g.wants(), g.where(), strings.Join(names, ", "), strings.Join(divided, ""))
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
		b.WriteString("; it can start when " + c.busyList(j, g, k.busy))
	case c.policy.Holds() == 0 || g.grown > 0 || k.timed:
	case len(c.holds) > 0:
		b.WriteString("; it keeps no nodes, since jobs ahead do")
	}
	if len(k.nodes) > 0 {
		names := make([]string, len(k.nodes))
		for i, node := range k.nodes {
			names[i] = nodeName(c.tree.Nodes[node].Model)
		}
		switch {
		case k.divides:
			b.WriteString("; for it " + k.gpus)
		case k.drained && k.open > 0:
			fmt.Fprintf(&b, "; kept for it from all who do not end within %s: %s", span(k.open), nameList(names))
		case k.timed && !k.drained:
			b.WriteString("; reserved for it from its start on: " + nameList(names))
		default:
			b.WriteString("; kept for it: " + nameList(names))
		}
	}
	return b.String()
}
