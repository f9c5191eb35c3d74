package speed

import (
	"slices"
	"strings"

	"github.com/caravan-sched/caravan/planner/core/model"
)

// Where is the configuration that members have: how many there are, with how many
// GPUs of which models, and the tightest level that all share. Members that have
// ended do not count. Levels are the snapshot's above the node, outermost first;
// false where a node or a GPU is not known.
func Where(levels []string, node func(id string) *model.Node, members []model.Member) (Config, bool) {
	var out Config
	var first *model.Node
	var models []string
	level, island := Island, -1
	for i := range members {
		m := &members[i]
		if m.Ended {
			continue
		}
		n := node(m.Node)
		if n == nil {
			return out, false
		}
		out.Members++
		out.GPUs += len(m.GPUs)
		for _, uuid := range m.GPUs {
			at := slices.IndexFunc(n.GPUs, func(g model.GPU) bool { return g.UUID == uuid })
			if at < 0 {
				return out, false
			}
			models = append(models, n.GPUs[at].Model)
			if island >= 0 && n.GPUs[at].Island != island {
				level = max(level, Node)
			}
			island = n.GPUs[at].Island
		}
		if len(m.GPUs) == 0 {
			level = max(level, Node)
		}
		if first == nil {
			first = n
		} else if n != first {
			level = max(level, shared(levels, first, n))
		}
	}
	slices.Sort(models)
	out.Model, out.Level = strings.Join(slices.Compact(models), "+"), level
	return out, out.Members > 0
}

// shared is the tightest level that two nodes share: they have the same of it and
// of everything outside it.
func shared(levels []string, a, b *model.Node) Level {
	out := Wider
	for _, name := range levels {
		if a.Levels[name] != b.Levels[name] {
			break
		}
		if a.Levels[name] != "" {
			out = ParseLevel(name)
		}
	}
	return out
}
