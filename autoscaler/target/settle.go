package target

import (
	"fmt"
	"slices"
	"strings"

	"github.com/caravan-sched/caravan/planner/burstapi"
)

// spare keeps nodes that nobody wants while something runs there that nobody has
// given back, and as many as the policy's min says.
func (in input) spare(d *decision, keep, failed map[string]bool, total int) int {
	if !in.planned {
		return 0
	}
	told := map[string]bool{}
	for _, g := range in.wants.GiveBack {
		told[g.Name] = true
	}
	for _, p := range in.wants.Purchases {
		for _, name := range p.Names {
			told[name] = true
		}
	}
	more := 0
	take := func(name string) {
		keep[name], d.want[name] = true, in.state[name].Value
		more++
	}
	rest := slices.DeleteFunc(in.state.Names(), func(n string) bool { return keep[n] || failed[n] })
	slices.SortStableFunc(rest, func(a, b string) int { return in.busy(b) - in.busy(a) })
	for _, name := range rest {
		m := in.nodes[name]
		switch {
		case !told[name] && len(m.Runs) > 0:
			take(name)
			d.why = append(d.why, fmt.Sprintf("node %s stays although the planner does not know it: %s runs there", name, strings.Join(m.Runs, ", ")))
		case total+more < in.floor && m.Ready:
			take(name)
			d.why = append(d.why, fmt.Sprintf("node %s stays: the policy's min is %d", name, in.floor))
		}
	}
	return more
}

// settle says how each node goes that is not to stay, and which that was to go stays.
func (in input) settle(d *decision, keep, failed map[string]bool) {
	for _, name := range in.state.Names() {
		m := in.nodes[name]
		if keep[name] {
			if m.Draining && m.Ours {
				d.undrain = append(d.undrain, name)
			}
			continue
		}
		switch {
		case len(m.Twice) > 1:
			d.want[name] = in.state[name].Value
			d.why = append(d.why, fmt.Sprintf("node %s is not given back: nodes %s both say that they are it; end the one that is not, and purge it", name, strings.Join(m.Twice, " and ")))
		case !m.Lives || len(m.Runs) == 0 && m.Draining:
			d.remove = append(d.remove, name)
		case in.count == noCount && !failed[name] && m.Ready && !m.Draining && in.planned && !in.rolledBack(name):
			// A policy has to ask for it: this pass only finishes what was begun.
			d.want[name] = in.state[name].Value
		default:
			d.want[name] = in.state[name].Value
			if !m.Draining {
				d.drain = append(d.drain, name)
				continue
			}
			d.why = append(d.why, fmt.Sprintf("node %s is drained, and waits for the end of %s", name, strings.Join(m.Runs, ", ")))
		}
	}
}

// rolledBack says that the planner counts the node's purchase as failed.
func (in input) rolledBack(name string) bool {
	p := find(in.wants.Purchases, in.purchaseOf(name))
	return p != nil && p.State == burstapi.Failed
}
