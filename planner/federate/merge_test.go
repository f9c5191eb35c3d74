package federate

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/observe"
)

func fixed(t *testing.T, name string, o Observer) Region {
	return Region{Name: name, Observer: o, Executor: idle{}, Term: func() (context.Context, string) { return t.Context(), "" }}
}

// idle is an executor that nothing is due for, and that is asked for nothing else.
type idle struct{ Executor }

func (idle) Due() time.Time { return time.Time{} }

// The joined lists are in the order that one region's are in, and valid.
func TestMergedInOrder(t *testing.T) {
	f := New(Options{}, fixed(t, "eu", still{drawn("eu", 7, 5)}), fixed(t, "us", still{drawn("us", 4, 9)}), fixed(t, "ap", still{drawn("ap", 0, 0)}))
	v, err := f.Refresh(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if n, j := len(v.Snapshot.Nodes), len(v.Snapshot.Jobs); n != 11 || j != 14 || len(v.Nodes) != 11 || len(v.Managed) != 14 {
		t.Fatalf("%d nodes and %d jobs, want 11 and 14", n, j)
	}
	if !slices.IsSortedFunc(v.Snapshot.Nodes, func(a, b model.Node) int { return strings.Compare(a.ID, b.ID) }) ||
		!slices.IsSortedFunc(v.Nodes, func(a, b observe.NodeRef) int { return strings.Compare(a.ID, b.ID) }) ||
		!slices.IsSortedFunc(v.Snapshot.Jobs, func(a, b model.Job) int { return a.Submitted.Compare(b.Submitted) }) ||
		!slices.IsSortedFunc(v.Managed, func(a, b observe.Managed) int { return a.Model.Submitted.Compare(b.Model.Submitted) }) {
		t.Error("the lists are not in order")
	}
	for i := range v.Snapshot.Jobs {
		if got := v.Snapshot.Jobs[i].Regions; !slices.Equal(got, []string{"eu", "us", "ap"}) {
			t.Errorf("job %s may go to %v, want all", v.Snapshot.Jobs[i].ID, got)
		}
	}
}

// A GPU that two regions list counts in the first; nothing is placed on the other's
// node.
func TestGPUInTwoRegions(t *testing.T) {
	there := drawn("us", 2, 0)
	there.Snapshot.Nodes[1].GPUs[3].UUID = "shared"
	here := drawn("eu", 1, 0)
	here.Snapshot.Nodes[0].GPUs[0].UUID = "shared"
	f := New(Options{}, fixed(t, "eu", still{here}), fixed(t, "us", still{there}))
	for range 2 { // the second time from what was kept
		v, err := f.Refresh(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		var unusable []string
		for i := range v.Snapshot.Nodes {
			if n := &v.Snapshot.Nodes[i]; n.Unschedulable != "" || len(n.GPUs) == 0 {
				unusable = append(unusable, n.ID)
			}
		}
		if !slices.Equal(unusable, []string{there.Snapshot.Nodes[1].ID}) || len(v.Warnings) != 1 {
			t.Errorf("unusable are %v, with warnings %v; want the second node of us, and one", unusable, v.Warnings)
		}
	}
}

// broken is a region that answers as it is told to.
type broken struct {
	view *observe.View
	err  error
}

func (b *broken) Refresh(context.Context) (*observe.View, error) { return b.view, b.err }
func (b *broken) Watch(context.Context, func())                  {}

// Without the first region there is no View; without another one it is held, seen
// as it was last.
func TestRegionsThatFail(t *testing.T) {
	first, other := &broken{view: drawn("eu", 1, 1)}, &broken{view: drawn("us", 1, 1)}
	f := New(Options{}, fixed(t, "eu", first), fixed(t, "us", other))
	if v, err := f.Refresh(t.Context()); err != nil || v.State("us").Held != "" {
		t.Fatalf("%+v, %v; want both regions", v, err)
	}
	other.err = errors.New("gone")
	v, err := f.Refresh(t.Context())
	if err != nil || !strings.Contains(v.State("us").Held, "gone") || len(v.Snapshot.Nodes) != 2 {
		t.Fatalf("%+v, %v; want us held with its node", v, err)
	}
	for i := range v.Snapshot.Nodes {
		if n := &v.Snapshot.Nodes[i]; (n.Unschedulable != "") != (n.Levels[model.LevelRegion] == "us") {
			t.Errorf("node %s is unschedulable: %q", n.ID, n.Unschedulable)
		}
	}
	for i := range v.Managed {
		if m := &v.Managed[i]; (m.Model.Hold != "") != (m.Region == "us") {
			t.Errorf("job %s in %s is held: %q", m.ID, m.Region, m.Model.Hold)
		}
	}
	if f.Due().IsZero() {
		t.Error("nobody looks at us again")
	}
	first.err = errors.New("away")
	if _, err := f.Refresh(t.Context()); err == nil {
		t.Error("there is a View without the first region")
	}
}
