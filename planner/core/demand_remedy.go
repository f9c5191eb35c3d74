package core

import (
	"fmt"
	"slices"
	"strings"

	"github.com/caravan-sched/caravan/planner/core/feasible"
	"github.com/caravan-sched/caravan/planner/core/model"
)

// maxPoolKeys is how many keys a reason names.
const maxPoolKeys = 4

// poolKeys name the keys by which a job does not fit on a pool's nodes, each with a
// value that would do: of the pool's node block, or of the job.
func poolKeys(pool *model.BuyPool, j *model.Job) string {
	var out []string
	add := func(format string, args ...any) {
		if text := fmt.Sprintf(format, args...); !slices.Contains(out, text) {
			out = append(out, text)
		}
	}
	n := &pool.Node
	if feasible.NewNodes([]*model.Node{n}).Verdicts(feasible.Filter{Datacenters: j.Datacenters}).Refused[0] != 0 {
		add("datacenter %q is none of the job's (%s)", n.Datacenter, strings.Join(j.Datacenters, ", "))
	}
	if j.Pool != "" && j.Pool != "all" && j.Pool != n.Pool {
		add("node_pool = %q, as the job's, and not %q", j.Pool, n.Pool)
	}
	if len(j.Models) > 0 && len(n.GPUs) > 0 && !slices.ContainsFunc(j.Models, func(m model.ModelSpeed) bool { return m.Name == n.GPUs[0].Model }) {
		add("model %q is none of those that the job's caravan_models names", n.GPUs[0].Model)
	}
	for i := range j.Groups {
		g := &j.Groups[i]
		for _, r := range []struct {
			key          string
			needs, there int
		}{
			{"gpus", askedGPUs(g), len(n.GPUs)}, {"cpu_mhz", g.Resources.CPUMHz, n.Capacity.CPUMHz},
			{"memory_mib", g.Resources.MemoryMiB, n.Capacity.MemoryMiB}, {"disk_mib", g.Resources.DiskMiB, n.Capacity.DiskMiB},
		} {
			if r.needs > r.there {
				add("%s = %d or more, and not %d", r.key, r.needs, r.there)
			}
		}
		for _, con := range slices.Concat(j.Constraints, g.Constraints) {
			if text := constraintRemedy(n, con); text != "" {
				add("%s", text)
			}
		}
	}
	if len(out) == 0 {
		return ""
	}
	if more := len(out) - maxPoolKeys; more > 0 {
		out = append(out[:maxPoolKeys], fmt.Sprintf("%d more", more))
	}
	return "; in pool " + pool.Name + "'s node block it would take " + strings.Join(out, ", ")
}

// constraintRemedy says what a node would have to say of itself to meet a constraint;
// "" if it does, or nothing that it says would help.
func constraintRemedy(n *model.Node, con model.Constraint) string {
	if feasible.NewNodes([]*model.Node{n}).Verdicts(feasible.Filter{Constraints: []model.Constraint{con}}).Refused[0] == 0 {
		return ""
	}
	key, name := "", strings.TrimSuffix(strings.TrimPrefix(con.Left, "${"), "}")
	if rest, ok := strings.CutPrefix(name, "attr."); ok {
		key, name = "attributes", rest
	} else if rest, ok := strings.CutPrefix(name, "meta."); ok {
		key, name = "meta", rest
	}
	plain := map[string]string{"node.class": "class", "node.datacenter": "datacenter", "node.pool": "node_pool"}[name]
	exact := slices.Contains([]string{"", "=", "==", "is", ">=", "<="}, con.Operand)
	switch {
	case key != "" && exact:
		return fmt.Sprintf("%s = { %q = %q }", key, name, con.Right)
	case key != "":
		return fmt.Sprintf("%s with %q, for %s", key, name, feasible.Describe(con))
	case plain != "" && exact:
		return fmt.Sprintf("%s = %q", plain, con.Right)
	case plain != "":
		return fmt.Sprintf("%s, for %s", plain, feasible.Describe(con))
	}
	return ""
}
