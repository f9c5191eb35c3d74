package sim

import (
	"fmt"
	"maps"
	"slices"

	"github.com/caravan-sched/caravan/planner/core/model"
)

// Nodes that are bought: each pool has as many places in the cluster as its quota.
// A place is down until a node of a purchase has booted there, and again when the
// node is given back or, as a spot node, taken away. The planner's own code decides
// what is bought; here it takes its time, and is paid for.

// buyer is a Scheduler that buys nodes.
type buyer interface {
	// Orders are the purchases and what is given back since it was asked last.
	Orders() ([]order, []returned)
	// Arrive tells that a node has booted in a place, Gone that it is no more; those
	// that ran on it wait again.
	Arrive(now float64, name string, place int) error
	Gone(now float64, name string, victims []int) error
	// Spent is what all purchases have cost up to a time.
	Spent(now float64) float64
	// Why is what was last said of a job that waits, in words.
	Why(job int) string
}

// order is a purchase to be carried out.
type order struct {
	pool string
	// names are the nodes', and spot says that they may be taken away.
	names []string
	spot  bool
	// gang is the job for which they are bought; -1 if it is not there any more.
	gang int
}

// returned is a node that is given back at a time.
type returned struct {
	name string
	at   float64
}

// WithPools is a cluster with places for nodes of pools. Its GPUs are those that it
// has without them.
func (c Cluster) WithPools(b model.Burst) Cluster {
	c.Burst, c.Nodes, c.home = b, slices.Clone(c.Nodes), len(c.Nodes)
	for i := range b.Pools {
		pool := &b.Pools[i]
		for k := range pool.Quota {
			n := pool.Node
			n.ID = fmt.Sprintf("%s.%d", pool.Name, k)
			c.Nodes = append(c.Nodes, n)
		}
		c.PerNode = max(c.PerNode, len(pool.Node.GPUs))
	}
	return c
}

// cloud are the places of bought nodes.
type cloud struct {
	// free are the places without a node, by pool, and at those of nodes by name.
	free map[string][]int
	at   map[string]int
	// name and pool are of the node in a place, turn tells whether it is still the
	// same, and spot whether it may be taken away.
	name, pool map[int]string
	turn       map[int]int
	spot       map[int]bool
}

// openCloud takes down all places of bought nodes.
func (r *run) openCloud() error {
	if r.Cluster.home == 0 {
		return nil
	}
	if _, ok := r.Scheduler.(buyer); !ok {
		return fmt.Errorf("%w: only the planner's own policies buy nodes", ErrSetup)
	}
	r.cloud = &cloud{free: map[string][]int{}, at: map[string]int{}, name: map[int]string{}, pool: map[int]string{}, turn: map[int]int{}, spot: map[int]bool{}}
	place := r.Cluster.home
	for i := range r.Cluster.Burst.Pools {
		pool := &r.Cluster.Burst.Pools[i]
		for range pool.Quota {
			r.cloud.free[pool.Name] = append(r.cloud.free[pool.Name], place)
			r.down[place] = true
			r.ledger.set(place, 0)
			place++
		}
	}
	return nil
}

// homes is how many nodes are not bought.
func (c *Cluster) homes() int {
	if c.home > 0 {
		return c.home
	}
	return len(c.Nodes)
}

// trade carries out what a decision buys and gives back.
func (r *run) trade() error {
	if r.cloud == nil {
		return nil
	}
	orders, back := r.Scheduler.(buyer).Orders()
	for _, o := range orders {
		at := slices.IndexFunc(r.Cluster.Burst.Pools, func(p model.BuyPool) bool { return p.Name == o.pool })
		if at < 0 || len(r.cloud.free[o.pool]) < len(o.names) {
			return fmt.Errorf("%w: %d nodes of pool %s, which has %d left", ErrScheduler, len(o.names), o.pool, len(r.cloud.free[o.pool]))
		}
		for _, name := range o.names {
			list := r.cloud.free[o.pool]
			place := list[0]
			r.cloud.free[o.pool] = list[1:]
			r.cloud.at[name], r.cloud.name[place], r.cloud.pool[place], r.cloud.spot[place] = place, name, o.pool, o.spot
			r.cloud.turn[place]++
			r.calendar.add(event{at: r.now + r.Cluster.Burst.Pools[at].Boot.Seconds(), what: booted, of: place, turn: r.cloud.turn[place]})
		}
		r.await(o.gang, r.now+r.Cluster.Burst.Pools[at].Boot.Seconds())
	}
	for _, b := range back {
		if place, there := r.cloud.at[b.name]; there {
			r.calendar.add(event{at: max(r.now, b.at), what: given, of: place, turn: r.cloud.turn[place]})
		}
	}
	return nil
}

// await notes that a job that has not started waits for nodes to boot.
func (r *run) await(i int, until float64) {
	if i < 0 || r.jobs[i].first >= 0 {
		return
	}
	j := &r.jobs[i]
	j.booting += max(0, until-max(r.now, j.booted))
	j.booted = max(j.booted, until)
	if r.Log != nil {
		r.Log(Event{At: r.now, Event: EventRent, Job: j.ID, GPUs: []string{}, Until: until})
	}
}

// arrive brings a bought node up.
func (r *run) arrive(place int) error {
	c := r.cloud
	r.down[place] = false
	r.ledger.set(place, 1<<len(r.Cluster.Nodes[place].GPUs)-1)
	if at := slices.IndexFunc(r.Cluster.Burst.Pools, func(p model.BuyPool) bool { return p.Name == c.pool[place] }); c.spot[place] && r.Cluster.Burst.Pools[at].SpotLifetime > 0 {
		lives := r.rng.ExpFloat64() * r.Cluster.Burst.Pools[at].SpotLifetime.Seconds()
		r.calendar.add(event{at: r.now + lives, what: taken, of: place, turn: c.turn[place]})
	}
	r.gauges.rented += len(r.Cluster.Nodes[place].GPUs)
	r.logNode(place, EventUp)
	// It is paid for from now on, and the planner knows when it comes: nothing is gathered
	// for it. The daemon gathers what happens for a second at most.
	r.plan(r.now)
	return r.Scheduler.(buyer).Arrive(r.now, c.name[place], place)
}

// drainFor is how long it is waited for those on a node that is given back.
const drainFor = 60

// depart takes a bought node away: one that is given back once nothing runs there.
func (r *run) depart(place int, wait bool) error {
	c := r.cloud
	victims := slices.Sorted(maps.Keys(r.holders[place]))
	if wait && len(victims) > 0 {
		r.calendar.add(event{at: r.now + drainFor, what: given, of: place, turn: c.turn[place]})
		return nil
	}
	was := !r.down[place] // else it is given back before it has booted
	r.down[place] = true
	for _, i := range victims {
		r.crash(i)
	}
	r.ledger.set(place, 0)
	name := c.name[place]
	delete(c.at, name)
	c.free[c.pool[place]] = append(c.free[c.pool[place]], place)
	c.turn[place]++
	if was {
		r.gauges.rented -= len(r.Cluster.Nodes[place].GPUs)
		r.logNode(place, EventDown)
	}
	r.ask(r.now)
	return r.Scheduler.(buyer).Gone(r.now, name, victims)
}
