package devrun

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/planner/config"
)

// growsSoon lets gangs grow that have run for some seconds only.
func growsSoon(cfg *config.Config) {
	cfg.Policy.Elastic.MinInterval, cfg.Policy.Preempt.RestartTime = time.Second, time.Second
}

// playGrow leaves a node idle beside an elastic gang, which grows into it, and
// then submits a job that needs a GPU of it.
func (r *run) playGrow(ctx context.Context) error {
	d, err := r.startDriven(ctx, elastic(trainDriverMembers))
	if err != nil {
		return err
	}
	old := d.with(wordStart)
	const grown = trainDriverMembers + 1
	r.job(trainDriver).most = grown
	r.step(trainDriver, "a node beside it is idle")
	if err := r.awaitSize(ctx, old, grown); err != nil {
		return err
	}
	if err := r.checkCount(trainDriver, trainDriverMembers, "grown"); err != nil {
		return err
	}
	if _, err := r.submit(singleFile); err != nil {
		return err
	}
	if err := r.awaitSize(ctx, old, trainDriverMembers); err != nil {
		return err
	}
	if err := r.waitWhole(ctx, "single-gpu"); err != nil {
		return err
	}
	if err := r.checkCount(trainDriver, trainDriverMembers, "given-back"); err != nil {
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
	last, err := r.awaitDiary(ctx, "the first members go on", func(later diary) bool { return len(later.with(wordTick)) > len(d.with(wordTick))+2*trainDriverMembers })
	if err != nil {
		return err
	}
	r.report.Checks = append(r.report.Checks, checkSurvived(last, old),
		checkToldOf(trainDriver, told, "grows from 2 to 3 members beyond its count of 2", "gives 1 member back to single-gpu"))
	return nil
}

// awaitSize waits until the first members of the gang know that it has so many.
func (r *run) awaitSize(ctx context.Context, old diary, size int) error {
	_, err := r.awaitDiary(ctx, fmt.Sprintf("the first members know that they are %d", size), func(d diary) bool {
		return !slices.ContainsFunc(old, func(s entry) bool {
			told := d.of(s.alloc).with(wordResized)
			return len(told) == 0 || told[len(told)-1].number("world") != size
		})
	})
	if err != nil {
		return r.because(trainDriver, err)
	}
	return nil
}

// checkCount checks that the user's own job has the count that its user gave it,
// and that submitting it again would change nothing.
func (r *run) checkCount(job string, want int, when string) error {
	seen, _, err := r.planner.nomad.Jobs().Info(job, nil)
	if err != nil {
		return fmt.Errorf("read %s: %w", job, err)
	}
	var faults []string
	if got := *seen.TaskGroups[0].Count; got != want {
		faults = append(faults, fmt.Sprintf("its user is shown a count of %d", got))
	}
	plan, _, err := r.planner.nomad.Jobs().Plan(seen, true, nil)
	if err != nil {
		return fmt.Errorf("plan %s: %w", job, err)
	}
	if plan.Diff != nil && plan.Diff.Type != "None" {
		faults = append(faults, fmt.Sprintf("the plan of what it is shown says %q", plan.Diff.Type))
	}
	r.report.Checks = append(r.report.Checks, result("count-"+when+":"+job, faults, fmt.Sprintf("its user is shown the count %d, as submitted, and no difference", want)))
	return nil
}

// checkToldOf checks that a job is told of all of some things.
func checkToldOf(job string, told []string, wants ...string) Check {
	var faults []string
	for _, want := range wants {
		if !slices.ContainsFunc(told, func(text string) bool { return strings.Contains(text, want) }) {
			faults = append(faults, fmt.Sprintf("%q is not among what it is told: %q", want, told))
		}
	}
	return result("told:"+job, faults, "it is told why, with numbers")
}
