package topo

import (
	"cmp"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/caravan-sched/caravan/planner/core/model"
)

// New builds the tree of a snapshot's nodes, which must not change afterwards.
// The snapshot must be valid. The order of its nodes does not matter.
func New(snapshot *model.Snapshot) *Tree {
	t := &Tree{Levels: snapshot.Levels, byID: make(map[string]int32, len(snapshot.Nodes))}
	if len(t.Levels) == 0 {
		t.Levels = model.DefaultLevels
	}
	sorted := make([]placed, len(snapshot.Nodes))
	values := make([]string, len(snapshot.Nodes)*len(t.Levels))
	for i := range snapshot.Nodes {
		node := &snapshot.Nodes[i]
		path := values[i*len(t.Levels) : (i+1)*len(t.Levels)]
		for l, level := range t.Levels {
			path[l] = node.Levels[level]
		}
		sorted[i] = placed{node, path}
	}
	slices.SortFunc(sorted, placed.compare)
	t.Nodes = make([]Node, len(sorted))
	t.addDomains(sorted)
	in := interner{tree: t, shapes: map[string]*Shape{}, kinds: map[kindKey][]int32{}}
	for i, p := range sorted {
		n := &t.Nodes[i]
		n.Model = p.node
		t.byID[p.node.ID] = int32(i)
		n.All = uint64(1)<<len(p.node.GPUs) - 1
		if len(p.node.GPUs) >= MaxGPUs {
			n.All = ^uint64(0)
		}
		t.MostGPUs = max(t.MostGPUs, len(p.node.GPUs))
		n.Groups = in.groups(p.node)
		n.Shape = in.shape(p.node)
		in.of = *n
	}
	return t
}

// placed is a node with its value at every level.
type placed struct {
	node *model.Node
	path []string
}

func (p placed) compare(o placed) int {
	for l := range p.path {
		if c := CompareNatural(p.path[l], o.path[l]); c != 0 {
			return c
		}
	}
	return cmp.Or(CompareNatural(p.node.Name, o.node.Name), strings.Compare(p.node.ID, o.node.ID))
}

// addDomains walks the sorted nodes and opens and closes domains.
func (t *Tree) addDomains(sorted []placed) {
	t.ByLevel = make([][]int32, len(t.Levels))
	t.Domains = []Domain{{Level: -1, Parent: -1, Hi: int32(len(sorted))}}
	open := make([]int32, len(t.Levels)) // the open domain of each level, 0: none
	for i, p := range sorted {
		same := 0
		for i > 0 && same < len(p.path) && p.path[same] == sorted[i-1].path[same] {
			same++
		}
		parent := int32(Root)
		for l, value := range p.path {
			if l >= same {
				open[l] = 0
				if value != "" {
					open[l] = t.addDomain(parent, l, value, int32(i))
				}
			}
			if open[l] != 0 {
				parent = open[l]
				t.Domains[parent].Hi = int32(i) + 1
			}
		}
		t.Nodes[i].Leaf = parent
	}
	for d := range t.Domains {
		dom := &t.Domains[d]
		dom.Own = dom.Hi
		if len(dom.Kids) > 0 {
			dom.Own = t.Domains[dom.Kids[0]].Lo
		}
	}
}

func (t *Tree) addDomain(parent int32, level int, value string, lo int32) int32 {
	id := int32(len(t.Domains))
	path := value
	if outer := t.Domains[parent].Path; outer != "" {
		path = outer + "/" + value
	}
	t.Domains = append(t.Domains, Domain{Level: level, Path: path, Parent: parent, Lo: lo})
	t.Domains[parent].Kids = append(t.Domains[parent].Kids, id)
	t.ByLevel[level] = append(t.ByLevel[level], id)
	return id
}

// interner finds what nodes have in common.
type interner struct {
	tree   *Tree
	shapes map[string]*Shape
	kinds  map[kindKey][]int32
	// last is the kind found last, of device like, and of is the node looked at last
	// and what it has: nodes next to each other are mostly alike.
	last int32
	like *model.GPU
	of   Node
	key  []byte
}

type kindKey struct {
	vendor, typ, model string
	attributes         int
}

// groups splits a node's GPUs by vendor, type, model and attributes.
func (in *interner) groups(node *model.Node) []Group {
	out := make([]Group, 0, 4)
	first := make([]int, 0, 4)
	for i := range node.GPUs {
		g := &node.GPUs[i]
		at := -1
		for k, f := range first {
			o := &node.GPUs[f]
			if g.Vendor == o.Vendor && g.Type == o.Type && g.Model == o.Model && (g.Slices > 0) == (o.Slices > 0) && sameAttributes(g.Attributes, o.Attributes) {
				at = k
				break
			}
		}
		if at < 0 {
			at = len(out)
			first = append(first, i)
			out = append(out, Group{Kind: in.kind(g)})
		}
		out[at].Mask |= 1 << i
	}
	if slices.Equal(out, in.of.Groups) {
		return in.of.Groups
	}
	return slices.Clone(out)
}

// sameAttributes reports whether two maps are alike. Those of one group of devices
// are mostly one map.
func sameAttributes(a, b map[string]string) bool { return sameMap(a, b) || maps.Equal(a, b) }

// sameMap reports whether two maps are one.
func sameMap(a, b map[string]string) bool {
	return reflect.ValueOf(a).UnsafePointer() == reflect.ValueOf(b).UnsafePointer()
}

func (in *interner) kind(g *model.GPU) int32 {
	t, like := in.tree, in.like
	in.like = g
	if like != nil && sameMap(g.Attributes, like.Attributes) && g.Vendor == like.Vendor && g.Type == like.Type && g.Model == like.Model && (g.Slices > 0) == (like.Slices > 0) {
		return in.last
	}
	if int(in.last) < len(t.Kinds) && t.Kinds[in.last].is(g) {
		return in.last
	}
	key := kindKey{g.Vendor, g.Type, g.Model, commonCount(g.Attributes)}
	for _, k := range in.kinds[key] {
		if t.Kinds[k].is(g) {
			in.last = k
			return k
		}
	}
	kind := Kind{Vendor: g.Vendor, Type: g.Type, Model: g.Model, Shared: g.Slices > 0, Attributes: map[string]string{}}
	for name, value := range g.Attributes {
		if !isUnique(name) {
			kind.Attributes[name] = value
		}
	}
	in.last = int32(len(t.Kinds))
	t.Kinds = append(t.Kinds, kind)
	in.kinds[key] = append(in.kinds[key], in.last)
	return in.last
}

// isUnique says whether an attribute may differ between nodes alike.
func isUnique(name string) bool { return strings.HasPrefix(name, "unique.") }

func commonCount(attributes map[string]string) int {
	n := 0
	for name := range attributes {
		if !isUnique(name) {
			n++
		}
	}
	return n
}

func (k *Kind) is(g *model.GPU) bool {
	if g.Vendor != k.Vendor || g.Type != k.Type || g.Model != k.Model || (g.Slices > 0) != k.Shared {
		return false
	}
	n := 0
	for name, value := range g.Attributes {
		if isUnique(name) {
			continue
		}
		if have, ok := k.Attributes[name]; !ok || have != value {
			return false
		}
		n++
	}
	return n == len(k.Attributes)
}

// CompareNatural orders names as people do: "r2" before "r10".
func CompareNatural(a, b string) int {
	if a == b {
		return 0
	}
	x, y := a, b
	for x != "" && y != "" {
		xd, yd := digits(x), digits(y)
		if xd > 0 && yd > 0 {
			xn, yn := strings.TrimLeft(x[:xd], "0"), strings.TrimLeft(y[:yd], "0")
			if c := cmp.Or(cmp.Compare(len(xn), len(yn)), strings.Compare(xn, yn)); c != 0 {
				return c
			}
			x, y = x[xd:], y[yd:]
			continue
		}
		if x[0] != y[0] {
			return cmp.Compare(x[0], y[0])
		}
		x, y = x[1:], y[1:]
	}
	return cmp.Or(cmp.Compare(len(x), len(y)), strings.Compare(a, b))
}

// digits is how many digits s starts with.
func digits(s string) int {
	n := 0
	for n < len(s) && s[n] >= '0' && s[n] <= '9' {
		n++
	}
	return n
}
