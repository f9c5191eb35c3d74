package observe

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/record"
)

// remove takes something out of a part of the fake.
func remove[K comparable, V any](f *fakeNomad, part string, from map[K]V, key K) {
	f.change(part, func(uint64) { delete(from, key) })
}

// clocked is an observer whose clock the test sets; it begins at 1000.
func (f *fakeNomad) clocked(t *testing.T) (*Observer, func(seconds int64)) {
	o := f.observer(t)
	now := time.Unix(1000, 0)
	o.now = func() time.Time { return now }
	return o, func(seconds int64) { now = time.Unix(seconds, 0) }
}

// heldBy are the GPUs that are held, by allocation.
func heldBy(v *View) map[string][]string {
	out := map[string][]string{}
	for _, a := range v.Snapshot.Allocs {
		out[a.ID] = a.GPUs
	}
	return out
}

// What is gone from Nomad before its client has said that it ended holds its
// GPUs for as long as it may run.
func TestPurgedAllocationsHold(t *testing.T) {
	type look struct {
		at   int64
		held bool
		ends int64 // 0: by nothing but time, never
	}
	status := func(status string, at int64) func(*fakeNomad) {
		return func(f *fakeNomad) {
			n := node("a", 2)
			n.Status, n.StatusUpdatedAt = status, at
			f.putNode(n)
		}
	}
	const ready, down = api.NodeStatusReady, api.NodeStatusDown
	kill := func(d time.Duration) func(*api.Job) {
		return func(j *api.Job) { j.TaskGroups[0].Tasks[0].KillTimeout = &d }
	}
	purge := func(f *fakeNomad) { remove(f, "jobs", f.jobs, jobKey{"default", "train"}) }
	tests := map[string]struct {
		job            func(*api.Job)
		desired, state string
		before         func(*fakeNomad) // what is so when the allocation is last seen
		with           func(*fakeNomad) // what happens together with its end
		later          func(*fakeNomad) // what happens after the first look
		looks          []look
	}{
		"a running one": {
			job: kill(20 * time.Second), with: purge,
			looks: []look{{1000, true, 1025}, {1024, true, 1025}, {1025, false, 0}, {1100, false, 0}},
		},
		"Nomad's kill_timeout":   {with: purge, looks: []look{{1000, true, 1010}, {1010, false, 0}}},
		"of a job that is there": {job: kill(20 * time.Second), looks: []look{{1000, true, 1025}, {1025, false, 0}}},
		"told to stop before":    {desired: "stop", with: purge, looks: []look{{1000, true, 1010}}},
		"ended":                  {desired: "stop", state: "complete", with: purge, looks: []look{{1000, false, 0}}},
		"failed":                 {state: "failed", with: purge, looks: []look{{1000, false, 0}}},
		"with its node":          {with: func(f *fakeNomad) { purge(f); remove(f, "nodes", f.nodes, "id-a") }, looks: []look{{1000, false, 0}}},
		"its node goes later":    {with: purge, later: func(f *fakeNomad) { remove(f, "nodes", f.nodes, "id-a") }, looks: []look{{1000, true, 1010}, {1001, false, 0}}},
		"seen again": {with: purge, later: func(f *fakeNomad) { f.putAlloc(alloc("x", "train", "workers", "id-a", 0, "a-1")) },
			looks: []look{{1000, true, 1010}, {1001, true, 0}}},
		"on a node that is cut off, and back": {before: status(down, 900), with: purge, later: status(ready, 2000),
			looks: []look{{1000, true, 0}, {2001, true, 2010}, {2010, false, 0}}},
		"lost on a node that is cut off, and back": {desired: "stop", state: "lost", before: status(down, 900), with: purge, later: status(ready, 2000),
			looks: []look{{1000, true, 0}, {2001, true, 2010}, {2010, false, 0}}},
		"lost and collected, and the node is back": {desired: "stop", state: "lost", before: status(down, 900), later: status(ready, 2000),
			looks: []look{{1000, false, 0}, {2001, true, 2010}, {2010, false, 0}}},
		"lost on a node that has been back for long": {desired: "stop", state: "lost", with: purge, looks: []look{{1000, false, 0}}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			f := newFake(t)
			status(ready, 100)(f)
			job := gpuJob("train", 1, 1)
			if test.job != nil {
				test.job(job)
			}
			f.putJob(job)
			a := alloc("x", "train", "workers", "id-a", 0, "a-1")
			if test.desired != "" {
				a.DesiredStatus = test.desired
			}
			if test.state != "" {
				a.ClientStatus = test.state
			}
			f.putAlloc(a)
			if test.before != nil {
				test.before(f)
			}
			o, set := f.clocked(t)
			refresh(t, o)
			if test.with != nil {
				test.with(f)
			}
			remove(f, "allocations", f.allocs, "x")
			for i, look := range test.looks {
				if i == 1 && test.later != nil {
					test.later(f)
				}
				set(look.at)
				v := refresh(t, o)
				want, ends := map[string][]string{}, time.Time{}
				if look.held {
					want["x"] = []string{"a-1"}
				}
				if look.ends != 0 {
					ends = time.Unix(look.ends, 0)
				}
				if diff := cmp.Diff(want, heldBy(v)); diff != "" {
					t.Errorf("held at %d (-want +got):\n%s", look.at, diff)
				}
				if !v.FenceEnds.Equal(ends) {
					t.Errorf("fence ends %v at %d, want %v", v.FenceEnds, look.at, ends)
				}
			}
		})
	}
}

// What was purged holds all that it held, as one that is stopping.
func TestPurgedModel(t *testing.T) {
	f := newFake(t)
	f.putNode(node("a", 2))
	f.putJob(gpuJob("train", 1, 1))
	f.putAlloc(alloc("x", "train", "workers", "id-a", 3, "a-1"))
	o, _ := f.clocked(t)
	refresh(t, o)
	remove(f, "jobs", f.jobs, jobKey{"default", "train"})
	remove(f, "allocations", f.allocs, "x")
	want := []model.Alloc{{
		ID: "x", Namespace: "default", Job: "train", Group: "workers", Index: 3, Node: "id-a", GPUs: []string{"a-1"},
		Resources: model.Resources{CPUMHz: 100, MemoryMiB: 300, DiskMiB: 300}, Ports: []int{25000},
		Stopping: true, Until: time.Unix(1010, 0).UTC(),
	}}
	if diff := cmp.Diff(want, refresh(t, o).Snapshot.Allocs); diff != "" {
		t.Errorf("allocations (-want +got):\n%s", diff)
	}
}

// A planner that starts after a purge knows of it from the record that is left,
// and holds what the members had from when it looked first.
func TestPurgedBeforeTheStart(t *testing.T) {
	tests := map[string]struct {
		change func(*fakeNomad, *record.Record)
		want   map[string][]string
		ends   time.Time
	}{
		"members":            {nil, map[string][]string{"default/train.workers[0].0": {"a-0", "a-1"}}, time.Unix(1040, 0)},
		"one that had ended": {func(_ *fakeNomad, r *record.Record) { r.Members[0].Ended = true }, map[string][]string{}, time.Time{}},
		"nothing was placed": {func(_ *fakeNomad, r *record.Record) { r.Members = nil }, map[string][]string{}, time.Time{}},
		"its node is gone":   {func(_ *fakeNomad, r *record.Record) { r.Members[0].Node = "id-z" }, map[string][]string{}, time.Time{}},
		"the job is there":   {func(f *fakeNomad, r *record.Record) { f.putJob(gated(r.Original)) }, map[string][]string{}, time.Time{}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			f := newFake(t)
			f.putNode(node("a", 2))
			job := gpuJob("train", 1, 2)
			job.TaskGroups[0].Tasks[0].KillTimeout = ptr(35 * time.Second)
			rec := queuedRecord(job, record.PhaseRunning)
			rec.Members = []model.Member{{Group: "workers", Node: "id-a", GPUs: []string{"a-1", "a-0"}}}
			if test.change != nil {
				test.change(f, rec)
			}
			f.putRecord(rec)
			o, set := f.clocked(t)
			v := refresh(t, o)
			if diff := cmp.Diff(test.want, heldBy(v)); diff != "" {
				t.Errorf("held (-want +got):\n%s", diff)
			}
			if !v.FenceEnds.Equal(test.ends) {
				t.Errorf("fence ends %v, want %v", v.FenceEnds, test.ends)
			}
			remove(f, "vars", f.records, jobKey{"default", "train"})
			set(1039)
			if diff := cmp.Diff(test.want, heldBy(refresh(t, o))); diff != "" {
				t.Errorf("held without the record (-want +got):\n%s", diff)
			}
			set(1040)
			if got := heldBy(refresh(t, o)); len(got) > 0 {
				t.Errorf("held at the end: %v", got)
			}
		})
	}
}
