package observe

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/planner/burstapi"
	"github.com/caravan-sched/caravan/planner/core/model"
)

// bought is from which pool a node is, as its meta says; nil if it says nothing of
// that.
func bought(n *api.Node) *model.Bought {
	if n.Meta[burstapi.MetaPool] == "" {
		return nil
	}
	return &model.Bought{
		Pool: n.Meta[burstapi.MetaPool], Name: n.Meta[burstapi.MetaNode],
		Purchase: n.Meta[burstapi.MetaPurchase], Market: n.Meta[burstapi.MetaMarket],
	}
}

// placeBought gives nodes that were bought their places in the tree, where nothing
// else says them: those by which they were chosen. So a gang that has to be in one
// domain finds there what was bought for it. The entries that they are from are left
// as they are.
func placeBought(v *View, snap *model.Snapshot) {
	for i := range snap.Nodes {
		n := &snap.Nodes[i]
		if n.Bought == nil {
			continue
		}
		at := slices.IndexFunc(snap.Burst.Pools, func(p model.BuyPool) bool { return p.Name == n.Bought.Pool })
		if at < 0 {
			continue
		}
		pool := &snap.Burst.Pools[at]
		levels := maps.Clone(pool.Node.Levels)
		if levels == nil {
			levels = map[string]string{}
		}
		if pool.Near != "" && n.Bought.Purchase != "" && !strings.Contains(n.Bought.Purchase, "/") {
			levels[pool.Near] = n.Bought.Purchase
		}
		maps.Copy(levels, n.Levels) // what the node itself says counts
		if len(levels) > 0 {
			n.Levels, v.Nodes[i].Levels = levels, levels
		}
	}
}

// soundBought finds nodes that are in a pool under one name: one that joined twice,
// or was made again while Nomad still lists the old one. The one that is ready
// counts, the newest of several; on the others nothing is placed.
func soundBought(snap *model.Snapshot, st *state) (out []Warning) {
	type name struct{ pool, node string }
	by := map[name][]int{}
	for i := range snap.Nodes {
		if b := snap.Nodes[i].Bought; b != nil {
			by[name{b.Pool, b.Name}] = append(by[name{b.Pool, b.Name}], i)
		}
	}
	for _, key := range slices.SortedFunc(maps.Keys(by), func(a, b name) int { return cmp.Or(cmp.Compare(a.pool, b.pool), cmp.Compare(a.node, b.node)) }) {
		list := by[key]
		if key.node == "" {
			for _, i := range list {
				out = append(out, markSurplus(snap, i, "its meta has no "+burstapi.MetaNode+", so nobody knows which node of its pool it is"))
			}
			continue
		}
		if len(list) < 2 {
			continue
		}
		ready := func(i int) int {
			if snap.Nodes[i].Unschedulable == "" {
				return 0
			}
			return 1
		}
		created := func(i int) uint64 {
			if e := st.nodes[snap.Nodes[i].ID]; e != nil {
				return e.createIndex
			}
			return 0
		}
		slices.SortStableFunc(list, func(a, b int) int {
			return cmp.Or(cmp.Compare(ready(a), ready(b)), cmp.Compare(created(b), created(a)))
		})
		for _, i := range list[1:] {
			out = append(out, markSurplus(snap, i, fmt.Sprintf("node %s of pool %s is node %s too, which counts", key.node, key.pool, snap.Nodes[list[0]].Name)))
		}
	}
	return out
}

// markSurplus lets nothing be placed on a node. The entry that it is from is left
// as it is.
func markSurplus(snap *model.Snapshot, i int, why string) Warning {
	n := &snap.Nodes[i]
	b := *n.Bought
	b.Surplus = why
	n.Bought = &b
	return Warning{Subject: "node " + cmp.Or(n.Name, n.ID), Text: why + "; nothing is placed on it"}
}
