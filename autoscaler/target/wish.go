package target

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/caravan-sched/caravan/autoscaler/terraform"
	"github.com/caravan-sched/caravan/planner/burstapi"
)

// wish is a purchase, or a node by itself where there is no planner.
type wish struct {
	purchase string
	market   burstapi.Market
	names    []string
	// there is how many of the names exist. fresh says that nobody has begun it.
	there int
	fresh bool
}

// keep fills in what the map is to be, and returns what stays of what is there.
func (in input) keep(d *decision, failed map[string]bool) map[string]bool {
	keep := map[string]bool{}
	total := 0
	wishes := in.wishes(failed)
	for _, w := range wishes { // what is there, first
		for _, name := range w.names {
			if _, there := in.state[name]; there {
				keep[name], total = true, total+1
				d.want[name] = in.state[name].Value
			}
		}
	}
	total += in.spare(d, keep, failed, total)
	for _, w := range wishes {
		missing := len(w.names) - w.there
		if missing == 0 {
			continue
		}
		if why := in.refuse(w, total, missing); why != "" {
			d.why = append(d.why, why)
			continue
		}
		for _, name := range w.names {
			if _, there := in.state[name]; !there {
				d.want[name] = terraform.Value{Purchase: w.purchase, Market: string(cmp.Or(w.market, burstapi.OnDemand))}
				d.add = append(d.add, name)
				total++
			}
		}
	}
	return keep
}

// refuse says why nodes of a wish are not made now; "" lets them be.
func (in input) refuse(w wish, total, missing int) string {
	what := "the nodes"
	if w.purchase != "" {
		what = "purchase " + w.purchase
	}
	if _, lost := in.lost[w.purchase]; lost {
		return fmt.Sprintf("%s has failed here and is not tried again", what)
	}
	if in.allowed != nil && w.fresh && !in.allowed[w.purchase] {
		return fmt.Sprintf("%s is held by the strategy", what)
	}
	if !in.planned && in.now.Before(in.blocked) {
		return fmt.Sprintf("%s (%s) wait until %s: the last try failed", what, strings.Join(w.names, ", "), in.blocked.UTC().Format(time.RFC3339))
	}
	if in.count == noCount {
		return fmt.Sprintf("%s (%s) waits for the policy to ask for it", what, strings.Join(w.names, ", "))
	}
	if total+missing > in.count {
		return fmt.Sprintf("%s needs %d more nodes beside %d, and the policy allows %d: it is all or nothing", what, missing, total, in.count)
	}
	for _, name := range w.names {
		if m := in.nodes[name]; m.Lives && in.state[name].Name == "" {
			return fmt.Sprintf("%s: node %s (%s) lives in Nomad and Terraform's state does not know it: import it into the state, or end the machine", what, name, m.ID)
		}
		if d, doubted := in.doubts[name]; doubted && d.Looks == 0 {
			return fmt.Sprintf("%s: node %s may have been made by an apply that was cut short at %s, and could not be looked for yet", what, name, d.Since.UTC().Format(time.RFC3339))
		}
	}
	return ""
}

// wishes are what is to be there, in order.
func (in input) wishes(failed map[string]bool) []wish {
	var out []wish
	if !in.planned {
		return in.plain(failed)
	}
	leaving := map[string]bool{}
	for _, g := range in.wants.GiveBack {
		leaving[g.Name] = true
	}
	for _, names := range in.vanished() {
		for _, name := range names { // what is gone is not made again: the planner decides
			leaving[name] = true
		}
	}
	for _, p := range in.wants.Purchases {
		if p.State == burstapi.Failed || p.State == burstapi.GivingBack {
			continue
		}
		w := wish{purchase: p.ID, market: p.Market, fresh: p.State == burstapi.Wanted}
		broken := false
		for _, name := range p.Names {
			broken = broken || failed[name]
			if leaving[name] {
				continue
			}
			w.names = append(w.names, name)
			if _, there := in.state[name]; there {
				w.there++
			}
		}
		if !broken && len(w.names) > 0 {
			out = append(out, w)
		}
	}
	return out
}

// plain are nodes by number, where no planner names any: those that are there, the
// busy ones first, and then new ones.
func (in input) plain(failed map[string]bool) []wish {
	var out []wish
	names := slices.DeleteFunc(in.state.Names(), func(n string) bool {
		// One that is being drained goes on to go, unless the policy asks for it.
		return failed[n] || in.count == noCount && in.nodes[n].Ours
	})
	slices.SortStableFunc(names, func(a, b string) int { return in.busy(b) - in.busy(a) })
	count := in.count
	if count == noCount {
		count = len(names)
	}
	for _, name := range names[:min(count, len(names))] {
		out = append(out, wish{names: []string{name}, there: 1})
	}
	for i := 1; len(out) < count; i++ {
		name := fmt.Sprintf("n%d", i)
		if _, taken := in.state[name]; !taken {
			out = append(out, wish{names: []string{name}})
		}
	}
	return out
}

// busy orders nodes by how much is lost with them.
func (in input) busy(name string) int {
	m := in.nodes[name]
	switch {
	case len(m.Runs) > 0:
		return 100 + len(m.Runs)
	case m.Ready:
		return 2
	case m.Lives:
		return 1
	default:
		return 0
	}
}

// vanished are nodes that were there, or are to go, and are not: the state lacks them,
// none lives in Nomad, and none is in doubt. Of a purchase that is still being made
// none has vanished, but that it is to go.
func (in input) vanished() map[string][]string {
	if !in.planned || in.cutShort {
		return nil
	}
	leaving := map[string]bool{}
	for _, g := range in.wants.GiveBack {
		leaving[g.Name] = true
	}
	out := map[string][]string{}
	for _, p := range in.wants.Purchases {
		made := p.State != burstapi.Wanted && p.State != burstapi.Coming
		for _, name := range p.Names {
			_, known := in.state[name]
			_, doubted := in.doubts[name]
			if !known && !doubted && !in.nodes[name].Lives && (made || leaving[name]) {
				out[p.ID] = append(out[p.ID], name)
			}
		}
	}
	return out
}
