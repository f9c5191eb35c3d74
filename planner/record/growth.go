package record

import (
	"maps"
	"slices"
	"time"
)

// Growth is what gangs that run were given beside their members, while that is
// being carried out: all of it is placed, or none of it stays.
type Growth struct {
	// Fresh are the indexes of the new members, by group.
	Fresh map[string][]int `json:"fresh"`
	// Index is the job's JobModifyIndex just before it was registered: what was
	// allocated up to it is none of the new members, wherever it was.
	Index uint64 `json:"index,omitempty"`
	// Undo says why it is taken back; "" while it is not. Nothing more is placed
	// in the groups then, what was is stopped, and at last the gangs have the
	// size from before.
	Undo string `json:"undo,omitempty"`
}

// Has says whether a member is new.
func (g *Growth) Has(group string, index int) bool {
	return g != nil && slices.Contains(g.Fresh[group], index)
}

// Groups are the groups that grow, sorted.
func (g *Growth) Groups() []string {
	if g == nil {
		return nil
	}
	return slices.Sorted(maps.Keys(g.Fresh))
}

// With is a copy with more new members; g may be nil.
func (g *Growth) With(fresh map[string][]int) *Growth {
	out := &Growth{Fresh: map[string][]int{}}
	if g != nil {
		out.Undo, out.Index = g.Undo, g.Index
		maps.Copy(out.Fresh, g.Fresh)
	}
	for group, indexes := range fresh {
		out.Fresh[group] = append(slices.Clone(out.Fresh[group]), indexes...)
	}
	return out
}

// Without is a copy without those of some groups; nil if nothing is left.
func (g *Growth) Without(gone func(group string) bool) *Growth {
	if g == nil {
		return nil
	}
	out := &Growth{Fresh: map[string][]int{}, Undo: g.Undo, Index: g.Index}
	for group, indexes := range g.Fresh {
		if !gone(group) {
			out.Fresh[group] = indexes
		}
	}
	if len(out.Fresh) == 0 {
		return nil
	}
	return out
}

// Resized is a copy for a version of the job in which only counts have changed,
// with what stays of the placement. Who takes the version in sets what
// describes it: Original, Source, SpecHash, PlacedHash, Submitter, PriorIndex.
func (r *Record) Resized() *Record {
	out := *r
	floor := r.Floor()
	out.KeptIndex, out.Held, out.KeepSize, out.Prior, out.Sizes = &floor, "", "", nil, nil
	return &out
}

// maxResizes bounds how many times are remembered.
const maxResizes = 32

// Sized notes that gangs have got another size: sizes are those of the groups
// that have more members than their counts. The lists are copied.
func (r *Record) Sized(at time.Time, sizes map[string]int) {
	next := append(slices.Clone(r.Resizes), at)
	r.Resizes = next[max(0, len(next)-maxResizes):]
	if r.Sizes = maps.Clone(sizes); len(sizes) == 0 {
		r.Sizes = nil
	}
}

// WithoutSizes forgets what groups have beyond their counts.
func (r *Record) WithoutSizes(gone func(group string) bool) {
	r.Sizes = maps.Clone(r.Sizes)
	maps.DeleteFunc(r.Sizes, func(group string, _ int) bool { return gone(group) })
	if len(r.Sizes) == 0 {
		r.Sizes = nil
	}
}
