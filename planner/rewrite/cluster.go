package rewrite

import (
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/hashicorp/nomad/api"
)

// Cluster is what a pin depends on beside the job.
type Cluster struct {
	// Nodes are all of the cluster's clients, not only those that are up: a
	// prefix must name one node among all of them.
	Nodes []Node
	// LevelKeys are the node meta keys that carry topology levels, by which a
	// pin may narrow the nodes first.
	LevelKeys []string

	sorted []string
	byID   map[string]*Node
}

// Node is a Nomad client.
type Node struct {
	ID string
	// GPUs is how many devices it has that Caravan manages.
	GPUs int
	// Meta holds the node's values of Cluster.LevelKeys.
	Meta map[string]string
}

// NewCluster indexes the nodes once for many pins.
func NewCluster(nodes []Node, levelKeys []string) *Cluster {
	c := &Cluster{Nodes: nodes, LevelKeys: levelKeys, byID: make(map[string]*Node, len(nodes))}
	c.sorted = make([]string, 0, len(nodes))
	for i := range nodes {
		c.byID[nodes[i].ID] = &nodes[i]
		c.sorted = append(c.sorted, nodes[i].ID)
	}
	slices.Sort(c.sorted)
	return c
}

const (
	// minPrefix is the shortest prefix of a node ID that a pin uses.
	minPrefix = 4
	// prefixMargin lengthens what is unique today: a node that joins later
	// must not share a prefix. At 16,384 nodes one in 100,000 newcomers would,
	// and even then only a member that Nomad places anew could land there.
	prefixMargin = 2
	// maxLevelValues is how many domains of one level a pin lists. Nomad looks
	// at the list once per class of nodes: for 512 members in 32 racks out of
	// 125 it saves more than half of the evaluation.
	maxLevelValues = 64
)

// prefix returns a prefix of the node's ID that no other node's ID has.
func (c *Cluster) prefix(id string) string {
	at, _ := slices.BinarySearch(c.sorted, id)
	shared := 0
	if at > 0 {
		shared = max(shared, commonPrefix(c.sorted[at-1], id))
	}
	if at+1 < len(c.sorted) {
		shared = max(shared, commonPrefix(c.sorted[at+1], id))
	}
	return id[:min(len(id), max(minPrefix, shared+1+prefixMargin))]
}

func commonPrefix(a, b string) int {
	n := 0
	for n < len(a) && n < len(b) && a[n] == b[n] {
		n++
	}
	return n
}

// nodeConstraint allows exactly the nodes given.
func (c *Cluster) nodeConstraint(ids []string) *api.Constraint {
	prefixes := make([]string, 0, len(ids))
	for _, id := range slices.Compact(slices.Sorted(slices.Values(ids))) {
		p := regexp.QuoteMeta(c.prefix(id))
		if len(c.prefix(id)) == len(id) {
			p += "$"
		}
		prefixes = append(prefixes, p)
	}
	return api.NewConstraint(nodeIDAttribute, api.ConstraintRegex, "^("+strings.Join(prefixes, "|")+")")
}

// levelConstraint narrows the nodes to a level's domain or few, before the
// expensive look at their IDs: Nomad checks it once per class of nodes. It is
// the level whose domains hold the fewest other nodes; nil if none helps.
func (c *Cluster) levelConstraint(ids []string) *api.Constraint {
	if len(ids) == 0 {
		return nil
	}
	var best *api.Constraint
	bestCount := len(c.Nodes)
	for _, key := range c.LevelKeys {
		values := map[string]bool{}
		whole := true
		for _, id := range ids {
			v := c.byID[id].Meta[key]
			whole = whole && v != "" && !strings.ContainsAny(v, ", \t${}")
			values[v] = true
		}
		if !whole || len(values) > maxLevelValues {
			continue
		}
		count := 0
		for i := range c.Nodes {
			if values[c.Nodes[i].Meta[key]] {
				count++
			}
		}
		if count >= bestCount {
			continue
		}
		bestCount = count
		list := strings.Join(slices.Sorted(maps.Keys(values)), ",")
		best = api.NewConstraint("${meta."+key+"}", "=", list)
		if len(values) > 1 {
			best.Operand = api.ConstraintSetContainsAny
		}
	}
	return best
}
