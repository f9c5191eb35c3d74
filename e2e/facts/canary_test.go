package facts

import (
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/nomad/api"
)

// canaried is a service of two members, updated by one canary. Version 1 of it
// is running when it returns, and is stable.
func (e *env) canaried(change func(u *api.UpdateStrategy)) *api.Job {
	e.t.Helper()
	j := e.newJob(api.JobTypeService, alike, 2, 0, sleeper)
	j.Update = &api.UpdateStrategy{
		MaxParallel: ptr(1), Canary: ptr(1), MinHealthyTime: ptr(200 * time.Millisecond), HealthCheck: ptr("task_states"),
		HealthyDeadline: ptr(time.Minute), ProgressDeadline: ptr(2 * time.Minute), AutoPromote: ptr(false), AutoRevert: ptr(false),
	}
	if change != nil {
		change(j.Update)
	}
	e.register(j)
	e.running(*j.ID, 2)
	e.deploymentIs(*j.ID, 0, api.DeploymentStatusSuccessful, "")
	return j
}

// deploymentIs waits for the deployment of a version to have a status and a
// description.
func (e *env) deploymentIs(job string, version uint64, status, description string) *api.Deployment {
	e.t.Helper()
	var found *api.Deployment
	e.until("deployment of "+job+" "+status, func() (bool, any) {
		list, _, err := e.api.Jobs().Deployments(job, true, nil)
		if err != nil {
			return false, err
		}
		var got []string
		for _, d := range list {
			got = append(got, d.Status+": "+d.StatusDescription)
			if d.JobVersion == version && d.Status == status && strings.Contains(d.StatusDescription, description) {
				found = d
				return true, nil
			}
		}
		return false, got
	})
	return found
}

// byVersion counts the running members of each version.
func (e *env) byVersion(id string, want map[uint64]int) {
	e.t.Helper()
	e.until("members by version", func() (bool, any) {
		got := map[uint64]int{}
		for _, a := range e.live(id) {
			got[a.JobVersion]++
		}
		same := len(got) == len(want)
		for v, n := range want {
			same = same && got[v] == n
		}
		return same, e.describe(id)
	})
}

// next registers a version whose members must be replaced.
func (e *env) next(j *api.Job) {
	e.t.Helper()
	j.TaskGroups[0].Tasks[0].Env = map[string]string{"NEW": "yes"}
	e.register(j)
}

func TestCanaryIsPromoted(t *testing.T) {
	for name, auto := range map[string]bool{"by hand": false, "by itself": true} {
		t.Run(name, func(t *testing.T) {
			each(t, func(t *testing.T, e *env) {
				j := e.canaried(func(u *api.UpdateStrategy) { u.AutoPromote = &auto })
				e.next(j)
				if !auto {
					d := e.deploymentIs(*j.ID, 1, api.DeploymentStatusRunning, "requires manual promotion")
					e.byVersion(*j.ID, map[uint64]int{0: 2, 1: 1})
					canary := ""
					for _, a := range e.live(*j.ID) {
						if a.JobVersion == 1 {
							canary = a.ID
						}
					}
					e.until("a healthy canary", func() (bool, any) {
						a, _, err := e.api.Allocations().Info(canary, nil)
						if err != nil || a.DeploymentStatus == nil || a.DeploymentStatus.Healthy == nil {
							return false, err
						}
						return *a.DeploymentStatus.Healthy && a.DeploymentStatus.Canary, a.DeploymentStatus
					})
					d, _, err := e.api.Deployments().Info(d.ID, nil)
					if err != nil {
						t.Fatal(err)
					}
					if st := d.TaskGroups["g"]; st.DesiredCanaries != 1 || st.DesiredTotal != 2 || len(st.PlacedCanaries) != 1 || st.PlacedCanaries[0] != canary || st.Promoted {
						t.Errorf("the deployment knows of its group %+v", st)
					}
					if _, _, err := e.api.Deployments().PromoteAll(d.ID, nil); err != nil {
						t.Fatal(err)
					}
				}
				e.byVersion(*j.ID, map[uint64]int{1: 2})
				d := e.deploymentIs(*j.ID, 1, api.DeploymentStatusSuccessful, "completed successfully")
				if st := d.TaskGroups["g"]; !st.Promoted || st.HealthyAllocs != 2 || st.PlacedAllocs != 2 {
					t.Errorf("the deployment knows of its group %+v", st)
				}
				if got := names(e.live(*j.ID)); strings.Join(got, " ") != ".g[0] .g[1]" {
					t.Errorf("members are %v", got)
				}
			})
		})
	}
}

func TestCanaryTooSoonPromoted(t *testing.T) {
	each(t, func(t *testing.T, e *env) {
		j := e.canaried(nil)
		j.Update.MinHealthyTime, j.Update.HealthyDeadline, j.Update.ProgressDeadline = ptr(5*time.Minute), ptr(10*time.Minute), ptr(20*time.Minute)
		e.next(j)
		d := e.deploymentIs(*j.ID, 1, api.DeploymentStatusRunning, "requires manual promotion")
		if _, _, err := e.api.Deployments().PromoteAll(d.ID, nil); err == nil || !strings.Contains(err.Error(), `Task group "g" has 0/1 healthy allocations`) {
			t.Errorf("error is %v", err)
		}
	})
}

// A canary that does not work goes, and the members stay.
func TestCanaryFails(t *testing.T) {
	for name, revert := range map[string]bool{"stays": false, "reverts": true} {
		t.Run(name, func(t *testing.T) {
			each(t, func(t *testing.T, e *env) {
				j := e.canaried(func(u *api.UpdateStrategy) { u.AutoRevert = &revert; u.ProgressDeadline = ptr(time.Duration(0)) })
				before := ids(e.live(*j.ID))
				j.TaskGroups[0].Tasks[0].SetConfig("args", []string{"-c", "exit 3"})
				j.TaskGroups[0].RestartPolicy = &api.RestartPolicy{Attempts: ptr(0), Mode: ptr("fail"), Interval: ptr(time.Hour), Delay: ptr(time.Second)}
				e.register(j)
				why := "Failed due to unhealthy allocations"
				if revert {
					why += " - rolling back to job version 0"
				}
				e.deploymentIs(*j.ID, 1, api.DeploymentStatusFailed, why)
				want := map[uint64]int{0: 2}
				if revert {
					want = map[uint64]int{2: 2}
				}
				e.byVersion(*j.ID, want)
				if after := ids(e.live(*j.ID)); strings.Join(after, " ") != strings.Join(before, " ") {
					t.Errorf("members were %v and are %v", before, after)
				}
			})
		})
	}
}

// An update in place is a deployment too, and the members' health is seen
// anew.
func TestInPlaceUpdateResetsHealth(t *testing.T) {
	each(t, func(t *testing.T, e *env) {
		j := e.canaried(func(u *api.UpdateStrategy) { u.Canary = ptr(0) })
		before := e.live(*j.ID)
		first := e.deploymentIs(*j.ID, 0, api.DeploymentStatusSuccessful, "")
		j.TaskGroups[0].Constraints = append(j.TaskGroups[0].Constraints, &api.Constraint{LTarget: "${node.datacenter}", Operand: "=", RTarget: alike})
		e.register(j)
		second := e.deploymentIs(*j.ID, 1, api.DeploymentStatusSuccessful, "")
		if first.ID == second.ID || second.TaskGroups["g"].HealthyAllocs != 2 || second.TaskGroups["g"].PlacedAllocs != 2 {
			t.Errorf("the deployment knows of its group %+v", second.TaskGroups["g"])
		}
		after := e.live(*j.ID)
		if strings.Join(ids(before), " ") != strings.Join(ids(after), " ") {
			t.Errorf("members were %v and are %v", ids(before), ids(after))
		}
		for _, stub := range after {
			a, _, err := e.api.Allocations().Info(stub.ID, nil)
			if err != nil {
				t.Fatal(err)
			}
			if a.DeploymentID != second.ID || a.DeploymentStatus == nil || a.DeploymentStatus.Healthy == nil || !*a.DeploymentStatus.Healthy {
				t.Errorf("%s belongs to deployment %s (want %s) with %+v", a.Name, a.DeploymentID, second.ID, a.DeploymentStatus)
			}
		}
	})
}
