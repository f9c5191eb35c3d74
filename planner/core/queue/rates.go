package queue

// Rates count how often gangs of queues have given way within the last hour,
// against the most that their queues, or those above them, grant.
type Rates struct {
	tree  *Tree
	given []int
}

// NewRates counts nothing yet; nil where no queue grants a number.
func (t *Tree) NewRates() *Rates {
	if t == nil {
		return nil
	}
	for i := range t.nodes {
		if q := t.nodes[i].config; q != nil && q.MaxPreemptedPerHour > 0 {
			return &Rates{tree: t, given: make([]int, len(t.nodes))}
		}
	}
	return nil
}

// Note counts a gang of a home; a negative number takes back.
func (r *Rates) Note(h Home, gangs int) {
	if r == nil {
		return
	}
	for at := h.queue; at > root; at = r.tree.nodes[at].parent {
		r.grow(at)
		r.given[at] += gangs
	}
}

// Spent names the queue that grants no further gang of a home within the hour,
// and how many it grants; "" if none is against it.
func (r *Rates) Spent(h Home) (path string, most int) {
	if r == nil {
		return "", 0
	}
	for at := h.queue; at > root; at = r.tree.nodes[at].parent {
		r.grow(at)
		if q := r.tree.nodes[at].config; q != nil && q.MaxPreemptedPerHour > 0 && r.given[at] >= q.MaxPreemptedPerHour {
			return r.tree.nodes[at].path, q.MaxPreemptedPerHour
		}
	}
	return "", 0
}

// grow makes room for a node; the tree may have grown since.
func (r *Rates) grow(node int) {
	for len(r.given) <= node {
		r.given = append(r.given, 0)
	}
}
