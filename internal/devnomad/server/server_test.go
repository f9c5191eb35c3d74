package server

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/internal/devnomad/clock"
	"github.com/caravan-sched/caravan/internal/devnomad/state"
)

var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// world is a server with nodes that exist by name only: a test reports for
// their clients.
type world struct {
	t     *testing.T
	s     *Server
	clock *clock.Manual
}

func newWorld(t *testing.T, nodes ...string) *world {
	w := &world{t: t, clock: clock.NewManual(epoch)}
	w.s = New(Config{Clock: w.clock, LostAfter: 27 * time.Second, Seed: 7, Log: func(line string) { t.Log(line) }})
	for _, n := range nodes {
		w.connect(n, "v1:same")
	}
	return w
}

// node has 8 GPUs named after it.
func node(name, class string) *state.Node {
	dev := &api.NodeDeviceResource{Vendor: "nvidia", Type: "gpu", Name: "A100"}
	for i := range 8 {
		dev.Instances = append(dev.Instances, &api.NodeDevice{ID: fmt.Sprintf("%s-%d", name, i), Healthy: true})
	}
	return &state.Node{ComputedClass: class, Node: &api.Node{
		ID: name, Name: name, Datacenter: "dc1", NodePool: api.NodePoolDefault, Attributes: map[string]string{}, Meta: map[string]string{},
		Drivers: map[string]*api.DriverInfo{"mock_driver": {Detected: true, Healthy: true}},
		NodeResources: &api.NodeResources{
			Cpu: api.NodeCpuResources{CpuShares: 16000, TotalCpuCores: 16}, Memory: api.NodeMemoryResources{MemoryMB: 64000},
			Disk: api.NodeDiskResources{DiskMB: 100000}, Devices: []*api.NodeDeviceResource{dev},
			Networks:       []*api.NetworkResource{{Mode: "host", IP: "127.0.0.1"}},
			MinDynamicPort: 20000, MaxDynamicPort: 20009,
		},
		ReservedResources: &api.NodeReservedResources{},
	}}
}

func (w *world) connect(name, class string) {
	w.t.Helper()
	if err := w.s.Connect(node(name, class)); err != nil {
		w.t.Fatal(err)
	}
	w.s.Step()
}

// job asks for n GPUs for each of count members.
func job(id, typ string, count, n int) *api.Job {
	j := api.NewBatchJob(id, id, "global", 50)
	if typ == api.JobTypeService {
		j = api.NewServiceJob(id, id, "global", 50)
		j.Update = &api.UpdateStrategy{MaxParallel: ptr(0)}
	}
	task := api.NewTask("main", "mock_driver")
	task.Resources = &api.Resources{CPU: ptr(100), MemoryMB: ptr(100)}
	if n > 0 {
		task.Resources.Devices = []*api.RequestedDevice{{Name: "nvidia/gpu", Count: ptr(uint64(n))}}
	}
	return j.AddTaskGroup(api.NewTaskGroup("g", count).AddTask(task))
}

func (w *world) register(j *api.Job) *api.Evaluation {
	w.t.Helper()
	c, err := CopyJob(j)
	if err != nil {
		w.t.Fatal(err)
	}
	resp, err := w.s.Register(&api.JobRegisterRequest{Job: c}, "")
	if err != nil {
		w.t.Fatal(err)
	}
	w.s.Step()
	var e *api.Evaluation
	w.s.store.View(func(v *state.View) { e = v.Eval(resp.EvalID) })
	return e
}

func (w *world) allocs(job string) []*api.Allocation {
	var out []*api.Allocation
	w.s.store.View(func(v *state.View) { out = v.AllocsOfJob(state.Key{Namespace: "default", ID: job}) })
	return out
}

// wanted are the allocations that are to run.
func (w *world) wanted(job string) []*api.Allocation {
	var out []*api.Allocation
	for _, a := range w.allocs(job) {
		if !state.Terminal(a) {
			out = append(out, a)
		}
	}
	return out
}

// report says for a client how allocations are.
func (w *world) report(status string, as ...*api.Allocation) {
	w.t.Helper()
	var reports []*api.Allocation
	for _, a := range as {
		s := &api.TaskState{State: "running", StartedAt: w.clock.Now()}
		if status != api.AllocClientStatusRunning {
			s.State, s.FinishedAt, s.Failed = "dead", w.clock.Now(), status == api.AllocClientStatusFailed
		}
		reports = append(reports, &api.Allocation{ID: a.ID, ClientStatus: status, TaskStates: map[string]*api.TaskState{"main": s}})
	}
	if err := w.s.UpdateAllocs(reports); err != nil {
		w.t.Fatal(err)
	}
	w.s.Step()
}

func (w *world) advance(d time.Duration) {
	w.clock.Advance(d)
	w.s.Step()
}

func gated(j *api.Job) *api.Job {
	j.Constraints = append(j.Constraints, &api.Constraint{LTarget: "${meta.caravan_gate}", Operand: "=", RTarget: "open"})
	return j
}

// TestGateCosts: a thousand gated jobs cost nothing when a node flaps, and one
// evaluation each when a node of a new class appears.
func TestGateCosts(t *testing.T) {
	w := newWorld(t, "a", "b")
	const jobs = 1000
	for i := range jobs {
		w.register(gated(job(fmt.Sprintf("j%d", i), api.JobTypeBatch, 2, 1)))
	}
	before := w.s.EvalsRun()
	for _, e := range []string{api.NodeSchedulingIneligible, api.NodeSchedulingEligible} {
		if _, err := w.s.SetEligibility("a", e); err != nil {
			t.Fatal(err)
		}
		w.s.Step()
	}
	w.s.Disconnect("b")
	w.advance(time.Minute)
	w.connect("b", "v1:same")
	if n := w.s.EvalsRun() - before; n != 0 {
		t.Errorf("flapping nodes cost %d evaluations, want none", n)
	}
	w.connect("c", "v1:other")
	if n := w.s.EvalsRun() - before; n != jobs {
		t.Errorf("a new class cost %d evaluations, want %d", n, jobs)
	}
	w.connect("d", "v1:other")
	if n := w.s.EvalsRun() - before; n != jobs {
		t.Errorf("a second node of that class cost %d evaluations more", n-jobs)
	}
}

// TestLostNode: a silent node is lost after LostAfter and not before; what ran
// there is lost and replaced.
func TestLostNode(t *testing.T) {
	w := newWorld(t, "a", "b")
	w.register(job("j", api.JobTypeService, 2, 8))
	all := w.wanted("j")
	if len(all) != 2 {
		t.Fatalf("%d placed, want 2", len(all))
	}
	w.report(api.AllocClientStatusRunning, all...)
	w.s.Disconnect("a")
	w.advance(26 * time.Second)
	if n := len(w.wanted("j")); n != 2 {
		t.Errorf("%d wanted after 26 s, want 2", n)
	}
	w.advance(time.Second)
	var status string
	w.s.store.View(func(v *state.View) { status = v.Node("a").Status })
	if status != api.NodeStatusDown {
		t.Errorf("node is %s after 27 s, want down", status)
	}
	if left := w.wanted("j"); len(left) != 1 || left[0].NodeID != "b" {
		t.Errorf("%d wanted, want the one on b", len(left))
	}
	w.connect("a", "v1:same")
	if n := len(w.wanted("j")); n != 2 {
		t.Errorf("%d wanted when the node is back, want 2", n)
	}
}

// TestUnknownExpires: a cut-off member that may come back is lost when
// lost_after has passed.
func TestUnknownExpires(t *testing.T) {
	w := newWorld(t, "a", "b")
	j := job("j", api.JobTypeService, 1, 8)
	j.TaskGroups[0].Disconnect = &api.DisconnectStrategy{LostAfter: ptr(10 * time.Minute), Replace: ptr(false)}
	w.register(j)
	first := w.wanted("j")[0]
	w.report(api.AllocClientStatusRunning, first)
	w.s.Disconnect(first.NodeID)
	w.advance(28 * time.Second)
	if a := w.allocs("j"); len(a) != 1 || a[0].ClientStatus != api.AllocClientStatusUnknown {
		t.Fatalf("member is %s, %d in all; want it unknown and alone", a[0].ClientStatus, len(a))
	}
	w.advance(10 * time.Minute)
	all := w.allocs("j")
	if len(all) != 2 || all[0].ClientStatus != api.AllocClientStatusLost || all[1].NodeID == first.NodeID {
		t.Errorf("after lost_after: %d allocations, the first is %s", len(all), all[0].ClientStatus)
	}
}

// TestReschedule: a failed service member is replaced after its delay.
func TestReschedule(t *testing.T) {
	w := newWorld(t, "a", "b")
	j := job("j", api.JobTypeService, 1, 1)
	j.TaskGroups[0].ReschedulePolicy = &api.ReschedulePolicy{Delay: ptr(30 * time.Second), DelayFunction: ptr("exponential"), MaxDelay: ptr(time.Hour), Unlimited: ptr(true)}
	w.register(j)
	for i, delay := range []time.Duration{30 * time.Second, time.Minute, 2 * time.Minute} {
		all := w.allocs("j")
		w.report(api.AllocClientStatusFailed, all[len(all)-1])
		w.advance(delay - time.Second)
		if n := len(w.allocs("j")); n != i+1 {
			t.Fatalf("try %d: %d allocations a second before the delay is over, want %d", i, n, i+1)
		}
		w.advance(time.Second)
		if n := len(w.allocs("j")); n != i+2 {
			t.Fatalf("try %d: %d allocations after the delay, want %d", i, n, i+2)
		}
	}
}

// TestAutoRevertBringsOldPinsBack: at the progress deadline Nomad itself
// registers the last stable version, whatever it is pinned to.
func TestAutoRevertBringsOldPinsBack(t *testing.T) {
	w := newWorld(t, "a", "b")
	j := job("j", api.JobTypeService, 1, 8)
	j.Update = &api.UpdateStrategy{MaxParallel: ptr(1), MinHealthyTime: ptr(10 * time.Second), HealthyDeadline: ptr(time.Minute), ProgressDeadline: ptr(2 * time.Minute), AutoRevert: ptr(true)}
	pin := func(n string) {
		j.TaskGroups[0].Constraints = []*api.Constraint{{LTarget: "${node.unique.id}", Operand: "regexp", RTarget: n}}
	}
	pin("^a$")
	w.register(j)
	w.report(api.AllocClientStatusRunning, w.wanted("j")...)
	w.advance(10 * time.Second)
	cur := func() *api.Job {
		var out *api.Job
		w.s.store.View(func(v *state.View) { out = v.Job(state.Key{Namespace: "default", ID: "j"}) })
		return out
	}
	if !deref(cur().Stable) {
		t.Fatal("the version is not stable after min_healthy_time")
	}
	pin("^b$")
	w.register(j)
	w.report(api.AllocClientStatusFailed, w.wanted("j")...)
	w.advance(3 * time.Minute)
	if v, c := *cur().Version, cur().TaskGroups[0].Constraints[0].RTarget; v != 2 || c != "^a$" {
		t.Errorf("version %d is pinned to %s; want version 2 as version 0 was", v, c)
	}
}

// TestLock: a lock that is not renewed ends after its TTL, and can be taken
// after its delay.
func TestLock(t *testing.T) {
	w := newWorld(t)
	k := state.Key{Namespace: "default", ID: "caravan/leader"}
	take := func() (*api.Variable, error) {
		return w.s.AcquireLock(&api.Variable{Namespace: k.Namespace, Path: k.ID, Lock: &api.VariableLock{TTL: "20s", LockDelay: "10s"}})
	}
	held, err := take()
	if err != nil {
		t.Fatal(err)
	}
	id := held.Lock.ID
	for range 3 {
		w.advance(39 * time.Second)
		if _, err := w.s.RenewLock(k, id); err != nil {
			t.Fatalf("renew: %v", err)
		}
	}
	steps := []struct {
		after time.Duration
		taken bool
	}{{39 * time.Second, false}, {2 * time.Second, false}, {8 * time.Second, false}, {2 * time.Second, true}}
	for i, s := range steps {
		w.advance(s.after)
		_, err := take()
		var conflict *Conflict
		if s.taken && err != nil || !s.taken && !errors.As(err, &conflict) {
			t.Errorf("step %d: taking the lock gave %v, want taken: %v", i, err, s.taken)
		}
	}
	if _, err := w.s.RenewLock(k, id); err == nil {
		t.Error("the former holder renewed a lock that somebody else has")
	}
}

// TestPorts: static ports are given once per node, dynamic ones in the node's
// range.
func TestPorts(t *testing.T) {
	w := newWorld(t, "a", "b")
	j := job("j", api.JobTypeBatch, 3, 0)
	j.TaskGroups[0].Networks = []*api.NetworkResource{{ReservedPorts: []api.Port{{Label: "web", Value: 8080}}, DynamicPorts: []api.Port{{Label: "nccl"}}}}
	e := w.register(j)
	got := map[string]bool{}
	for _, a := range w.wanted("j") {
		got[a.NodeID] = true
		for _, p := range a.AllocatedResources.Shared.Ports {
			if p.Label == "nccl" && (p.Value < 20000 || p.Value > 20009) {
				t.Errorf("dynamic port %d is not in the node's range", p.Value)
			}
		}
	}
	if diff := cmp.Diff(map[string]bool{"a": true, "b": true}, got); diff != "" {
		t.Errorf("nodes (-want +got):\n%s", diff)
	}
	if m := e.FailedTGAllocs["g"]; m == nil || m.DimensionExhausted["network: reserved port collision web=8080"] != 2 {
		t.Errorf("the third member failed with %+v", m)
	}
}

// TestAdmitReportsEveryFault: validation names all faults at once.
func TestAdmitReportsEveryFault(t *testing.T) {
	j := job("bad id", api.JobTypeBatch, -1, 1)
	j.Constraints = []*api.Constraint{{LTarget: "${attr.x}", Operand: "regexp", RTarget: "("}, {LTarget: "${attr.x}", Operand: "nonsense", RTarget: "y"}}
	j.TaskGroups[0].Tasks[0].Driver = ""
	j.TaskGroups[0].Tasks[0].Resources.MemoryMB = ptr(1)
	j.Namespace, j.NodePool = ptr("nowhere"), ptr("dry")
	big := *j.TaskGroups[0]
	big.Name, big.Count = ptr("big"), ptr(50_001)
	j.TaskGroups = append(j.TaskGroups, &big)
	_, err := newWorld(t).s.Admit(j)
	if err == nil {
		t.Fatal("a bad job was admitted")
	}
	for _, want := range []string{"Job ID contains a space", "Regular expression failed to compile", `Unknown constraint type "nonsense"`, "Task group count can't be negative", "Missing task driver", "minimum MemoryMB value is 10; got 1",
		"total count was greater than configured job_max_count: 50001 > 50000", `job "bad id" is in nonexistent namespace "nowhere"`, `job "bad id" is in nonexistent node pool "dry"`} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("the error lacks %q:\n%s", want, err)
		}
	}
}

// TestGC: a forced collection takes what is over and leaves what is not.
func TestGC(t *testing.T) {
	w := newWorld(t, "a", "b")
	for _, id := range []string{"live", "dead", "purged", "stopping"} {
		w.register(job(id, api.JobTypeBatch, 1, 1))
		w.report(api.AllocClientStatusRunning, w.wanted(id)...)
	}
	for _, id := range []string{"dead", "purged", "stopping"} {
		if _, err := w.s.Deregister(jobKey(id), id == "purged", 0); err != nil {
			t.Fatal(err)
		}
		w.s.Step()
		if id != "stopping" {
			w.report(api.AllocClientStatusComplete, w.allocs(id)...)
		}
	}
	if err := w.s.GC(); err != nil {
		t.Fatal(err)
	}
	want := map[string]int{"live": 1, "dead": 0, "purged": 0, "stopping": 1}
	got := map[string]int{}
	for id := range want {
		got[id] = len(w.allocs(id))
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("allocations left (-want +got):\n%s", diff)
	}
}
