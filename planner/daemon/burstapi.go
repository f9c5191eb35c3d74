package daemon

import (
	"context"
	"fmt"
	"net/http"
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
		a.Why = "nothing was decided yet"
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
