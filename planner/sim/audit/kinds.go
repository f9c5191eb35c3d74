package audit

import (
	"cmp"
	"slices"
	"strings"
)

// wish is what a job that names models waits for.
type wish struct {
	gpus   int
	models string
}

// model is the driver's name of a node's GPUs.
func (n *Node) model() string {
	if len(n.Models) == 0 {
		return ""
	}
	return n.Models[0]
}

// divideByModel is divide where jobs that name models wait: what is free is told by model,
// moved together only on nodes of its model, and given to those jobs first.
func (k *clock) divideByModel() [3]float64 {
	var names []string
	now, compact, largest, free := map[string][]int{}, map[string][]int{}, map[string]int{}, map[string]int{}
	for i := range k.nodes {
		name := k.nodes[i].model()
		if now[name] == nil {
			names = append(names, name)
			now[name], compact[name], largest[name] = make([]int, k.perNode+1), make([]int, k.perNode+1), 1
		}
		now[name][k.unused[i]]++
		free[name] += k.unused[i]
		largest[name] = max(largest[name], k.nodes[i].able())
	}
	slices.Sort(names)
	for _, name := range names {
		compact[name][largest[name]] = free[name] / largest[name]
		if rest := free[name] % largest[name]; rest > 0 {
			compact[name][rest] = 1
		}
	}
	fills := k.fillByModel(names, now)
	best := max(fills, k.fillByModel(names, compact))
	return [3]float64{float64(fills), float64(best - fills), float64(k.total - best)}
}

// fillByModel is fill of nodes by their models.
func (k *clock) fillByModel(names []string, by map[string][]int) int {
	wishes := make([]wish, 0, len(k.wishes))
	for w := range k.wishes {
		wishes = append(wishes, w)
	}
	slices.SortFunc(wishes, func(a, b wish) int { return cmp.Or(cmp.Compare(a.gpus, b.gpus), strings.Compare(a.models, b.models)) })
	best := 0
	for _, descending := range []bool{false, true} {
		left, got := map[string][]int{}, 0
		for _, name := range names {
			left[name] = slices.Clone(by[name])
		}
		for _, w := range wishes {
			on := strings.Split(w.models, "|")
			cut := k.cutBy(on)
			for range k.wishes[w] {
				at := slices.IndexFunc(names, func(name string) bool { return slices.Contains(on, name) && k.placeBy(left[name], cut, w.gpus) })
				if at < 0 {
					break
				}
				got += w.gpus
			}
		}
		any := make([]int, k.perNode+1)
		for _, histogram := range left {
			for unused, nodes := range histogram {
				any[unused] += nodes
			}
		}
		best = max(best, got+k.fillIn(any, descending))
		slices.Reverse(wishes)
	}
	return best
}

// cutBy is how many GPUs the members have of a gang on some models: as the largest node.
func (k *clock) cutBy(models []string) int {
	most := 1
	for i := range k.nodes {
		if slices.Contains(models, k.nodes[i].model()) {
			most = max(most, k.nodes[i].able())
		}
	}
	return most
}
