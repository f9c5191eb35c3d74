package queue

import (
	"cmp"
	"slices"
	"strings"

	"github.com/caravan-sched/caravan/planner/core/model"
)

// Tree is the tree of queues. It grows as jobs name users that it has not seen;
// what it says depends on no order.
type Tree struct {
	dims
	// Limited: some queue guarantees or limits something, so that jobs need a
	// right to what they take.
	Limited bool

	nodes  []node
	byPath map[string]int
	// homes remembers where the jobs of a queue belong.
	homes    map[string]Home
	fallback int
	// depth is how deep the deepest queue is.
	depth int
}

// node is a queue, or one user of it.
type node struct {
	path   string
	parent int
	kids   []int
	depth  int
	// guarantee is -1 where the queue says nothing of the resource; limit is the
	// most that it may use, -1 where there is none.
	guarantee, limit Vector
	// own is what is guaranteed to jobs that are in the queue itself.
	own     Vector
	weight  float64
	history []float64
	config  *model.Queue
}

// root is the node above all queues.
const root = 0

// unlimited is an amount without a limit, or a guarantee that is not given.
const unlimited = -1

// Home is where a job belongs.
type Home struct {
	// leaf is the node of its user, below queue's.
	leaf, queue int
	// direct: the queue has queues below it, and the job is in none of them.
	direct bool
	// Known: the queue that the job names is configured, or is a user's of one
	// that is.
	Known bool
}

// FallbackQueue is where jobs of unknown queues are if no queue is the default.
const FallbackQueue = "default"

// NewTree makes the tree of valid queues; models are those of the cluster's
// GPUs. Without queues every path that a job names is a queue of its own.
func NewTree(queues []model.Queue, models []string) *Tree {
	t := &Tree{dims: newDims(queues, models), byPath: map[string]int{}, homes: map[string]Home{}, fallback: unlimited}
	t.nodes = []node{{parent: -1, guarantee: t.filled(unlimited), limit: t.filled(unlimited), weight: 1}}
	sorted := slices.Clone(queues)
	slices.SortFunc(sorted, func(a, b model.Queue) int {
		return cmp.Or(cmp.Compare(strings.Count(a.Path, "/"), strings.Count(b.Path, "/")), strings.Compare(a.Path, b.Path))
	})
	for i := range sorted {
		q := &sorted[i]
		at := t.add(q.Path, t.above(q.Path))
		n := &t.nodes[at]
		n.config = q
		t.depth = max(t.depth, n.depth)
		if q.Weight > 0 {
			n.weight = q.Weight
		}
		t.remember(n, q)
		if q.Default {
			t.fallback = at
		}
		t.Limited = t.Limited || len(q.Guarantee)+len(q.Borrow)+len(q.PerUser) > 0
	}
	if len(queues) > 0 && t.fallback == unlimited {
		if at, there := t.byPath[FallbackQueue]; there {
			t.fallback = at
		} else {
			t.fallback = t.add(FallbackQueue, root)
			t.depth = max(t.depth, 1)
		}
	}
	t.guarantees()
	return t
}

// remember notes what a queue has used.
func (t *Tree) remember(n *node, q *model.Queue) {
	n.history = nil
	for name, value := range q.History {
		if k, counted := t.at[name]; counted {
			if n.history == nil {
				n.history = make([]float64, len(t.names))
			}
			n.history[k] = value
		}
	}
}

// SetHistory replaces what queues have used. They are those that the tree was
// made of, otherwise unchanged.
func (t *Tree) SetHistory(queues []model.Queue) {
	for i := range queues {
		n := &t.nodes[t.byPath[queues[i].Path]]
		n.config = &queues[i]
		t.remember(n, &queues[i])
	}
}

func (d *dims) filled(n int64) Vector {
	v := d.zero()
	for i := range v {
		v[i] = n
	}
	return v
}

// add adds a node below another one, whose kids stay in the order of their
// paths: sums of fractions depend on it.
func (t *Tree) add(path string, parent int) int {
	at := len(t.nodes)
	t.nodes = append(t.nodes, node{path: path, parent: parent, depth: t.nodes[parent].depth + 1, guarantee: t.filled(unlimited), limit: t.filled(unlimited), weight: 1})
	kids := t.nodes[parent].kids
	k, _ := slices.BinarySearchFunc(kids, path, func(kid int, path string) int { return strings.Compare(t.nodes[kid].path, path) })
	t.nodes[parent].kids = slices.Insert(kids, k, at)
	t.byPath[path] = at
	return at
}

// above is the nearest queue above a path.
func (t *Tree) above(path string) int {
	for {
		at := strings.LastIndexByte(path, '/')
		if at < 0 {
			return root
		}
		path = path[:at]
		if n, known := t.byPath[path]; known {
			return n
		}
	}
}

// guarantees computes what every queue is guaranteed and limited to, the
// innermost first: one that does not name a resource is guaranteed what those
// below it are together.
func (t *Tree) guarantees() {
	for at := len(t.nodes) - 1; at > root; at-- { // kids come after their parents
		n := &t.nodes[at]
		below := t.filled(unlimited)
		for _, k := range n.kids {
			for i, g := range t.nodes[k].guarantee {
				if g >= 0 {
					below[i] = max(below[i], 0) + g
				}
			}
		}
		n.guarantee = slices.Clone(below)
		if n.config != nil {
			t.configure(n)
		}
		// Who guarantees some models says by that that he does not the others.
		if slices.ContainsFunc(n.guarantee[fixedDims:], func(g int64) bool { return g > 0 }) && !n.wide() {
			for i := fixedDims; i < len(n.guarantee); i++ {
				n.guarantee[i] = max(n.guarantee[i], 0)
			}
		}
		n.guarantee[dimGPU] = max(n.guarantee[dimGPU], 0)
		n.own = slices.Clone(n.guarantee)
		for i, b := range below {
			if b > 0 {
				n.own[i] = max(n.own[i]-b, 0)
			}
		}
		if n.config != nil {
			for name, most := range n.config.Borrow {
				if i, counted := t.at[name]; counted {
					n.limit[i] = max(n.guarantee[i], 0) + int64(most)
				}
			}
		}
	}
}

// configure takes the guarantee that the queue names.
func (t *Tree) configure(n *node) {
	for name, g := range model.GuaranteeOf(n.config) {
		if i, counted := t.at[name]; counted {
			n.guarantee[i] = max(n.guarantee[i], int64(g))
		}
	}
}

// wide reports whether a queue is guaranteed more GPUs than those of the models
// that it names.
func (n *node) wide() bool {
	sum := int64(0)
	for _, g := range n.guarantee[fixedDims:] {
		sum += max(g, 0)
	}
	return n.guarantee[dimGPU] > sum
}

// HomeOf finds where a job belongs: in the queue that it names, or the nearest
// one above that is configured, where what is left of the path is the user. A
// job of a queue that is not below any is in the default queue.
func (t *Tree) HomeOf(j *model.Job) Home {
	if h, known := t.homes[j.Queue]; known {
		return h
	}
	h := t.home(j.Queue)
	t.homes[j.Queue] = h
	return h
}

func (t *Tree) home(path string) Home {
	if t.fallback == unlimited { // no queues are configured
		return t.implied(path)
	}
	at, user := t.find(path)
	known := at != root
	if !known {
		at, user = t.fallback, ""
		if path == "" {
			known = true
		}
	}
	h := Home{queue: at, Known: known, direct: t.hasQueues(at)}
	if h.direct && user != "" {
		h.Known, user = false, ""
	}
	h.leaf = t.user(at, user)
	return h
}

// find is the nearest queue at a path or above it, and what follows it.
func (t *Tree) find(path string) (at int, rest string) {
	for prefix := path; prefix != ""; {
		if at, known := t.byPath[prefix]; known && (t.nodes[at].config != nil || at == t.fallback) {
			return at, strings.TrimPrefix(strings.TrimPrefix(path, prefix), "/")
		}
		cut := strings.LastIndexByte(prefix, '/')
		if cut < 0 {
			break
		}
		prefix = prefix[:cut]
	}
	return root, path
}

// implied is the home of a path where no queue is configured.
func (t *Tree) implied(path string) Home {
	if path == "" {
		path = FallbackQueue
	}
	at := root
	for end := 0; end < len(path); {
		next := strings.IndexByte(path[end:], '/')
		if next < 0 {
			next = len(path) - end
		}
		prefix := path[:end+next]
		known, there := t.byPath[prefix]
		if !there {
			known = t.add(prefix, at)
		}
		at, end = known, end+next+1
	}
	// Others may be below it, which are its siblings only if it is a leaf too.
	return Home{leaf: t.user(at, ""), queue: at, Known: true}
}

// hasQueues reports whether there are queues below one, and not only users.
func (t *Tree) hasQueues(at int) bool {
	return slices.ContainsFunc(t.nodes[at].kids, func(k int) bool { return t.nodes[k].config != nil })
}

// userMark stands between a queue and its user, in a path that no queue has.
const userMark = "/:"

// user is the node of one user of a queue. Jobs that name none are one user's.
func (t *Tree) user(at int, name string) int {
	path := t.nodes[at].path + userMark + name
	if known, there := t.byPath[path]; there {
		return known
	}
	u := t.add(path, at)
	if q := t.nodes[at].config; q != nil {
		for resource, most := range q.PerUser {
			if i, counted := t.at[resource]; counted {
				t.nodes[u].limit[i] = int64(most)
			}
		}
	}
	return u
}

// Name is the path of a home's queue.
func (t *Tree) Name(h Home) string { return t.nodes[h.queue].path }

// Priority is a job's priority: its queue's number for its class, else the one
// that Nomad knows.
func (t *Tree) Priority(j *model.Job) int {
	if n, named := t.class(j); named {
		return n
	}
	return j.Priority
}

// HasClass reports whether a job's queue, or one above it, gives its class a number.
func (t *Tree) HasClass(j *model.Job) bool {
	_, named := t.class(j)
	return named
}

func (t *Tree) class(j *model.Job) (int, bool) {
	if j.PriorityClass == "" || t == nil {
		return 0, false
	}
	for at := t.HomeOf(j).queue; at > root; at = t.nodes[at].parent {
		if q := t.nodes[at].config; q != nil {
			if n, named := q.Priorities[j.PriorityClass]; named {
				return n, true
			}
		}
	}
	return 0, false
}
