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
	"github.com/caravan-sched/caravan/planner/httpapi"
)

// urgent is a gang of a high priority.
const urgent = "urgent"

// givesWay lets all give way, also what has just started and what saves nothing.
func givesWay(cfg *config.Config) {
	cfg.Policy.Preempt.SavedOnly, cfg.Policy.Preempt.MinRunTime = false, 0
}

// with sets a job's priority, the number of GPUs of each member, and its meta.
func with(priority, gpus int, meta map[string]string) edit {
	return func(j *api.Job) {
		j.Priority = &priority
		for key, value := range meta {
			j.SetMeta(key, value)
		}
		for _, g := range j.TaskGroups {
			for _, t := range g.Tasks {
				for _, d := range t.Resources.Devices {
					d.Count = new(uint64(gpus))
				}
			}
		}
	}
}

// inRack limits a job to a rack.
func inRack(rack string) edit {
	return func(j *api.Job) {
		j.Constraints = append(j.Constraints, api.NewConstraint("${meta.caravan_rack}", "=", rack))
	}
}

// playPreemptDomain fills the cluster: rack r1 with a gang that loses nothing when
// it stops and one that would lose all its work, and r2 with one that is much
// cheaper, but of no use to a gang that needs eight GPUs in one rack, because a
// job of a high priority is beside it.
func (r *run) playPreemptDomain(ctx context.Context) error {
	for _, j := range []struct {
		name, file string
		priority   int
		rack       string
	}{{"important", singleFile, 90, "r2"}, {"cheap", singleFile, 45, "r2"}, {"dear", trainGangFile, 50, "r1"}} {
		if err := r.startWhole(ctx, j.name, j.file, with(j.priority, 4, nil), inRack(j.rack)); err != nil {
			return err
		}
	}
	require := map[string]string{"caravan_topology": "require:rack"}
	if _, err := r.startDriven(ctx, with(50, 4, map[string]string{"caravan_preempt": "always", "caravan_topology": "require:rack"})); err != nil {
		return err
	}
	if err := r.waitWhole(ctx, trainDriver); err != nil {
		return err
	}
	if _, err := r.awaitDiary(ctx, "they have worked a little", func(d diary) bool { return len(d.with(wordTick)) >= 20 }); err != nil {
		return err
	}
	answer, err := r.submit(trainGangFile, named(urgent), with(80, 4, require))
	if err != nil {
		return err
	}
	if err := r.waitWhole(ctx, urgent); err != nil {
		return err
	}
	seen, _, err := r.watch.now()
	if err != nil {
		return err
	}
	if err := r.judgeNow(ctx, urgent); err != nil {
		return err
	}
	victim, err := r.planner.api.Explain(ctx, api.DefaultNamespace, trainDriver)
	if err != nil {
		return fmt.Errorf("explain %s: %w", trainDriver, err)
	}
	r.step(trainDriver, victim.Reason)
	r.report.Checks = append(r.report.Checks, checkGaveWay(seen, trainDriver, urgent),
		checkToldWho(answer.Warnings, victim.History, trainDriver, urgent),
		checkOneRack(seen, urgent, func(node string) string { return racks[r.nodes[node]] }))
	r.step(urgent, "stopping it")
	if _, _, err := r.planner.nomad.Jobs().Deregister(urgent, false, nil); err != nil {
		return fmt.Errorf("stop %s: %w", urgent, err)
	}
	d, err := r.awaitDiary(ctx, "all members have started again", func(d diary) bool { return len(d.with(wordStart)) == 2*trainDriverMembers })
	if err != nil {
		return err
	}
	if err := r.waitWhole(ctx, trainDriver); err != nil {
		return err
	}
	if seen, _, err = r.watch.now(); err != nil {
		return err
	}
	r.report.Checks = append(r.report.Checks, checkStartTogether(d, trainDriverMembers), checkNothingLost(d),
		checkUndisturbed(seen, "important"), checkUndisturbed(seen, "cheap"), checkUndisturbed(seen, "dear"))
	return nil
}

// checkGaveWay: all members of one job had ended when the first of the other was
// placed, and those are where they had been.
func checkGaveWay(t timeline, from, to string) Check {
	var faults []string
	left := map[string]bool{}
	at := time.Duration(-1)
	t.moments(func(now time.Duration, _ uint64, allocs map[string]*allocState) {
		placed := slices.ContainsFunc(slices.Collect(maps.Values(allocs)), func(a *allocState) bool { return a.job == to })
		for _, a := range allocs {
			switch {
			case a.job != from:
			case placed && at < 0 && a.holds():
				faults = append(faults, fmt.Sprintf("%s held its GPUs still when %s was placed", a.name, to))
			default:
				for _, gpu := range a.gpus {
					left[gpu] = true
				}
			}
		}
		if placed && at < 0 {
			at = now
		}
	})
	for _, a := range t.members(to) {
		for _, gpu := range a.gpus {
			if !left[gpu] {
				faults = append(faults, fmt.Sprintf("%s has %s, which %s did not leave", a.name, gpu, from))
			}
		}
	}
	if at < 0 {
		faults = append(faults, to+" was never placed")
	}
	slices.Sort(faults)
	return result("gave-way:"+from, faults, fmt.Sprintf("%s was placed where all of %s had stopped", to, from))
}

// checkToldWho: the one that waited was told who stops for it and what that
// costs, and the one that stopped for whom.
func checkToldWho(answer string, history []httpapi.Past, from, to string) Check {
	var faults []string
	if !strings.Contains(answer, "when "+from+" has stopped; that costs nothing of its work") {
		faults = append(faults, fmt.Sprintf("the answer to %s is %q", to, answer))
	}
	var told []string
	for _, h := range history {
		told = append(told, h.Reason)
	}
	if !slices.ContainsFunc(told, func(text string) bool { return strings.Contains(text, "gives way to "+to+" (priority 80 against 50)") }) {
		faults = append(faults, fmt.Sprintf("%s is told %q", from, told))
	}
	return result("told-who:"+from, faults, "both were told of each other, with the cost")
}
