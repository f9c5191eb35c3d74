package facts

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/nomad/api"
)

// TestVariables: check-and-set, the limit of 64 KiB, the rule for paths.
func TestVariables(t *testing.T) {
	each(t, func(t *testing.T, e *env) {
		vars := e.api.Variables()
		path := "caravan/facts/" + strings.ReplaceAll(t.Name(), "/", "-")
		t.Cleanup(func() {
			if _, err := vars.Delete(path, nil); err != nil {
				t.Error(err)
			}
		})
		v := api.NewVariable(path)
		v.Items["a"] = "1"
		first, _, err := vars.CheckedUpdate(v, nil)
		if err != nil {
			t.Fatal(err)
		}
		if first.ModifyIndex == 0 || first.CreateIndex != first.ModifyIndex {
			t.Errorf("a new variable has indexes %d and %d", first.CreateIndex, first.ModifyIndex)
		}
		stale := api.NewVariable(path)
		stale.Items["a"] = "2"
		_, _, err = vars.CheckedUpdate(stale, nil)
		var conflict api.ErrCASConflict
		if !errors.As(err, &conflict) {
			t.Fatalf("a second first write gave %v; want a conflict", err)
		}
		if diff := cmp.Diff(api.VariableItems{"a": "1"}, conflict.Conflict.Items); diff != "" || conflict.Conflict.ModifyIndex != first.ModifyIndex {
			t.Errorf("the conflict shows index %d and (-want +got):\n%s", conflict.Conflict.ModifyIndex, diff)
		}
		first.Items["a"] = "3"
		second, _, err := vars.CheckedUpdate(first, nil)
		if err != nil || second.ModifyIndex <= conflict.Conflict.ModifyIndex {
			t.Fatalf("write with the right index: %+v, %v", second, err)
		}
		list, _, err := vars.PrefixList(path, nil)
		if err != nil || len(list) != 1 || list[0].ModifyIndex != second.ModifyIndex {
			t.Errorf("list of %s: %+v, %v", path, list, err)
		}
		e.refusedVariables(path)
	})
}

func (e *env) refusedVariables(path string) {
	e.t.Helper()
	vars := e.api.Variables()
	fits := api.NewVariable(path)
	fits.Items["k"] = strings.Repeat("x", 64<<10-1)
	if _, _, err := vars.Update(fits, nil); err != nil {
		e.t.Errorf("64 KiB of keys and values: %v", err)
	}
	big := api.NewVariable(path)
	big.Items["k"] = strings.Repeat("x", 64<<10)
	if _, _, err := vars.Update(big, nil); err == nil || !strings.Contains(err.Error(), "limited to 64KiB") {
		e.t.Errorf("more than 64 KiB gave %v", err)
	}
	for _, bad := range []string{"caravan/a b", "caravan/a.b", "caravan/" + strings.Repeat("x", 128), "nomad/other"} {
		v := api.NewVariable(bad)
		v.Items["a"] = "1"
		if _, _, err := vars.Update(v, nil); err == nil {
			e.t.Errorf("path %q was taken", bad)
		}
	}
	if _, _, err := vars.Read(path+"-missing", nil); !errors.Is(err, api.ErrVariablePathNotFound) {
		e.t.Errorf("reading what is not there gave %v", err)
	}
}

// TestVariableLock: a lock has one holder, and only the holder writes.
func TestVariableLock(t *testing.T) {
	each(t, func(t *testing.T, e *env) {
		vars := e.api.Variables()
		path := "caravan/facts/" + strings.ReplaceAll(t.Name(), "/", "-")
		lock := func() *api.Variable {
			v := api.NewVariable(path)
			v.Items["who"] = "me"
			v.Lock = &api.VariableLock{TTL: "15s", LockDelay: "10s"}
			return v
		}
		held, _, err := vars.AcquireLock(lock(), nil)
		if err != nil {
			t.Fatal(err)
		}
		if held.LockID() == "" {
			t.Fatal("the lock has no ID")
		}
		if _, _, err := vars.AcquireLock(lock(), nil); err == nil || !strings.Contains(err.Error(), "409") {
			t.Errorf("a second holder got %v; want a conflict", err)
		}
		other := api.NewVariable(path)
		other.Items["who"] = "other"
		if _, _, err := vars.Update(other, nil); err == nil {
			t.Error("a locked variable was written without its lock")
		}
		if _, _, err := vars.RenewLock(held, nil); err != nil {
			t.Errorf("renew: %v", err)
		}
		mine := api.NewVariable(path)
		mine.Items["who"] = "me again"
		mine.Lock = &api.VariableLock{ID: held.LockID()}
		if _, _, err := vars.Update(mine, nil); err != nil {
			t.Errorf("the holder's write: %v", err)
		}
		got, _, err := vars.Read(path, nil)
		if err != nil || got.Items["who"] != "me again" || got.Lock == nil {
			t.Errorf("read of a locked variable: %+v, %v", got, err)
		}
		mine.Items = nil
		if _, _, err := vars.ReleaseLock(mine, nil); err != nil {
			t.Errorf("release: %v", err)
		}
		if _, _, err := vars.Update(other, nil); err != nil {
			t.Errorf("write after the release: %v", err)
		}
		if _, err := vars.Delete(path, nil); err != nil {
			t.Error(err)
		}
	})
}

// TestWarnings: what Nomad has to say about a job comes with the answer to its
// registration.
func TestWarnings(t *testing.T) {
	each(t, func(t *testing.T, e *env) {
		j := gate(e.newJob(api.JobTypeService, alike, 2, 1, sleeper))
		j.Update = nil
		j.TaskGroups[0].Update = &api.UpdateStrategy{MaxParallel: ptr(3)}
		resp, _, err := e.api.Jobs().Register(clone(j), nil)
		if err != nil {
			t.Fatal(err)
		}
		want := "1 warning:\n\n* Group \"g\" has warnings: 1 error occurred:\n" +
			"\t* Update max parallel count is greater than task group count (3 > 2). " +
			"A destructive change would result in the simultaneous replacement of all allocations."
		if diff := cmp.Diff(want, resp.Warnings); diff != "" {
			t.Errorf("warnings (-want +got):\n%s", diff)
		}
		j.TaskGroups[0].Update = nil
		resp, _, err = e.api.Jobs().Register(clone(j), nil)
		if err != nil || resp.Warnings != "" {
			t.Errorf("a job without fault has warnings %q, %v", resp.Warnings, err)
		}
	})
}

// TestEventStream: registration, evaluation, placement and the client's
// reports come in the order of their indexes.
func TestEventStream(t *testing.T) {
	each(t, func(t *testing.T, e *env) {
		_, meta, err := e.api.Jobs().List(nil)
		if err != nil {
			t.Fatal(err)
		}
		topics := map[api.Topic][]string{api.TopicJob: {"*"}, api.TopicEvaluation: {"*"}, api.TopicAllocation: {"*"}}
		events, err := e.api.EventStream().Stream(t.Context(), topics, meta.LastIndex+1, nil)
		if err != nil {
			t.Fatal(err)
		}
		j := e.newJob(api.JobTypeBatch, alike, 1, 1, "exit 0")
		e.register(j)
		seen := map[string]bool{}
		var last uint64
		for batch := range events {
			if batch.Err != nil {
				t.Fatal(batch.Err)
			}
			if batch.IsHeartbeat() {
				continue
			}
			if batch.Index < last {
				t.Errorf("index %d after %d", batch.Index, last)
			}
			last = batch.Index
			for _, x := range batch.Events {
				seen[string(x.Topic)+" "+x.Type] = true
				if a, err := x.Allocation(); err == nil && a != nil && a.JobID == *j.ID && a.ClientStatus == api.AllocClientStatusComplete {
					e.sawAll(seen)
					return
				}
			}
		}
	})
}

func (e *env) sawAll(seen map[string]bool) {
	e.t.Helper()
	for _, want := range []string{"Job JobRegistered", "Evaluation JobRegistered", "Allocation PlanResult", "Allocation AllocationUpdated"} {
		if !seen[want] {
			e.t.Errorf("no event %q among %v", want, sortedKeys(seen))
		}
	}
}

// TestSchedulerConfiguration: preemption is off for service and batch unless
// an operator turns it on; then a plan that evicts says whom.
func TestSchedulerConfiguration(t *testing.T) {
	each(t, func(t *testing.T, e *env) {
		op := e.api.Operator()
		got, _, err := op.SchedulerGetConfiguration(nil)
		if err != nil {
			t.Fatal(err)
		}
		if p := got.SchedulerConfig.PreemptionConfig; p.BatchSchedulerEnabled || p.ServiceSchedulerEnabled {
			t.Fatalf("preemption is on: %+v", p)
		}
		set := func(on bool) {
			c := *got.SchedulerConfig
			c.PreemptionConfig.BatchSchedulerEnabled = on
			if _, _, err := op.SchedulerSetConfiguration(&c, nil); err != nil {
				t.Fatal(err)
			}
		}
		n := e.nodes(alike)[0]
		low := e.rival(alike, n)
		low.Priority = ptr(20)
		e.register(low)
		victim := e.running(*low.ID, 1)[0]
		high := e.newJob(api.JobTypeBatch, alike, 1, 8, sleeper)
		high.Priority = ptr(80)
		high.TaskGroups[0].Constraints = []*api.Constraint{pinTo(n)}
		if p := e.dryRun(high); len(p.FailedTGAllocs) == 0 || len(p.Annotations.PreemptedAllocs) != 0 {
			t.Errorf("without preemption the plan is %+v", p)
		}
		set(true)
		t.Cleanup(func() { set(false) })
		p := e.dryRun(high)
		if len(p.Annotations.PreemptedAllocs) != 1 || p.Annotations.PreemptedAllocs[0].ID != victim.ID {
			t.Errorf("the plan evicts %+v, want %s", p.Annotations.PreemptedAllocs, victim.ID)
		}
		if e.clientStatus(victim.ID) != api.AllocClientStatusRunning {
			t.Error("a plan evicted something")
		}
	})
}

// TestReadBack: a job reads back with what the server added, and registering
// it as it reads back changes nothing.
func TestReadBack(t *testing.T) {
	for _, typ := range []string{api.JobTypeBatch, api.JobTypeService} {
		t.Run(typ, func(t *testing.T) {
			each(t, func(t *testing.T, e *env) {
				j := gate(e.newJob(typ, alike, 2, 1, sleeper))
				g := j.TaskGroups[0]
				g.Tasks[0].KillSignal = "SIGTERM"
				g.Networks = []*api.NetworkResource{{DynamicPorts: []api.Port{{Label: "nccl"}}}}
				e.register(j)
				back := e.info(*j.ID)
				bg := back.TaskGroups[0]
				want := []*api.Constraint{{LTarget: "${attr.os.signals}", Operand: "set_contains", RTarget: "SIGTERM"}}
				if diff := cmp.Diff(want, bg.Constraints); diff != "" {
					t.Errorf("the group's constraints (-want +got):\n%s", diff)
				}
				if diff := cmp.Diff(&api.WorkloadIdentity{Name: "default", Audience: []string{"nomadproject.io"}}, bg.Tasks[0].Identity); diff != "" {
					t.Errorf("the task's identity (-want +got):\n%s", diff)
				}
				if got := bg.Networks[0].DynamicPorts[0].HostNetwork; got != "default" {
					t.Errorf("the port's host network is %q", got)
				}
				if back.Migrate != nil || back.Reschedule != nil || bg.ReschedulePolicy == nil {
					t.Errorf("job has migrate %v, reschedule %v; group has reschedule %v", back.Migrate, back.Reschedule, bg.ReschedulePolicy)
				}
				e.register(back)
				e.register(j)
				if v := *e.info(*j.ID).Version; v != 0 {
					t.Errorf("registering what is there made version %d", v)
				}
			})
		})
	}
}
