package daemon

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/caravan-sched/caravan/planner/core/feasible"
	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/observe"
	"github.com/caravan-sched/caravan/planner/record"
)

// maxAvoidedNamed is how many nodes a reason names.
const maxAvoidedNamed = 4

// tellAvoided names, in the reasons of jobs that wait, the nodes that their own
// preflights have ruled out. To the core they are constraints like others.
func tellAvoided(plan *model.Plan, v *observe.View) {
	avoided := map[jobKey][]record.Avoided{}
	for i := range v.Managed {
		if m := &v.Managed[i]; m.Record != nil && len(m.Record.Avoided) > 0 {
			avoided[jobKey{m.Namespace, m.ID}] = m.Record.Avoided
		}
	}
	for i := range plan.Decisions {
		d := &plan.Decisions[i]
		if nodes := avoided[jobKey{d.Namespace, d.Job}]; len(nodes) > 0 && d.Action == model.ActionWait {
			tellAvoidedOf(d, nodes)
		}
	}
}

func tellAvoidedOf(d *model.Decision, nodes []record.Avoided) {
	filtered := maps.Clone(d.Detail.Filtered)
	var names []string
	said := false
	for _, a := range nodes {
		key := "constraint " + feasible.Describe(observe.Avoid(a))
		n, ok := filtered[key]
		if !ok {
			continue
		}
		name := fmt.Sprintf("%s (%s)", cmp.Or(a.NodeName, a.Node), cmp.Or(a.Why, "no reason was given"))
		label := "the job's preflight has found it unfit: " + name
		delete(filtered, key)
		filtered[label] = n
		if strings.Contains(d.Reason, key) {
			d.Reason, said = strings.ReplaceAll(d.Reason, key, label), true
		}
		names = append(names, name)
	}
	if len(names) == 0 {
		return
	}
	d.Detail.Filtered = filtered
	if said {
		return
	}
	slices.Sort(names)
	text := strings.Join(names[:min(len(names), maxAvoidedNamed)], ", ")
	if more := len(names) - maxAvoidedNamed; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	d.Reason += "; it is not placed on nodes that its preflights have found unfit: " + text
}
