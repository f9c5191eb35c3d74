package devrun

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/planner/config"
	"github.com/caravan-sched/caravan/planner/core/queue"
)

// The jobs of ScenarioBackfill.
const (
	evalJob   = "eval"
	reserved  = "pretrain"
	tooLong   = "long"
	shortJob  = "short"
	otherRack = "other-rack"
)

// backfills turns EASY backfill on.
func backfills(cfg *config.Config) { cfg.Policy.Order = queue.OrderBackfill }

// playBackfill has a gang wait for a rack of which one node is free and one is in
// use for an hour. A job that runs for five hours is not placed on the free one,
// one of half an hour is, and another rack is open to all.
func (r *run) playBackfill(ctx context.Context) error {
	lasts := func(d string, more map[string]string) edit {
		meta := map[string]string{"caravan_duration": d}
		for key, value := range more {
			meta[key] = value
		}
		return with(50, gpusPerNode, meta)
	}
	if err := r.startWhole(ctx, evalJob, singleFile, lasts("1h", nil), inRack("r1")); err != nil {
		return err
	}
	if err := r.enqueue(ctx, reserved, trainGangFile, lasts("2h", map[string]string{"caravan_topology": "require:rack"})); err != nil {
		return err
	}
	if err := r.checkStartTold(ctx); err != nil {
		return err
	}
	if err := r.enqueue(ctx, tooLong, singleFile, lasts("5h", nil), inRack("r1")); err != nil {
		return err
	}
	for _, j := range []struct{ name, lasts, rack string }{{shortJob, "30m", "r1"}, {otherRack, "5h", "r2"}} {
		if err := r.startWhole(ctx, j.name, singleFile, lasts(j.lasts, nil), inRack(j.rack)); err != nil {
			return err
		}
	}
	if err := r.checkLent(ctx); err != nil {
		return err
	}
	for _, job := range []string{shortJob, evalJob} {
		if err := r.judgeNow(ctx, job); err != nil {
			return err
		}
		if err := r.stopJob(job); err != nil {
			return err
		}
	}
	if err := r.waitWhole(ctx, reserved); err != nil {
		return err
	}
	if err := r.judgeNow(ctx, reserved); err != nil {
		return err
	}
	if err := r.stopJob(reserved); err != nil {
		return err
	}
	if err := r.waitWhole(ctx, tooLong); err != nil {
		return err
	}
	seen, _, err := r.watch.now()
	if err != nil {
		return err
	}
	check := checkWaitedWhole(seen, tooLong, seen.heldUntil(reserved))
	check.Name, check.Detail = "not-delayed", strings.Replace(check.Detail, "no member was placed before all could be", "what runs for longer than the gang's start is away was placed after the gang", 1)
	r.report.Checks = append(r.report.Checks, check, checkUndisturbed(seen, otherRack))
	return nil
}

// checkStartTold: the gang knows when it starts, and where: within the hour that
// the job before it has left.
func (r *run) checkStartTold(ctx context.Context) error {
	e, err := r.planner.api.Explain(ctx, api.DefaultNamespace, reserved)
	if err != nil {
		return fmt.Errorf("explain %s: %w", reserved, err)
	}
	var faults []string
	if in := e.Detail.Start.Sub(e.Decided); in < 30*time.Minute || in > time.Hour+time.Minute {
		faults = append(faults, fmt.Sprintf("it is to start in %s, want within the hour: %s", in, e.Detail.Basis))
	}
	if want := evalJob + " (est. 1h, by its author) has ended"; !strings.Contains(e.Reason, want) || !strings.Contains(e.Reason, "starts about") {
		faults = append(faults, fmt.Sprintf("its reason is %q", e.Reason))
	}
	if len(e.Detail.Held) != trainGangMembers {
		faults = append(faults, fmt.Sprintf("%d nodes are reserved, want %d", len(e.Detail.Held), trainGangMembers))
	}
	r.report.Checks = append(r.report.Checks, result("start-told:"+reserved, faults, "it knows when it starts, where, and who ends for it"))
	return nil
}

// checkLent: the short job was placed where the gang will be, and says so.
func (r *run) checkLent(ctx context.Context) error {
	gang, err := r.planner.api.Explain(ctx, api.DefaultNamespace, reserved)
	if err != nil {
		return fmt.Errorf("explain %s: %w", reserved, err)
	}
	e, err := r.planner.api.Explain(ctx, api.DefaultNamespace, shortJob)
	if err != nil {
		return fmt.Errorf("explain %s: %w", shortJob, err)
	}
	var faults []string
	for _, p := range e.Placement {
		if !strings.Contains(strings.Join(gang.Detail.Held, " "), p.Node) {
			faults = append(faults, fmt.Sprintf("%s is on %s, which is not reserved", shortJob, p.NodeName))
		}
	}
	if len(e.Placement) == 0 {
		faults = append(faults, shortJob+" has no place")
	}
	reasons := []string{e.Reason}
	for _, h := range e.History {
		reasons = append(reasons, h.Reason)
	}
	if !strings.Contains(strings.Join(reasons, "\n"), "before "+reserved+" starts there") {
		faults = append(faults, fmt.Sprintf("%s is told %q", shortJob, reasons))
	}
	r.report.Checks = append(r.report.Checks, result("backfilled:"+shortJob, faults, "it runs where the gang will start, until before it does"))
	return nil
}
