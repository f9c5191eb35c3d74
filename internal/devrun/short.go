package devrun

import (
	"context"
	"fmt"

	"github.com/hashicorp/nomad/api"
)

// playShort lets an elastic gang start while one of the nodes that it asks for is in
// use: with two of its three members. The third follows when the node is idle.
func (r *run) playShort(ctx context.Context) error {
	const whole = trainDriverMembers + 1
	if err := r.startWhole(ctx, "single-gpu", singleFile); err != nil {
		return err
	}
	d, err := r.startDriven(ctx, elastic(whole))
	if err != nil {
		return err
	}
	r.job(trainDriver).least = trainDriverMembers
	old := d.with(wordStart)
	if err := r.checkCount(trainDriver, whole, "short"); err != nil {
		return err
	}
	if err := r.judgeNow(ctx, "single-gpu"); err != nil {
		return err
	}
	if err := r.stopJob("single-gpu"); err != nil {
		return err
	}
	if err := r.awaitSize(ctx, old, whole); err != nil {
		return err
	}
	if err := r.waitWhole(ctx, trainDriver); err != nil {
		return err
	}
	e, err := r.planner.api.Explain(ctx, api.DefaultNamespace, trainDriver)
	if err != nil {
		return fmt.Errorf("explain %s: %w", trainDriver, err)
	}
	told := []string{e.Reason}
	for _, h := range e.History {
		told = append(told, h.Reason)
	}
	last, err := r.awaitDiary(ctx, "the first members go on", func(later diary) bool { return len(later.with(wordTick)) > len(d.with(wordTick))+2*whole })
	if err != nil {
		return err
	}
	r.report.Checks = append(r.report.Checks, checkSurvived(last, old),
		checkToldOf(trainDriver, told, "starts with 2 of its 3 members for now, since all 3 do not fit and it may run with 1 (caravan_min)", "grows from 2 to 3 members"))
	return nil
}
