package apply_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/planner/apply"
	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/gangspec"
	"github.com/caravan-sched/caravan/planner/observe"
	"github.com/caravan-sched/caravan/planner/record"
	"github.com/caravan-sched/caravan/planner/rewrite"
)

func elasticJob(kind, gang string, count, low, high int) *api.Job {
	j := gatedJob("train", kind, gang, count, 8)
	j.TaskGroups[0].Meta = map[string]string{"caravan_min": fmt.Sprint(low), "caravan_max": fmt.Sprint(high)}
	return j
}

// scale gives a group of the job another count, as the gateway does; false if
// the job would be placed anew as a whole.
func (f *fakeNomad) scale(group string, count int) bool {
	mixed := f.recordScale(group, count)
	if mixed == nil {
		return false
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.register(&api.JobRegisterRequest{Job: mixed}); err != nil {
		f.t.Fatal(err)
	}
	return true
}

// recordScale is the first half of it; what it returns is to be registered.
func (f *fakeNomad) recordScale(group string, count int) *api.Job {
	f.t.Helper()
	v := f.view()
	m, _ := v.Job("default", "train")
	orig, err := gangspec.Copy(m.Record.Original)
	if err != nil {
		f.t.Fatal(err)
	}
	orig.LookupTaskGroup(group).Count = &count
	kept, _, ok := rewrite.Resize(m.Current, m.Record.Original, orig, m.Record.Members, apply.Cluster(v))
	if !ok {
		return nil
	}
	next := m.Record.Resized()
	next.Original, next.Members = orig, kept
	next.SpecHash, next.PlacedHash = gangspec.Hash(orig), gangspec.Hash(orig)
	next.PriorIndex = *m.Current.JobModifyIndex
	mixed, err := apply.Mix(next, m.Current, apply.Cluster(v))
	if err != nil {
		f.t.Fatal(err)
	}
	if *orig.Type == "batch" {
		var places []rewrite.Place
		for _, k := range kept {
			places = append(places, rewrite.Place{Group: k.Group, Index: k.Index})
		}
		if m.Model.Gang != model.GangJob {
			rewrite.Hold(mixed, places)
		}
	}
	if err := f.Put(f.t.Context(), next); err != nil {
		f.t.Fatal(err)
	}
	return mixed
}

// running are the allocations that run, by ID, with their groups.
func (f *fakeNomad) running() map[string]string {
	f.mu.Lock()
	defer f.mu.Unlock()
	out := map[string]string{}
	for _, a := range f.allocs {
		if a.JobID == "train" && a.ClientStatus == "running" && a.DesiredStatus == "run" && !f.down[a.NodeID] {
			out[a.ID] = a.TaskGroup
		}
	}
	return out
}

// TestResize: what stays is not touched, whoever changes the count.
func TestResize(t *testing.T) {
	two := func() *api.Job {
		j := elasticJob("service", "group", 2, 1, 4)
		second := gatedJob("", "service", "group", 2, 8).TaskGroups[0]
		second.Name = ptr("v")
		j.TaskGroups = append(j.TaskGroups, second)
		return j
	}
	tests := map[string]struct {
		job     *api.Job
		group   string
		members int
		to      int
		// want are the members after it, same how many of the allocations stay.
		want, same int
		whole      bool
	}{
		"replicas, more":               {job: gatedJob("train", "service", "none", 2, 8), to: 4, members: 2, want: 4, same: 2},
		"replicas, fewer":              {job: gatedJob("train", "service", "none", 3, 8), to: 1, members: 3, want: 1, same: 1},
		"one replica becomes three":    {job: gatedJob("train", "service", "none", 1, 8), to: 3, members: 1, want: 3, same: 1},
		"replicas of a part of a node": {job: gatedJob("train", "service", "none", 2, 2), to: 5, members: 2, want: 5, same: 2},
		"a sweep, more":                {job: gatedJob("train", "batch", "none", 2, 8), to: 4, members: 2, want: 4, same: 2},
		"a sweep, fewer":               {job: gatedJob("train", "batch", "none", 3, 4), to: 2, members: 3, want: 2, same: 2},
		"an elastic gang grows":        {job: elasticJob("service", "job", 2, 1, 4), to: 4, members: 2, want: 4, same: 2},
		"an elastic gang shrinks":      {job: elasticJob("batch", "job", 4, 1, 4), to: 2, members: 4, want: 2, same: 2},
		"one gang of two grows":        {job: two(), to: 3, members: 4, want: 5, same: 4},
		"one gang of two shrinks":      {job: two(), to: 1, members: 4, want: 3, same: 3},
		"one gang of two, not elastic": {job: two(), group: "v", to: 1, members: 4, want: 3, same: 2},
		"a gang that is not elastic":   {job: gatedJob("train", "batch", "job", 2, 8), to: 3, members: 2, whole: true},
		"an elastic gang of part nodes": {job: func() *api.Job {
			j := elasticJob("batch", "job", 2, 1, 4)
			*j.TaskGroups[0].Tasks[0].Resources.Devices[0].Count = 4
			return j
		}(), to: 3, members: 2, whole: true},
	}
	for name, tt := range tests {
		for _, past := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/past the gateway=%v", name, past), func(t *testing.T) {
				f := newFake(t, 6)
				f.submit(tt.job)
				e := apply.NewExecutor(f.client, f, options())
				run(t, f, e, "running", settledJob("train", tt.members))
				before := f.running()
				group := tt.group
				if group == "" {
					group = "w"
				}
				if past {
					// `nomad job scale` on Nomad itself, for a group that it has.
					f.mu.Lock()
					j, err := gangspec.Copy(f.jobs["train"])
					if err != nil {
						t.Fatal(err)
					}
					g := j.LookupTaskGroup(group)
					f.mu.Unlock()
					if g == nil || tt.whole {
						t.Skip("the group is split, or the gang is placed anew")
					}
					if *g.Count = tt.to; tt.to == tt.members && tt.group == "" {
						t.Skip("no change")
					}
					f.submit(j)
				} else if ok := f.scale(group, tt.to); ok == tt.whole {
					t.Fatalf("resized %v", ok)
				}
				if tt.whole {
					return
				}
				v := run(t, f, e, "resized", func(v *observe.View) bool {
					m, _ := v.Job("default", "train")
					return settledJob("train", tt.want)(v) && m.Record.Growth == nil && len(f.running()) == tt.want && *m.Record.Original.LookupTaskGroup(group).Count == tt.to
				})
				f.tick()
				placed(t, f, f.view(), "train", tt.want)
				after := f.running()
				same := 0
				for id := range before {
					if after[id] != "" {
						same++
					}
				}
				if same != tt.same {
					t.Errorf("%d of %d allocations stayed, want %d:\n%s", same, len(before), tt.same, strings.Join(f.log, "\n"))
				}
				m, _ := v.Job("default", "train")
				if back, err := rewrite.Strip(m.Current, m.Record.Original); err != nil || gangspec.Hash(back) != m.Record.SpecHash {
					t.Errorf("the user's version cannot be told any more: %v", err)
				}
			})
		}
	}
}

// TestGrowthIsTakenBack: what Nomad places in part only does not stay, and who
// ran runs on.
func TestGrowthIsTakenBack(t *testing.T) {
	for _, lost := range []bool{false, true} {
		t.Run(fmt.Sprintf("a member lost before=%v", lost), func(t *testing.T) {
			f := newFake(t, 5)
			f.submit(elasticJob("service", "job", 3, 1, 5))
			e := apply.NewExecutor(f.client, f, options())
			run(t, f, e, "running", settledJob("train", 3))
			if lost {
				// The first index is free then, and lower than those that stay.
				m, _ := f.view().Job("default", "train")
				for _, s := range m.Members {
					if strings.HasSuffix(s.Alloc.Name, "[0]") {
						f.down[s.Member.Node] = true
					}
				}
				f.unusable[f.nodes[3]], f.unusable[f.nodes[4]] = "ineligible", "ineligible"
				run(t, f, e, "it runs on with two", settledJob("train", 2))
				clear(f.unusable)
			}
			before := f.running()
			// One of the new nodes is gone between dry-run and registration.
			f.planned = func() {
				f.mu.Lock()
				defer f.mu.Unlock()
				f.unusable[f.nodes[4]] = "full"
			}
			to := 5
			if lost {
				to = 4
			}
			if !f.scale("w", to) {
				t.Fatal("not resized")
			}
			run(t, f, e, "it is tried", func(v *observe.View) bool {
				m, _ := v.Job("default", "train")
				return m.Record.Growth != nil && m.Record.Growth.Undo == ""
			})
			f.planned = nil
			v := run(t, f, e, "it is taken back", func(v *observe.View) bool {
				m, _ := v.Job("default", "train")
				return m.Record.Growth == nil && settledJob("train", len(before))(v)
			})
			if diff := cmp.Diff(before, f.running()); diff != "" {
				t.Errorf("running (-before +after):\n%s\n%s", diff, strings.Join(f.log, "\n"))
			}
			m, _ := v.Job("default", "train")
			if m.Record.Attempts != 1 || !strings.Contains(m.Record.Reason, "the gang cannot grow: member") {
				t.Errorf("reason %q, %d attempts", m.Record.Reason, m.Record.Attempts)
			}
			clear(f.unusable)
			want := to
			if lost {
				want = 4
			}
			run(t, f, e, "it grows", settledJob("train", want))
			after := f.running()
			for id := range before {
				if after[id] == "" {
					t.Errorf("allocation %s is gone", id)
				}
			}
		})
	}
}

// TestLostMemberIsLeft: an elastic gang runs on without it, down to its least
// number.
func TestLostMemberIsLeft(t *testing.T) {
	tests := map[string]struct {
		min, down int
		want      int
	}{
		"one of three":         {min: 2, down: 1, want: 2},
		"too many":             {min: 2, down: 2},
		"as many as it can":    {min: 1, down: 2, want: 1},
		"a gang of fixed size": {min: 3, down: 1},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			f := newFake(t, 3)
			j := elasticJob("batch", "job", 3, tt.min, 3)
			f.submit(j)
			e := apply.NewExecutor(f.client, f, options())
			run(t, f, e, "running", settledJob("train", 3))
			for _, node := range f.nodes[:tt.down] {
				f.down[node] = true
			}
			before := f.running()
			if tt.want == 0 {
				run(t, f, e, "queued", phase("train", record.PhaseQueued))
				return
			}
			v := run(t, f, e, "it runs on", settledJob("train", tt.want))
			if diff := cmp.Diff(before, f.running()); diff != "" {
				t.Errorf("running (-before +after):\n%s", diff)
			}
			m, _ := v.Job("default", "train")
			if want := fmt.Sprintf("the gang runs on with %d of 3 members, and grows again", tt.want); !strings.Contains(m.Record.Reason, want) {
				t.Errorf("reason %q", m.Record.Reason)
			}
			clear(f.down)
			run(t, f, e, "it grows again", settledJob("train", 3))
			after := f.running()
			for id := range before {
				if after[id] == "" {
					t.Errorf("allocation %s is gone", id)
				}
			}
		})
	}
}

// TestResizeWithoutItsJob: a gateway that dies between record and registration
// leaves the job as it was.
func TestResizeWithoutItsJob(t *testing.T) {
	for name, job := range map[string]*api.Job{"gang": elasticJob("batch", "job", 3, 1, 5), "replicas": gatedJob("train", "service", "none", 3, 8), "sweep": gatedJob("train", "batch", "none", 3, 8)} {
		for _, to := range []int{2, 4} {
			t.Run(fmt.Sprintf("%s to %d", name, to), func(t *testing.T) {
				f := newFake(t, 5)
				f.submit(job)
				e := apply.NewExecutor(f.client, f, options())
				run(t, f, e, "running", settledJob("train", 3))
				before := f.running()
				if f.recordScale("w", to) == nil {
					t.Fatal("not resized")
				}
				run(t, f, e, "it is as it was", func(v *observe.View) bool {
					m, _ := v.Job("default", "train")
					return settledJob("train", 3)(v) && *m.Record.Original.TaskGroups[0].Count == 3
				})
				after := f.running()
				stay := 0
				for id := range before {
					if after[id] != "" {
						stay++
					}
				}
				if stay < min(to, 3) {
					t.Errorf("%d of 3 stay:\n%s", stay, strings.Join(f.log, "\n"))
				}
			})
		}
	}
}
