package apply_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/planner/apply"
	"github.com/caravan-sched/caravan/planner/gangspec"
	"github.com/caravan-sched/caravan/planner/observe"
	"github.com/caravan-sched/caravan/planner/rewrite"
)

func TestRolloutOnNomad(t *testing.T) { rollouts(t, startReal(t, troubleOptions())) }

func TestRolloutOnStandIn(t *testing.T) {
	t.Parallel()
	rollouts(t, startStandIn(t, troubleOptions()))
}

func rollouts(t *testing.T, r *real) {
	t.Run("replicas, one by one", func(t *testing.T) { r.t = t; r.rollReplicas() })
	t.Run("a version that fails is taken back", func(t *testing.T) { r.t = t; r.rollBack() })
	t.Run("gang by gang", func(t *testing.T) { r.t = t; r.rollGangs() })
	t.Run("a canary, and a person promotes it", func(t *testing.T) { r.t = t; r.canaryReplica() })
	t.Run("a gang beside the gang", func(t *testing.T) { r.t = t; r.canaryGang(1, 8) })
	t.Run("a gang of two beside the gang", func(t *testing.T) { r.t = t; r.canaryGang(2, 4) })
	t.Run("a canary that fails", func(t *testing.T) { r.t = t; r.canaryFails() })
}

// version is a service job whose members print their version.
func version(id, gang string, count, gpus int, v, command string) *api.Job {
	j := realJob(id, "service", gang, count, gpus, "/bin/sh", "-c", command)
	j.Meta["version"] = v
	j.Update = &api.UpdateStrategy{MaxParallel: ptr(1), MinHealthyTime: ptr(100 * time.Millisecond), HealthyDeadline: ptr(2 * time.Minute), ProgressDeadline: ptr(5 * time.Minute), HealthCheck: ptr("task_states")}
	j.TaskGroups[0].Tasks[0].Env = map[string]string{"VERSION": v}
	return j
}

// update hands in a new version as the gateway does.
func (r *real) update(job *api.Job) {
	r.t.Helper()
	v := r.look()
	m, _ := v.Job("default", *job.ID)
	orig, err := rewrite.Strip(job, nil)
	if err != nil || !gangspec.Rolls(m.Record.Original, orig) {
		r.t.Fatalf("it cannot be rolled: %v", err)
	}
	next := *m.Record
	next.Rollout = m.Record.NewRollout(*m.Current.JobModifyIndex, time.Now())
	next.Rollout.Begin(gangspec.Canaries(next.Rollout.Original, orig))
	next.Original, next.SpecHash, next.PlacedHash = orig, gangspec.Hash(orig), gangspec.Hash(orig)
	mixed, err := apply.Mix(&next, m.Current, apply.Cluster(v))
	if err != nil {
		r.t.Fatal(err)
	}
	if err := r.store.Put(r.t.Context(), &next); err != nil {
		r.t.Fatal(err)
	}
	if _, _, err := r.client.Jobs().EnforceRegister(mixed, *m.Current.JobModifyIndex, nil); err != nil {
		r.t.Fatal(err)
	}
}

// rolled turns the loop until no update is under way, checks at each look that
// no more than so many members are away, and returns the last view.
func (r *real) rolled(job string, members, away int, want string) *observe.View {
	r.t.Helper()
	return r.until("the update is through", func(v *observe.View) bool {
		m, ok := v.Job("default", job)
		if !ok || m.Record == nil {
			return false
		}
		up := 0
		for _, s := range m.Members {
			if s.State == observe.AllocPlaced {
				up++
			}
		}
		if up < members-away {
			r.t.Errorf("%d of %d members are up", up, members)
		}
		return m.Record.Rollout == nil && strings.Contains(m.Record.Reason, want) && rewrite.RollingTo(m.Current) == "" && r.running(job, members)(v)
	})
}

// runs checks what version each member's task has.
func (r *real) runs(m *observe.Managed, want string) {
	r.t.Helper()
	for _, s := range m.Members {
		info, _, err := r.client.Allocations().Info(s.Alloc.ID, nil)
		if err != nil {
			r.t.Fatal(err)
		}
		for _, g := range info.Job.TaskGroups {
			if *g.Name == s.Alloc.TaskGroup && g.Tasks[0].Env["VERSION"] != want {
				r.t.Errorf("member %d runs version %q, want %q", s.Member.Index, g.Tasks[0].Env["VERSION"], want)
			}
		}
	}
}

func (r *real) rollReplicas() {
	r.register(gatedFile(version("replicas", "none", 3, 4, "1", "sleep 600")))
	before := r.whole(r.until("running", r.running("replicas", 3)), "replicas", 3)
	r.update(version("replicas", "none", 3, 4, "2", "sleep 601"))
	after := r.whole(r.rolled("replicas", 3, 1, "the update is through"), "replicas", 3)
	r.runs(after, "2")
	for i, s := range after.Members {
		was := before.Members[i]
		if s.Member.Node != was.Member.Node || fmt.Sprint(s.Member.GPUs) != fmt.Sprint(was.Member.GPUs) || s.Alloc.ID == was.Alloc.ID {
			r.t.Errorf("member %d: %+v, was %+v", i, s.Member, was.Member)
		}
	}
	// Every member was started exactly once more.
	all, _, err := r.client.Jobs().Allocations("replicas", true, nil)
	if err != nil || len(all) != 6 {
		r.t.Errorf("%d allocations, %v; want 6", len(all), err)
	}
	r.purge("replicas")
}

func (r *real) rollBack() {
	r.register(gatedFile(version("back", "none", 2, 4, "1", "sleep 600")))
	before := r.whole(r.until("running", r.running("back", 2)), "back", 2)
	bad := version("back", "none", 2, 4, "2", "exit 4")
	bad.Update.AutoRevert = ptr(true)
	r.update(bad)
	after := r.whole(r.rolled("back", 2, 1, "taken back"), "back", 2)
	r.runs(after, "1")
	if after.Members[1].Alloc.ID != before.Members[1].Alloc.ID || after.Record.SpecHash != before.Record.SpecHash {
		r.t.Errorf("the member that had not had its turn was restarted, or the record has another version")
	}
	r.told("back", "the update has failed with 1 of 2 members changed")
	r.purge("back")
}

func (r *real) rollGangs() {
	two := func(v string) *api.Job {
		j := version("gangs", "group", 2, 4, v, "sleep 600")
		j.TaskGroups[0].Constraints = []*api.Constraint{{Operand: "distinct_hosts", RTarget: "true"}}
		second := version("", "group", 2, 4, v, "sleep 600").TaskGroups[0]
		second.Name, second.Constraints = ptr("v"), j.TaskGroups[0].Constraints
		j.TaskGroups = append(j.TaskGroups, second)
		return j
	}
	r.register(gatedFile(two("1")))
	r.whole(r.until("running", r.running("gangs", 4)), "gangs", 4)
	// Past the gateway: the file's own gate keeps Nomad from rolling by itself.
	r.register(gatedFile(two("2")))
	after := r.whole(r.rolled("gangs", 4, 2, "the update is through"), "gangs", 4)
	r.runs(after, "2")
	all, _, err := r.client.Jobs().Allocations("gangs", true, nil)
	if err != nil || len(all) != 8 {
		r.t.Errorf("%d allocations, %v; want 8", len(all), err)
	}
	r.purge("gangs")
}
