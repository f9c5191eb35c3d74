package target

import (
	"fmt"
	"slices"
	"strings"

	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/autoscaler/pool"
	"github.com/caravan-sched/caravan/planner/burstapi"
)

// drainedBy marks drains of ours in a node's last drain.
const (
	drainedKey = "drained_by"
	drainedBy  = "caravan-terraform"
)

// machineOf judges the nodes that say they are one key of a pool. There is at least
// one.
func machineOf(p *pool.Pool, nodes []*api.Node, allocs map[string][]*api.Allocation) machine {
	slices.SortFunc(nodes, func(a, b *api.Node) int {
		if a.CreateIndex != b.CreateIndex {
			return int(int64(b.CreateIndex) - int64(a.CreateIndex))
		}
		return strings.Compare(a.ID, b.ID)
	})
	best := nodes[0]
	var living []string
	for _, n := range nodes {
		if lives(n) {
			if len(living) == 0 {
				best = n
			}
			living = append(living, n.ID)
		}
	}
	m := machine{ID: best.ID, Name: best.Name, Purchase: best.Meta[burstapi.MetaPurchase], Lives: lives(best)}
	if len(living) > 1 {
		slices.Sort(living)
		m.Twice = living
	}
	m.Draining = best.DrainStrategy != nil || best.LastDrain != nil && best.SchedulingEligibility == api.NodeSchedulingIneligible
	m.Ours = m.Draining && best.LastDrain != nil && best.LastDrain.Meta[drainedKey] == drainedBy
	m.Why, m.Wrong = missing(p, best)
	m.Ready = m.Why == ""
	for _, a := range allocs[best.ID] {
		job := a.Namespace + "/" + a.JobID
		if !slices.Contains(m.Runs, job) {
			m.Runs = append(m.Runs, job)
		}
	}
	slices.Sort(m.Runs)
	return m
}

func lives(n *api.Node) bool { return n.Status != api.NodeStatusDown }

// missing says what keeps a node from counting, and whether it will for ever.
func missing(p *pool.Pool, n *api.Node) (why string, wrong bool) {
	want := fmt.Sprintf("%d %s", p.GPUs, p.Model)
	var has, other int
	var models []string
	if n.NodeResources != nil {
		for _, g := range n.NodeResources.Devices {
			if g.Vendor != p.Vendor || g.Type != p.Type {
				continue
			}
			if g.Name != p.Model {
				other += len(g.Instances)
				models = append(models, fmt.Sprintf("%d %s", len(g.Instances), g.Name))
				continue
			}
			for _, i := range g.Instances {
				if i.Healthy {
					has++
				}
			}
		}
	}
	switch {
	case n.Status != api.NodeStatusReady:
		return fmt.Sprintf("is %s in Nomad, as node %s", n.Status, n.ID), false
	case has >= p.GPUs:
		if n.DrainStrategy != nil || n.SchedulingEligibility == api.NodeSchedulingIneligible {
			return "is drained or not eligible in Nomad", false
		}
		return "", false
	case other > 0 && has == 0:
		return fmt.Sprintf("has %s, and the pool promises %s", strings.Join(models, " and "), want), true
	default:
		return fmt.Sprintf("has %d healthy devices %s/%s/%s in Nomad, and the pool promises %d", has, p.Vendor, p.Type, p.Model, p.GPUs), false
	}
}

// byKey are the nodes of a pool by their keys; those without one are left out.
func byKey(pool string, nodes []*api.Node) map[string][]*api.Node {
	out := map[string][]*api.Node{}
	for _, n := range nodes {
		if key := n.Meta[burstapi.MetaNode]; key != "" && n.Meta[burstapi.MetaPool] == pool {
			out[key] = append(out[key], n)
		}
	}
	return out
}
