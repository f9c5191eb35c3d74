package facts

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/nomad/api"
)

// TestFact5GateRunning: gating a running service or batch gang disturbs
// nothing; a blocked evaluation is added. Its reason is not the gate's: the
// attempt to update the members in place has filled the cache of classes.
func TestFact5GateRunning(t *testing.T) {
	for _, typ := range []string{api.JobTypeBatch, api.JobTypeService} {
		t.Run(typ, func(t *testing.T) {
			eachClass(t, func(t *testing.T, e *env, dc string) {
				j := e.newJob(typ, dc, 2, 4, sleeper)
				e.register(j)
				before := e.running(*j.ID, 2)
				eval := e.register(gate(j))
				if m := eval.FailedTGAllocs["g"]; m == nil || m.ConstraintFiltered["computed class ineligible"] == 0 {
					t.Errorf("evaluation of the gate failed with %+v; want all nodes filtered by class", m)
				}
				if n := len(e.blocked(*j.ID)); n != 1 {
					t.Errorf("%d blocked evaluations, want 1", n)
				}
				if diff := cmp.Diff(ids(before), ids(e.running(*j.ID, 2))); diff != "" {
					t.Errorf("members changed (-before +after):\n%s", diff)
				}
				e.register(j)
				if diff := cmp.Diff(ids(before), ids(e.running(*j.ID, 2))); diff != "" {
					t.Errorf("members changed when the gate was taken away (-before +after):\n%s", diff)
				}
			})
		})
	}
}

// TestFact5GateSystem: a gate stops a system job, max_parallel members at once.
func TestFact5GateSystem(t *testing.T) {
	each(t, func(t *testing.T, e *env) {
		j := e.newJob(api.JobTypeSystem, alike, 1, 0, sleeper)
		j.Update = &api.UpdateStrategy{MaxParallel: ptr(2)}
		e.register(j)
		e.running(*j.ID, 3)
		e.register(gate(j))
		e.running(*j.ID, 1)
	})
}

// TestFact6Preempt: gate, then stop every member. They are not placed again,
// their GPUs stay taken until the clients report them ended, and a pin brings
// the job back, anywhere.
func TestFact6Preempt(t *testing.T) {
	for _, typ := range []string{api.JobTypeBatch, api.JobTypeService} {
		t.Run(typ, func(t *testing.T) {
			eachClass(t, func(t *testing.T, e *env, dc string) {
				nodes := e.nodes(dc)
				// The task needs its kill_timeout: it does not listen.
				j := e.newJob(typ, dc, 1, 8, "trap '' INT; while :; do sleep 0.1; done")
				j.TaskGroups[0].Tasks[0].KillTimeout = ptr(700 * time.Millisecond)
				j.TaskGroups[0].Constraints = []*api.Constraint{pinTo(nodes[0])}
				e.register(j)
				victim := e.running(*j.ID, 1)[0]
				rival := e.rival(dc, nodes[0])

				e.register(gate(j))
				e.stop(victim.ID)
				e.until("the member is told to stop", func() (bool, any) {
					a, _, err := e.api.Allocations().Info(victim.ID, nil)
					return err == nil && a.DesiredStatus == api.AllocDesiredStatusStop, err
				})
				if failed := e.dryRun(rival).FailedTGAllocs["g"]; e.clientStatus(victim.ID) == api.AllocClientStatusRunning && failed == nil {
					t.Error("the GPUs of a member that is still stopping were given away")
				}
				e.running(*j.ID, 0)
				e.status(*j.ID, "pending")
				if failed := e.dryRun(rival).FailedTGAllocs; len(failed) > 0 {
					t.Errorf("the GPUs of a member that ended are not free: %v", reasons(failed))
				}

				j.TaskGroups[0].Constraints = []*api.Constraint{pinTo(nodes[1])}
				e.register(j)
				if got := e.running(*j.ID, 1)[0]; got.NodeID != nodes[1].ID || got.ID == victim.ID {
					t.Errorf("resumed as %s on %s, want a new member on %s", got.ID, got.NodeID, nodes[1].ID)
				}
			})
		})
	}
}

// rival is another job that wants all of a node.
func (e *env) rival(dc string, n *api.Node) *api.Job {
	j := e.newJob(api.JobTypeBatch, dc, 1, 8, sleeper)
	j.ID, j.Name = ptr(*j.ID+"-rival"), ptr(*j.ID+"-rival")
	j.TaskGroups[0].Constraints = []*api.Constraint{pinTo(n)}
	id := *j.ID
	e.t.Cleanup(func() { e.purge(id) })
	return j
}

func (e *env) stop(alloc string) {
	e.t.Helper()
	resp, err := e.api.Allocations().Stop(&api.Allocation{ID: alloc}, nil)
	if err != nil {
		e.t.Fatal(err)
	}
	e.evaluated(resp.EvalID)
}

func (e *env) clientStatus(alloc string) string {
	e.t.Helper()
	a, _, err := e.api.Allocations().Info(alloc, nil)
	if err != nil {
		e.t.Fatal(err)
	}
	return a.ClientStatus
}

// TestFact7LostRace: a GPU that somebody else took leaves a partial gang; a
// dry-run shows it beforehand.
func TestFact7LostRace(t *testing.T) {
	eachClass(t, func(t *testing.T, e *env, dc string) {
		nodes := e.nodes(dc)[:2]
		j := e.newJob(api.JobTypeBatch, dc, 2, 8, sleeper)
		j.TaskGroups[0].Constraints = []*api.Constraint{pinTo(nodes...), {Operand: api.ConstraintDistinctHosts, RTarget: "true"}}
		if failed := e.dryRun(j).FailedTGAllocs; len(failed) > 0 {
			t.Fatalf("the gang does not fit an empty cluster: %v", reasons(failed))
		}
		rival := e.rival(dc, nodes[1])
		rival.TaskGroups[0] = group("g", 1, 1, sleeper)
		rival.TaskGroups[0].Constraints = []*api.Constraint{pinTo(nodes[1])}
		e.register(rival)
		e.running(*rival.ID, 1)

		if failed := e.dryRun(j).FailedTGAllocs["g"]; failed == nil {
			t.Error("a dry-run does not show that the gang does not fit any more")
		}
		eval := e.register(j)
		if m := eval.FailedTGAllocs["g"]; m == nil || m.DimensionExhausted["devices: no devices match request"] == 0 {
			t.Errorf("evaluation failed with %+v; want exhausted devices", m)
		}
		e.running(*j.ID, 1)

		// Roll back: gate, stop what was placed.
		e.register(gate(j))
		for _, a := range e.live(*j.ID) {
			e.stop(a.ID)
		}
		e.running(*j.ID, 0)
		e.status(*j.ID, "pending")
	})
}

// TestFact8InPlace: a changed count and changed constraints of group or job
// leave the members alone; a changed device constraint, meta, env or config
// restarts all of the group.
func TestFact8InPlace(t *testing.T) {
	changes := map[string]struct {
		change  func(j *api.Job, nodes []*api.Node)
		restart bool
	}{
		"count": {func(j *api.Job, _ []*api.Node) { j.TaskGroups[0].Count = ptr(3) }, false},
		"constraint of the group": {func(j *api.Job, nodes []*api.Node) {
			j.TaskGroups[0].Constraints = []*api.Constraint{pinTo(nodes...)}
		}, false},
		"constraint of the job": {func(j *api.Job, nodes []*api.Node) { j.Constraints = []*api.Constraint{pinTo(nodes...)} }, false},
		"device constraint": {func(j *api.Job, nodes []*api.Node) {
			var all []string
			for _, n := range nodes {
				all = append(all, gpus(n)...)
			}
			pinGPUs(j.TaskGroups[0], all...)
		}, true},
		"meta": {func(j *api.Job, _ []*api.Node) { j.Meta = map[string]string{"a": "b"} }, true},
		"env":  {func(j *api.Job, _ []*api.Node) { j.TaskGroups[0].Tasks[0].Env = map[string]string{"A": "b"} }, true},
		"config": {func(j *api.Job, _ []*api.Node) {
			j.TaskGroups[0].Tasks[0].SetConfig("args", []string{"-c", sleeper + " "})
		}, true},
	}
	for _, typ := range []string{api.JobTypeBatch, api.JobTypeService} {
		for _, name := range sortedKeys(changes) {
			c := changes[name]
			t.Run(typ+"/"+strings.ReplaceAll(name, " ", "-"), func(t *testing.T) {
				each(t, func(t *testing.T, e *env) {
					j := e.newJob(typ, alike, 2, 1, sleeper)
					e.register(j)
					before := ids(e.running(*j.ID, 2))
					c.change(j, e.nodes(alike))
					plan := e.dryRun(j)
					e.register(j)
					after := ids(e.running(*j.ID, *j.TaskGroups[0].Count))
					kept := 0
					for _, id := range before {
						if slices.Contains(after, id) {
							kept++
						}
					}
					u := plan.Annotations.DesiredTGUpdates["g"]
					if want := map[bool]int{true: 0, false: 2}[c.restart]; kept != want {
						t.Errorf("%d of 2 members were kept, want %d", kept, want)
					}
					if c.restart && u.DestructiveUpdate != 2 || !c.restart && u.InPlaceUpdate != 2 {
						t.Errorf("the plan said %+v", u)
					}
				})
			})
		}
	}
}

// TestFact9Shrink: a lower count stops the highest indexes.
func TestFact9Shrink(t *testing.T) {
	eachClass(t, func(t *testing.T, e *env, dc string) {
		j := e.newJob(api.JobTypeBatch, dc, 4, 1, sleeper)
		e.register(j)
		e.running(*j.ID, 4)
		j.TaskGroups[0].Count = ptr(2)
		e.register(j)
		if diff := cmp.Diff([]string{".g[0]", ".g[1]"}, names(e.running(*j.ID, 2))); diff != "" {
			t.Errorf("members left (-want +got):\n%s", diff)
		}
	})
}

// TestFact10CompletedRunsAgain: a completed batch member runs again when the
// job is registered anew, and not before.
func TestFact10CompletedRunsAgain(t *testing.T) {
	each(t, func(t *testing.T, e *env) {
		script := `[ "$NOMAD_ALLOC_INDEX" = 0 ] && exit 0; ` + sleeper
		j := e.newJob(api.JobTypeBatch, alike, 2, 1, script)
		e.register(j)
		complete := func() int {
			n := 0
			for _, a := range e.allocs(*j.ID) {
				if a.ClientStatus == api.AllocClientStatusComplete && a.DesiredStatus == api.AllocDesiredStatusRun {
					n++
				}
			}
			return n
		}
		e.until("member 0 complete", func() (bool, any) { return complete() == 1, e.describe(*j.ID) })
		e.register(j) // unchanged: only an evaluation
		if n := len(e.allocs(*j.ID)); n != 2 {
			t.Errorf("%d allocations after an unchanged registration, want 2", n)
		}
		j.TaskGroups[0].Constraints = []*api.Constraint{pinTo(e.nodes(alike)...)}
		e.register(j)
		e.until("member 0 ran again", func() (bool, any) { return complete() == 2, e.describe(*j.ID) })
		again := e.allocs(*j.ID)
		if last := again[len(again)-1]; last.Name[strings.LastIndex(last.Name, "."):] != ".g[0]" {
			t.Errorf("the member that ran again is %s, want index 0", last.Name)
		}
	})
}

// TestFact12Versions: every change is a version, six are kept with their
// sources; an unchanged registration makes none; EnforceIndex refuses.
func TestFact12Versions(t *testing.T) {
	each(t, func(t *testing.T, e *env) {
		j := gate(e.newJob(api.JobTypeBatch, alike, 1, 1, sleeper))
		source := &api.JobSubmission{Source: "job {}", Format: "hcl2"}
		put := func(opts *api.RegisterOptions) error {
			resp, _, err := e.api.Jobs().RegisterOpts(clone(j), opts, nil)
			if err == nil {
				e.evaluated(resp.EvalID)
			}
			return err
		}
		if err := put(&api.RegisterOptions{Submission: source}); err != nil {
			t.Fatal(err)
		}
		if s, _, err := e.api.Jobs().Submission(*j.ID, 0, nil); err != nil || s.Source != source.Source {
			t.Errorf("source of version 0 is %+v, %v", s, err)
		}
		if err := put(&api.RegisterOptions{Submission: source}); err != nil {
			t.Fatal(err)
		}
		if v := *e.info(*j.ID).Version; v != 0 {
			t.Errorf("an unchanged registration made version %d", v)
		}
		for i := range 6 {
			j.Priority = ptr(51 + i)
			if err := put(nil); err != nil {
				t.Fatal(err)
			}
		}
		versions, _, _, err := e.api.Jobs().Versions(*j.ID, false, nil)
		if err != nil {
			t.Fatal(err)
		}
		var got []uint64
		for _, v := range versions {
			got = append(got, *v.Version)
		}
		if diff := cmp.Diff([]uint64{6, 5, 4, 3, 2, 1}, got); diff != "" {
			t.Errorf("versions kept (-want +got):\n%s", diff)
		}
		if s, _, err := e.api.Jobs().Submission(*j.ID, 0, nil); err == nil {
			t.Errorf("the source of version 0 is still there: %+v", s)
		}
		e.enforce(j, put)
	})
}

func (e *env) enforce(j *api.Job, put func(*api.RegisterOptions) error) {
	e.t.Helper()
	index := *e.info(*j.ID).JobModifyIndex
	j.Priority = ptr(70)
	for _, wrong := range []uint64{0, index - 1} {
		err := put(&api.RegisterOptions{EnforceIndex: true, ModifyIndex: wrong})
		if err == nil || !strings.Contains(err.Error(), api.RegisterEnforceIndexErrPrefix) {
			e.t.Errorf("registering with index %d gave %v; want it refused", wrong, err)
		}
	}
	if err := put(&api.RegisterOptions{EnforceIndex: true, ModifyIndex: index}); err != nil {
		e.t.Errorf("registering with the right index: %v", err)
	}
}

func sortedKeys[V any](m map[string]V) []string {
	var out []string
	for k := range m {
		out = append(out, k)
	}
	slices.Sort(out)
	return out
}
