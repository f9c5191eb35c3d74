package config

import (
	"cmp"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
)

// Topology is the operator's topology file: which nodes are in which domain,
// for clusters whose nodes do not carry it in their meta.
type Topology struct {
	// Path is the file's.
	Path string
	// Places maps a node's name or ID to its place.
	Places map[string]Place
}

// Place is where one node is.
type Place struct {
	// Levels maps a level's name to the domain's.
	Levels map[string]string
	// Line is where the file says so.
	Line int
}

// Names are all names and IDs in the file, sorted.
func (t *Topology) Names() []string {
	return slices.Sorted(maps.Keys(t.Places))
}

// maxNodes bounds what the bracket ranges of one file may expand to.
const maxNodes = 1 << 20

// ParseTopology reads a topology file. Its blocks are named after the levels,
// outermost first, and nest:
//
//	block "b1" {
//	  rack "r1" { nodes = ["gpu-[01-08]"] }
//	}
//
// The error joins every fault found, each with its place.
func ParseTopology(src []byte, path string, levels []string) (*Topology, error) {
	all := &faults{}
	l := newLoader(path, src, all)
	p := &topologyParser{loader: l, levels: levels, out: &Topology{Path: path, Places: map[string]Place{}}, seen: map[string]int{}}
	file, diags := hclsyntax.ParseConfig(src, path, hcl.InitialPos)
	body, ok := file.Body.(*hclsyntax.Body)
	if l.diags(diags); !diags.HasErrors() && ok {
		p.walk(body, nil, -1)
	}
	if err := all.err(); err != nil {
		return nil, err
	}
	return p.out, nil
}

type topologyParser struct {
	*loader
	levels []string
	out    *Topology
	// seen maps a domain's path to the line where it was first defined.
	seen map[string]int
}

func (p *topologyParser) fault(r hcl.Range, format string, args ...any) {
	p.add(r.Start.Line, fmt.Sprintf(format, args...))
}

// domain is one step of the way from the root to a block.
type domain struct{ level, name string }

// walk reads the body of the innermost domain in way, which is of the level
// with index at; -1 is the file itself.
func (p *topologyParser) walk(body *hclsyntax.Body, way []domain, at int) {
	attributes := slices.SortedFunc(maps.Values(body.Attributes), func(a, b *hclsyntax.Attribute) int {
		return cmp.Compare(a.SrcRange.Start.Byte, b.SrcRange.Start.Byte)
	})
	for _, attr := range attributes {
		switch {
		case attr.Name != "nodes":
			p.fault(attr.SrcRange, "unknown key %q: a domain has nodes, and blocks of inner levels", attr.Name)
		case at < 0:
			p.fault(attr.SrcRange, "nodes belong into a block of a level: %s", strings.Join(p.levels, ", "))
		default:
			p.nodes(attr, way)
		}
	}
	for _, block := range body.Blocks {
		p.block(block, way, at)
	}
}

func (p *topologyParser) block(block *hclsyntax.Block, way []domain, at int) {
	level := slices.Index(p.levels, block.Type)
	switch {
	case level < 0:
		p.fault(block.TypeRange, "no level is named %q: %s", block.Type, suggest(block.Type, p.levels))
		return
	case len(block.Labels) != 1 || block.Labels[0] == "":
		p.fault(block.TypeRange, "a %s needs one name, like: %s \"x1\" { … }", block.Type, block.Type)
		return
	case level <= at:
		p.fault(block.TypeRange, "%s %q cannot be inside %s %q: a domain holds only domains of inner levels (outermost first: %s)",
			block.Type, block.Labels[0], p.levels[at], way[len(way)-1].name, strings.Join(p.levels, ", "))
		return
	}
	name := block.Labels[0]
	if strings.Contains(name, "/") {
		p.fault(block.LabelRanges[0], "%s %q: a domain's name must not hold a slash, which separates levels", block.Type, name)
		return
	}
	inner := append(slices.Clone(way), domain{block.Type, name})
	key := fmt.Sprintf("%q", inner)
	if first, ok := p.seen[key]; ok {
		p.fault(block.TypeRange, "%s %q was defined in line %d already; merge the two", block.Type, name, first)
		return
	}
	p.seen[key] = block.TypeRange.Start.Line
	p.walk(block.Body, inner, level)
}

func (p *topologyParser) nodes(attr *hclsyntax.Attribute, way []domain) {
	var list *[]string
	if !p.value(attr.Expr, reflect.ValueOf(&list).Elem(), "nodes") || list == nil {
		return
	}
	levels := map[string]string{}
	for _, d := range way {
		levels[d.level] = d.name
	}
	for _, pattern := range *list {
		names, err := expand(pattern, maxNodes-len(p.out.Places))
		if err != nil {
			p.fault(attr.SrcRange, "nodes holds %q: %v", pattern, err)
			continue
		}
		for _, name := range names {
			if other, ok := p.out.Places[name]; ok {
				p.fault(attr.SrcRange, "node %q is in line %d too; a node has one place", name, other.Line)
				continue
			}
			p.out.Places[name] = Place{Levels: levels, Line: attr.SrcRange.Start.Line}
		}
	}
}
