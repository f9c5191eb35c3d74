package devrun

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/planner/config"
	"github.com/caravan-sched/caravan/planner/core"
	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/httpapi"
)

// moves lets the planner move gangs, also those that have just started.
func moves(cfg *config.Config) {
	cfg.Policy.Defrag.Enabled, cfg.Policy.Defrag.MinRunTime = true, time.Second
}

// whole is a job that needs a whole node.
const whole = "whole"

// playDefrag leaves four GPUs free on each of two nodes, where a job waits for
// eight on one. On one node is a job that is never to be moved, on the other a
// gang that saves a checkpoint when it is told to stop.
func (r *run) playDefrag(ctx context.Context) error {
	hour := func(meta map[string]string) map[string]string {
		out := map[string]string{"caravan_duration": "1h"}
		maps.Copy(out, meta)
		return out
	}
	for _, j := range []struct {
		name, rack string
		gpus       int
		meta       map[string]string
	}{{"elsewhere", "r2", 8, nil}, {"stays", "r1", 4, map[string]string{"caravan_move": "never"}}, {"gap", "r1", 4, nil}} {
		if err := r.startWhole(ctx, j.name, singleFile, with(50, j.gpus, hour(j.meta)), inRack(j.rack)); err != nil {
			return err
		}
	}
	if _, err := r.startDriven(ctx, with(50, 2, hour(map[string]string{"caravan_preempt": "always", "caravan_topology": "require:node"}))); err != nil {
		return err
	}
	if err := r.waitWhole(ctx, trainDriver); err != nil {
		return err
	}
	if _, err := r.awaitDiary(ctx, "they have worked a little", func(d diary) bool { return len(d.with(wordTick)) >= 20 }); err != nil {
		return err
	}
	if err := r.stopJob("gap"); err != nil {
		return err
	}
	if err := r.waitLeft(ctx, "gap"); err != nil {
		return err
	}
	answer, err := r.submit(singleFile, named(whole), with(50, 8, hour(nil)))
	if err != nil {
		return err
	}
	if err := r.waitWhole(ctx, whole); err != nil {
		return err
	}
	d, err := r.awaitDiary(ctx, "all members have started again", func(d diary) bool { return len(d.with(wordStart)) == 2*trainDriverMembers })
	if err != nil {
		return err
	}
	if err := r.waitWhole(ctx, trainDriver); err != nil {
		return err
	}
	moved, err := r.planner.api.Explain(ctx, api.DefaultNamespace, trainDriver)
	if err != nil {
		return fmt.Errorf("explain %s: %w", trainDriver, err)
	}
	seen, _, err := r.watch.now()
	if err != nil {
		return err
	}
	r.report.Checks = append(r.report.Checks, checkMadeRoom(seen, trainDriver, whole), checkToldMoved(answer.Warnings, moved.History),
		checkStartTogether(d, trainDriverMembers), checkNothingLost(d), checkUndisturbed(seen, "stays"), checkUndisturbed(seen, "elsewhere"))
	if err := r.judgeNow(ctx, whole); err != nil {
		return err
	}
	return r.showNoMoves(ctx)
}

// waitLeft waits until the planner knows that a job holds nothing any more.
func (r *run) waitLeft(ctx context.Context, job string) error {
	return poll(ctx, fmt.Sprintf("%s has left its GPUs", job), func() (bool, error) {
		s, err := r.planner.api.Snapshot(ctx)
		if err == nil && slices.ContainsFunc(s.Allocs, func(a model.Alloc) bool { return a.Job == job }) {
			err = fmt.Errorf("%s holds GPUs still", job)
		}
		return err == nil, err
	})
}

// checkMadeRoom: all members of a gang had ended when the one that waited was placed,
// on GPUs some of which they had left, and they run again, on others.
func checkMadeRoom(t timeline, job, waited string) Check {
	var faults []string
	left := map[string]bool{}
	at := time.Duration(-1)
	t.moments(func(now time.Duration, _ uint64, allocs map[string]*allocState) {
		placed := slices.ContainsFunc(slices.Collect(maps.Values(allocs)), func(a *allocState) bool { return a.job == waited })
		for _, a := range allocs {
			switch {
			case a.job != job || at >= 0:
			case placed && a.holds() && slices.ContainsFunc(a.gpus, func(gpu string) bool { return left[gpu] }):
				faults = append(faults, fmt.Sprintf("%s held its GPUs still when %s was placed", a.name, waited))
			case !placed:
				for _, gpu := range a.gpus {
					left[gpu] = true
				}
			}
		}
		if placed && at < 0 {
			at = now
		}
	})
	got := 0
	for _, a := range t.members(waited) {
		for _, gpu := range a.gpus {
			if left[gpu] {
				got++
			}
		}
	}
	if at < 0 || got == 0 {
		faults = append(faults, fmt.Sprintf("%s has none of the GPUs that %s had", waited, job))
	}
	slices.Sort(faults)
	return result("moved:"+job, faults, fmt.Sprintf("%s was placed where %s had stopped, which runs elsewhere", waited, job))
}

// checkToldMoved: the one that waited was told who makes room, and the one that
// was moved where to, for whom, and what that saves and loses.
func checkToldMoved(answer string, history []httpapi.Past) Check {
	var faults, told []string
	if !strings.Contains(answer, "when "+trainDriver+" has moved away") || !strings.Contains(answer, "it would wait") {
		faults = append(faults, fmt.Sprintf("the answer to %s is %q", whole, answer))
	}
	for _, h := range history {
		told = append(told, h.Reason)
	}
	if !slices.ContainsFunc(told, func(text string) bool {
		return strings.Contains(text, "moves to ") && strings.Contains(text, "so that "+whole+" can start") && strings.Contains(text, "nothing of its work")
	}) {
		faults = append(faults, fmt.Sprintf("%s is told %q", trainDriver, told))
	}
	return result("told-moved:"+trainDriver, faults, "both were told of each other, with what it saves and loses")
}

// showNoMoves: when all run nothing more would be moved.
func (r *run) showNoMoves(ctx context.Context) error {
	rec, err := r.planner.api.Recording(ctx)
	if err != nil {
		return fmt.Errorf("read what was decided on: %w", err)
	}
	more, err := core.Survey(rec.Snapshot, rec.Policy)
	if err != nil {
		return fmt.Errorf("look for moves: %w", err)
	}
	var faults []string
	for _, k := range more {
		if k.Done {
			faults = append(faults, fmt.Sprintf("for %s more would be moved: %s", k.For.ID, k.Why))
		}
	}
	for i := range rec.Snapshot.Jobs {
		if j := &rec.Snapshot.Jobs[i]; j.State == model.StateRunning && len(j.Moving) > 0 {
			faults = append(faults, fmt.Sprintf("a place is still kept for %s: %+v", j.ID, j.Moving))
		}
	}
	r.report.Checks = append(r.report.Checks, result("no-more-moves", faults, "nobody else is moved, and no place is kept any more"))
	return nil
}
