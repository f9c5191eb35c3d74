package gateway

import (
	"net/http"

	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/planner/record"
)

// newRecord is the record of a new submission, still without its place in the
// store.
func (g *Gateway) newRecord(r *http.Request, s *submission, old *record.Record, current *api.Job) *record.Record {
	who, everywhere := g.callerOf(r.Context(), r)
	next := &record.Record{
		Namespace: s.namespace,
		JobID:     s.id,
		Original:  s.original,
		Source:    s.register.Submission,
		SpecHash:  s.hash,
		Submitter: who,
		Submitted: g.cfg.Now(),
		Phase:     record.PhaseQueued,
		Arriving:  g.cfg.Now(),
	}
	if current != nil {
		next.PriorIndex = deref(current.JobModifyIndex)
		if !live(current) {
			// Its allocations came after its registration, and before it ended.
			next.PriorIndex = max(next.PriorIndex, deref(current.ModifyIndex))
		}
	}
	if g.cfg.Anywhere && everywhere && regionOf(r, s.register.WriteRequest, s.original) == "" {
		next.Regions = []string{record.AnyRegion}
	}
	if old != nil {
		next.ModifyIndex, next.Route, next.Home = old.ModifyIndex, old.Route, old.Home
		if live(current) && (old.Home != "" || old.Ran()) {
			next.Regions = nil // where it has run its checkpoints are
		}
		if live(current) {
			prior := *old
			prior.Prior = nil
			next.Prior = &prior
		}
		// What still runs of the last submission: the planner stops it before it
		// places this one, which it knows by PlacedHash ≠ SpecHash.
		if live(current) {
			next.PlacedHash, next.Members = old.PlacedHash, old.Members
		}
	}
	return next
}
