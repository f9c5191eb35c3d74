package sim

import (
	"cmp"
	"maps"
	"slices"
)

// freeKinds are the free GPUs by model, and the gangs that wait for some models alone.
type freeKinds struct {
	// of is the kind of each node, by number in the order of the models' names. free are
	// the kinds' nodes by their number of free GPUs, total the GPUs free of each, and
	// perNode the most that a node of each has.
	of      []int
	free    [][]int
	total   []int
	perNode []int
	// asks are by model names, as jobs name them.
	asks    map[string]kindsAsk
	waiting []kindsWait
}

// kindsAsk are the kinds that some names mean, and by how many GPUs gangs are cut.
type kindsAsk struct {
	kinds   []int
	perNode int
}

// kindsWait is how many gangs of a size wait for some models.
type kindsWait struct {
	gpus   int
	models string
	count  int
}

// compare orders them by size.
func (w *kindsWait) compare(other *kindsWait) int {
	return cmp.Or(cmp.Compare(w.gpus, other.gpus), cmp.Compare(w.models, other.models))
}

// byModel tells the free GPUs of a cluster by their models from now on, if any job names
// some.
func (l *ledger) byModel(c *Cluster, jobs []job) {
	asks := map[string]kindsAsk{}
	for i := range jobs {
		if jobs[i].GPUModels != "" {
			asks[jobs[i].GPUModels] = kindsAsk{perNode: c.largest(allowed(jobs[i].GPUModels))}
		}
	}
	if len(asks) == 0 {
		return
	}
	number := map[string]int{}
	for i := range c.Nodes {
		number[modelOf(c, i)] = 0
	}
	k := &freeKinds{asks: asks}
	for at, name := range slices.Sorted(maps.Keys(number)) {
		number[name] = at
		k.free, k.total, k.perNode = append(k.free, make([]int, l.perNode+1)), append(k.total, 0), append(k.perNode, 1)
		for models, a := range asks {
			if slices.Contains(allowed(models), name) {
				a.kinds = append(a.kinds, at)
				asks[models] = a
			}
		}
	}
	for i := range c.Nodes {
		kind := number[modelOf(c, i)]
		k.of = append(k.of, kind)
		k.perNode[kind] = max(k.perNode[kind], c.wholes(i))
		k.free[kind][ones(l.free[i])]++
		k.total[kind] += ones(l.free[i])
	}
	l.kinds = k
}

func modelOf(c *Cluster, node int) string {
	if len(c.Nodes[node].GPUs) == 0 {
		return ""
	}
	return c.Nodes[node].GPUs[0].Model
}

// set changes a node's number of free GPUs.
func (k *freeKinds) set(node, before, after int) {
	if k == nil {
		return
	}
	kind := k.of[node]
	k.free[kind][before]--
	k.free[kind][after]++
	k.total[kind] += after - before
}

// wait notes that one gang more, or less, waits for some models.
func (k *freeKinds) wait(gpus int, models string, change int) {
	w := kindsWait{gpus, models, 0}
	at, found := slices.BinarySearchFunc(k.waiting, w, func(a, b kindsWait) int { return a.compare(&b) })
	if !found {
		k.waiting = slices.Insert(k.waiting, at, w)
	}
	if k.waiting[at].count += change; k.waiting[at].count == 0 {
		k.waiting = slices.Delete(k.waiting, at, at+1)
	}
}

// together are the free GPUs moved together, those of each model on nodes of that model.
func (k *freeKinds) together() [][]int {
	out := make([][]int, len(k.free))
	for i, most := range k.perNode {
		out[i] = make([]int, len(k.free[i]))
		out[i][most] = k.total[i] / most
		out[i][k.total[i]%most]++
	}
	return out
}

// packedByModel is packed where gangs wait for some models, which go first; the others can
// be on nodes of several.
func (l *ledger) packedByModel(free [][]int) int {
	best := 0
	for _, largestFirst := range []bool{true, false} {
		left, got := make([][]int, len(free)), 0
		for i := range free {
			left[i] = slices.Clone(free[i])
		}
		order := slices.Clone(l.kinds.waiting)
		if largestFirst {
			slices.Reverse(order)
		}
		for _, w := range order {
			ask := l.kinds.asks[w.models]
			count := w.count
			for _, kind := range ask.kinds {
				more := pack(left[kind], ask.perNode, w.gpus, count)
				count -= more / w.gpus
				got += more
			}
		}
		all := make([]int, l.perNode+1)
		for i := range left {
			for f, nodes := range left[i] {
				all[f] += nodes
			}
		}
		best = max(best, got+l.packAll(all, largestFirst))
	}
	return best
}
