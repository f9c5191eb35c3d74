package apply_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/observe"
	"github.com/caravan-sched/caravan/planner/record"
	"github.com/caravan-sched/caravan/planner/rewrite"
)

// reverted: somebody takes the job back to the version before, pins and all,
// as Nomad does by itself when a deployment fails.
func (r *real) reverted(t *testing.T) {
	r.t = t
	r.register(gatedFile(realJob("reverted", "service", "job", 2, 8, "/bin/sleep", "601")))
	r.until("running", r.running("reverted", 2))
	stale := uint64(r.versions("reverted"))
	r.register(gatedFile(realJob("reverted", "service", "job", 2, 8, "/bin/sleep", "602")))
	args := func(want string) func(*observe.View) bool {
		return func(v *observe.View) bool {
			m, ok := v.Job("default", "reverted")
			return ok && m.Record != nil && m.Record.Original != nil && r.running("reverted", 2)(v) &&
				strings.Contains(fmt.Sprint(m.Record.Original.TaskGroups[0].Tasks[0].Config["args"]), want)
		}
	}
	r.until("the second version runs", args("602"))
	if _, _, err := r.client.Jobs().Revert("reverted", stale, nil, nil, "", ""); err != nil {
		t.Fatal(err)
	}
	// Nomad replaces the members some time after the version is there.
	back := uint64(r.versions("reverted"))
	v := r.until("the first version runs", func(v *observe.View) bool {
		m, ok := v.Job("default", "reverted")
		return ok && args("601")(v) && !slices.ContainsFunc(m.Members, func(s observe.MemberState) bool { return s.Alloc == nil || s.Alloc.JobVersion < back })
	})
	m := r.whole(v, "reverted", 2)
	for _, s := range m.Members {
		info, _, err := r.client.Allocations().Info(s.Alloc.ID, nil)
		if err != nil {
			t.Fatal(err)
		}
		if got := fmt.Sprint(info.Job.TaskGroups[0].Tasks[0].Config["args"]); !strings.Contains(got, "601") {
			t.Errorf("member %d runs %s", s.Member.Index, got)
		}
	}
	r.purge("reverted")
}

func (r *real) failing(t *testing.T) {
	r.t = t
	j := realJob("failing", "batch", "job", 2, 8, "/bin/sh", "-c", "sleep $((2 + 600 * NOMAD_ALLOC_INDEX)); exit 3")
	j.TaskGroups[0].ReschedulePolicy = &api.ReschedulePolicy{Attempts: ptr(0), Unlimited: ptr(false)}
	r.register(gatedFile(j))
	v := r.until("queued for good", func(v *observe.View) bool {
		m, ok := v.Job("default", "failing")
		return ok && m.Record != nil && m.Record.Held != "" && m.Record.Phase == record.PhaseQueued
	})
	m, _ := v.Job("default", "failing")
	for _, want := range []string{"has failed", "Exit Code: 3", "allows 0 more tries", "stop the job and submit it again"} {
		if !strings.Contains(m.Model.Hold, want) {
			t.Errorf("hold %q, want %q", m.Model.Hold, want)
		}
	}
	if !rewrite.IsGated(m.Current) || slices.ContainsFunc(v.Snapshot.Allocs, func(a model.Alloc) bool { return a.Job == "failing" }) {
		t.Error("it is not queued whole")
	}
	r.purge("failing")
}

// completedThenDrained: the gang waits whole, and nobody runs a second time.
func (r *real) completedThenDrained(t *testing.T) {
	r.t = t
	log := filepath.Join(t.TempDir(), "ran")
	r.register(gatedFile(realJob("half", "batch", "job", 2, 8, "/bin/sh", "-c", "echo x >>"+log+"; sleep $((1 + 600 * NOMAD_ALLOC_INDEX))")))
	v := r.until("one has completed", func(v *observe.View) bool {
		m, ok := v.Job("default", "half")
		return ok && len(m.Members) == 2 && (m.Members[0].State == observe.AllocComplete || m.Members[1].State == observe.AllocComplete) && m.Record.Phase == record.PhaseRunning
	})
	m, _ := v.Job("default", "half")
	node := ""
	for _, s := range m.Members {
		if s.State == observe.AllocPlaced {
			node = s.Member.Node
		}
	}
	r.drain(node, &api.DrainSpec{Deadline: time.Hour})
	r.until("queued", phase("half", record.PhaseQueued))
	r.drain(node, nil)
	for range 10 {
		v = r.cycle()
	}
	m, _ = v.Job("default", "half")
	if !strings.Contains(m.Model.Hold, "1 of 2 members have completed") || !strings.Contains(m.Model.Hold, "stop the job and submit it again") {
		t.Errorf("hold %q", m.Model.Hold)
	}
	ran, err := os.ReadFile(log)
	if err != nil || strings.Count(string(ran), "x") != 2 {
		t.Errorf("members started %q, %v; want two", ran, err)
	}
	if slices.ContainsFunc(v.Snapshot.Allocs, func(a model.Alloc) bool { return a.Job == "half" }) {
		t.Error("something runs on")
	}
	r.purge("half")
}

// unknown: under disconnect { replace = false } the member is unknown; it
// counts as gone, and its GPUs stay fenced until its node is back.
func (r *real) unknown(t *testing.T) {
	r.t = t
	j := realJob("unknown", "service", "job", 2, 8, "/bin/sleep", "600")
	j.TaskGroups[0].Disconnect = &api.DisconnectStrategy{LostAfter: ptr(time.Hour), Replace: ptr(false)}
	r.register(gatedFile(j))
	m := r.whole(r.until("running", r.running("unknown", 2)), "unknown", 2)
	lost := m.Members[0].Alloc
	if err := r.cluster.StopNode(lost.NodeName); err != nil {
		t.Fatal(err)
	}
	r.until("rolled back", phase("unknown", record.PhaseRollback))
	v := r.until("running elsewhere", r.running("unknown", 2))
	for _, s := range r.whole(v, "unknown", 2).Members {
		if s.Member.Node == lost.NodeID {
			t.Error("a member is on the lost node")
		}
	}
	// Fenced: either it holds its GPUs still, or nothing can be placed there.
	fenced := func(v *observe.View) bool {
		return slices.ContainsFunc(v.Snapshot.Allocs, func(a model.Alloc) bool { return a.ID == lost.ID }) ||
			slices.ContainsFunc(v.Snapshot.Nodes, func(n model.Node) bool { return n.ID == lost.NodeID && n.Unschedulable != "" })
	}
	if !fenced(v) {
		t.Error("the lost member's GPUs are not fenced")
	}
	r.told("unknown", "no contact with the node", "stay fenced")
	if err := r.cluster.StartNode(lost.NodeName); err != nil {
		t.Fatal(err)
	}
	v = r.until("the node is back and free", func(v *observe.View) bool { return !fenced(v) })
	// By then its client has said itself what became of the member.
	if info, _, err := r.client.Allocations().Info(lost.ID, nil); err != nil || info.ClientStatus == api.AllocClientStatusLost || info.ClientStatus == api.AllocClientStatusUnknown {
		t.Errorf("the lost member is %s, %v", info.ClientStatus, err)
	}
	r.whole(v, "unknown", 2)
	r.purge("unknown")
}
