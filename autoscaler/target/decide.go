package target

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/caravan-sched/caravan/autoscaler/terraform"
	"github.com/caravan-sched/caravan/planner/burstapi"
)

// noCount is the count of a pass that nobody has asked for: it finishes, rolls back
// and cleans up, and buys nothing.
const noCount = -1

// machine is what Nomad knows of the nodes with one key of the pool's map.
type machine struct {
	// ID and Name are Nomad's of the node that counts: the one that lives.
	ID, Name string
	// Lives says that its client is there: ready, or not yet.
	Lives bool
	// Ready says that Nomad may place on it and that all devices promised are there
	// and healthy. Why says what is missing.
	Ready bool
	Why   string
	// Wrong says that it will never be what was promised: it has another model.
	Wrong bool
	// Runs are the jobs with allocations there that have not ended, as
	// namespace/job; Gang says that one of them is a gang's, as far as Nomad tells.
	Runs []string
	// Draining says that it is being drained, or was, and Ours that we have done it.
	Draining, Ours bool
	// Twice are the IDs of several nodes that live with the same key.
	Twice []string
}

// note is what we remember of a node, by our own clock.
type note struct {
	Purchase string    `json:"purchase"`
	Ordered  time.Time `json:"ordered"`
	// JoinBy is until when it may take to be ready. Joined says that it was.
	JoinBy time.Time `json:"join_by"`
	Joined bool      `json:"joined"`
	// Told says that the planner knows that the purchase is present.
	Told bool `json:"told"`
}

// input is all that a pass decides by.
type input struct {
	now time.Time
	// count is the policy's, noCount for none, and floor what must stay of what is
	// there since the policy's min says so.
	count, floor int
	// planned says that a planner names the nodes; wants is what it says of the pool.
	planned bool
	wants   burstapi.Pool
	state   terraform.State
	nodes   map[string]machine
	notes   map[string]note
	// lost are purchases that have failed here and are not tried again; blocked is
	// until when nothing is bought, after failures.
	lost    map[string]bool
	blocked time.Time
	// allowed are the purchases that a strategy lets be made now; nil is all.
	allowed map[string]bool
}

// failure is a purchase that could not be had.
type failure struct {
	purchase string
	names    []string
	reason   burstapi.Reason
	message  string
}

// decision is what a pass does.
type decision struct {
	// want is the map after it.
	want map[string]terraform.Value
	// add are the names that are new in it, in order.
	add []string
	// drain are nodes to be drained: they go when they are empty. undrain are those
	// that are wanted again.
	drain, undrain []string
	// remove are the names that go now: what ran there is gone.
	remove []string
	// failed are purchases to be rolled back and reported.
	failed []failure
	// present are purchases whose nodes are all ready, for the first time.
	present []string
	// ready and coming count nodes.
	ready, coming int
	// why says in words why something that seems due is not done.
	why []string
}

// wish is a purchase, or a node by itself where there is no planner.
type wish struct {
	purchase string
	market   burstapi.Market
	names    []string
	// there is how many of the names exist. fresh says that nobody has begun it.
	there int
	fresh bool
}

// decide says what is to be done. It is pure: the same input gives the same
// decision.
func decide(in input) decision {
	d := decision{want: map[string]terraform.Value{}}
	failed := in.judge(&d)
	keep := in.keep(&d, failed)
	in.settle(&d, keep, failed)
	slices.Sort(d.drain)
	slices.Sort(d.undrain)
	slices.Sort(d.remove)
	return d
}

// purchaseOf is the purchase of a node that exists.
func (in input) purchaseOf(name string) string {
	return cmp.Or(in.state[name].Value.Purchase, in.notes[name].Purchase)
}

// judge looks at the nodes that exist: which count, and which purchases have
// failed. It returns the names that are to go for that.
func (in input) judge(d *decision) map[string]bool {
	bad := map[string]failure{}
	members := map[string][]string{}
	for _, name := range in.state.Names() {
		purchase := in.purchaseOf(name)
		key := cmp.Or(purchase, "node "+name)
		members[key] = append(members[key], name)
		n, m, seen := in.state[name], in.nodes[name], in.notes[name]
		f := failure{purchase: purchase}
		switch {
		case n.Tainted:
			f.reason, f.message = burstapi.ReasonError, fmt.Sprintf("node %s was not made to its end", name)
		case m.Wrong:
			f.reason, f.message = burstapi.ReasonRefused, fmt.Sprintf("node %s %s", name, m.Why)
		case m.Ready:
			d.ready++
			continue
		case !seen.Joined && !seen.JoinBy.IsZero() && in.now.After(seen.JoinBy):
			f.reason, f.message = burstapi.ReasonTimeout, fmt.Sprintf("node %s was ordered %s ago and %s; it had until %s", name,
				in.now.Sub(seen.Ordered).Round(time.Second), cmp.Or(m.Why, "has not joined Nomad"), seen.JoinBy.UTC().Format(time.RFC3339))
		default:
			if !seen.Joined {
				d.coming++
			}
			continue
		}
		if _, already := bad[key]; !already {
			bad[key] = f
		}
	}
	gone := map[string]bool{}
	for _, key := range slices.Sorted(maps.Keys(bad)) {
		f := bad[key]
		f.names = members[key]
		for _, name := range f.names {
			gone[name] = true
		}
		d.failed = append(d.failed, f)
	}
	in.arrivals(d, members, bad)
	return gone
}

// arrivals finds the purchases whose nodes are all ready for the first time.
func (in input) arrivals(d *decision, members map[string][]string, bad map[string]failure) {
	for _, key := range slices.Sorted(maps.Keys(members)) {
		if _, is := bad[key]; is || strings.HasPrefix(key, "node ") {
			continue
		}
		names := members[key]
		if p := find(in.wants.Purchases, key); p != nil {
			names = p.Names
		}
		told := true
		for _, name := range names {
			if _, there := in.state[name]; !there || !in.nodes[name].Ready {
				told = true
				break
			}
			told = told && in.notes[name].Told
		}
		if !told {
			d.present = append(d.present, key)
		}
	}
}

func find(all []burstapi.Purchase, id string) *burstapi.Purchase {
	if i := slices.IndexFunc(all, func(p burstapi.Purchase) bool { return p.ID == id }); i >= 0 {
		return &all[i]
	}
	return nil
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
