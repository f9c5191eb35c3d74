package devrun

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/planner/core/model"
)

// judge reports every job of the scenario and makes the checks that always
// apply, over all that was seen.
func (r *run) judge(ctx context.Context) error {
	seen, _, err := r.watch.now()
	if err != nil {
		return err
	}
	end := time.Since(r.began)
	common := []Check{checkGPUsHeldOnce(seen)}
	for _, j := range r.jobs {
		common = append(common, checkGatedFirst(seen, j.name))
		if j.members > 1 {
			common = append(common, checkNeverPartial(seen, j.name, j.members, partialWindow, end))
		}
		if len(seen.members(j.name)) == 0 {
			continue // it was stopped by the scenario
		}
		e, err := r.planner.api.Explain(ctx, api.DefaultNamespace, j.name)
		if err != nil {
			return fmt.Errorf("explain %s: %w", j.name, err)
		}
		planned := make([]model.Member, 0, len(e.Placement))
		for _, p := range e.Placement {
			planned = append(planned, p.Member)
		}
		common = append(common, checkAsPlanned(seen, j.name, planned), checkWholeIslands(seen, j.name, r.islands))
		gang := gangOf(seen, j, planned, r.islands)
		gang.Reason = e.Reason
		r.report.Gangs = append(r.report.Gangs, gang)
	}
	r.report.Checks = append(common, r.report.Checks...)
	return nil
}

// gangOf describes a job as it runs. Ranks are the plan's; a member that was
// not planned has none, which is -1.
func gangOf(seen timeline, j *submitted, planned []model.Member, islands islandMap) Gang {
	g := Gang{Job: j.name, Members: []Member{}}
	if at, ok := seen.firstPlaced(j.name); ok {
		g.QueuedMS = max(0, at-j.at).Milliseconds()
	}
	for _, a := range seen.members(j.name) {
		m := Member{Rank: -1, Node: a.node, GPUs: a.gpus, Islands: islands.split(a.gpus)}
		for _, p := range planned {
			if p.Node == a.node && slices.Equal(slices.Sorted(slices.Values(p.GPUs)), a.gpus) {
				// The plan's order: neighbours in the list are near.
				m.Rank, m.GPUs, m.Islands = p.Rank, p.GPUs, islands.split(p.GPUs)
			}
		}
		g.Members = append(g.Members, m)
	}
	slices.SortStableFunc(g.Members, func(a, b Member) int { return a.Rank - b.Rank })
	return g
}
