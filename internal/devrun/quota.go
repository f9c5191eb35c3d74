package devrun

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/planner/config"
	"github.com/caravan-sched/caravan/planner/core/model"
)

// The teams of ScenarioQuota: together they are guaranteed the cluster, one
// node and two.
const (
	smallTeam = "org/small"
	largeTeam = "org/large"
)

// twoTeams configures the teams' queues.
func twoTeams(cfg *config.Config) {
	guarantee := func(nodes int) map[string]int { return map[string]int{model.ResourceGPU: nodes * gpusPerNode} }
	cfg.Queues = []model.Queue{{Path: largeTeam, Guarantee: guarantee(2)}, {Path: smallTeam, Guarantee: guarantee(1)}}
}

// inQueue puts a job of whole nodes into a queue.
func inQueue(queue string) edit {
	const priority = 50
	return with(priority, gpusPerNode, map[string]string{"caravan_queue": queue})
}

// playQuota lets a team borrow what the other one leaves idle. The other one
// gets its guarantee as soon as that is given back, before the borrower's next
// job, which came first.
func (r *run) playQuota(ctx context.Context) error {
	for _, j := range []struct{ name, file string }{{"own", singleFile}, {"borrower", trainGangFile}} {
		if err := r.startWhole(ctx, j.name, j.file, inQueue(smallTeam)); err != nil {
			return err
		}
	}
	if err := r.showQueues(ctx, "lent", smallTeam, 2*gpusPerNode); err != nil {
		return err
	}
	for _, j := range []struct{ name, file, queue string }{{"next", singleFile, smallTeam}, {"owner", trainGangFile, largeTeam}} {
		if err := r.enqueue(ctx, j.name, j.file, inQueue(j.queue)); err != nil {
			return err
		}
	}
	if err := r.judgeNow(ctx, "borrower"); err != nil {
		return err
	}
	if err := r.stopJob("borrower"); err != nil {
		return err
	}
	if err := r.waitWhole(ctx, "owner"); err != nil {
		return err
	}
	if err := r.showQueues(ctx, "given-back", smallTeam, 0); err != nil {
		return err
	}
	if err := r.judgeNow(ctx, "owner"); err != nil {
		return err
	}
	if err := r.stopJob("owner"); err != nil {
		return err
	}
	if err := r.waitWhole(ctx, "next"); err != nil {
		return err
	}
	seen, _, err := r.watch.now()
	if err != nil {
		return err
	}
	check := checkWaitedWhole(seen, "next", seen.heldUntil("owner"))
	check.Name, check.Detail = "guarantee-first", strings.Replace(check.Detail, "no member was placed before all could be", "what was given back went to its owner, and not to the borrower's next job", 1)
	r.report.Checks = append(r.report.Checks, check)
	return r.showQueues(ctx, "lent-again", smallTeam, gpusPerNode)
}

// reclaims configures the teams' queues, and lets jobs give way.
func reclaims(cfg *config.Config) {
	twoTeams(cfg)
	givesWay(cfg)
}

// playReclaim has the owner of what is lent ask for it.
func (r *run) playReclaim(ctx context.Context) error {
	for _, j := range []struct{ name, file, queue string }{{"own", singleFile, smallTeam}, {"borrower", trainGangFile, smallTeam}, {"owner", trainGangFile, largeTeam}} {
		if err := r.startWhole(ctx, j.name, j.file, inQueue(j.queue)); err != nil {
			return err
		}
	}
	if err := r.showQueues(ctx, "given-back", smallTeam, 0); err != nil {
		return err
	}
	seen, _, err := r.watch.now()
	if err != nil {
		return err
	}
	r.report.Checks = append(r.report.Checks, checkGaveWay(seen, "borrower", "owner"))
	if err := r.judgeNow(ctx, "owner"); err != nil {
		return err
	}
	if err := r.stopJob("owner"); err != nil {
		return err
	}
	if err := r.waitWhole(ctx, "borrower"); err != nil {
		return err
	}
	return r.showQueues(ctx, "lent-again", smallTeam, 2*gpusPerNode)
}

// waitDecided waits until the planner has decided that a job waits.
func (r *run) waitDecided(ctx context.Context, job string) error {
	return poll(ctx, "the planner has decided on "+job, func() (bool, error) {
		e, err := r.planner.api.Explain(ctx, api.DefaultNamespace, job)
		if err != nil || e.Action == "" {
			return false, err
		}
		if e.Action != model.ActionWait {
			return false, fmt.Errorf("it decided to %s", e.Action)
		}
		r.step(job, "waits: "+e.Reason)
		return true, nil
	})
}

func (r *run) stopJob(name string) error {
	r.step(name, "stopping it")
	if _, _, err := r.planner.nomad.Jobs().Deregister(name, false, nil); err != nil {
		return fmt.Errorf("stop %s: %w", name, err)
	}
	return nil
}

// showQueues waits until a queue has borrowed so many GPUs, and reports how all
// stand.
func (r *run) showQueues(ctx context.Context, check, queue string, borrowed int) error {
	var detail string
	err := poll(ctx, fmt.Sprintf("queue %s borrows %d GPUs", queue, borrowed), func() (bool, error) {
		queues, err := r.planner.api.Queues(ctx)
		if err != nil {
			return false, err
		}
		var parts []string
		found := false
		for i := range queues {
			q := &queues[i]
			found = found || q.Path == queue && q.BorrowedGPUs == borrowed
			if q.Guaranteed[model.ResourceGPU] > 0 {
				parts = append(parts, fmt.Sprintf("%s uses %d of %d GPUs guaranteed, borrows %d, has %d jobs waiting",
					q.Path, q.Used[model.ResourceGPU], q.Guaranteed[model.ResourceGPU], q.BorrowedGPUs, q.Waiting))
			}
		}
		detail = strings.Join(parts, "; ")
		if !found {
			return false, errors.New(detail)
		}
		return true, nil
	})
	if err != nil {
		return err
	}
	r.step(queue, detail)
	r.report.Checks = append(r.report.Checks, Check{Name: check, OK: true, Detail: detail})
	return nil
}
