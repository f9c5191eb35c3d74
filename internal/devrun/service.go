package devrun

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/hashicorp/nomad/api"
)

// asService makes the gang one of a service job, that Nomad keeps running.
func asService(j *api.Job) {
	j.Type = new("service")
	for _, g := range j.TaskGroups {
		g.ReschedulePolicy, g.RestartPolicy = nil, nil
	}
}

// release changes what the tasks are given, so that every member must be
// started anew.
func release(version string) edit {
	return func(j *api.Job) {
		for _, g := range j.TaskGroups {
			for _, t := range g.Tasks {
				t.Env["RELEASE"] = version
			}
		}
	}
}

// playServiceUpdate runs a gang of a service, and submits a new release of it.
func (r *run) playServiceUpdate(ctx context.Context) error {
	if err := r.startWhole(ctx, trainGang, trainGangFile, asService, release("1")); err != nil {
		return err
	}
	seen, _, err := r.watch.now()
	if err != nil {
		return err
	}
	var old []string
	for _, a := range seen.members(trainGang) {
		old = append(old, a.id)
	}
	if _, err := r.submit(trainGangFile, asService, release("2")); err != nil {
		return err
	}
	_, err = r.watch.await(ctx, "the gang runs whole in its new release", func(t timeline) bool {
		members := t.members(trainGang)
		return t.runningMembers(trainGang) == trainGangMembers && len(members) == trainGangMembers &&
			!slices.ContainsFunc(members, func(a *allocState) bool { return slices.Contains(old, a.id) })
	})
	if err != nil {
		return r.because(trainGang, err)
	}
	if err := r.waitWhole(ctx, trainGang); err != nil {
		return err
	}
	if seen, _, err = r.watch.now(); err != nil {
		return err
	}
	r.report.Checks = append(r.report.Checks, checkUpdatedWhole(seen, trainGang, old))
	return r.checkNoDeployment(ctx)
}

// checkUpdatedWhole: at no moment were members of two releases to run beside
// each other. What was told to stop may end a moment after another's successor
// has begun, which only the barrier of a driver could keep apart.
func checkUpdatedWhole(t timeline, job string, old []string) Check {
	var faults []string
	mixed := false
	t.moments(func(at time.Duration, _ uint64, allocs map[string]*allocState) {
		before, after := 0, 0
		for id, a := range allocs {
			switch {
			case a.job != job || !a.placed():
			case slices.Contains(old, id):
				before++
			default:
				after++
			}
		}
		if before > 0 && after > 0 && !mixed {
			mixed = true
			faults = append(faults, fmt.Sprintf("%v: %d members of the old release beside %d of the new", round(at), before, after))
		}
	})
	return result("updated-whole:"+job, faults, "no member of the new release was to run beside one of the old")
}

// checkNoDeployment: Nomad rolls nothing member by member.
func (r *run) checkNoDeployment(ctx context.Context) error {
	list, _, err := r.cluster.Client().Jobs().Deployments(trainGang, true, (&api.QueryOptions{}).WithContext(ctx))
	if err != nil {
		return fmt.Errorf("read deployments: %w", err)
	}
	var faults []string
	for _, d := range list {
		faults = append(faults, fmt.Sprintf("version %d has one, %s", d.JobVersion, d.Status))
	}
	r.report.Checks = append(r.report.Checks, result("no-deployment:"+trainGang, faults, "Nomad made none"))
	return nil
}
