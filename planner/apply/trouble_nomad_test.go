package apply_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/planner/apply"
	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/observe"
	"github.com/caravan-sched/caravan/planner/record"
)

// TestTroubleOnNomad and TestTroubleOnStandIn play the troubles of real
// clusters. In each a gang ends up running whole or queued whole.
func TestTroubleOnNomad(t *testing.T) { troubles(t, startReal(t, troubleOptions())) }

func TestTroubleOnStandIn(t *testing.T) {
	t.Parallel()
	troubles(t, startStandIn(t, troubleOptions()))
}

func troubleOptions() apply.Options {
	return apply.Options{Deadline: time.Minute, RetryInitial: time.Second, Settle: 3 * time.Second, Sick: 2 * time.Second, Vanished: 30 * time.Second}
}

func troubles(t *testing.T, r *real) {
	t.Run("a drain moves a service gang whole", func(t *testing.T) { r.drained(t, "service") })
	t.Run("a drain moves a batch gang whole", func(t *testing.T) { r.drained(t, "batch") })
	t.Run("a sick GPU", r.sickGPU)
	t.Run("a device plugin that restarts", r.pluginRestarts)
	t.Run("a client that restarts", r.clientRestarts)
	t.Run("Nomad's own preemption", r.preempted)
	t.Run("pins edited by hand", r.handEdited)
	t.Run("an earlier version comes back", r.reverted)
	t.Run("a member that fails", r.failing)
	t.Run("a member completes and another is drained", r.completedThenDrained)
	t.Run("a node that is cut off", r.unknown)
}

// whole checks that of a gang all live allocations are where they were decided.
func (r *real) whole(v *observe.View, job string, members int) *observe.Managed {
	r.t.Helper()
	m := r.exact(v, job, members)
	live := 0
	for _, a := range v.Snapshot.Allocs {
		if a.Job == job && !a.Lost {
			live++
		}
	}
	if live != members {
		r.t.Errorf("job %s has %d live allocations, want %d", job, live, members)
	}
	return m
}

// told checks that the job's history tells of something.
func (r *real) told(job string, words ...string) {
	r.t.Helper()
	rec, err := r.store.Get(r.t.Context(), "default", job)
	if err != nil {
		r.t.Fatal(err)
	}
	for _, e := range rec.History {
		if !slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(e.Text, w) }) {
			return
		}
	}
	r.t.Errorf("the history tells nothing of %q: %+v", words, rec.History)
}

func (r *real) drain(node string, spec *api.DrainSpec) {
	r.t.Helper()
	if _, err := r.client.Nodes().UpdateDrainOpts(node, &api.DrainOptions{DrainSpec: spec, MarkEligible: spec == nil}, nil); err != nil {
		r.t.Fatal(err)
	}
}

func (r *real) running(job string, members int) func(*observe.View) bool {
	return func(v *observe.View) bool {
		return settledJob(job, members)(v) && !slices.ContainsFunc(v.Snapshot.Allocs, func(a model.Alloc) bool { return a.Job == job && a.Stopping })
	}
}

func (r *real) drained(t *testing.T, kind string) {
	r.t = t
	job := "drained-" + kind
	r.register(gatedFile(realJob(job, kind, "job", 2, 8, "/bin/sleep", "600")))
	m := r.whole(r.until("running", r.running(job, 2)), job, 2)
	node := m.Members[0].Member.Node
	r.drain(node, &api.DrainSpec{Deadline: time.Hour})
	r.until("rolled back", phase(job, record.PhaseRollback))
	v := r.until("running elsewhere", r.running(job, 2))
	for _, s := range r.whole(v, job, 2).Members {
		if s.Member.Node == node {
			t.Error("a member is on the drained node")
		}
	}
	r.told(job, "the node is drained", "the gang of 2 is stopped whole")
	r.drain(node, nil)
	r.purge(job)
}

func (r *real) sickGPU(t *testing.T) {
	r.t = t
	r.register(gatedFile(realJob("sick", "service", "job", 2, 4, "/bin/sleep", "600")))
	m := r.whole(r.until("running", r.running("sick", 2)), "sick", 2)
	a := m.Members[1].Alloc
	sick := m.Members[1].Member.GPUs[0]
	var index int
	for _, n := range r.look().Snapshot.Nodes {
		if n.ID == a.NodeID {
			index = slices.IndexFunc(n.GPUs, func(g model.GPU) bool { return g.UUID == sick })
		}
	}
	if err := os.WriteFile(r.faults[a.NodeName], []byte(strconv.Itoa(index)+" remap_pending\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	r.until("rolled back", phase("sick", record.PhaseRollback))
	v := r.until("running without it", r.running("sick", 2))
	for _, s := range r.whole(v, "sick", 2).Members {
		if slices.Contains(s.Member.GPUs, sick) {
			t.Error("a member has the sick GPU")
		}
	}
	r.told("sick", "1 of its 4 GPUs reported unhealthy", sick)
	if err := os.WriteFile(r.faults[a.NodeName], nil, 0o600); err != nil {
		t.Fatal(err)
	}
	r.purge("sick")
}

// undisturbed turns the loop for a while and checks that nothing happens to a
// running job.
func (r *real) undisturbed(job string, members int, what string, for_ time.Duration, disturb func()) {
	r.t.Helper()
	before := r.whole(r.until("running", r.running(job, members)), job, members)
	version := r.versions(job)
	disturb()
	for end := time.Now().Add(for_); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		r.cycle()
	}
	after := r.whole(r.until("still running", r.running(job, members)), job, members)
	for i, s := range after.Members {
		if s.Alloc.ID != before.Members[i].Alloc.ID {
			r.t.Errorf("%s: member %d was replaced", what, i)
		}
	}
	if got := r.versions(job); got != version {
		r.t.Errorf("%s made %d versions", what, got-version)
	}
}

func (r *real) pluginRestarts(t *testing.T) {
	r.t = t
	r.register(gatedFile(realJob("plugin", "service", "job", 2, 8, "/bin/sleep", "600")))
	r.undisturbed("plugin", 2, "a plugin's restart", 4*time.Second, func() {
		killed := 0
		links, err := filepath.Glob("/proc/[0-9]*/exe")
		if err != nil {
			t.Fatal(err)
		}
		for _, link := range links {
			if exe, err := os.Readlink(link); err != nil || exe != r.plugin {
				continue
			}
			pid, err := strconv.Atoi(filepath.Base(filepath.Dir(link)))
			if err != nil {
				t.Fatal(err)
			}
			p, err := os.FindProcess(pid)
			if err != nil {
				t.Fatal(err)
			}
			if err := p.Kill(); err == nil {
				killed++
			}
		}
		if killed != 3 {
			t.Fatalf("%d plugins were killed, want 3", killed)
		}
	})
	r.until("the GPUs are listed again", func(v *observe.View) bool {
		for _, n := range v.Snapshot.Nodes {
			if len(n.GPUs) != 8 {
				return false
			}
		}
		return true
	})
	r.purge("plugin")
}

func (r *real) clientRestarts(t *testing.T) {
	r.t = t
	r.register(gatedFile(realJob("restart", "service", "job", 2, 8, "/bin/sleep", "600")))
	m := r.whole(r.until("running", r.running("restart", 2)), "restart", 2)
	name := m.Members[0].Alloc.NodeName
	r.undisturbed("restart", 2, "a client's restart", 3*time.Second, func() {
		if err := r.cluster.StopNode(name); err != nil {
			t.Fatal(err)
		}
		if err := r.cluster.StartNode(name); err != nil {
			t.Fatal(err)
		}
	})
	r.purge("restart")
}

// preempted: a system job, for which Nomad's preemption is on by default,
// evicts one member.
func (r *real) preempted(t *testing.T) {
	r.t = t
	r.register(gatedFile(realJob("victim", "service", "job", 2, 8, "/bin/sleep", "600")))
	m := r.whole(r.until("running", r.running("victim", 2)), "victim", 2)
	node := m.Members[1].Member.Node
	thief := realJob("evictor", "system", "none", 1, 1, "/bin/sleep", "600")
	thief.Meta, thief.TaskGroups[0].Count, thief.TaskGroups[0].ReschedulePolicy, thief.Priority = nil, nil, nil, ptr(90)
	thief.Constrain(api.NewConstraint("${node.unique.id}", "=", node))
	r.register(thief)
	r.until("rolled back", phase("victim", record.PhaseRollback))
	v := r.until("running elsewhere", r.running("victim", 2))
	for _, s := range r.whole(v, "victim", 2).Members {
		if s.Member.Node == node {
			t.Error("a member is on the evictor's node")
		}
	}
	r.told("victim", "evicted by Nomad's own preemption", "the gang of 2 is stopped whole")
	r.purge("victim")
	if _, _, err := r.client.Jobs().Deregister("evictor", true, nil); err != nil {
		t.Fatal(err)
	}
	r.until("the evictor is gone", func(v *observe.View) bool {
		return !slices.ContainsFunc(v.Snapshot.Allocs, func(a model.Alloc) bool { return a.Job == "evictor" })
	})
}

func (r *real) handEdited(t *testing.T) {
	r.t = t
	r.register(gatedFile(realJob("edited", "service", "job", 2, 8, "/bin/sleep", "600")))
	before := r.whole(r.until("running", r.running("edited", 2)), "edited", 2)
	cur, _, err := r.client.Jobs().Info("edited", nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range cur.TaskGroups[0].Constraints {
		if c.LTarget == "${node.unique.id}" {
			c.RTarget = ".*"
		}
	}
	r.register(cur)
	v := r.until("set right", func(v *observe.View) bool {
		m, ok := v.Job("default", "edited")
		return ok && strings.Contains(m.Record.History[0].Text, "changed in Nomad itself") && !strings.Contains(fmt.Sprint(*m.Current.TaskGroups[0].Constraints[len(m.Current.TaskGroups[0].Constraints)-1]), ".*") && r.running("edited", 2)(v)
	})
	for i, s := range r.whole(v, "edited", 2).Members {
		if s.Alloc.ID != before.Members[i].Alloc.ID {
			t.Errorf("member %d was replaced", i)
		}
	}
	r.purge("edited")
}
