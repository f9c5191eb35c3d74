package core

import (
	"reflect"

	"github.com/caravan-sched/caravan/planner/core/model"
)

// difference is what turns one snapshot of a cluster, with which p is up to date,
// into the next; false if that lists something twice, which is for Prepare to
// refuse. What the two share is not looked into, so that it costs little where
// most is the same.
func (p *Prepared) difference(from, to *model.Snapshot) (ch Change, ok bool) {
	nodes, okNodes := compareLists(from.Nodes, to.Nodes, func(n *model.Node) string { return n.ID }, func(id string) bool { return p.nodes[id] != nil })
	jobs, okJobs := compareLists(from.Jobs, to.Jobs, keyOf, func(k jobKey) bool { return p.jobs[k] != nil })
	allocs, okAllocs := compareLists(from.Allocs, to.Allocs, func(a *model.Alloc) string { return a.ID }, func(id string) bool { return p.allocs[id] != nil })
	ch = Change{PutNodes: nodes.put, DropNodes: nodes.drop, PutJobs: jobs.put, PutAllocs: allocs.put, DropAllocs: allocs.drop}
	for _, key := range jobs.drop {
		ch.DropJobs = append(ch.DropJobs, JobRef{key.namespace, key.id})
	}
	was, is := restOf(from), restOf(to)
	if !reflect.DeepEqual(was, is) {
		ch.Rest = &is
	}
	return ch, okNodes && okJobs && okAllocs
}

// restOf is what a snapshot has beside nodes, jobs and allocations.
func restOf(s *model.Snapshot) model.Snapshot {
	out := *s
	out.Nodes, out.Jobs, out.Allocs = nil, nil, nil
	out.Version, out.Now = 0, model.Snapshot{}.Now
	return out
}

// same reports whether two versions of something are the same. Lists and maps
// that they share are found to be so without being looked into.
func same[T any](a, b *T) bool { return reflect.DeepEqual(a, b) }

// changes are what is new or different in a list, and what is gone from it. What
// has only moved may be among both.
type changes[T any, K comparable] struct {
	put  []T
	drop []K
}

// lookAhead is how far two lists are searched for where they go on alike.
const lookAhead = 16

// compareLists compares two lists of things that have keys, and are mostly the
// same in the same order. from has each key once, and known says which keys it
// has; false if to has one twice.
func compareLists[T any, K comparable](from, to []T, key func(*T) K, known func(K) bool) (out changes[T, K], ok bool) {
	var added []K
	i, k := 0, 0
	for i < len(from) && k < len(to) {
		if key(&from[i]) == key(&to[k]) {
			if !same(&from[i], &to[k]) {
				out.put = append(out.put, to[k])
			}
			i, k = i+1, k+1
			continue
		}
		gone, more := skip(from[i:], key(&to[k]), key), skip(to[k:], key(&from[i]), key)
		if gone < 0 && more < 0 {
			gone, more = 1, 1
		}
		if more < 0 || gone >= 0 && gone <= more {
			more = 0
		} else {
			gone = 0
		}
		for range gone {
			out.drop, i = append(out.drop, key(&from[i])), i+1
		}
		for range more {
			out.put, added, k = append(out.put, to[k]), append(added, key(&to[k])), k+1
		}
	}
	for ; i < len(from); i++ {
		out.drop = append(out.drop, key(&from[i]))
	}
	for ; k < len(to); k++ {
		out.put, added = append(out.put, to[k]), append(added, key(&to[k]))
	}
	return out, once(added, out.drop, known)
}

// skip is how many elements of a list come before the one with a key, -1 if it is
// not near.
func skip[T any, K comparable](list []T, k K, key func(*T) K) int {
	for i := range min(len(list), lookAhead) {
		if key(&list[i]) == k {
			return i
		}
	}
	return -1
}

// once reports whether what was added is there once.
func once[K comparable](added, dropped []K, known func(K) bool) bool {
	free := make(map[K]bool, len(dropped))
	for _, k := range dropped {
		free[k] = true
	}
	for _, k := range added {
		if known(k) && !free[k] {
			return false
		}
		free[k] = false
	}
	return true
}
