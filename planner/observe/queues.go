package observe

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/core/queue"
)

// queueWarnings names the queues that jobs name and nobody has configured, and
// the models of GPUs that queues name and no node has.
func queueWarnings(s *model.Snapshot) []Warning {
	if len(s.Queues) == 0 {
		return nil
	}
	tree := queue.NewTree(s.Queues, nil)
	jobs, home := map[string]int{}, map[string]string{}
	for i := range s.Jobs {
		j := &s.Jobs[i]
		if h := tree.HomeOf(j); !h.Known {
			jobs[j.Queue]++
			home[j.Queue] = tree.Name(h)
		}
	}
	var out []Warning
	for _, name := range slices.Sorted(maps.Keys(jobs)) {
		out = append(out, Warning{Subject: "queue " + name, Text: fmt.Sprintf(
			"it is not configured, and %d of the jobs name it; they count for queue %s: configure it, or correct caravan_queue", jobs[name], home[name])})
	}
	return append(out, modelWarnings(s)...)
}

func modelWarnings(s *model.Snapshot) (out []Warning) {
	known := map[string]bool{}
	for i := range s.Nodes {
		for k := range s.Nodes[i].GPUs {
			known[s.Nodes[i].GPUs[k].Model] = true
		}
	}
	for i := range s.Queues {
		q := &s.Queues[i]
		named := map[string]bool{}
		for _, quota := range []map[string]int{q.Guarantee, q.Borrow, q.PerUser} {
			for name := range quota {
				if m, isModel := strings.CutPrefix(name, model.ResourceModel); isModel && !known[m] {
					named[m] = true
				}
			}
		}
		for _, m := range slices.Sorted(maps.Keys(named)) {
			out = append(out, Warning{Subject: "queue " + q.Path, Text: fmt.Sprintf("no node has GPUs of the model %q that it names; there are %q", m, slices.Sorted(maps.Keys(known)))})
		}
	}
	return out
}
