package devrun

import (
	"cmp"
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
		if j.far {
			continue // that region was judged as long as it was watched
		}
		common = append(common, checkGatedFirst(seen, j.name))
		if j.members > 1 && !j.alone {
			common = append(common, checkNeverPartial(seen, j.name, cmp.Or(j.least, j.members), max(j.members, j.most), partialWindow, end))
		}
		if j.judged || len(seen.members(j.name)) == 0 {
			continue // it was stopped by the scenario
		}
		checks, err := r.judgeMembers(ctx, seen, j)
		if err != nil {
			return err
		}
		common = append(common, checks...)
	}
	r.report.Checks = append(common, r.report.Checks...)
	return nil
}

// judgeMembers reports a job as it runs and checks that it does so as was
// decided.
func (r *run) judgeMembers(ctx context.Context, seen timeline, j *submitted) ([]Check, error) {
	e, err := r.planner.api.Explain(ctx, api.DefaultNamespace, j.name)
	if err != nil {
		return nil, fmt.Errorf("explain %s: %w", j.name, err)
	}
	planned := make([]model.Member, 0, len(e.Placement))
	for _, p := range e.Placement {
		planned = append(planned, p.Member)
	}
	gang := gangOf(seen, j, planned, r.islands)
	gang.Reason = e.Reason
	r.report.Gangs = append(r.report.Gangs, gang)
	j.judged = true
	return []Check{checkAsPlanned(seen, j.name, planned), checkWholeIslands(seen, j.name, r.islands)}, nil
}

// judgeNow judges a job that will not be there when the scenario has ended.
func (r *run) judgeNow(ctx context.Context, job string) error {
	seen, _, err := r.watch.now()
	if err != nil {
		return err
	}
	checks, err := r.judgeMembers(ctx, seen, r.job(job))
	r.report.Checks = append(r.report.Checks, checks...)
	return err
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
