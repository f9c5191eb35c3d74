package facts

import (
	"errors"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/internal/jobhcl"
	"github.com/caravan-sched/caravan/internal/nomadproc"
)

// TestFact11Deployment: with an update strategy a changed service job is
// rolled max_parallel members at a time, and cannot be scaled meanwhile; with
// max_parallel 0 there is no deployment and all change at once.
func TestFact11Deployment(t *testing.T) {
	each(t, func(t *testing.T, e *env) {
		j := e.newJob(api.JobTypeService, alike, 2, 1, sleeper)
		j.Update = &api.UpdateStrategy{MaxParallel: ptr(1), MinHealthyTime: ptr(time.Hour), HealthyDeadline: ptr(2 * time.Hour), ProgressDeadline: ptr(3 * time.Hour)}
		e.register(j)
		before := e.running(*j.ID, 2)
		if d := e.deployment(*j.ID); d == nil || d.Status != api.DeploymentStatusRunning || d.TaskGroups["g"].DesiredTotal != 2 {
			t.Fatalf("deployment is %+v", d)
		}
		_, _, err := e.api.Jobs().Scale(*j.ID, "g", ptr(3), "", false, nil, nil)
		if err == nil || !strings.Contains(err.Error(), "job scaling blocked due to active deployment") {
			t.Errorf("scaling gave %v; want it refused", err)
		}
		j.TaskGroups[0].Tasks[0].Env = map[string]string{"A": "1"}
		e.register(j)
		e.until("one member replaced", func() (bool, any) {
			v := map[uint64]int{}
			for _, a := range e.live(*j.ID) {
				v[a.JobVersion]++
			}
			return v[0] == 1 && v[1] == 1, e.describe(*j.ID)
		})
		if d := e.deployment(*j.ID); d == nil || d.JobVersion != 1 {
			t.Errorf("deployment is %+v, want one of version 1", d)
		}
		j.Update.MaxParallel = ptr(0)
		j.TaskGroups[0].Update = nil
		j.TaskGroups[0].Tasks[0].Env = map[string]string{"A": "2"}
		e.register(j)
		for _, a := range e.running(*j.ID, 2) {
			if a.JobVersion != 2 || a.ID == before[0].ID || a.ID == before[1].ID {
				t.Errorf("member %s has version %d, want all new", a.Name, a.JobVersion)
			}
		}
		if d := e.deployment(*j.ID); d == nil || d.JobVersion != 1 || d.Status != api.DeploymentStatusCancelled {
			t.Errorf("deployment is %+v, want the last one cancelled and no other", d)
		}
	})
}

func (e *env) deployment(job string) *api.Deployment {
	e.t.Helper()
	d, _, err := e.api.Jobs().LatestDeployment(job, nil)
	if err != nil {
		e.t.Fatal(err)
	}
	return d
}

// TestFact14LostNode: when a node is lost, a group with distinct_hosts keeps
// the member waiting until the node is back; without, Nomad places it again
// inside the pins.
func TestFact14LostNode(t *testing.T) {
	each(t, func(t *testing.T, e *env) {
		nodes := e.nodes(alike)
		apart := e.newJob(api.JobTypeService, alike, 2, 2, sleeper)
		apart.TaskGroups[0].Constraints = []*api.Constraint{pinTo(nodes[:2]...), {Operand: api.ConstraintDistinctHosts, RTarget: "true"}}
		together := clone(apart)
		together.ID, together.Name = ptr(*apart.ID+"-together"), ptr(*apart.ID+"-together")
		together.TaskGroups[0].Constraints = []*api.Constraint{pinTo(nodes[:2]...)}
		t.Cleanup(func() { e.purge(*together.ID) })
		e.register(apart)
		e.register(together)
		e.running(*apart.ID, 2)
		e.running(*together.ID, 2)

		lost := e.onNode(*together.ID, nodes)
		if err := e.c.StopNode(lost.Name); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { e.back(lost) })
		e.until("node lost", func() (bool, any) { return e.nodeStatus(lost.ID) == api.NodeStatusDown, e.nodeStatus(lost.ID) })
		e.until("placed again inside the pins", func() (bool, any) {
			live := e.live(*together.ID)
			return len(live) == 2 && live[0].NodeID != lost.ID && live[1].NodeID != lost.ID, e.describe(*together.ID)
		})
		e.until("the other waits", func() (bool, any) {
			return len(e.live(*apart.ID)) == 1 && len(e.blocked(*apart.ID)) == 1, e.describe(*apart.ID)
		})
		if err := e.c.StartNode(lost.Name); err != nil {
			t.Fatal(err)
		}
		e.until("back with its node", func() (bool, any) {
			live := e.live(*apart.ID)
			return len(live) == 2, e.describe(*apart.ID)
		})
	})
}

// onNode picks a node with a member of a job on it.
func (e *env) onNode(job string, nodes []*api.Node) *api.Node {
	e.t.Helper()
	on := e.live(job)[0].NodeID
	return nodes[slices.IndexFunc(nodes, func(n *api.Node) bool { return n.ID == on })]
}

func (e *env) nodeStatus(id string) string {
	n, _, err := e.api.Nodes().Info(id, nil)
	if err != nil {
		return err.Error()
	}
	return n.Status
}

// back makes sure that a node is there for the next test.
func (e *env) back(n *api.Node) {
	// It fails when the test got so far that the node is back already.
	_ = e.c.StartNode(n.Name)
	deadline := time.Now().Add(patience)
	for e.nodeStatus(n.ID) != api.NodeStatusReady {
		if time.Now().After(deadline) {
			e.t.Errorf("node %s does not come back", n.Name)
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// TestFact14Disconnect: with disconnect { replace = false } a member on a
// silent node is unknown, is not replaced, and is the same one when the node
// is back.
func TestFact14Disconnect(t *testing.T) {
	each(t, func(t *testing.T, e *env) {
		nodes := e.nodes(alike)
		j := e.newJob(api.JobTypeService, alike, 1, 8, sleeper)
		j.TaskGroups[0].Constraints = []*api.Constraint{pinTo(nodes[0])}
		j.TaskGroups[0].Disconnect = &api.DisconnectStrategy{LostAfter: ptr(time.Hour), Replace: ptr(false)}
		e.register(j)
		member := e.running(*j.ID, 1)[0]
		if err := e.c.StopNode(nodes[0].Name); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { e.back(nodes[0]) })
		e.until("member unknown", func() (bool, any) {
			return e.clientStatus(member.ID) == api.AllocClientStatusUnknown, e.describe(*j.ID)
		})
		if s := e.nodeStatus(nodes[0].ID); s != api.NodeStatusDisconnected {
			t.Errorf("the node is %s, want disconnected", s)
		}
		if n := len(e.allocs(*j.ID)); n != 1 {
			t.Errorf("%d allocations, want the one that is unknown", n)
		}
		if err := e.c.StartNode(nodes[0].Name); err != nil {
			t.Fatal(err)
		}
		if got := e.running(*j.ID, 1)[0]; got.ID != member.ID {
			t.Errorf("member %s came back as %s", member.ID, got.ID)
		}
	})
}

// TestFact15DrainService: a drain takes one member of a pinned gang away, and
// nothing takes its place.
func TestFact15DrainService(t *testing.T) {
	each(t, func(t *testing.T, e *env) {
		nodes := e.nodes(alike)[:2]
		j := e.newJob(api.JobTypeService, alike, 2, 8, sleeper)
		j.TaskGroups[0].Constraints = []*api.Constraint{pinTo(nodes...), {Operand: api.ConstraintDistinctHosts, RTarget: "true"}}
		j.TaskGroups[0].Migrate = &api.MigrateStrategy{MaxParallel: ptr(1), HealthCheck: ptr("task_states"), MinHealthyTime: ptr(100 * time.Millisecond), HealthyDeadline: ptr(time.Minute)}
		e.register(j)
		before := e.running(*j.ID, 2)
		e.waitHealthy(before)
		e.drain(nodes[0], &api.DrainSpec{Deadline: time.Hour})
		e.running(*j.ID, 1)
		e.until("the other waits", func() (bool, any) { return len(e.blocked(*j.ID)) == 1, e.blocked(*j.ID) })
	})
}

// waitHealthy waits until members count as healthy: before, a drain does not
// touch them.
func (e *env) waitHealthy(as []*api.AllocationListStub) {
	e.t.Helper()
	for _, a := range as {
		e.until("member healthy", func() (bool, any) {
			x, _, err := e.api.Allocations().Info(a.ID, nil)
			if err != nil {
				return false, err
			}
			return x.DeploymentStatus != nil && x.DeploymentStatus.Healthy != nil && *x.DeploymentStatus.Healthy, x.DeploymentStatus
		})
	}
}

// TestFact15DrainBatch: a drained batch member is stopped for good.
func TestFact15DrainBatch(t *testing.T) {
	each(t, func(t *testing.T, e *env) {
		nodes := e.nodes(alike)[:2]
		j := e.newJob(api.JobTypeBatch, alike, 2, 8, sleeper)
		j.TaskGroups[0].Constraints = []*api.Constraint{pinTo(nodes...), {Operand: api.ConstraintDistinctHosts, RTarget: "true"}}
		e.register(j)
		e.running(*j.ID, 2)
		e.drain(nodes[0], &api.DrainSpec{Deadline: -1 * time.Second})
		left := e.running(*j.ID, 1)
		e.drain(nodes[0], nil)
		eval, _, err := e.api.Jobs().ForceEvaluate(*j.ID, nil)
		if err != nil {
			t.Fatal(err)
		}
		if got := e.evaluated(eval); len(got.FailedTGAllocs) != 0 {
			t.Errorf("evaluation failed with %v", reasons(got.FailedTGAllocs))
		}
		if diff := cmp.Diff(ids(left), ids(e.running(*j.ID, 1))); diff != "" {
			t.Errorf("members (-before +after):\n%s", diff)
		}
	})
}

// drain starts a drain, or ends it and makes the node eligible again.
func (e *env) drain(n *api.Node, spec *api.DrainSpec) {
	e.t.Helper()
	set := func(spec *api.DrainSpec) error {
		_, err := e.api.Nodes().UpdateDrainOpts(n.ID, &api.DrainOptions{DrainSpec: spec, MarkEligible: spec == nil}, nil)
		return err
	}
	if err := set(spec); err != nil {
		e.t.Fatal(err)
	}
	if spec != nil {
		e.t.Cleanup(func() {
			if err := set(nil); err != nil {
				e.t.Error(err)
			}
		})
	}
}

// TestFact17RunShowsGate: Nomad's own command line prints the gate as the
// reason for a gated batch job and exits with 2.
func TestFact17RunShowsGate(t *testing.T) {
	bin, ok := nomadproc.Find()
	if !ok {
		t.Skip("needs Nomad's command line: set NOMAD_BIN or put nomad on the PATH")
	}
	each(t, func(t *testing.T, e *env) {
		id := strings.NewReplacer("/", "-").Replace(t.Name())
		t.Cleanup(func() { e.purge(id) })
		src := `job "` + id + `" {
  type        = "batch"
  datacenters = ["alike"]
  constraint {
    attribute = "` + gateTarget + `"
    value     = "open"
  }
  group "g" {
    task "main" {
      driver = "raw_exec"
      config { command = "/bin/true" }
    }
  }
}
`
		if _, err := jobhcl.Parse([]byte(src), "gated.nomad.hcl", nil); err != nil {
			t.Fatalf("our own parser: %v", err)
		}
		run := exec.Command(bin, "job", "run", "-address", e.c.Address(), "-")
		run.Stdin = strings.NewReader(src)
		out, err := run.CombinedOutput()
		var exit *exec.ExitError
		if !errors.As(err, &exit) || exit.ExitCode() != 2 {
			t.Errorf("nomad job run ended with %v, want exit status 2\n%s", err, out)
		}
		if want := `Constraint "` + gateReason + `": 1 nodes excluded by filter`; !strings.Contains(string(out), want) {
			t.Errorf("nomad job run printed\n%s\nwant %q", out, want)
		}
	})
}
