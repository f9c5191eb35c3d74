package feasible

import (
	"strconv"
	"strings"

	"github.com/caravan-sched/caravan/planner/core/model"
)

// Filter is everything about a task group that excludes nodes whatever runs on
// them.
type Filter struct {
	Region      string
	Datacenters []string
	Pool        string
	// Constraints are the job's, Group the task group's.
	Constraints, Group []model.Constraint
}

// Verdicts are a filter's answers for all nodes.
type Verdicts struct {
	// Refused holds for every node an index into Reasons; 0 is "not refused".
	Refused []uint16
	Reasons []string
	// Count counts the nodes by reason.
	Count []int
}

// Eligible reports whether the filter lets a node pass.
func (v *Verdicts) Eligible(node int) bool { return v.Refused[node] == 0 }

// Nodes evaluates filters on a fixed list of nodes. Answers are kept, and
// every constraint is evaluated once for each distinct value that the nodes
// have, so that many jobs over many nodes cost little. Not safe for
// concurrent use.
type Nodes struct {
	checker  Checker
	nodes    []*model.Node
	columns  map[string]*column
	verdicts map[string]*Verdicts
}

// NewNodes prepares for evaluating filters on nodes, which must not change.
func NewNodes(nodes []*model.Node) *Nodes {
	return &Nodes{nodes: nodes, columns: map[string]*column{}, verdicts: map[string]*Verdicts{}}
}

// maxVerdicts bounds the memory that kept answers take.
const maxVerdicts = 1024

// Verdicts evaluates a filter on all nodes.
func (n *Nodes) Verdicts(f Filter) *Verdicts {
	key := f.key()
	if v := n.verdicts[key]; v != nil {
		return v
	}
	if len(n.verdicts) >= maxVerdicts {
		clear(n.verdicts)
	}
	v := &Verdicts{Refused: make([]uint16, len(n.nodes)), Reasons: []string{""}}
	n.refuse(v, "region "+f.Region, f.Region != "" && f.Region != defaultRegion, n.columnOf("region", region), func(x value) bool {
		return !x.found || x.text == f.Region
	})
	n.refuse(v, "datacenter", len(f.Datacenters) > 0, n.column("${node.datacenter}"), func(x value) bool {
		for _, dc := range f.Datacenters {
			if glob(dc, x.text) {
				return true
			}
		}
		return false
	})
	n.refuse(v, "node pool", f.Pool != "" && f.Pool != "all", n.column("${node.pool}"), func(x value) bool { return x.text == f.Pool })
	for _, list := range [][]model.Constraint{f.Constraints, f.Group} {
		for _, c := range list {
			n.constrain(v, c)
		}
	}
	v.Count = make([]int, len(v.Reasons))
	for _, r := range v.Refused {
		v.Count[r]++
	}
	n.verdicts[key] = v
	return v
}

// defaultRegion is what Nomad calls the region when nobody named it.
const defaultRegion = "global"

func (f Filter) key() string {
	var b strings.Builder
	part := func(s string) {
		b.WriteString(strconv.Itoa(len(s)))
		b.WriteByte(':')
		b.WriteString(s)
	}
	part(f.Region)
	part(f.Pool)
	for _, dc := range f.Datacenters {
		part(dc)
	}
	for _, list := range [][]model.Constraint{f.Constraints, f.Group} {
		b.WriteByte('|')
		for _, c := range list {
			part(c.Left)
			part(c.Operand)
			part(c.Right)
		}
	}
	return b.String()
}

// refuse marks the nodes that are still in and whose value in col fails.
func (n *Nodes) refuse(v *Verdicts, reason string, applies bool, col *column, passes func(value) bool) {
	if !applies || len(v.Reasons) > maxReason {
		return
	}
	ok := make([]bool, len(col.values))
	for i, x := range col.values {
		ok[i] = passes(x)
	}
	mark := uint16(len(v.Reasons))
	v.Reasons = append(v.Reasons, reason)
	for node, id := range col.ids {
		if v.Refused[node] == 0 && !ok[id] {
			v.Refused[node] = mark
		}
	}
}

// maxReason keeps reason indexes within their type; a job with that many
// constraints is refused nodes by its first ones only, and by Nomad by all.
const maxReason = 1<<16 - 2

// constrain applies one constraint.
func (n *Nodes) constrain(v *Verdicts, c model.Constraint) {
	reason := "constraint " + Describe(c)
	if c.Operand == OperandDistinctProperty {
		n.refuse(v, reason, true, n.column(c.Left), func(x value) bool { return x.found && c.Left != "" })
		return
	}
	left, right := n.column(c.Left), n.column(c.Right)
	if len(right.values) == 1 {
		r := right.values[0]
		n.refuse(v, reason, true, left, func(x value) bool { return n.checker.check(c.Operand, x, r) })
		return
	}
	if len(v.Reasons) > maxReason {
		return
	}
	// Both sides differ between nodes: evaluate each pair that occurs.
	mark := uint16(len(v.Reasons))
	v.Reasons = append(v.Reasons, reason)
	answers := map[[2]int32]bool{}
	for node := range n.nodes {
		if v.Refused[node] != 0 {
			continue
		}
		pair := [2]int32{left.ids[node], right.ids[node]}
		ok, known := answers[pair]
		if !known {
			ok = n.checker.check(c.Operand, left.values[pair[0]], right.values[pair[1]])
			answers[pair] = ok
		}
		if !ok {
			v.Refused[node] = mark
		}
	}
}

// column holds what a constraint's side resolves to on every node: an index
// into the distinct values.
type column struct {
	ids    []int32
	values []value
}

func (n *Nodes) column(target string) *column {
	if !strings.HasPrefix(target, "${") {
		// Literals are not kept: pins hold thousands of node IDs.
		return &column{ids: make([]int32, len(n.nodes)), values: []value{{target, true}}}
	}
	return n.columnOf(target, func(node *model.Node) value { return resolve(target, node) })
}

// columnOf resolves a column once; no interpolation has a name without "${".
func (n *Nodes) columnOf(name string, of func(*model.Node) value) *column {
	if col := n.columns[name]; col != nil {
		return col
	}
	col := &column{ids: make([]int32, len(n.nodes))}
	index := map[value]int32{}
	for i, node := range n.nodes {
		x := of(node)
		id, known := index[x]
		if !known {
			id = int32(len(col.values))
			index[x] = id
			col.values = append(col.values, x)
		}
		col.ids[i] = id
	}
	n.columns[name] = col
	return col
}

// region is not among the names that constraints may use in Nomad.
func region(node *model.Node) value {
	text, found := node.Levels[model.LevelRegion]
	return value{text, found}
}

// Values are what a constraint's target resolves to: for every node an index
// into the distinct values. A value that is missing is "". Neither may be
// changed.
func (n *Nodes) Values(target string) (ids []int32, values []string) {
	col := n.column(target)
	values = make([]string, len(col.values))
	for i, v := range col.values {
		values[i] = v.text
	}
	return col.ids, values
}

// Value is what a constraint's target resolves to on a node, by index.
func (n *Nodes) Value(target string, node int) (text string, found bool) {
	col := n.column(target)
	x := col.values[col.ids[node]]
	return x.text, x.found
}

// Checker gives access to the evaluator, for device groups.
func (n *Nodes) Checker() *Checker { return &n.checker }

// resolve interpolates a target on a node. Text without "${" stands for itself.
func resolve(target string, node *model.Node) value {
	if !strings.HasPrefix(target, "${") {
		return value{target, true}
	}
	key := strings.TrimSuffix(target[len("${"):], "}")
	fixed := ""
	switch key {
	case "node.unique.id":
		return value{node.ID, true}
	case burstPool:
		if node.Bought == nil {
			return value{}
		}
		return value{node.Bought.Pool, true}
	case "node.datacenter":
		fixed = node.Datacenter
	case "node.unique.name":
		fixed = node.Name
	case "node.class":
		fixed = node.Class
	case "node.pool":
		fixed = node.Pool
	default:
		// Volumes are no attributes to Nomad, which filters nodes by them otherwise.
		if strings.HasPrefix(key, "attr.") || strings.HasPrefix(key, "meta.") || strings.HasPrefix(key, "volume.") {
			text, found := node.Attributes[key]
			return value{text, found}
		}
		return value{}
	}
	if fixed == "" {
		fixed = node.Attributes[key]
	}
	return value{fixed, true}
}

// burstPool is the pool that a node was bought in. No constraint of Nomad's has such
// a name.
const burstPool = "caravan.pool"

// AtHome lets only nodes pass that were not bought.
func AtHome() model.Constraint {
	return model.Constraint{Left: "${" + burstPool + "}", Operand: "is_not_set"}
}

// InPool lets only nodes of one pool pass.
func InPool(name string) model.Constraint {
	return model.Constraint{Left: "${" + burstPool + "}", Operand: "=", Right: name}
}

// InAnyPool lets only nodes pass that were bought.
func InAnyPool() model.Constraint {
	return model.Constraint{Left: "${" + burstPool + "}", Operand: "is_set"}
}

// glob matches text against a pattern in which "*" stands for anything.
func glob(pattern, text string) bool {
	parts := strings.Split(pattern, "*")
	if len(parts) == 1 {
		return pattern == text
	}
	last := parts[len(parts)-1]
	text, ok := strings.CutPrefix(text, parts[0])
	if !ok || len(text) < len(last) || !strings.HasSuffix(text, last) {
		return false
	}
	text = text[:len(text)-len(last)]
	for _, part := range parts[1 : len(parts)-1] {
		_, rest, found := strings.Cut(text, part)
		if !found {
			return false
		}
		text = rest
	}
	return true
}
