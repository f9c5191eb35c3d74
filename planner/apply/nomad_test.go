package apply_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/internal/devcluster"
	"github.com/caravan-sched/caravan/internal/devcluster/gpunodes"
	"github.com/caravan-sched/caravan/internal/devnomad"
	"github.com/caravan-sched/caravan/internal/nomadproc"
	"github.com/caravan-sched/caravan/planner/apply"
	"github.com/caravan-sched/caravan/planner/config"
	"github.com/caravan-sched/caravan/planner/core"
	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/observe"
	"github.com/caravan-sched/caravan/planner/record"
	"github.com/caravan-sched/caravan/planner/rewrite"
)

// real is a real Nomad with three nodes of 8 simulated GPUs, and the parts of
// the planner that act on it.
type real struct {
	t       *testing.T
	cluster devcluster.Cluster
	// faults are files with the simulated faults of each node's GPUs.
	faults map[string]string
	// plugin is the device plugin's binary.
	plugin  string
	client  *api.Client
	store   *record.Store
	observe *observe.Observer
	exec    *apply.Executor
}

func startReal(t *testing.T, opts apply.Options) *real {
	t.Helper()
	bin, ok := nomadproc.Find()
	if !ok {
		t.Skip("needs Nomad: set NOMAD_BIN or put nomad on the PATH")
	}
	return start(t, opts, func(ctx context.Context, spec devcluster.Spec) (devcluster.Cluster, error) {
		return nomadproc.Start(ctx, bin, spec)
	})
}

// standInLost is after how long the stand-in takes a silent node for lost: longer than
// a client takes to start again on a busy machine.
const standInLost = 10 * time.Second

func TestMain(m *testing.M) { os.Exit(gpunodes.Main(m)) }

func startStandIn(t *testing.T, opts apply.Options) *real {
	t.Helper()
	return start(t, opts, func(ctx context.Context, spec devcluster.Spec) (devcluster.Cluster, error) {
		return devnomad.StartWith(ctx, spec, devnomad.Options{LostAfter: standInLost})
	})
}

func start(t *testing.T, opts apply.Options, begin func(context.Context, devcluster.Spec) (devcluster.Cluster, error)) *real {
	t.Helper()
	dir := t.TempDir()
	r := &real{t: t, faults: map[string]string{}, plugin: filepath.Join(dir, gpunodes.PluginName)}
	// Its own name for the program tells its plugins' processes from others'.
	if err := os.Link(gpunodes.Plugin(t), r.plugin); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	spec := devcluster.Spec{}
	for i := range 3 {
		name := fmt.Sprintf("n%d", i)
		r.faults[name] = filepath.Join(dir, name+".faults")
		if err := os.WriteFile(r.faults[name], nil, 0o600); err != nil {
			t.Fatal(err)
		}
		spec.Nodes = append(spec.Nodes, gpunodes.Node(name, fmt.Sprintf("r%d", i/2), r.plugin,
			fmt.Sprintf("mock_faults = %q\nfingerprint_period = \"1s\"\n", r.faults[name])))
	}
	c, err := begin(ctx, spec)
	if err != nil {
		t.Fatal(err)
	}
	gpunodes.Ready(ctx, t, c)
	cfg := config.Default()
	store := record.NewStore(c.Client(), "")
	r.cluster, r.client, r.store = c, c.Client(), store
	r.observe = observe.New(observe.Options{Client: c.Client(), Records: store, Config: &cfg})
	r.exec = apply.NewExecutor(c.Client(), store, opts)
	return r
}

// look waits for a view; Nomad may not answer at its start.
func (r *real) look() *observe.View {
	r.t.Helper()
	deadline := time.Now().Add(90 * time.Second)
	for {
		v, err := r.observe.Refresh(r.t.Context())
		if err == nil {
			return v
		}
		if time.Now().After(deadline) {
			r.t.Fatal(err)
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// cycle is one turn of the planner's loop.
func (r *real) cycle() *observe.View {
	r.t.Helper()
	v := r.look()
	plan, err := core.Decide(v.Snapshot, core.Policy{})
	if err != nil {
		r.t.Fatal(err)
	}
	for _, result := range r.exec.Execute(r.t.Context(), v, plan) {
		r.t.Logf("%s %s: %s changed=%v err=%v", result.Kind, result.Job, result.Reason, result.Changed, result.Err)
	}
	return v
}

// until turns the loop until the condition holds.
func (r *real) until(what string, holds func(*observe.View) bool) *observe.View {
	r.t.Helper()
	deadline := time.Now().Add(90 * time.Second)
	for time.Now().Before(deadline) {
		if v := r.cycle(); holds(v) {
			return v
		}
		time.Sleep(100 * time.Millisecond)
	}
	r.t.Fatalf("not within 90 s: %s", what)
	return nil
}

func phase(job string, want record.Phase) func(*observe.View) bool {
	return func(v *observe.View) bool {
		m, ok := v.Job("default", job)
		return ok && m.Record != nil && m.Record.Phase == want
	}
}

func gone(job string) func(*observe.View) bool {
	return func(v *observe.View) bool {
		m, ok := v.Job("default", job)
		return (!ok || m.Record == nil) && len(v.Orphans) == 0
	}
}

func realJob(id, kind, gang string, count, gpus int, command ...string) *api.Job {
	g := &api.TaskGroup{Name: ptr("w"), Count: &count,
		RestartPolicy:    &api.RestartPolicy{Attempts: ptr(0), Mode: ptr("fail")},
		ReschedulePolicy: &api.ReschedulePolicy{Attempts: ptr(0), Unlimited: ptr(false)},
		Tasks: []*api.Task{{Name: "t", Driver: "raw_exec", KillTimeout: ptr(time.Second),
			Config:    map[string]any{"command": command[0], "args": command[1:]},
			Resources: &api.Resources{CPU: ptr(20), MemoryMB: ptr(20), Devices: []*api.RequestedDevice{{Name: "nvidia/gpu", Count: ptr(uint64(gpus))}}},
		}}}
	return &api.Job{ID: &id, Type: &kind, Meta: map[string]string{"caravan_gang": gang}, TaskGroups: []*api.TaskGroup{g}}
}

func (r *real) register(j *api.Job) {
	r.t.Helper()
	if _, _, err := r.client.Jobs().Register(j, nil); err != nil {
		r.t.Fatal(err)
	}
}

func (r *real) versions(job string) int {
	r.t.Helper()
	j, _, err := r.client.Jobs().Info(job, nil)
	if err != nil {
		r.t.Fatal(err)
	}
	return int(*j.Version)
}

// exact checks that every member in force is placed exactly where it was
// decided.
func (r *real) exact(v *observe.View, job string, members int) *observe.Managed {
	r.t.Helper()
	m, _ := v.Job("default", job)
	placed := 0
	for _, s := range m.Members {
		if s.State == observe.AllocPlaced {
			placed++
		}
	}
	if placed != members {
		r.t.Fatalf("job %s: %d of %d members are placed as decided: %+v", job, placed, members, m.Members)
	}
	return m
}

func gatedFile(j *api.Job) *api.Job {
	return j.Constrain(api.NewConstraint(rewrite.GateAttribute, "=", rewrite.GateValue))
}

func TestOnNomad(t *testing.T) {
	r := startReal(t, apply.Options{Deadline: time.Minute, RetryInitial: time.Second, Settle: 3 * time.Second})
	t.Run("a gang of whole nodes", r.gang)
	t.Run("a part-node gang on one node", r.parts)
	t.Run("a sweep larger than the cluster", r.sweep)
	t.Run("gangs of groups, one after the other", r.groups)
	t.Run("a lost race is rolled back whole", r.race)
	t.Run("ungated, and changed past the gateway", r.changed)
	t.Run("a batch job that has ended, submitted again", r.again)
	t.Run("a lost node takes the whole gang off", r.lostNode)
}

func (r *real) gang(t *testing.T) {
	r.t = t
	// Its own update block would have Nomad take it apart, canary first.
	j := realJob("gang", "service", "job", 2, 8, "/bin/sleep", "600")
	j.Update = &api.UpdateStrategy{MaxParallel: ptr(1), Canary: ptr(1)}
	r.register(gatedFile(j))
	v := r.until("running", phase("gang", record.PhaseRunning))
	m := r.exact(v, "gang", 2)
	if n := r.versions("gang"); n != 1 {
		t.Errorf("the job is at version %d, want gate and pin only", n)
	}
	if strings.Contains(strings.Join(deviceConstraints(m.Current), " "), "caravan") {
		t.Error("a whole-node gang lists its GPUs")
	}
	if d, _, err := r.client.Jobs().LatestDeployment("gang", nil); err != nil || d != nil && d.Status == api.DeploymentStatusRunning {
		t.Errorf("deployment %+v, %v", d, err)
	}
	if got := m.Record.Original.TaskGroups[0].Update; got == nil || *got.Canary != 1 {
		t.Errorf("the user's update block is not remembered: %+v", got)
	}
	// Nothing more is written while nothing happens.
	before := r.versions("gang")
	for range 3 {
		r.cycle()
	}
	if r.versions("gang") != before {
		t.Error("a running gang is registered again")
	}
	// A member is stopped by somebody: Nomad places it again in its place.
	if _, err := r.client.Allocations().Stop(&api.Allocation{ID: m.Members[0].Alloc.ID}, nil); err != nil {
		t.Fatal(err)
	}
	v = r.until("whole again", func(v *observe.View) bool {
		got, _ := v.Job("default", "gang")
		return len(got.Members) == 2 && got.Members[0].State == observe.AllocPlaced && got.Members[0].Alloc.ID != m.Members[0].Alloc.ID
	})
	r.exact(v, "gang", 2)
	r.purge("gang")
}

// purge stops the job first, so that nobody has to wait for its kill_timeout.
func (r *real) purge(job string) {
	r.t.Helper()
	free := func(v *observe.View) bool {
		return !slices.ContainsFunc(v.Snapshot.Allocs, func(a model.Alloc) bool { return a.Job == job })
	}
	for _, forget := range []bool{false, true} {
		if _, _, err := r.client.Jobs().Deregister(job, forget, nil); err != nil {
			r.t.Fatal(err)
		}
		r.until("its GPUs are free", free)
	}
	r.until("forgotten", gone(job))
}

func (r *real) parts(t *testing.T) {
	r.t = t
	j := realJob("parts", "batch", "job", 2, 4, "/bin/sh", "-c", "echo $NOMAD_ALLOC_INDEX $NOMAD_GROUP_NAME $CUDA_VISIBLE_DEVICES; sleep 600")
	j.Meta["caravan_topology"] = "require:node"
	r.register(gatedFile(j))
	v := r.until("running", phase("parts", record.PhaseRunning))
	m := r.exact(v, "parts", 2)
	if m.Members[0].Alloc.NodeID != m.Members[1].Alloc.NodeID {
		t.Error("the members are on two nodes")
	}
	for _, s := range m.Members {
		want := fmt.Sprintf("%d w GPU-", s.Member.Index)
		if got := r.stdout(s.Alloc.ID); !strings.HasPrefix(got, want) {
			t.Errorf("member %d prints %q, want %q…", s.Member.Index, got, want)
		}
	}
	r.purge("parts")
}

func (r *real) stdout(alloc string) string {
	r.t.Helper()
	var got string
	deadline := time.Now().Add(90 * time.Second)
	for got == "" && time.Now().Before(deadline) {
		info, _, err := r.client.Allocations().Info(alloc, nil)
		if err != nil {
			r.t.Fatal(err)
		}
		if rc, err := r.client.AllocFS().Cat(info, "alloc/logs/t.stdout.0", nil); err == nil {
			data := make([]byte, 4096)
			n, _ := rc.Read(data)
			if got = string(data[:n]); strings.Contains(got, "no such file") {
				got = ""
			}
			_ = rc.Close()
		}
		time.Sleep(50 * time.Millisecond)
	}
	return got
}

// sweep: 4 members of 8 GPUs each on 3 nodes; the fourth comes when one has
// ended, and none runs twice.
func (r *real) sweep(t *testing.T) {
	r.t = t
	log := filepath.Join(t.TempDir(), "ran")
	r.register(gatedFile(realJob("sweep", "batch", "none", 4, 8, "/bin/sh", "-c", "echo $NOMAD_ALLOC_INDEX >>"+log+"; sleep 3")))
	r.until("running", phase("sweep", record.PhaseRunning))
	r.until("done", gone("sweep"))
	out, err := exec.Command("sort", log).Output()
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Fields(string(out)); !slices.Equal(got, []string{"0", "1", "2", "3"}) {
		t.Errorf("members ran: %v, want each once", got)
	}
}

// groups: two gangs of two nodes each on three nodes; the second waits whole
// until the first has ended, and nothing runs twice.
func (r *real) groups(t *testing.T) {
	r.t = t
	log := filepath.Join(t.TempDir(), "ran")
	j := realJob("groups", "batch", "group", 2, 8, "/bin/sh", "-c", "echo $NOMAD_GROUP_NAME >>"+log+"; sleep 2")
	second := realJob("", "batch", "group", 2, 8, "/bin/sh", "-c", "echo $NOMAD_GROUP_NAME >>"+log+"; sleep 2").TaskGroups[0]
	second.Name = ptr("v")
	j.TaskGroups = append(j.TaskGroups, second)
	r.register(gatedFile(j))
	v := r.until("one runs", phase("groups", record.PhaseRunning))
	m := r.exact(v, "groups", 2)
	if m.Members[0].Member.Group != m.Members[1].Member.Group {
		t.Errorf("a half of each group runs: %+v", m.Members)
	}
	r.until("done", gone("groups"))
	out, err := exec.Command("sort", log).Output()
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Fields(string(out)); !slices.Equal(got, []string{"v", "v", "w", "w"}) {
		t.Errorf("members ran: %v, want each once", got)
	}
}
