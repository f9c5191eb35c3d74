package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"

	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/planner/apply"
	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/federate"
	"github.com/caravan-sched/caravan/planner/observe"
	"github.com/caravan-sched/caravan/planner/record"
)

// regional is what the planner talks to a region with: clients whose requests
// Nomad's servers send there, and the records that are kept there.
type regional struct {
	name string
	// client speaks as the planner, nobody has no token.
	client, nobody *api.Client
	records        *record.Store
}

// regionals are those of the federation, in the configuration's order. own is that
// of the region whose Nomad the planner talks to.
func (d *Daemon) regionals(own regional) ([]regional, error) {
	var out []regional
	for _, name := range d.cfg.Federation {
		if name == own.name {
			out = append(out, own)
			continue
		}
		n := d.cfg.Nomad
		n.Region = name
		client, nobody, err := clients(n, d.clock)
		if err != nil {
			return nil, err
		}
		r := regional{name: name, client: client, nobody: nobody, records: record.NewStore(client, d.cfg.State.Namespace)}
		d.stores[name] = r.records
		out = append(out, r)
	}
	return out, nil
}

// heldRegion is a region that the planner may change while it holds the lock
// there, too: a planner of that region alone would decide on the same nodes.
type heldRegion struct {
	name string
	lock locker
	leadership
}

// federate makes one planner of several regions.
func (d *Daemon) federate(parts []regional) {
	d.held = make([]heldRegion, len(parts)-1)
	carry := federatedCarrier{regions: map[string]nomadCarrier{}}
	var regions []federate.Region
	// The executors ask the federation, which is made of them.
	var fed *federate.Federation
	for i, r := range parts {
		term := d.mainTerm
		if i > 0 {
			h := &d.held[i-1]
			h.name, h.lock = r.name, &variableLock{client: r.client, namespace: d.cfg.State.Namespace}
			term = func() (context.Context, string) { return d.termIn(h) }
		}
		options := d.applyOptions()
		options.Withhold = func(rec *record.Record) bool { return fed.Withhold(r.name)(rec) }
		executor := apply.NewExecutor(r.client, r.records, options)
		carry.regions[r.name] = nomadCarrier{executor: executor, records: r.records, client: r.nobody}
		regions = append(regions, federate.Region{Name: r.name, Observer: d.observerOf(r, r.name), Executor: executor, Term: term})
	}
	fed = federate.New(federate.Options{Wake: func() { d.poke(true) }, Now: d.now, Log: d.log.Named("federation")}, regions...)
	carry.federation = fed
	d.observe, d.carry = fed, carry
}

// mainTerm is this planner's own.
func (d *Daemon) mainTerm() (context.Context, string) {
	term, _ := d.leader.get()
	return term, ""
}

// termIn is the term in which a region may be changed, or why it may not.
func (d *Daemon) termIn(h *heldRegion) (context.Context, string) {
	if own, _ := d.leader.get(); own == nil {
		return nil, ""
	}
	term, holder := h.get()
	switch err := h.trouble(); {
	case term != nil:
		return term, ""
	case err != nil:
		return nil, fmt.Sprintf("its lock cannot be taken: %v", err)
	case holder != "" && holder != d.Address():
		return nil, fmt.Sprintf("the planner at %s leads there; end it, or leave the region out of the federation", holder)
	}
	return nil, "its lock is not taken yet"
}

// hold takes a region's lock for as long as this planner leads.
func (d *Daemon) hold(ctx context.Context, h *heldRegion) {
	for ctx.Err() == nil {
		turn := d.leader.turn()
		if term, _ := d.leader.get(); term != nil {
			h.elect(term, h.lock, d.cfg.Listen.Advertise, d.log.Named("leader").With("region", h.name), func() { d.poke(true) })
		}
		select {
		case <-ctx.Done():
		case <-turn:
		}
	}
}

// federatedCarrier is the carrier of several regions.
type federatedCarrier struct {
	federation *federate.Federation
	regions    map[string]nomadCarrier
}

// Execute implements carrier.
func (c federatedCarrier) Execute(ctx context.Context, v *observe.View, plan *model.Plan) outcome {
	out := outcomeOf(plan, c.federation.Execute(ctx, v, plan))
	out.due = c.federation.Due()
	return out
}

// Release implements carrier.
func (c federatedCarrier) Release(ctx context.Context, token string, m *observe.Managed) (string, error) {
	if state := m.Region; m.Record != nil && m.Record.Route != nil {
		return "", fmt.Errorf("it was sent from region %s to region %s, which does not show it now; release it when that region is seen again", state, m.Record.Route.Region)
	}
	there := *m
	there.ID = m.JobID()
	return c.regions[m.Region].Release(ctx, token, &there)
}

// keysOfAll reads the keys that the servers of all regions sign identities with. Of
// one that does not answer those that were read last count.
func keysOfAll(parts []regional) func(context.Context) ([]byte, error) {
	if len(parts) == 1 {
		return fetchKeys(parts[0].nobody)
	}
	type set struct {
		Keys []json.RawMessage `json:"keys"`
	}
	var mu sync.Mutex
	last := make([]set, len(parts))
	return func(ctx context.Context) ([]byte, error) {
		mu.Lock()
		defer mu.Unlock()
		errs := make([]error, len(parts))
		var wg sync.WaitGroup
		for i := range parts {
			wg.Go(func() {
				raw, err := fetchKeys(parts[i].nobody)(ctx)
				var got set
				if err == nil {
					err = json.Unmarshal(raw, &got)
				}
				if errs[i] = err; err == nil {
					last[i] = got
				}
			})
		}
		wg.Wait()
		all := set{Keys: []json.RawMessage{}}
		for i := range last {
			all.Keys = append(all.Keys, last[i].Keys...)
		}
		if len(all.Keys) == 0 {
			return nil, errors.Join(errs...)
		}
		return json.Marshal(all)
	}
}
