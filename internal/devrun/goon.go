package devrun

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/nomad/api"
)

// goesOn lets the others go on when a member fails. Nomad starts it again once
// where it is, and not elsewhere for long.
func goesOn(j *api.Job) {
	j.SetMeta("caravan_on_failure", "continue")
	for _, g := range j.TaskGroups {
		g.RestartPolicy = &api.RestartPolicy{Attempts: new(1), Interval: new(time.Hour), Delay: new(time.Second), Mode: new("fail")}
		g.ReschedulePolicy = &api.ReschedulePolicy{Attempts: new(0), Interval: new(time.Duration(0)), Delay: new(time.Hour),
			DelayFunction: new("constant"), MaxDelay: new(time.Duration(0)), Unlimited: new(true)}
	}
}

// playGoOn lets a member of an elastic gang fail twice. The first time its task is
// started again and rejoins the others; the second time its allocation has failed,
// and the gang shrinks around it and grows back.
func (r *run) playGoOn(ctx context.Context) error {
	d, err := r.startDriven(ctx, elastic(trainDriverMembers), goesOn)
	if err != nil {
		return err
	}
	r.job(trainDriver).least = 1
	starts := d.with(wordStart)
	survivor := starts[slices.IndexFunc(starts, func(e entry) bool { return e.values["rank"] == "0" })]
	sizes := func(d diary) (out []int) {
		for _, e := range d.of(survivor.alloc).with(wordResized) {
			out = append(out, e.number("world"))
		}
		return out
	}
	for i, what := range []string{"it fails, and its task is started again", "it fails for good"} {
		r.step(trainDriver, "rank 1: "+what)
		if err := os.WriteFile(filepath.Join(r.diaryDir(), "crash-1"), nil, 0o644); err != nil {
			return fmt.Errorf("make a member fail: %w", err)
		}
		if d, err = r.awaitDiary(ctx, "the other one is told that they are two again", func(d diary) bool {
			s := sizes(d)
			return len(d.with(wordCrash)) == i+1 && len(d.with(wordStart)) == trainDriverMembers+i+1 && len(s) >= 2*(i+1) && s[len(s)-1] == trainDriverMembers
		}); err != nil {
			return err
		}
	}
	events, err := r.events(ctx, survivor.alloc)
	if err != nil {
		return err
	}
	var faults []string
	if !slices.ContainsFunc(events, func(e string) bool { return strings.Contains(e, "1 member") }) {
		faults = append(faults, "the other member's events do not say that it went on alone: "+strings.Join(events, "; "))
	}
	last, err := r.awaitDiary(ctx, "the first member goes on", func(later diary) bool {
		return len(later.of(survivor.alloc)) > len(d.of(survivor.alloc))+5
	})
	if err != nil {
		return err
	}
	r.report.Checks = append(r.report.Checks, checkSurvived(last, diary{survivor}), checkCameBack(last, survivor.alloc), result("failure-told:"+trainDriver, faults, "the other member's events say that it went on alone"))
	return r.waitWhole(ctx, trainDriver)
}

// checkCameBack: the member that failed was started again in its own allocation
// first, and in a new one when that had failed for good; each time in the epoch
// that runs, with the rank that was free.
func checkCameBack(d diary, survivor string) Check {
	var faults []string
	allocs := map[string]int{}
	for _, s := range d.with(wordStart) {
		if s.alloc == survivor {
			continue
		}
		allocs[s.alloc]++
		if s.values["rank"] != "1" || s.values["world"] != "2" {
			faults = append(faults, fmt.Sprintf("%s started as rank %s of %s", s.alloc, s.values["rank"], s.values["world"]))
		}
	}
	var counts []int
	for _, n := range allocs {
		counts = append(counts, n)
	}
	slices.Sort(counts)
	if !slices.Equal(counts, []int{1, 2}) {
		faults = append(faults, fmt.Sprintf("its allocations started %v times, want one that started twice and one that started once", counts))
	}
	if n := len(d.launches()); n != 1 {
		faults = append(faults, fmt.Sprintf("there were %d common starts, want 1", n))
	}
	return result("came-back:"+trainDriver, faults, "it rejoined the running epoch, first in its own allocation and then in a new one")
}
