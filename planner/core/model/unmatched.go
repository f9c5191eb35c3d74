package model

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// maxExamples is how many names a sentence gives of what there is.
const maxExamples = 5

// Unmatched says of what a reservation names which of it is not there, and what is:
// mostly it is misspelt, and then nothing is set apart. levels are the cluster's,
// outermost first.
func (r *Reservation) Unmatched(nodes []*Node, levels []string) (out []string) {
	if len(nodes) == 0 {
		return nil // nobody knows what there is
	}
	for _, pattern := range r.Nodes {
		if !slices.ContainsFunc(nodes, func(n *Node) bool { return matches(pattern, n.Name) || matches(pattern, n.ID) }) {
			out = append(out, fmt.Sprintf("no node has the name or ID %q; there are %s", pattern, examples(nodes, func(n *Node) string { return cmp.Or(n.Name, n.ID) })))
		}
	}
	if r.Level == "" {
		return out
	}
	there := examples(nodes, func(n *Node) string { return n.Levels[r.Level] })
	switch {
	case there == "":
		out = append(out, fmt.Sprintf("no node says in which %s it is, so that none is meant", r.Level))
	case r.Domain != "" && !slices.ContainsFunc(nodes, func(n *Node) bool { return r.Covers(n, levels) }):
		out = append(out, fmt.Sprintf("no node is in %s %q; there are %s", r.Level, r.Domain, there))
	}
	return out
}

// examples are the first names that nodes have, in order, and how many more; "" if
// they have none.
func examples(nodes []*Node, name func(*Node) string) string {
	var names []string
	for _, n := range nodes {
		if text := name(n); text != "" {
			names = append(names, text)
		}
	}
	slices.Sort(names)
	names = slices.Compact(names)
	if more := len(names) - maxExamples; more > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:maxExamples], ", "), more)
	}
	return strings.Join(names, ", ")
}
