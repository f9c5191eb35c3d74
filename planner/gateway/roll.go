package gateway

import (
	"fmt"
	"net/http"

	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/planner/gangspec"
	"github.com/caravan-sched/caravan/planner/record"
	"github.com/caravan-sched/caravan/planner/rewrite"
)

// roll makes an update of a running service job of a new version that could
// take the placement over as it is (pinned): the planner then changes as many
// gangs at a time as the job's update block says. What it returns changes no
// member yet. A job that is not rolled is pinned at once.
func (g *Gateway) roll(r *http.Request, s *submission, old, next *record.Record, pinned, current *api.Job) (*api.Job, error) {
	if old.Phase != record.PhaseRunning || old.Unpinned || !gangspec.Rolls(old.Original, s.original, g.cfg.Levels...) {
		return pinned, nil
	}
	cluster, err := g.cfg.Cluster(r.Context())
	if err != nil {
		return nil, fmt.Errorf("begin the update of job %q: %w", s.id, err)
	}
	next.Rollout = old.NewRollout(deref(current.JobModifyIndex), g.cfg.Now())
	next.PlacedIndex, next.History = old.PlacedIndex, old.History
	next.Rollout.Begin(gangspec.Canaries(next.Rollout.Original, s.original))
	next.Reason = next.Rollout.Beginning(len(old.Members))
	next.Note(g.cfg.Now(), "rollout", next.Reason)
	rolled := make([]rewrite.Place, len(next.Rollout.Rolled))
	for i, p := range next.Rollout.Rolled {
		rolled[i] = rewrite.Place(p)
	}
	return rewrite.Roll(current, rewrite.Update{Before: next.Rollout.Original, Next: s.original, Members: old.Members, Rolled: rolled}, cluster)
}
