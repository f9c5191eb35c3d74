package daemon

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/caravan-sched/caravan/planner/barrier"
	"github.com/caravan-sched/caravan/planner/config"
	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/observe"
	"github.com/caravan-sched/caravan/planner/record"
)

// fakeObserver shows what the test puts there.
type fakeObserver struct {
	mu        sync.Mutex
	view      *observe.View
	err       error
	refreshes []time.Time
}

func (o *fakeObserver) Refresh(context.Context) (*observe.View, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.refreshes = append(o.refreshes, time.Now())
	if o.err != nil {
		return nil, o.err
	}
	v := *o.view
	v.Taken = time.Now()
	snap := *v.Snapshot
	snap.Now = v.Taken
	v.Snapshot = &snap
	return &v, nil
}

func (o *fakeObserver) Watch(ctx context.Context, _ func()) { <-ctx.Done() }

func (o *fakeObserver) set(v *observe.View, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.view, o.err = v, err
}

func (o *fakeObserver) count() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.refreshes)
}

// fakeCarrier notes what it is told and answers as the test says.
type fakeCarrier struct {
	mu       sync.Mutex
	executed int
	execute  func(*model.Plan) outcome
	released []string
}

func (c *fakeCarrier) Execute(_ context.Context, _ *observe.View, p *model.Plan) outcome {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.executed++
	if c.execute != nil {
		return c.execute(p)
	}
	return outcome{plan: p}
}

func (c *fakeCarrier) Release(_ context.Context, token string, m *observe.Managed) (string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.released = append(c.released, token+"@"+m.Namespace+"/"+m.ID)
	if m.ID == "stuck" {
		return "", errors.New("a member has completed")
	}
	return "", nil
}

// job draws a managed job that waits.
func job(id string) observe.Managed {
	return observe.Managed{
		Namespace: "default", ID: id, SpecHash: "hash-" + id,
		Record: &record.Record{Namespace: "default", JobID: id, SpecHash: "hash-" + id, Phase: record.PhaseQueued},
		Model: model.Job{Namespace: "default", ID: id, Type: "batch", State: model.StateQueued, Submitted: time.Now(), Gang: model.GangJob,
			Groups: []model.TaskGroup{{Name: "g", Count: 2, Devices: []model.DeviceAsk{{Name: "nvidia/gpu", Count: 4}}}}},
	}
}

func viewOf(jobs ...observe.Managed) *observe.View {
	v := &observe.View{Snapshot: &model.Snapshot{}, Managed: jobs, Devices: []string{"nvidia/gpu"}, Index: 7}
	for _, j := range jobs {
		v.Snapshot.Jobs = append(v.Snapshot.Jobs, j.Model)
	}
	return v
}

// waitAll decides that every queued job waits.
func waitAll(s *model.Snapshot) (*model.Plan, error) {
	p := new(model.Plan)
	for _, j := range s.Jobs {
		if j.State == model.StateQueued {
			p.Decisions = append(p.Decisions, model.Decision{Namespace: j.Namespace, Job: j.ID, Action: model.ActionWait,
				Reason: "no room for " + j.ID, Detail: model.Detail{Code: "no_capacity"}})
		}
	}
	return p, nil
}

type fakes struct {
	observer *fakeObserver
	carrier  *fakeCarrier
	lock     *fakeLock
	// documents are the gangs' states.
	documents *fakeDocuments
}

// fakeDocuments holds no state of any gang.
type fakeDocuments struct {
	mu  sync.Mutex
	err error
}

// fails makes all of them fail from now on; nil ends that.
func (f *fakeDocuments) fails(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.err = err
}

func (f *fakeDocuments) fault() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.err
}

func (f *fakeDocuments) List(context.Context) ([]record.Document, error) { return nil, f.fault() }

func (f *fakeDocuments) Get(context.Context, ...string) (record.Document, error) {
	return record.Document{}, record.ErrNotFound
}

func (f *fakeDocuments) Put(context.Context, uint64, []byte, ...string) (uint64, error) {
	return 1, f.fault()
}

func (f *fakeDocuments) Delete(context.Context, ...string) error { return f.fault() }

// testDaemon is a daemon with fakes all around it, that leads already.
func testDaemon(t *testing.T, jobs ...observe.Managed) (*Daemon, fakes) {
	f := fakes{&fakeObserver{view: viewOf(jobs...)}, &fakeCarrier{}, &fakeLock{}, new(fakeDocuments)}
	d := &Daemon{
		cfg: config.Default(), log: hclog.NewNullLogger(), now: time.Now,
		settings: settings{store: &fakeUsage{}, file: config.Default()}, learner: learner{kept: keepHistory(&fakeUsage{})}, speeds: speeds{store: new(fakeTallies)}, sharing: sharing{kept: keepSharing(&fakeUsage{})}, bursts: bursts{store: &fakeUsage{}}, observe: f.observer, carry: f.carrier, lock: f.lock, decide: waitAll,
		decisions: newDecisions(), metrics: newMetrics(), wake: make(chan struct{}, 1),
	}
	d.barrier = barrier.NewService(barrier.Options{Documents: f.documents, Now: d.now})
	d.leader.set(t.Context(), "me", nil)
	return d, f
}

// start runs the daemon's loop and returns how to end it.
func start(t *testing.T, d *Daemon) func() {
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { d.loop(ctx) })
	return func() { cancel(); wg.Wait() }
}
