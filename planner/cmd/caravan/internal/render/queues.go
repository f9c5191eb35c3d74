package render

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/caravan-sched/caravan/planner/core/model"
)

// Queues writes how the queues stand, in GPUs; other resources only where a
// queue is guaranteed some, or limited.
func Queues(w io.Writer, queues []model.QueueUse) error {
	if len(queues) == 0 {
		_, err := fmt.Fprintln(w, "No queue is configured.")
		return err
	}
	g := newGrid("QUEUE", "GUARANTEED", "USED", "BORROWED", "LIMIT", "WAITING", "SHARE", "OTHERS")
	for i := range queues {
		q := &queues[i]
		limit, waiting := "-", "-"
		if n, limited := q.Limit[model.ResourceGPU]; limited {
			limit = strconv.Itoa(n)
		}
		if q.Waiting > 0 {
			waiting = fmt.Sprintf("%d (%d GPUs)", q.Waiting, q.WaitingGPUs)
		}
		g.add(q.Path, strconv.Itoa(q.Guaranteed[model.ResourceGPU]), strconv.Itoa(q.Used[model.ResourceGPU]),
			strconv.Itoa(q.BorrowedGPUs), limit, waiting, strconv.FormatFloat(q.Share, 'f', 2, 64), others(q))
	}
	if err := g.write(w, ""); err != nil || !slices.ContainsFunc(queues, func(q model.QueueUse) bool { return q.Share > 1 }) {
		return err
	}
	_, err := fmt.Fprintln(w, overOne)
	return err
}

// overOne says why a share may be more than the whole cluster.
const overOne = `
SHARE is what a queue uses now and what it has used on average of late, added up, by
its weight: over 1 it is more than the cluster has, since the past counts too.`

// others are the resources beside GPUs of which a queue is guaranteed some, or
// limited: "cpu_mhz 500 of 1000".
func others(q *model.QueueUse) string {
	named := maps.Clone(q.Guaranteed)
	for name, n := range q.Limit {
		named[name] = max(named[name], n)
	}
	delete(named, model.ResourceGPU)
	var out []string
	for _, name := range slices.Sorted(maps.Keys(named)) {
		out = append(out, fmt.Sprintf("%s %d of %d", strings.TrimPrefix(name, model.ResourceModel), q.Used[name], named[name]))
	}
	return strings.Join(out, ", ")
}
