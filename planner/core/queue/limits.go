package queue

// Limit is the most GPUs that a queue, or one user of it, may use of all or of one
// model.
type Limit struct {
	// Key tells limits apart.
	Key LimitKey
	// Name says whose it is: "that queue a may use".
	Name string
	// Model is that of the GPUs, "" for all of them.
	Model string
	GPUs  int
}

// LimitKey is what a Limit is of.
type LimitKey struct {
	node, dim int
	never     bool
}

// Limits are those that count for the jobs of a home: of its user, its queue and those
// above, and, for jobs that are never to be preempted, what its queue is guaranteed.
func (t *Tree) Limits(h Home, never bool) (out []Limit) {
	add := func(node, dim int, most int64, never bool, name string) {
		if most < 0 || dim > dimGPU && dim < fixedDims {
			return
		}
		l := Limit{Key: LimitKey{node, dim, never}, Name: name, GPUs: int(most)}
		if dim >= fixedDims {
			l.Model = t.modelAt(dim)
			l.Name = "of " + l.Model + " " + name
		}
		out = append(out, l)
	}
	if !t.Limited {
		return nil
	}
	for at := h.leaf; at > root; at = t.nodes[at].parent {
		for dim, most := range t.nodes[at].limit {
			add(at, dim, most, false, "that "+t.whose(at)+" may use")
		}
	}
	if never {
		guarantee, at := t.nodes[h.queue].guarantee, h.queue
		if h.direct {
			guarantee, at = t.nodes[h.queue].own, h.leaf
		}
		for dim, most := range guarantee {
			add(at, dim, most, true, "guaranteed to "+t.whose(h.queue)+", for jobs that are never preempted")
		}
	}
	return out
}
