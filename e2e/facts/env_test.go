package facts

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/internal/devcluster"
)

// patience is how long a cluster may take to come to a state. Only a failing
// test waits that long.
const patience = 90 * time.Second

// env is a test's view of a cluster.
type env struct {
	t   *testing.T
	c   devcluster.Cluster
	api *api.Client
}

func newEnv(t *testing.T, c devcluster.Cluster) *env { return &env{t: t, c: c, api: c.Client()} }

// until waits for a condition; the second result of ok says what is there.
func (e *env) until(what string, ok func() (bool, any)) {
	e.t.Helper()
	ctx, cancel := context.WithTimeout(e.t.Context(), patience)
	defer cancel()
	for {
		done, got := ok()
		if done {
			return
		}
		select {
		case <-ctx.Done():
			e.t.Fatalf("never: %s; last: %v", what, got)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// nodes returns the ready nodes of a datacenter by name.
func (e *env) nodes(dc string) []*api.Node {
	e.t.Helper()
	list, _, err := e.api.Nodes().List(nil)
	if err != nil {
		e.t.Fatal(err)
	}
	var out []*api.Node
	for _, s := range list {
		if s.Datacenter != dc || s.Status != api.NodeStatusReady {
			continue
		}
		n, _, err := e.api.Nodes().Info(s.ID, nil)
		if err != nil {
			e.t.Fatal(err)
		}
		out = append(out, n)
	}
	slices.SortFunc(out, func(a, b *api.Node) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// gpus are a node's UUIDs, in order.
func gpus(n *api.Node) []string {
	var out []string
	for _, d := range n.NodeResources.Devices {
		for _, x := range d.Instances {
			out = append(out, x.ID)
		}
	}
	slices.Sort(out)
	return out
}

// sleeper is a task that runs until it is told to stop.
const sleeper = "trap 'exit 0' INT TERM; while :; do sleep 0.1; done"

// newJob is a job of one group whose members ask for n GPUs each. Its ID is
// the test's, and the test's end purges it.
func (e *env) newJob(typ, dc string, count, n int, script string) *api.Job {
	id := strings.NewReplacer("/", "-", "Test", "").Replace(e.t.Name())
	j := api.NewBatchJob(id, id, "global", 50)
	switch typ {
	case api.JobTypeService:
		j = api.NewServiceJob(id, id, "global", 50)
	case api.JobTypeSystem:
		j = api.NewSystemJob(id, id, "global", 50)
	}
	j.Datacenters = []string{dc}
	j.AddTaskGroup(group("g", count, n, script))
	if typ == api.JobTypeService {
		j.Update = &api.UpdateStrategy{MaxParallel: ptr(0)}
	}
	if typ == api.JobTypeBatch {
		j.TaskGroups[0].RestartPolicy = &api.RestartPolicy{Attempts: ptr(0), Mode: ptr("fail")}
		j.TaskGroups[0].ReschedulePolicy = &api.ReschedulePolicy{Attempts: ptr(0), Unlimited: ptr(false)}
	}
	e.t.Cleanup(func() { e.purge(id) })
	return j
}

func group(name string, count, n int, script string) *api.TaskGroup {
	task := api.NewTask("main", "raw_exec").SetConfig("command", "/bin/sh").SetConfig("args", []string{"-c", script})
	task.Resources = &api.Resources{CPU: ptr(100), MemoryMB: ptr(32)}
	task.KillTimeout = ptr(20 * time.Second) // longer than a busy machine takes to end it
	if n > 0 {
		task.Resources.Devices = []*api.RequestedDevice{{Name: "nvidia/gpu", Count: ptr(uint64(n))}}
	}
	return api.NewTaskGroup(name, count).AddTask(task)
}

// purge removes a job and waits until nothing of it runs, so that the next
// test finds the nodes free.
func (e *env) purge(id string) {
	// The test's own context has ended here.
	if _, _, err := e.api.Jobs().Deregister(id, true, nil); err != nil {
		e.t.Errorf("purge %s: %v", id, err)
	}
	deadline := time.Now().Add(patience)
	for {
		list, _, err := e.api.Allocations().List(nil)
		live := 0
		for _, a := range list {
			if a.JobID == id && !ended(a) {
				live++
			}
		}
		if err == nil && live == 0 {
			return
		}
		if time.Now().After(deadline) {
			e.t.Errorf("purge %s: %d allocations live on (%v)", id, live, err)
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
}

const gateTarget, gateValue = "${meta.caravan_gate}", "open"

const gateReason = gateTarget + " = " + gateValue

func gate(j *api.Job) *api.Job {
	c := clone(j)
	c.Constraints = append(c.Constraints, &api.Constraint{LTarget: gateTarget, Operand: "=", RTarget: gateValue})
	return c
}

// pinTo returns the constraint that names nodes.
func pinTo(nodes ...*api.Node) *api.Constraint {
	var ids []string
	for _, n := range nodes {
		ids = append(ids, n.ID)
	}
	return &api.Constraint{LTarget: "${node.unique.id}", Operand: "regexp", RTarget: "^(" + strings.Join(ids, "|") + ")$"}
}

// pinGPUs makes a group's device request take of these GPUs.
func pinGPUs(g *api.TaskGroup, uuids ...string) {
	g.Tasks[0].Resources.Devices[0].Constraints = []*api.Constraint{{LTarget: "${device.ids}", Operand: "set_contains_any", RTarget: strings.Join(uuids, ",")}}
}

// register registers a job and returns the evaluation when it is over.
func (e *env) register(j *api.Job) *api.Evaluation {
	e.t.Helper()
	resp, _, err := e.api.Jobs().Register(clone(j), nil)
	if err != nil {
		e.t.Fatal(err)
	}
	return e.evaluated(resp.EvalID)
}

func (e *env) evaluated(id string) *api.Evaluation {
	e.t.Helper()
	var eval *api.Evaluation
	e.until("evaluation "+id+" over", func() (bool, any) {
		var err error
		eval, _, err = e.api.Evaluations().Info(id, nil)
		if err != nil {
			return false, err
		}
		return eval.Status != api.EvalStatusPending, eval.Status
	})
	return eval
}

// allocs are all allocations of a job, oldest first.
func (e *env) allocs(id string) []*api.AllocationListStub {
	e.t.Helper()
	list, _, err := e.api.Jobs().Allocations(id, true, nil)
	if err != nil {
		e.t.Fatal(err)
	}
	slices.SortFunc(list, func(a, b *api.AllocationListStub) int {
		if a.CreateIndex != b.CreateIndex {
			return int(a.CreateIndex) - int(b.CreateIndex)
		}
		return strings.Compare(a.Name, b.Name)
	})
	return list
}

// live are the allocations that are to run and do.
func (e *env) live(id string) []*api.AllocationListStub {
	e.t.Helper()
	var out []*api.AllocationListStub
	for _, a := range e.allocs(id) {
		if a.DesiredStatus == api.AllocDesiredStatusRun && a.ClientStatus == api.AllocClientStatusRunning {
			out = append(out, a)
		}
	}
	return out
}

// running waits until exactly n members run and nothing else of the job does.
func (e *env) running(id string, n int) []*api.AllocationListStub {
	e.t.Helper()
	var out []*api.AllocationListStub
	e.until(fmt.Sprintf("%d members of %s running", n, id), func() (bool, any) {
		out = e.live(id)
		held := 0
		for _, a := range e.allocs(id) {
			if !ended(a) {
				held++
			}
		}
		return len(out) == n && held == n, e.describe(id)
	})
	return out
}

func (e *env) describe(id string) string {
	var b strings.Builder
	for _, a := range e.allocs(id) {
		fmt.Fprintf(&b, "%s v%d %s/%s %s; ", a.Name, a.JobVersion, a.DesiredStatus, a.ClientStatus, a.DesiredDescription)
	}
	return b.String()
}

// held are the GPUs of an allocation.
func (e *env) held(id string) []string {
	e.t.Helper()
	a, _, err := e.api.Allocations().Info(id, nil)
	if err != nil {
		e.t.Fatal(err)
	}
	var out []string
	for _, t := range a.AllocatedResources.Tasks {
		for _, d := range t.Devices {
			out = append(out, d.DeviceIDs...)
		}
	}
	slices.Sort(out)
	return out
}

// blocked are a job's blocked evaluations.
func (e *env) blocked(id string) []*api.Evaluation {
	e.t.Helper()
	list, _, err := e.api.Jobs().Evaluations(id, nil)
	if err != nil {
		e.t.Fatal(err)
	}
	return slices.DeleteFunc(list, func(x *api.Evaluation) bool { return x.Status != api.EvalStatusBlocked })
}

func (e *env) info(id string) *api.Job {
	e.t.Helper()
	j, _, err := e.api.Jobs().Info(id, nil)
	if err != nil {
		e.t.Fatal(err)
	}
	return j
}

// status waits until a job has a status.
func (e *env) status(id, want string) {
	e.t.Helper()
	e.until("job "+id+" "+want, func() (bool, any) {
		got := *e.info(id).Status
		return got == want, got
	})
}

func ids(as []*api.AllocationListStub) []string {
	var out []string
	for _, a := range as {
		out = append(out, a.ID)
	}
	slices.Sort(out)
	return out
}

func names(as []*api.AllocationListStub) []string {
	var out []string
	for _, a := range as {
		out = append(out, a.Name[strings.LastIndex(a.Name, "."):])
	}
	slices.Sort(out)
	return out
}

func ptr[T any](v T) *T { return &v }

// ended says whether the client reported an allocation over, or it is lost.
func ended(a *api.AllocationListStub) bool {
	switch a.ClientStatus {
	case api.AllocClientStatusComplete, api.AllocClientStatusFailed, api.AllocClientStatusLost:
		return true
	}
	return false
}
