package daemon

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/caravan-sched/caravan/planner/burstapi"
	"github.com/caravan-sched/caravan/planner/httpapi"
)

// staleAfter is how old a picture of the cluster may be by which nodes are bought or
// given back.
const staleAfter = 2 * time.Minute

// Burst is what is wanted of the pools. Where it is not certain that this planner
// leads and sees the cluster as it is, it says so, and nobody is to act on it.
func (b backend) Burst() burstapi.Answer {
	d := b.d
	a := burstapi.Answer{Now: d.now().UTC(), Pools: []burstapi.Pool{}}
	pools, index, v := d.bursts.answer()
	if pools != nil {
		a.Pools, a.Index = pools, index
	}
	_, leading := d.leads(context.Background())
	switch {
	case d.cfg.ObserveOnly:
		a.Why = "this planner observes only"
	case !leading:
		a.Why = "this planner does not lead"
	case v == nil:
		a.Why = d.bursts.undecided()
	case a.Now.Sub(v.Taken) > staleAfter:
		a.Why = fmt.Sprintf("the cluster was last seen %s ago", a.Now.Sub(v.Taken).Round(time.Second))
	case v.Blind() != "":
		a.Why = v.Blind()
	default:
		a.Leader = true
	}
	return a
}

// BurstReport takes over what became of a purchase.
func (b backend) BurstReport(ctx context.Context, r burstapi.Report) error {
	d := b.d
	term, leading := d.leads(ctx)
	if !leading || d.cfg.ObserveOnly {
		return &httpapi.Error{Status: http.StatusServiceUnavailable, Message: "this planner does not lead, and keeps no reports", Do: "try again in a few seconds; caravan status says who leads"}
	}
	known, err := d.bursts.report(term, &r, d.now().UTC())
	switch {
	case err != nil:
		return &httpapi.Error{Status: http.StatusServiceUnavailable, Message: err.Error(), Do: "report it again"}
	case !known:
		return &httpapi.Error{Status: http.StatusNotFound, Message: fmt.Sprintf("there is no purchase %q in pool %q", r.Purchase, r.Pool), Do: "its nodes are given back as those of no purchase, if they join"}
	}
	d.log.Info("was told of a purchase", "pool", r.Pool, "purchase", r.Purchase, "kind", r.Kind, "reason", r.Reason, "message", r.Message)
	d.metrics.reported(&r)
	d.poke(true)
	return nil
}

// BurstForget lets go of a purchase, unless a gang runs on a node of it.
func (b backend) BurstForget(ctx context.Context, f burstapi.Forget) (out burstapi.Forgotten, err error) {
	d := b.d
	term, leading := d.leads(ctx)
	if !leading || d.cfg.ObserveOnly {
		return out, &httpapi.Error{Status: http.StatusServiceUnavailable, Message: "this planner does not lead, and keeps no purchases", Do: "try again in a few seconds; caravan status says who leads"}
	}
	pools, _, v := d.bursts.answer()
	if v == nil || d.now().Sub(v.Taken) > staleAfter || v.Blind() != "" {
		return out, &httpapi.Error{Status: http.StatusServiceUnavailable, Message: "what runs on the purchase's nodes is not known: the cluster is not seen", Do: "try again in a few seconds"}
	}
	var busy []string
	out = burstapi.Forgotten{Purchase: f.Purchase, Names: []string{}}
	for i := range pools {
		for k := range pools[i].Nodes {
			n := &pools[i].Nodes[k]
			if n.Purchase != f.Purchase {
				continue
			}
			out.Nodes = append(out.Nodes, n.NodeID)
			if n.Gang != "" {
				busy = append(busy, fmt.Sprintf("%s on %s", n.Gang, cmp.Or(n.Name, n.NodeID)))
			}
		}
	}
	slices.Sort(busy)
	if len(busy) > 0 && !f.Force {
		return out, &httpapi.Error{Status: http.StatusConflict, Message: fmt.Sprintf("purchase %s is in use: %s", f.Purchase, strings.Join(busy, ", ")),
			Do: "stop what runs there first, or use --force where Nomad is wrong about it"}
	}
	e, names, known, err := d.bursts.letGo(term, f.Purchase, d.now().UTC())
	switch {
	case err != nil:
		return out, &httpapi.Error{Status: http.StatusServiceUnavailable, Message: err.Error(), Do: "try again"}
	case !known:
		return out, &httpapi.Error{Status: http.StatusNotFound, Message: fmt.Sprintf("there is no purchase %q", f.Purchase), Do: "caravan pools shows those that there are"}
	}
	out.Pool, out.State, out.Cost, out.Currency = e.Pool, burstapi.State(e.State), e.Total(), v.Snapshot.Burst.Currency
	out.Gang = cmp.Or(e.For.Namespace, "default") + "/" + e.For.ID
	out.Names = append(out.Names, names...)
	d.log.Warn("a purchase was forgotten by hand", "purchase", f.Purchase, "pool", e.Pool, "nodes", names, "in_nomad", out.Nodes, "cost", out.Cost, "force", f.Force)
	d.poke(true)
	return out, nil
}
