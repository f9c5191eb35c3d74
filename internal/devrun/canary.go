package devrun

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/hashicorp/nomad/api"
)

// canaryReplica is how many GPUs each replica of the canary scenario has: two
// replicas and a canary fit beside each other whatever else there is.
const canaryReplica = 4

// asReplicas makes the gang's members replicas that stand alone, tried with one
// canary.
func asReplicas(j *api.Job) {
	asService(j)
	j.SetMeta("caravan_gang", "none")
	j.Update = &api.UpdateStrategy{
		MaxParallel: new(1), Canary: new(1), AutoRevert: new(true), HealthCheck: new("task_states"),
		MinHealthyTime: new(200 * time.Millisecond), HealthyDeadline: new(2 * time.Minute), ProgressDeadline: new(5 * time.Minute),
	}
	for _, g := range j.TaskGroups {
		g.RestartPolicy = &api.RestartPolicy{Attempts: new(0), Mode: new("fail")}
		for _, t := range g.Tasks {
			t.Resources.Devices[0].Count = new(uint64(canaryReplica))
		}
	}
}

// broken makes every task end at once.
func broken(j *api.Job) {
	for _, g := range j.TaskGroups {
		for _, t := range g.Tasks {
			t.Config["args"] = []string{"-c", "exit 7"}
		}
	}
}

// playCanary updates a service with a canary: a release that is promoted by a
// person, and one that fails and is taken back.
func (r *run) playCanary(ctx context.Context) error {
	if _, err := r.submit(trainGangFile, asReplicas, release("1")); err != nil {
		return err
	}
	r.job(trainGang).alone = true
	if err := r.waitWhole(ctx, trainGang); err != nil {
		return err
	}
	first, err := r.placed()
	if err != nil {
		return err
	}
	if _, err := r.submit(trainGangFile, asReplicas, release("2")); err != nil {
		return err
	}
	d, err := r.awaitDeployment(ctx, "the canary is healthy and waits to be promoted", func(d *api.Deployment) bool {
		g := d.TaskGroups["trainer"]
		return d.Status == api.DeploymentStatusRunning && g != nil && g.DesiredCanaries == 1 && len(g.PlacedCanaries) == 1 && g.HealthyAllocs == 1
	})
	if err != nil {
		return err
	}
	if err := r.promote(ctx, d.ID); err != nil {
		return err
	}
	if _, err := r.awaitDeployment(ctx, "the update is through", func(now *api.Deployment) bool {
		return now.ID == d.ID && now.Status == api.DeploymentStatusSuccessful
	}); err != nil {
		return err
	}
	if err := r.waitWhole(ctx, trainGang); err != nil {
		return err
	}
	second, err := r.placed()
	if err != nil {
		return err
	}
	seen, _, err := r.watch.now()
	if err != nil {
		return err
	}
	r.report.Checks = append(r.report.Checks, checkCanary(seen, first, second, d.TaskGroups["trainer"].PlacedCanaries))
	if _, err := r.submit(trainGangFile, asReplicas, release("3"), broken); err != nil {
		return err
	}
	if _, err := r.awaitDeployment(ctx, "the broken release is taken back", func(now *api.Deployment) bool {
		return now.ID != d.ID && now.Status == api.DeploymentStatusFailed
	}); err != nil {
		return err
	}
	if err := r.waitWhole(ctx, trainGang); err != nil {
		return err
	}
	third, err := r.placed()
	if err != nil {
		return err
	}
	r.report.Checks = append(r.report.Checks, checkUntouched(second, third))
	return nil
}

// placed are the IDs of the replicas that are placed, sorted.
func (r *run) placed() ([]string, error) {
	seen, _, err := r.watch.now()
	if err != nil {
		return nil, err
	}
	var out []string
	for _, a := range seen.members(trainGang) {
		out = append(out, a.id)
	}
	slices.Sort(out)
	return out, nil
}

// awaitDeployment waits for what a user sees of the update through the gateway.
func (r *run) awaitDeployment(ctx context.Context, what string, holds func(*api.Deployment) bool) (d *api.Deployment, err error) {
	err = poll(ctx, what, func() (bool, error) {
		d, _, err = r.planner.nomad.Jobs().LatestDeployment(trainGang, (&api.QueryOptions{}).WithContext(ctx))
		if err != nil || d == nil {
			return false, err
		}
		if !holds(d) {
			return false, fmt.Errorf("deployment %s is %s: %s", d.ID, d.Status, d.StatusDescription)
		}
		return true, nil
	})
	if err != nil {
		return nil, r.because(trainGang, err)
	}
	return d, nil
}

// promote does what `nomad deployment promote` does. That the planner has not
// written down yet that the canary is healthy is a matter of a moment.
func (r *run) promote(ctx context.Context, deployment string) error {
	return poll(ctx, "the canary is promoted", func() (bool, error) {
		_, _, err := r.planner.nomad.Deployments().PromoteAll(deployment, (&api.WriteOptions{}).WithContext(ctx))
		return err == nil, err
	})
}

// checkCanary: no replica of the first release ended before the canary was a
// member, which it stayed, and at each moment all replicas were there.
func checkCanary(t timeline, first, second, canaries []string) Check {
	var faults []string
	for _, id := range canaries {
		if !slices.Contains(second, id) {
			faults = append(faults, fmt.Sprintf("canary %s is no member in the end", id))
		}
	}
	for _, id := range second {
		if slices.Contains(first, id) {
			faults = append(faults, fmt.Sprintf("%s runs the old release in the end", id))
		}
	}
	if len(second) != len(first) {
		faults = append(faults, fmt.Sprintf("%d replicas in the end, want %d", len(second), len(first)))
	}
	began := false
	t.moments(func(at time.Duration, _ uint64, allocs map[string]*allocState) {
		old, canary := 0, 0
		for id, a := range allocs {
			switch {
			case !a.running():
			case slices.Contains(first, id):
				old++
			case slices.Contains(canaries, id):
				canary++
			}
		}
		began = began || old == len(first)
		if began && canary == 0 && old < len(first) && len(faults) == 0 && !slices.ContainsFunc(second, func(id string) bool { return allocs[id] != nil }) {
			faults = append(faults, fmt.Sprintf("%v: %d of %d replicas of the old release, and no canary yet", round(at), old, len(first)))
		}
	})
	return result("canary:"+trainGang, faults, "the old release ran on until the canary was promoted, and the canary stayed")
}

// checkUntouched: a release that failed as a canary touched no replica.
func checkUntouched(before, after []string) Check {
	var faults []string
	if !slices.Equal(before, after) {
		faults = append(faults, fmt.Sprintf("replicas %v, were %v", after, before))
	}
	return result("taken-back:"+trainGang, faults, "no replica was touched by the release that failed as a canary")
}
