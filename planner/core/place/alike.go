package place

import (
	"cmp"
	"slices"
	"strings"

	"github.com/caravan-sched/caravan/planner/core/topo"
)

// A gang goes as fast as its slowest member. One that names no models of GPUs may
// have any, but gets one model all the same where there is room for all its members
// on one; else several, rather than that it waits.

// alike places a unit on one model if it can, instead of where it was placed since
// the mark.
func (e *Engine) alike(u *Unit, mixed Result, mark topo.Undo) Result {
	models := e.Catalog.ModelsOf(mixed.Placed)
	var try []string
	switch {
	case len(models) == 0 || len(models) == 1 && (u.Model == "" || u.Model == models[0].Name):
		return mixed
	case u.Model != "":
		try = []string{u.Model}
	default:
		try = e.Catalog.allModels(models)
	}
	e.State.Revert(mark)
	for _, name := range try {
		if one := e.Catalog.OnModel(u, name); one != nil {
			if r, ok := e.place(one); ok {
				return r
			}
		}
	}
	e.Take(u, mixed.Placed)
	return mixed
}

// ModelMembers is how many members have GPUs of a model.
type ModelMembers struct {
	Name    string
	Members int
}

// ModelsOf counts members by the models of their GPUs, that of the most first.
func (c *Catalog) ModelsOf(placed []Placed) []ModelMembers {
	var out []ModelMembers
	for i := range placed {
		for _, group := range c.Tree.Nodes[placed[i].Node].Groups {
			if !slices.ContainsFunc(placed[i].GPUs, func(g int8) bool { return group.Mask>>g&1 != 0 }) {
				continue
			}
			name := c.Tree.Kinds[group.Kind].Model
			at := slices.IndexFunc(out, func(m ModelMembers) bool { return m.Name == name })
			if at < 0 {
				at = len(out)
				out = append(out, ModelMembers{Name: name})
			}
			out[at].Members++
		}
	}
	slices.SortFunc(out, func(a, b ModelMembers) int {
		return cmp.Or(cmp.Compare(b.Members, a.Members), strings.Compare(a.Name, b.Name))
	})
	return out
}

// allModels are these, and then all others of the cluster by name.
func (c *Catalog) allModels(first []ModelMembers) []string {
	var out, others []string
	for _, m := range first {
		out = append(out, m.Name)
	}
	for i := range c.Tree.Kinds {
		if name := c.Tree.Kinds[i].Model; !slices.Contains(out, name) {
			others = append(others, name)
		}
	}
	slices.Sort(others)
	return append(out, slices.Compact(others)...)
}

// OnModel is a unit that gets GPUs of one model only; nil if it never can.
func (c *Catalog) OnModel(u *Unit, name string) *Unit {
	one := *u
	one.Parts = slices.Clone(u.Parts)
	for i := range one.Parts {
		part := &one.Parts[i]
		if part.Count == 0 || part.Request.GPUs == 0 {
			continue
		}
		if part.Request = c.only(part.Request, name); part.Request == nil {
			return nil
		}
	}
	return &one
}

// only is a request that is served by one model only; nil if it never is.
func (c *Catalog) only(r *Request, name string) *Request {
	key := r.key + "\x00" + name
	if known := c.requests[key]; known != nil {
		return known
	}
	one := *r
	one.key, one.asks = key, slices.Clone(r.asks)
	for i := range one.asks {
		a := &one.asks[i]
		a.kinds = slices.Clone(a.kinds)
		for k := range a.kinds {
			a.kinds[k] = a.kinds[k] && c.Tree.Kinds[k].Model == name
		}
		if !slices.Contains(a.kinds, true) {
			return nil
		}
	}
	if r.plain != nil {
		one.plain = c.only(r.plain, name)
	}
	c.requests[key] = &one
	return &one
}
