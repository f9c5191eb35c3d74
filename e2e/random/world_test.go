// Package random plays users, operators and faults in random order on the
// stand-in for Nomad, with the planner's parts driven step by step on a clock
// of the test's own, and looks after every step.
package random

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/internal/devnomad/agent"
	"github.com/caravan-sched/caravan/internal/devnomad/client"
	"github.com/caravan-sched/caravan/internal/devnomad/clock"
	"github.com/caravan-sched/caravan/internal/devnomad/server"
	"github.com/caravan-sched/caravan/internal/devnomad/state"
	"github.com/caravan-sched/caravan/planner/apply"
	"github.com/caravan-sched/caravan/planner/config"
	"github.com/caravan-sched/caravan/planner/core"
	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/gangspec"
	"github.com/caravan-sched/caravan/planner/gateway"
	"github.com/caravan-sched/caravan/planner/httpapi"
	"github.com/caravan-sched/caravan/planner/observe"
	"github.com/caravan-sched/caravan/planner/record"
	"github.com/caravan-sched/caravan/planner/rewrite"
)

const (
	// gpusPerNode is small, so that few steps fill the cluster.
	gpusPerNode = 4
	// legacy is a namespace that is exempt: its jobs take GPUs unmanaged.
	legacy = "legacy"
	// killTime is how long a member takes to end.
	killTime = 5 * time.Second
)

// policy is the default.
var policy = core.Policy{Order: config.DefaultOrder, MaxHolds: config.DefaultMaxHolds}

var epoch = time.Date(2026, 1, 5, 8, 0, 0, 0, time.UTC)

// world is a cluster, its planner, and what its users want.
type world struct {
	clock  *clock.Manual
	server *server.Server
	http   *httptest.Server
	agent  http.Handler
	faults faults
	// planner's client goes through the faults; direct does not.
	planner, direct *api.Client

	observer *observe.Observer
	executor *apply.Executor
	gateway  *httptest.Server
	user     *api.Client
	viewMu   sync.Mutex
	view     *observe.View

	// planners counts the planners that were started.
	planners int

	nodes []*node
	jobs  map[string]*wanted
	// unmanaged is the version of each job that is none of Caravan's.
	unmanaged map[string]uint64
	// between counts what was done in the middle of other requests.
	between atomic.Int64
	// broken is the first thing that must never be.
	broken error
	// trace is what was done, for people.
	trace []string
}

// wanted is what a user wants of a job. After an answer that was lost, either
// of two versions may hold.
type wanted struct {
	versions []*api.Job
	// gone: stopped or purged; sure says whether that is known.
	gone, sure bool
	// ended: members have ended by themselves, so that the job may be collected.
	ended bool
	// direct: submitted past the gateway.
	direct bool
}

// fault is how a request goes wrong.
type fault string

const (
	faultError   fault = "500"
	faultBusy    fault = "429"
	faultGarbage fault = "garbage"
	faultLost    fault = "lost" // done, and answered with an error
	faultCut     fault = "cut"
)

// faults makes requests go wrong: after skip more, the next count ones.
type faults struct {
	mu          sync.Mutex
	skip, count int
	kind        fault
	// before is called once, ahead of the write that is met after skip writes.
	before     func()
	beforeSkip int
	// stops are allocations that were told to stop.
	stops []string
	done  int
}

// fired is how many requests have gone wrong so far.
func (f *faults) fired() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.done
}

func (f *faults) next(r *http.Request) (fault, func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	var run func()
	if r.Method != http.MethodGet {
		if f.before != nil {
			if f.beforeSkip--; f.beforeSkip < 0 {
				run, f.before = f.before, nil
			}
		}
		if rest, ok := strings.CutPrefix(r.URL.Path, "/v1/allocation/"); ok {
			f.stops = append(f.stops, strings.TrimSuffix(rest, "/stop"))
		}
	}
	if f.count == 0 {
		return "", run
	}
	if f.skip > 0 {
		f.skip--
		return "", run
	}
	f.count--
	f.done++
	return f.kind, run
}

func (f *faults) set(kind fault, skip, count int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.kind, f.skip, f.count = kind, skip, count
}

// serve is Nomad's API with the faults before it.
func (w *world) serve(rw http.ResponseWriter, r *http.Request) {
	kind, before := w.faults.next(r)
	if before != nil {
		w.tell("  in the middle, ahead of %s %s", r.Method, r.URL.Path)
		w.between.Add(1)
		before()
	}
	switch kind {
	case faultError:
		http.Error(rw, "No cluster leader", http.StatusInternalServerError)
	case faultBusy:
		http.Error(rw, "too many requests", http.StatusTooManyRequests)
	case faultGarbage:
		_, _ = io.WriteString(rw, "{]<html>")
	case faultLost:
		w.agent.ServeHTTP(httptest.NewRecorder(), r)
		http.Error(rw, "rpc error: EOF", http.StatusInternalServerError)
	case faultCut:
		panic(http.ErrAbortHandler)
	default:
		w.agent.ServeHTTP(rw, r)
	}
}

// inProcess answers requests without a network and without faults.
type inProcess struct{ h http.Handler }

func (t inProcess) RoundTrip(r *http.Request) (*http.Response, error) {
	rec := httptest.NewRecorder()
	if r.Body == nil {
		r.Body = http.NoBody
	}
	t.h.ServeHTTP(rec, r)
	return rec.Result(), nil
}

// newWorld starts a cluster of n nodes, two to a rack.
func newWorld(seed uint64, n int) (*world, error) {
	w := &world{clock: clock.NewManual(epoch), jobs: map[string]*wanted{}, unmanaged: map[string]uint64{}}
	w.server = server.New(server.Config{Clock: w.clock, LostAfter: 27 * time.Second, Seed: seed})
	w.agent = agent.New(agent.Config{Server: w.server, Client: func(string) *client.Client { return nil }, Address: "127.0.0.1:4646"})
	w.http = httptest.NewUnstartedServer(http.HandlerFunc(w.serve))
	w.http.Config.ErrorLog = quiet
	w.http.Start()
	var err error
	if w.planner, err = api.NewClient(&api.Config{Address: w.http.URL}); err != nil {
		return nil, err
	}
	if w.direct, err = api.NewClient(&api.Config{Address: "http://nomad", HttpClient: &http.Client{Transport: inProcess{w.agent}}}); err != nil {
		return nil, err
	}
	if _, err := w.direct.Namespaces().Register(&api.Namespace{Name: legacy}, nil); err != nil {
		return nil, err
	}
	for i := range n {
		x := &node{w: w, name: fmt.Sprintf("n%d", i), id: fmt.Sprintf("%08d-0000-4000-8000-%012d", i+1, i+1), rack: fmt.Sprintf("r%d", i/2), runs: map[string]*run{}}
		w.nodes = append(w.nodes, x)
		if err := x.start(); err != nil {
			return nil, err
		}
	}
	return w, w.restartPlanner()
}

func (w *world) close() {
	if w.gateway != nil {
		w.gateway.Close()
	}
	w.http.Close()
}

// noDecision is a waiter for gateways that do not wait.
type noDecision struct{}

func (noDecision) WaitDecision(context.Context, string, string, string) (httpapi.Explain, error) {
	return httpapi.Explain{}, errors.New("nobody waits here")
}

// restartPlanner starts a planner that knows nothing but what Nomad holds.
func (w *world) restartPlanner() error {
	w.planners++
	cfg := config.Default()
	cfg.Managed.ExemptNamespaces = []string{legacy}
	records := record.NewStore(w.planner, cfg.State.Namespace)
	w.observer = observe.New(observe.Options{Client: w.planner, Records: records, Config: &cfg, Now: w.clock.Now})
	w.executor = apply.NewExecutor(w.planner, records, apply.Options{
		Deadline: cfg.Admission.Deadline, RetryInitial: cfg.Admission.RetryInitial, RetryMax: cfg.Admission.RetryMax,
	})
	w.setView(nil)
	address, err := url.Parse(w.http.URL)
	if err != nil {
		return err
	}
	g, err := gateway.New(gateway.Config{
		Nomad: address, Client: w.planner,
		Managed: func(job *api.Job) bool {
			return gangspec.Asks(job, cfg.Managed.Devices) && gangspec.Unmanageable(job) == "" && (job.Namespace == nil || *job.Namespace != legacy)
		},
		Levels: cfg.LevelNames(), Records: records, Waiter: noDecision{}, Wait: -1, Now: w.clock.Now,
		Cluster: func(context.Context) (*rewrite.Cluster, error) {
			if v := w.lastView(); v != nil {
				return apply.Cluster(v), nil
			}
			return nil, errors.New("the planner has not seen the cluster yet")
		},
	})
	if err != nil {
		return err
	}
	if w.gateway != nil {
		w.gateway.Close()
	}
	w.gateway = httptest.NewUnstartedServer(g)
	w.gateway.Config.ErrorLog = quiet
	w.gateway.Start()
	w.user, err = api.NewClient(&api.Config{Address: w.gateway.URL})
	return err
}

func (w *world) setView(v *observe.View) {
	w.viewMu.Lock()
	defer w.viewMu.Unlock()
	w.view = v
}

func (w *world) lastView() *observe.View {
	w.viewMu.Lock()
	defer w.viewMu.Unlock()
	return w.view
}

// look is one cycle of the planner: observe, decide, carry out.
func (w *world) look() (changed bool, err error) {
	v, err := w.observer.Refresh(context.Background())
	if err != nil {
		return false, err
	}
	w.setView(v)
	w.noteSeen(v)
	plan, err := core.Decide(v.Snapshot, policy)
	if err != nil {
		w.fail("the core refuses what was observed: %v", err)
		return false, err
	}
	if v.Blind() != "" {
		plan = &model.Plan{}
	}
	for _, r := range w.executor.Execute(context.Background(), v, plan) {
		changed = changed || r.Changed
		if r.Err != nil {
			err = errors.Join(err, fmt.Errorf("%s %s: %w", r.Kind, r.Job, r.Err))
		}
	}
	return changed, err
}

// noteSeen notes what the planner has seen.
func (w *world) noteSeen(v *observe.View) {
	for i := range v.Snapshot.Allocs {
		for _, n := range w.nodes {
			if r := n.runs[v.Snapshot.Allocs[i].ID]; r != nil {
				r.seen = w.planners
			}
		}
	}
}

// settle lets Nomad and its clients do all that they can without time.
func (w *world) settle() {
	for range 200 {
		w.server.Step()
		moved := false
		for _, n := range w.nodes {
			moved = n.sync() || moved
		}
		if !moved {
			return
		}
	}
	w.fail("Nomad and its clients never come to rest")
}

// cycle is a look and what follows from it, until nothing changes.
func (w *world) cycle() {
	for range 12 {
		changed, err := w.look()
		w.settle()
		if err != nil || !changed {
			return
		}
	}
}

// pass lets time pass, with looks in between.
func (w *world) pass(total, step time.Duration) {
	for done := time.Duration(0); done < total && w.broken == nil; done += step {
		w.clock.Advance(step)
		w.settle()
		w.cycle()
	}
}

func (w *world) fail(format string, args ...any) {
	if w.broken == nil {
		w.broken = fmt.Errorf(format, args...)
	}
}

func (w *world) tell(format string, args ...any) {
	w.trace = append(w.trace, fmt.Sprintf("%s  ", w.clock.Now().Format("15:04:05"))+fmt.Sprintf(format, args...))
}

// allocs are a job's allocations in Nomad.
func (w *world) allocs(key string) (out []*api.Allocation) {
	ns, id, _ := strings.Cut(key, "/")
	w.server.Store().View(func(v *state.View) { out = v.AllocsOfJob(state.Key{Namespace: ns, ID: id}) })
	return out
}

func (w *world) job(key string) (out *api.Job) {
	ns, id, _ := strings.Cut(key, "/")
	w.server.Store().View(func(v *state.View) { out = v.Job(state.Key{Namespace: ns, ID: id}) })
	return out
}

// live are the runs of a job on all nodes, cut off ones included.
func (w *world) live(key string) (out []*run) {
	for _, n := range w.nodes {
		for _, r := range n.runs {
			if r.job == key {
				out = append(out, r)
			}
		}
	}
	slices.SortFunc(out, func(a, b *run) int { return bytes.Compare([]byte(a.id), []byte(b.id)) })
	return out
}
