package devrun

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/caravan-sched/caravan/planner/core/model"
)

// The node with a GPU that is shared, and by how many.
const (
	sharedNode = "gpu-3"
	sharedBy   = 3
)

// atOnce is how soon an interactive job has to run on a cluster that is full.
const atOnce = time.Minute

// playShare fills all whole GPUs. Notebooks start at once on the one that is shared,
// up to its last slice; the next one waits until another has ended. A job that has
// not asked for a slice is never given one.
func (r *run) playShare(ctx context.Context) error {
	for i, name := range nodeNames {
		gpus := gpusPerNode
		if name == sharedNode {
			gpus--
		}
		job := fmt.Sprintf("train-%d", i+1)
		if err := r.startWhole(ctx, job, singleFile, with(50, gpus, nil), onNode(name)); err != nil {
			return err
		}
	}
	if err := r.enqueue(ctx, "whole", singleFile, with(50, 1, nil)); err != nil {
		return err
	}
	share := map[string]string{"caravan_share": "allow"}
	var notebooks []string
	for i := range sharedBy + 1 {
		name := fmt.Sprintf("notebook-%d", i+1)
		notebooks = append(notebooks, name)
		if _, err := r.submit(singleFile, named(name), with(50, 1, share)); err != nil {
			return err
		}
		if i == sharedBy {
			if err := r.waitDecided(ctx, name); err != nil {
				return err
			}
		} else if err := r.waitWhole(ctx, name); err != nil {
			return err
		}
	}
	seen, _, err := r.watch.now()
	if err != nil {
		return err
	}
	snap, err := r.planner.api.Snapshot(ctx)
	if err != nil {
		return fmt.Errorf("read the snapshot: %w", err)
	}
	r.report.Checks = append(r.report.Checks, checkShared(snap, seen, notebooks[:sharedBy]), checkSoon(r, seen, notebooks[:sharedBy]))
	if err := r.judgeNow(ctx, notebooks[0]); err != nil {
		return err
	}
	if err := r.stopJob(notebooks[0]); err != nil {
		return err
	}
	if err := r.waitWhole(ctx, notebooks[sharedBy]); err != nil {
		return err
	}
	if seen, _, err = r.watch.now(); err != nil {
		return err
	}
	r.report.Checks = append(r.report.Checks, checkShared(snap, seen, notebooks[1:]), checkNeverPlaced(seen, "whole"))
	return nil
}

// checkShared: all of some jobs are on one GPU, each with a slice of its own.
func checkShared(s *model.Snapshot, t timeline, jobs []string) Check {
	var faults []string
	n, err := nodeNamed(s, sharedNode)
	if err != nil {
		return result("shared", []string{err.Error()}, "")
	}
	parents, held := map[string]bool{}, map[string]string{}
	for _, job := range jobs {
		for _, a := range t.members(job) {
			for _, id := range a.gpus {
				at := slices.IndexFunc(n.GPUs, func(g model.GPU) bool { return g.UUID == id && g.Slices == sharedBy })
				switch {
				case at < 0:
					faults = append(faults, fmt.Sprintf("%s has %s, which is no slice", job, id))
				case held[id] != "":
					faults = append(faults, fmt.Sprintf("%s and %s have one slice", job, held[id]))
				default:
					held[id], parents[n.GPUs[at].Parent] = job, true
				}
			}
		}
	}
	if len(held) != len(jobs) || len(parents) != 1 {
		faults = append(faults, fmt.Sprintf("%d slices of %d GPUs are held, want %d of one", len(held), len(parents), len(jobs)))
	}
	return result("shared", faults, fmt.Sprintf("%s share one GPU of %s, each with a slice of its own", strings.Join(jobs, ", "), sharedNode))
}

// checkSoon: jobs were placed soon after they were submitted.
func checkSoon(r *run, t timeline, jobs []string) Check {
	var faults []string
	longest := time.Duration(0)
	for _, job := range jobs {
		at, placed := t.firstPlaced(job)
		took := at - r.job(job).at
		longest = max(longest, took)
		if !placed || took > atOnce {
			faults = append(faults, fmt.Sprintf("%s was placed after %s, want %s at most", job, took.Round(time.Second), atOnce))
		}
	}
	return result("at-once", faults, fmt.Sprintf("though all whole GPUs are in use, the notebooks were placed within %s", longest.Round(time.Millisecond)))
}

// checkNeverPlaced: a job was never given anything.
func checkNeverPlaced(t timeline, job string) Check {
	var faults []string
	if at, placed := t.firstPlaced(job); placed {
		faults = append(faults, fmt.Sprintf("it was placed at %s", at.Round(time.Millisecond)))
	}
	return result("not-against-its-will", faults, job+" asked for no slice, and waits for a GPU of its own")
}
