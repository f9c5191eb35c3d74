package federate

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/observe"
	"github.com/caravan-sched/caravan/planner/record"
)

// still is a region that never changes.
type still struct{ view *observe.View }

func (s still) Refresh(context.Context) (*observe.View, error) { return s.view, nil }
func (s still) Watch(context.Context, func())                  {}

// drawn is a region of so many nodes of eight GPUs, with as many jobs that wait.
func drawn(name string, nodes, jobs int) *observe.View {
	v := &observe.View{Taken: time.Unix(1000, 0), Snapshot: &model.Snapshot{Version: model.SnapshotVersion, Levels: []string{model.LevelRegion}}}
	for i := range nodes {
		id := fmt.Sprintf("%08x-%s", uint32(i+1)*2654435761, name)
		n := model.Node{ID: id, Name: id, Levels: map[string]string{model.LevelRegion: name}}
		for g := range 8 {
			n.GPUs = append(n.GPUs, model.GPU{UUID: fmt.Sprintf("%s-%d", id, g)})
		}
		v.Nodes = append(v.Nodes, observe.NodeRef{ID: id, Name: id})
		v.Snapshot.Nodes = append(v.Snapshot.Nodes, n)
	}
	slices.SortFunc(v.Nodes, func(a, b observe.NodeRef) int { return strings.Compare(a.ID, b.ID) })
	slices.SortFunc(v.Snapshot.Nodes, func(a, b model.Node) int { return strings.Compare(a.ID, b.ID) })
	for i := range jobs {
		id := fmt.Sprintf("%s-job-%d", name, i)
		j := model.Job{Namespace: "default", ID: id, Submitted: time.Unix(int64(i), 0), State: model.StateQueued, Gang: model.GangJob}
		v.Snapshot.Jobs = append(v.Snapshot.Jobs, j)
		v.Managed = append(v.Managed, observe.Managed{Namespace: "default", ID: id, Model: j, Current: &api.Job{ID: &id},
			Record: &record.Record{Namespace: "default", JobID: id, Regions: []string{record.AnyRegion}}})
	}
	return v
}

// BenchmarkMerge is one look at two regions of 8,192 nodes and 5,000 jobs each, in
// which nothing has changed.
func BenchmarkMerge(b *testing.B) {
	term := func() (context.Context, string) { return b.Context(), "" }
	f := New(Options{}, Region{Name: "eu", Observer: still{drawn("eu", 8192, 5000)}, Term: term}, Region{Name: "us", Observer: still{drawn("us", 8192, 5000)}, Term: term})
	b.ReportAllocs()
	for b.Loop() {
		if _, err := f.Refresh(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
}
