package daemon

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/go-hclog"

	"github.com/caravan-sched/caravan/planner/core"
	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/core/queue"
)

func keptSnapshot() *model.Snapshot {
	return &model.Snapshot{
		Now:   time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC),
		Nodes: []model.Node{{ID: "n", GPUs: []model.GPU{{UUID: "g", Vendor: "nvidia", Type: "gpu"}}}},
		Jobs: []model.Job{{Namespace: "default", ID: "j", Type: "batch", State: model.StateQueued,
			Groups: []model.TaskGroup{{Name: "w", Count: 1, Devices: []model.DeviceAsk{{Name: "gpu", Count: 1}}}}}},
	}
}

// What is kept is compared now and then; where it is wrong the plan that
// everything comes to is used, and the operator is told.
func TestKeeperVerifies(t *testing.T) {
	var k keeper
	var log bytes.Buffer
	logger, m := hclog.New(&hclog.LoggerOptions{Output: &log}), newMetrics()
	snap := keptSnapshot()
	decide := func() *model.Plan {
		plan, err := k.decide(snap, queue.Policy{}, logger, m.diverged)
		if err != nil {
			t.Fatal(err)
		}
		return plan
	}
	for range verifyEvery {
		decide()
	}
	if log.Len() > 0 {
		t.Fatalf("nothing was wrong, and it says: %s", &log)
	}
	// Nobody may do this: the snapshot is changed behind the keeper's back.
	snap.Nodes[0].Unschedulable = "draining"
	for range verifyEvery - 1 {
		if decide().Decisions[0].Action != model.ActionAdmit {
			t.Fatal("the change was seen: the test shows nothing")
		}
	}
	want, err := core.Decide(snap, queue.Policy{})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, decide()); diff != "" {
		t.Errorf("plan of the look at which it was compared (-want +got):\n%s", diff)
	}
	if n := divergedIn(t, m); n != 1 || !strings.Contains(log.String(), "decision 0 is on j (admit: ") {
		t.Errorf("diverged %g times, log: %s", n, &log)
	}
	if diff := cmp.Diff(want, decide()); diff != "" {
		t.Errorf("plan of the next look (-want +got):\n%s", diff)
	}
}

func divergedIn(t *testing.T, m *metrics) float64 {
	t.Helper()
	all, err := m.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range all {
		if f.GetName() == "caravan_decide_diverged_total" {
			return f.GetMetric()[0].GetCounter().GetValue()
		}
	}
	t.Fatal("there is no such metric")
	return 0
}

func TestKeeperRefusesWhatIsInvalid(t *testing.T) {
	var k keeper
	m := newMetrics()
	snap := keptSnapshot()
	if _, err := k.decide(snap, queue.Policy{}, hclog.NewNullLogger(), m.diverged); err != nil {
		t.Fatal(err)
	}
	next := *snap
	next.Jobs = append([]model.Job{{ID: "broken", State: "lost"}}, snap.Jobs...)
	_, want := core.Decide(&next, queue.Policy{})
	_, got := k.decide(&next, queue.Policy{}, hclog.NewNullLogger(), m.diverged)
	if got == nil || got.Error() != want.Error() {
		t.Fatalf("error %v, want %v", got, want)
	}
	if _, err := k.decide(snap, queue.Policy{}, hclog.NewNullLogger(), m.diverged); err != nil {
		t.Errorf("the valid snapshot is refused afterwards: %v", err)
	}
}
