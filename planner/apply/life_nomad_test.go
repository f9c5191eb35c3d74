package apply_test

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/planner/apply"
	"github.com/caravan-sched/caravan/planner/core"
	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/observe"
	"github.com/caravan-sched/caravan/planner/record"
	"github.com/caravan-sched/caravan/planner/rewrite"
)

// race: somebody else takes a GPU between the dry-run and the pin. It is
// played by writing the placement behind the dry-run's back.
func (r *real) race(t *testing.T) {
	r.t = t
	r.register(gatedFile(realJob("race", "batch", "job", 2, 8, "/bin/sleep", "600")))
	v := r.look()
	plan, err := core.Decide(v.Snapshot, core.Policy{})
	if err != nil || len(plan.Decisions) != 1 || len(plan.Decisions[0].Members) != 2 {
		t.Fatalf("Decide: %+v, %v", plan, err)
	}
	// Another job takes one GPU of the second member's node.
	thief := realJob("thief", "sysbatch", "none", 1, 1, "/bin/sleep", "600")
	thief.Meta, thief.TaskGroups[0].Count, thief.TaskGroups[0].ReschedulePolicy = nil, nil, nil
	thief.Constrain(api.NewConstraint("${node.unique.id}", "=", plan.Decisions[0].Members[1].Node))
	r.register(thief)
	r.waitAllocs("thief", 1)
	for _, result := range r.exec.Execute(t.Context(), v, plan) {
		t.Logf("%s %s: %s changed=%v err=%v", result.Kind, result.Job, result.Reason, result.Changed, result.Err)
	}
	rec, err := r.store.Get(t.Context(), "default", "race")
	if err != nil {
		t.Fatal(err)
	}
	if rec.Phase != record.PhaseQueued || rec.Attempts != 1 || !strings.Contains(rec.Reason, "does not fit") {
		t.Errorf("the dry-run did not see it: %s, %q", rec.Phase, rec.Reason)
	}
	// Now without the dry-run.
	cur, _, err := r.client.Jobs().Info("race", nil)
	if err != nil {
		t.Fatal(err)
	}
	pinned, err := rewrite.Pin(rec.Original, plan.Decisions[0].Members, apply.Cluster(v))
	if err != nil {
		t.Fatal(err)
	}
	rec.Phase, rec.Members, rec.PlacedHash = record.PhaseAdmitted, plan.Decisions[0].Members, rec.SpecHash
	rec.Admitted, rec.Deadline = time.Now(), time.Now().Add(3*time.Second)
	if err := r.store.Put(t.Context(), rec); err != nil {
		t.Fatal(err)
	}
	if _, _, err := r.client.Jobs().EnforceRegister(pinned, *cur.JobModifyIndex, nil); err != nil {
		t.Fatal(err)
	}
	r.waitAllocs("race", 1)
	v = r.until("rolled back", phase("race", record.PhaseRollback))
	v = r.until("admitted whole elsewhere", phase("race", record.PhaseRunning))
	r.exact(v, "race", 2)
	if _, _, err := r.client.Jobs().Deregister("thief", true, nil); err != nil {
		t.Fatal(err)
	}
	r.purge("race")
}

func (r *real) waitAllocs(job string, n int) {
	r.t.Helper()
	deadline := time.Now().Add(90 * time.Second)
	for time.Now().Before(deadline) {
		allocs, _, err := r.client.Jobs().Allocations(job, true, nil)
		if err != nil {
			r.t.Fatal(err)
		}
		if len(allocs) >= n {
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
	r.t.Fatalf("job %s got no allocation", job)
}

// changed: an ungated job is gated; a new version that is registered past the
// gateway is a new submission, and the old one's members make room for it.
func (r *real) changed(t *testing.T) {
	r.t = t
	// Two members of three nodes' worth of memory never fit, so nothing of it
	// runs before it is gated.
	j := realJob("changed", "batch", "job", 2, 8, "/bin/sleep", "600")
	j.Constrain(api.NewConstraint("${meta.never}", "=", "there"))
	r.register(j)
	r.until("gated", func(v *observe.View) bool {
		m, ok := v.Job("default", "changed")
		return ok && m.Record != nil && rewrite.IsGated(m.Current)
	})
	next := realJob("changed", "batch", "job", 2, 8, "/bin/sleep", "601")
	r.register(next)
	v := r.until("running", phase("changed", record.PhaseRunning))
	m := r.exact(v, "changed", 2)
	if args := fmt.Sprint(m.Record.Original.TaskGroups[0].Tasks[0].Config["args"]); !strings.Contains(args, "601") {
		t.Errorf("the record has %s", args)
	}
	r.purge("changed")
}

// again: what completed in an earlier submission does not count in the next.
func (r *real) again(t *testing.T) {
	r.t = t
	log := filepath.Join(t.TempDir(), "ran")
	for i := 1; i <= 2; i++ {
		r.register(gatedFile(realJob("again", "batch", "job", 2, 8, "/bin/sh", "-c", fmt.Sprintf("echo %d >>%s; sleep 1", i, log))))
		r.until("admitted", func(v *observe.View) bool {
			m, ok := v.Job("default", "again")
			return ok && m.Record != nil && m.Record.Phase != record.PhaseQueued
		})
		r.until("done", gone("again"))
	}
	out, err := exec.Command("sort", log).Output()
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Fields(string(out)); !slices.Equal(got, []string{"1", "1", "2", "2"}) {
		t.Errorf("members ran: %v, want each once per submission", got)
	}
	r.purge("again")
}

// lostNode: the rest of the gang is stopped and the gang starts whole on the
// nodes that are left; the lost member's GPUs are not given to anybody.
func (r *real) lostNode(t *testing.T) {
	r.t = t
	r.register(gatedFile(realJob("lost", "service", "job", 2, 8, "/bin/sleep", "600")))
	v := r.until("running", phase("lost", record.PhaseRunning))
	m := r.exact(v, "lost", 2)
	node := m.Members[0].Alloc
	if err := r.cluster.StopNode(node.NodeName); err != nil {
		t.Fatal(err)
	}
	r.until("rolled back", phase("lost", record.PhaseRollback))
	v = r.until("running elsewhere", phase("lost", record.PhaseRunning))
	m = r.exact(v, "lost", 2)
	for _, s := range m.Members {
		if s.Member.Node == node.NodeID {
			t.Error("a member is on the lost node")
		}
	}
	if err := r.cluster.StartNode(node.NodeName); err != nil {
		t.Fatal(err)
	}
	r.until("the node is back and free", func(v *observe.View) bool {
		i := slices.IndexFunc(v.Snapshot.Nodes, func(n model.Node) bool { return n.ID == node.NodeID })
		held := slices.ContainsFunc(v.Snapshot.Allocs, func(a model.Alloc) bool { return a.Node == node.NodeID })
		return i >= 0 && v.Snapshot.Nodes[i].Unschedulable == "" && !held
	})
	r.purge("lost")
}

func deviceConstraints(j *api.Job) []string {
	var out []string
	for _, g := range j.TaskGroups {
		for _, task := range g.Tasks {
			if task.Resources == nil {
				continue
			}
			for _, d := range task.Resources.Devices {
				for _, c := range d.Constraints {
					out = append(out, c.LTarget+" "+c.RTarget)
				}
			}
		}
	}
	return out
}
