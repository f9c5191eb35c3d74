package audit

import (
	"slices"
	"strings"
)

// onModels looks whether a job's GPUs are of a model that it may run on.
func (c *checker) onModels(j *tracked, gpus []int) {
	if j.Models == "" {
		return
	}
	for _, g := range gpus {
		if n := &c.nodes[c.at[g]]; !goesBy(n, j.Models) {
			c.fault("%q has a GPU of node %s, which is a %s: it may run on %s", j.id, n.Name, strings.Join(n.Models, ", or "), j.Models)
			return
		}
	}
}

// goesBy reports whether a node's model has one of some names.
func goesBy(n *Node, names string) bool {
	return slices.ContainsFunc(strings.Split(names, "|"), func(name string) bool {
		return slices.ContainsFunc(n.Models, func(m string) bool { return alike(m, name) })
	})
}

// alike reports whether two names are the same but for their case, and for what stands
// between their words.
func alike(a, b string) bool {
	words := func(name string) []string {
		return strings.FieldsFunc(name, func(r rune) bool { return strings.ContainsRune(" -_", r) })
	}
	return slices.EqualFunc(words(a), words(b), strings.EqualFold)
}

// couldOnModels is couldJob of one that may run on some models: its gang is of one of
// them throughout. Where models are not known it may run on any.
func couldOnModels(nodes []Node, t *Job) bool {
	whole := *t
	whole.GPUModels = ""
	if !slices.ContainsFunc(nodes, func(n Node) bool { return n.Models != nil }) {
		return couldJob(nodes, &whole)
	}
	var may []Node
	for i := range nodes {
		if goesBy(&nodes[i], t.GPUModels) {
			may = append(may, nodes[i])
		}
	}
	if t.Profile != "" || t.Share != 0 {
		return couldJob(may, &whole)
	}
	for i := range may {
		alike := slices.DeleteFunc(slices.Clone(may), func(n Node) bool { return n.Models[0] != may[i].Models[0] })
		if couldAs(alike, may, t.GPUs) {
			return true
		}
	}
	return false
}
