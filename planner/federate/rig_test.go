package federate_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/internal/devcluster"
	"github.com/caravan-sched/caravan/internal/devnomad"
	"github.com/caravan-sched/caravan/internal/nomadplugin/plugintest"
	"github.com/caravan-sched/caravan/planner/apply"
	"github.com/caravan-sched/caravan/planner/config"
	"github.com/caravan-sched/caravan/planner/core"
	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/federate"
	"github.com/caravan-sched/caravan/planner/gangspec"
	"github.com/caravan-sched/caravan/planner/observe"
	"github.com/caravan-sched/caravan/planner/record"
	"github.com/caravan-sched/caravan/planner/rewrite"
)

// TestMain lets this binary be the clients' device plugin.
func TestMain(m *testing.M) {
	plugintest.ServeIfStarted()
	os.Exit(m.Run())
}

// rig are two joined regions, eu with one node of eight GPUs and us with two, and
// the parts of a planner that act on them.
type rig struct {
	t       *testing.T
	regions map[string]*devnomad.Cluster
	// wire is what the planner in charge talks through.
	wire *wire
	fed  *federate.Federation
	last *observe.View
	// known is what the planner knows of regions.
	known []model.Region
}

func newRig(t *testing.T) *rig {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{t: t, regions: map[string]*devnomad.Cluster{}}
	for region, nodes := range map[string][]string{"eu": {"eu-1"}, "us": {"us-1", "us-2"}} {
		spec := devcluster.Spec{DataDir: t.TempDir(), Region: region}
		for _, n := range nodes {
			spec.Nodes = append(spec.Nodes, devcluster.Node{Name: n, Plugins: []devcluster.Plugin{{
				Name: plugintest.DeviceName, Path: self, Config: fmt.Sprintf("count = 8\nprefix = %q", n+"-")}}})
		}
		c, err := devnomad.StartWith(t.Context(), spec, devnomad.Options{LostAfter: time.Second})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Stop() })
		if err := c.WaitReady(t.Context()); err != nil {
			t.Fatal(err)
		}
		r.regions[region] = c
	}
	if err := r.regions["eu"].Federate(t.Context(), r.regions["us"]); err != nil {
		t.Fatal(err)
	}
	r.start(-1, false)
	return r
}

// wire counts what a planner writes, and cuts it off: after so many writes, whether
// the last of them was answered or not.
type wire struct {
	mu     sync.Mutex
	writes int
	after  int
	// unanswered: the last write gets there, and its answer does not come back.
	unanswered bool
	dead       bool
}

var errKilled = errors.New("the planner was killed")

// RoundTrip implements http.RoundTripper.
func (w *wire) RoundTrip(r *http.Request) (*http.Response, error) {
	writes := r.Method != http.MethodGet && !strings.HasSuffix(r.URL.Path, "/plan")
	w.mu.Lock()
	if w.dead || writes && w.after == w.writes {
		w.dead = true
		lost := w.unanswered && writes && w.after == w.writes
		w.unanswered = false
		w.mu.Unlock()
		if lost {
			if resp, err := http.DefaultTransport.RoundTrip(r); err == nil {
				_ = resp.Body.Close()
			}
		}
		return nil, errKilled
	}
	if writes {
		w.writes++
	}
	w.mu.Unlock()
	return http.DefaultTransport.RoundTrip(r)
}

func (w *wire) killed() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.dead
}

// start puts a planner in charge that knows nothing yet, and is killed at its
// write after so many; less than 0 is never.
func (r *rig) start(after int, unanswered bool) {
	r.t.Helper()
	r.wire = &wire{after: after, unanswered: unanswered}
	cfg := config.Default()
	cfg.Regions = r.known
	var regions []federate.Region
	var fed *federate.Federation
	for _, name := range []string{"eu", "us"} {
		client, err := api.NewClient(&api.Config{Address: r.regions["eu"].Address(), Region: name, HttpClient: &http.Client{Transport: r.wire}})
		if err != nil {
			r.t.Fatal(err)
		}
		store := record.NewStore(client, "")
		regions = append(regions, federate.Region{
			Name:     name,
			Observer: observe.New(observe.Options{Client: client, Records: store, Config: &cfg, Region: name}),
			Executor: apply.NewExecutor(client, store, apply.Options{RetryInitial: time.Millisecond, RetryMax: time.Millisecond,
				Withhold: func(rec *record.Record) bool { return fed.Withhold(name)(rec) }}),
			Term: func() (context.Context, string) { return r.t.Context(), "" },
		})
	}
	fed = federate.New(federate.Options{}, regions...)
	r.fed = fed
}

// cycle is one look, decision and execution; false when the planner was killed.
func (r *rig) cycle() bool {
	r.t.Helper()
	v, err := r.fed.Refresh(r.t.Context())
	if err == nil {
		plan, err := core.Decide(v.Snapshot, config.Default().Policy.Policy)
		if err != nil {
			r.t.Fatalf("decide: %v", err)
		}
		r.last = v
		for _, result := range r.fed.Execute(r.t.Context(), v, plan) {
			if result.Err != nil && !r.wire.killed() {
				r.t.Logf("%s %s: %v", result.Kind, result.Job, result.Err)
			}
		}
	} else if !r.wire.killed() {
		r.t.Fatalf("refresh: %v", err)
	}
	r.once()
	return !r.wire.killed()
}

// once: no job has allocations that are wanted in both regions.
func (r *rig) once() {
	r.t.Helper()
	in := map[string]string{}
	for name, c := range r.regions {
		list, _, err := c.Client().Allocations().List(nil)
		if err != nil {
			r.t.Fatal(err)
		}
		for _, a := range list {
			if a.ClientStatus != api.AllocClientStatusRunning && a.ClientStatus != api.AllocClientStatusPending || a.JobID == "twin" {
				continue
			}
			if other := in[a.JobID]; other != "" && other != name {
				r.t.Fatalf("job %s runs in %s and in %s", a.JobID, other, name)
			}
			in[a.JobID] = name
		}
	}
}

// until plays cycles until ok, and puts another planner in charge when one was
// killed.
func (r *rig) until(what string, ok func() bool) {
	r.t.Helper()
	for end := time.Now().Add(90 * time.Second); time.Now().Before(end); {
		if !r.cycle() {
			r.start(-1, false)
			continue
		}
		if ok() {
			return
		}
		time.Sleep(2 * time.Millisecond)
	}
	r.t.Fatalf("never: %s%s", what, r.state())
}

// state is what is known of all jobs.
func (r *rig) state() string {
	var out strings.Builder
	for name, c := range r.regions {
		recs, _ := record.NewStore(c.Client(), "").List(r.t.Context())
		for _, rec := range recs {
			fmt.Fprintf(&out, "\n%s record %s: %s, home %q, route %+v, held %q: %s", name, rec.JobID, rec.Phase, rec.Home, rec.Route, rec.Held, rec.Reason)
		}
		jobs, _, _ := c.Client().Jobs().List(nil)
		for _, j := range jobs {
			fmt.Fprintf(&out, "\n%s job %s: %s, stop %v", name, j.ID, j.Status, j.Stop)
		}
	}
	if r.last != nil {
		for i := range r.last.Managed {
			m := &r.last.Managed[i]
			fmt.Fprintf(&out, "\nmanaged %s in %s: %s, regions %v, hold %q", m.ID, m.Region, m.Model.State, m.Model.Regions, m.Model.Hold)
		}
	}
	return out.String()
}

// gang is a job of so many whole nodes.
func gang(id string, members int, runFor string) *api.Job {
	eight := uint64(8)
	task := api.NewTask("t", "mock_driver").SetConfig("run_for", runFor)
	task.KillTimeout = new(time.Millisecond)
	task.Resources = &api.Resources{Devices: []*api.RequestedDevice{{Name: "nvidia/gpu", Count: &eight}}}
	job := api.NewBatchJob(id, id, "", 50).AddDatacenter("*").AddTaskGroup(api.NewTaskGroup("g", members).AddTask(task))
	job.Region = nil
	return job.SetMeta("caravan_gang", "job")
}

// submit does in eu what the gateway does; what a job was sent for is kept.
func (r *rig) submit(job *api.Job) {
	r.t.Helper()
	client := r.regions["eu"].Client()
	store := record.NewStore(client, "")
	rec := &record.Record{Namespace: "default", JobID: *job.ID, Original: job, SpecHash: gangspec.Hash(job), Submitted: time.Now().UTC(),
		Phase: record.PhaseQueued, Regions: []string{record.AnyRegion}}
	if old, err := store.Get(r.t.Context(), "default", *job.ID); err == nil {
		rec.ModifyIndex, rec.Route = old.ModifyIndex, old.Route
	}
	if now, _, err := client.Jobs().Info(*job.ID, nil); err == nil {
		rec.PriorIndex = max(*now.JobModifyIndex, *now.ModifyIndex)
	}
	if err := store.Put(r.t.Context(), rec); err != nil {
		r.t.Fatal(err)
	}
	gated, err := rewrite.Gate(job)
	if err != nil {
		r.t.Fatal(err)
	}
	if _, _, err := client.Jobs().Register(gated, nil); err != nil {
		r.t.Fatal(err)
	}
}

// members are how many of a job's allocations run in a region.
func (r *rig) members(region, id string) int {
	r.t.Helper()
	list, _, err := r.regions[region].Client().Jobs().Allocations(id, false, nil)
	if err != nil {
		r.t.Fatal(err)
	}
	n := 0
	for _, a := range list {
		if a.ClientStatus == api.AllocClientStatusRunning && a.DesiredStatus == api.AllocDesiredStatusRun {
			n++
		}
	}
	return n
}

// remembered is how many records there are in both regions.
func (r *rig) remembered() int {
	n := 0
	for _, c := range r.regions {
		recs, err := record.NewStore(c.Client(), "").List(r.t.Context())
		if err != nil {
			r.t.Fatal(err)
		}
		n += len(recs)
	}
	return n
}

func (r *rig) stop(region, id string) {
	r.t.Helper()
	if _, _, err := r.regions[region].Client().Jobs().Deregister(id, false, nil); err != nil {
		r.t.Fatal(err)
	}
}
