package core

import (
	"cmp"
	"fmt"
	"maps"
	"math/bits"
	"slices"
	"strings"

	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/core/place"
	"github.com/caravan-sched/caravan/planner/core/topo"
)

// Why a gang never fits, however empty the cluster is, and what to change.

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
		reason += "; loosen that, ask for fewer members, or add nodes"
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
	r := g.unit.Parts[part].Request
	counts := whole.Filtered(r)
	if r.GPUs > 0 {
		of += " with " + plural(r.GPUs, "GPU")
	}
	return fmt.Sprintf("no node can take a member%s, not even an empty one; refused are %s%s", of, countList(counts), c.remedies(whole, r, counts))
}

// maxRemedies is for how many of the reasons it is said what to change.
const maxRemedies = 2

// remedies say what to change where no node can take a member: of the reasons why,
// for those first that keep out the most nodes.
func (c *cycle) remedies(whole *place.Engine, r *place.Request, counts map[string]int) string {
	var texts []string
	for _, reason := range byCount(counts)[:min(len(counts), maxRemedies)] {
		if text := "; " + c.remedy(whole, r, reason); !slices.Contains(texts, text) {
			texts = append(texts, text)
		}
	}
	return strings.Join(texts, "")
}

// remedy is what to change for one reason of place.Engine.Filtered.
func (c *cycle) remedy(whole *place.Engine, r *place.Request, reason string) string {
	most := func(of func(*topo.Row) int) (n int) {
		for node := range int32(whole.State.Len()) {
			if r.Verdicts.Eligible(int(node)) {
				n = max(n, of(whole.State.Row(node)))
			}
		}
		return n
	}
	const largest = "the largest node that it may use has %s: ask for no more a member, or add larger nodes"
	free := func(of func(model.Resources) int) int {
		return most(func(row *topo.Row) int { return of(row.Free) })
	}
	switch reason {
	case "no such device":
		return fmt.Sprintf("the nodes have %s: correct the job's device, or add nodes", c.stock())
	case "too few free GPUs":
		return fmt.Sprintf(largest, plural(most(func(row *topo.Row) int { return bits.OnesCount64(row.GPUs) }), "GPU"))
	case "cpu":
		return fmt.Sprintf(largest, fmt.Sprintf("%d MHz of CPU", free(func(f model.Resources) int { return f.CPUMHz })))
	case "cores":
		return fmt.Sprintf(largest, plural(free(func(f model.Resources) int { return f.Cores }), "core"))
	case "memory":
		return fmt.Sprintf(largest, fmt.Sprintf("%d MiB of memory", free(func(f model.Resources) int { return f.MemoryMiB })))
	case "disk":
		return fmt.Sprintf(largest, fmt.Sprintf("%d MiB of disk", free(func(f model.Resources) int { return f.DiskMiB })))
	default:
		return "change what the job asks for there, or add nodes that have it"
	}
}

// stock lists the devices of the nodes, the most first.
func (c *cycle) stock() string {
	counts := map[string]int{}
	for _, m := range c.present {
		for i := range m.GPUs {
			counts[m.GPUs[i].Vendor+"/"+m.GPUs[i].Type+"/"+m.GPUs[i].Model]++
		}
	}
	names := byCount(counts)
	for i, name := range names {
		names[i] = fmt.Sprintf("%d %s", counts[name], name)
	}
	if len(names) == 0 {
		return "no devices"
	}
	return nameList(names)
}

// countList is "12 (constraint x), 3 (memory)" for counts by reason, the
// greatest first.
func countList(counts map[string]int) string {
	names := byCount(counts)
	for i, name := range names {
		names[i] = fmt.Sprintf("%s (%s)", plural(counts[name], "node"), name)
	}
	return strings.Join(names, ", ")
}

// byCount are the names of counts, the greatest first.
func byCount(counts map[string]int) []string {
	names := slices.Collect(maps.Keys(counts))
	slices.SortFunc(names, func(a, b string) int {
		return cmp.Or(counts[b]-counts[a], strings.Compare(a, b))
	})
	return names
}
