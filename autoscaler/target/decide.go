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
	// Purchase is whose it is by its meta.
	Purchase string
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
	// Made is when the apply began that has made it.
	Made time.Time `json:"made,omitzero"`
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
	// doubts are nodes that may exist, though the state does not know them.
	doubts map[string]terraform.Doubt
	// cutShort says that an apply was, and what it was about is not finished.
	cutShort bool
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
	// vanished are the names, by purchase, of nodes that were there, and that neither
	// the state nor Nomad has any more: the planner is told that they are gone.
	vanished map[string][]string
	// ready and coming count nodes.
	ready, coming int
	// why says in words why something that seems due is not done.
	why []string
}

// decide says what is to be done. It is pure: the same input gives the same
// decision.
func decide(in input) decision {
	d := decision{want: map[string]terraform.Value{}}
	d.vanished = in.vanished()
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
			if p.State == burstapi.Failed || p.State == burstapi.GivingBack {
				continue
			}
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
