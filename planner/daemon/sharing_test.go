package daemon

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/observe"
)

// sharedView is a cluster with one GPU that two may share, and who does.
func sharedView(running ...string) *observe.View {
	slice := func(n int) model.GPU {
		return model.GPU{UUID: fmt.Sprintf("G::%d", n), Parent: "G", Slices: 2, SharedMiB: 80000}
	}
	v := &observe.View{Snapshot: &model.Snapshot{Nodes: []model.Node{{ID: "n", GPUs: []model.GPU{{UUID: "W"}, slice(0), slice(1)}}}}}
	for _, id := range []string{"nb-2031-01-01", "nb-2031-01-02", "other", "train"} {
		j := model.Job{Namespace: "default", ID: id, State: model.StateQueued, Groups: []model.TaskGroup{{Name: "g", Devices: []model.DeviceAsk{{Name: "gpu", Count: 1, Shared: model.SharedAllow}}}}}
		if id == "train" {
			j.Groups[0].Devices[0].Shared = ""
		}
		v.Snapshot.Jobs = append(v.Snapshot.Jobs, j)
		v.Managed = append(v.Managed, observe.Managed{Namespace: "default", ID: id, Model: j})
	}
	for i, id := range running {
		v.Snapshot.Allocs = append(v.Snapshot.Allocs, model.Alloc{ID: "alloc-" + id, Namespace: "default", Job: id, Node: "n", GPUs: []string{fmt.Sprintf("G::%d", i)}})
	}
	v.Snapshot.Allocs = append(v.Snapshot.Allocs, model.Alloc{ID: "alloc-train", Namespace: "default", Job: "train", Node: "n", GPUs: []string{"W"}})
	return v
}

// statistics of one device, as Nomad tells them of a task.
func statistics(gpu string, figures map[string]int64) *api.AllocResourceUsage {
	values := map[string]*api.StatValue{}
	for name, v := range figures {
		values[name] = &api.StatValue{IntNumeratorVal: &v}
	}
	group := &api.DeviceGroupStats{InstanceStats: map[string]*api.DeviceStats{gpu: {Stats: &api.StatObject{Attributes: values}}}}
	return &api.AllocResourceUsage{Tasks: map[string]*api.TaskResourceUsage{"t": {ResourceUsage: &api.ResourceUsage{DeviceStats: []*api.DeviceGroupStats{nil, group}}}}}
}

// What tasks on shared GPUs use is measured, told of those that run and of others
// like them, and known to the next planner; nothing else is asked for.
func TestSharing(t *testing.T) {
	store, at := &fakeUsage{}, time.Date(2031, 5, 17, 12, 0, 0, 0, time.UTC)
	var mu sync.Mutex
	asked := map[string]int{}
	s := &sharing{kept: keepSharing(store), stats: func(_ context.Context, _, alloc string) (*api.AllocResourceUsage, error) {
		mu.Lock()
		defer mu.Unlock()
		asked[alloc]++
		if alloc == "alloc-other" {
			return nil, errors.New("not started")
		}
		return statistics("G::0", map[string]int64{"Memory state": 1000, "GPU utilization": 40}), nil
	}}
	round := func(v *observe.View) *observe.View {
		t.Helper()
		at = at.Add(time.Minute)
		if err := s.load(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := s.measure(t.Context(), slicesHeld(v), at); err != nil && !strings.Contains(err.Error(), "not started") {
			t.Fatal(err)
		}
		return s.learn(v, at)
	}
	if v := sharedView(); round(v) != v {
		t.Error("something is known of nothing")
	}
	var v *observe.View
	for range 10 {
		v = round(sharedView("nb-2031-01-01"))
	}
	got := v.Snapshot.Jobs[0].Usage
	if got == nil || got.MemoryMiB != 1024 || got.Busy != 40 || len(got.Minutes) < 3 {
		t.Errorf("of the one that runs: %+v", got)
	}
	if v.Snapshot.Jobs[1].Usage != nil || v.Snapshot.Jobs[3].Usage != nil {
		t.Errorf("of others: %+v, %+v", v.Snapshot.Jobs[1].Usage, v.Snapshot.Jobs[3].Usage)
	}
	// Beside another one the GPU's figures are not its own, and what ended counts for
	// the next.
	v = round(sharedView("nb-2031-01-02", "other"))
	if got := v.Snapshot.Jobs[1].Usage; got == nil || got.MemoryMiB != 1024 || got.Busy != 40 || got.Samples != 10 {
		t.Errorf("of the next: %+v", got)
	}
	if d := cmp.Diff(map[string]int{"alloc-nb-2031-01-01": 10, "alloc-nb-2031-01-02": 1, "alloc-other": 1}, asked); d != "" {
		t.Errorf("asked (-want +got):\n%s", d)
	}
	if err := errors.Join(s.save(t.Context(), at), s.save(t.Context(), at)); err != nil || store.writes != 1 {
		t.Errorf("%d writes: %v", store.writes, err)
	}
	next := &sharing{kept: keepSharing(store)}
	if err := next.load(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := next.learn(sharedView(), at).Snapshot.Jobs[0].Usage; got == nil || got.MemoryMiB != 1024 {
		t.Errorf("the next planner knows %+v", got)
	}
	s.forget()
	if v := sharedView("nb-2031-01-01"); s.learn(v, at) != v {
		t.Error("a planner that does not lead tells what it knew")
	}
}

// A decision is not made anew for each sample.
func TestSharingTellsTheSame(t *testing.T) {
	at, busy := time.Date(2031, 5, 17, 12, 0, 0, 0, time.UTC), int64(40)
	s := &sharing{kept: keepSharing(&fakeUsage{}), stats: func(context.Context, string, string) (*api.AllocResourceUsage, error) {
		return statistics("G::0", map[string]int64{"Slice memory": 1000, "Slice utilization": busy}), nil
	}}
	if err := s.load(t.Context()); err != nil {
		t.Fatal(err)
	}
	told := map[*model.Usage]bool{}
	for i := range 20 {
		at = at.Add(30 * time.Second)
		busy = 40 + int64(i%2)
		if err := s.measure(t.Context(), slicesHeld(sharedView("nb-2031-01-01")), at); err != nil {
			t.Fatal(err)
		}
		told[s.learn(sharedView("nb-2031-01-01"), at).Snapshot.Jobs[0].Usage] = true
	}
	if len(told) > 4 {
		t.Errorf("%d different usages in ten minutes", len(told))
	}
}

func TestSampleOf(t *testing.T) {
	now := time.Unix(1000, 0)
	gpu := map[string]int64{"Memory state": 5000, "GPU utilization": 90}
	slice := map[string]int64{"Memory state": 5000, "GPU utilization": 90, "Slice memory": 700, "Slice utilization": 12}
	tests := map[string]struct {
		stats *api.AllocResourceUsage
		alone bool
		want  string
	}{
		"its own processes":       {statistics("G::0", slice), false, "700 MiB, 12 %"},
		"alone on its GPU":        {statistics("G::0", gpu), true, "5000 MiB, 90 %"},
		"beside others":           {statistics("G::0", gpu), false, "nothing"},
		"memory only":             {statistics("G::0", map[string]int64{"Memory state": 5000}), true, "5000 MiB, an equal part of 50 %"},
		"another device":          {statistics("G::1", gpu), true, "nothing"},
		"no statistics":           {&api.AllocResourceUsage{}, true, "nothing"},
		"nothing at all":          {nil, true, "nothing"},
		"more than any GPU has":   {statistics("G::0", map[string]int64{"Memory state": 1 << 62}), true, "nothing"},
		"less than nothing":       {statistics("G::0", map[string]int64{"Slice memory": -1}), false, "nothing"},
		"summed up by allocation": {&api.AllocResourceUsage{ResourceUsage: statistics("G::0", gpu).Tasks["t"].ResourceUsage}, true, "5000 MiB, 90 %"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got := "nothing"
			if s, ok := sampleOf(tt.stats, sliceHeld{gpu: "G::0", slices: 2, alone: tt.alone}, now); ok {
				got = fmt.Sprintf("%d MiB, %d %%", s.MemoryMiB, s.Busy)
				if s.Busy < 0 {
					got = fmt.Sprintf("%d MiB, an equal part of %d %%", s.MemoryMiB, s.PartBusy)
				}
			}
			if got != tt.want {
				t.Errorf("%s, want %s", got, tt.want)
			}
		})
	}
}
