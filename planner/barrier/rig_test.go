package barrier_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/driver/gangapi"
	"github.com/caravan-sched/caravan/driver/rendezvous"
	"github.com/caravan-sched/caravan/planner/barrier"
	"github.com/caravan-sched/caravan/planner/barrier/identity"
	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/observe"
	"github.com/caravan-sched/caravan/planner/record"
)

// documents keeps states in memory, and fails on demand.
type documents struct {
	mu    sync.Mutex
	index uint64
	data  map[string]record.Document
	puts  int
	// fail is asked before each write.
	fail func() error
	// hold, if set, is waited for by each write.
	hold chan struct{}
}

func newDocuments() *documents { return &documents{data: map[string]record.Document{}} }

func (d *documents) List(context.Context) ([]record.Document, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	var out []record.Document
	for _, doc := range d.data {
		out = append(out, doc)
	}
	return out, nil
}

func (d *documents) Get(_ context.Context, names ...string) (record.Document, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	doc, ok := d.data[strings.Join(names, "/")]
	if !ok {
		return doc, record.ErrNotFound
	}
	return doc, nil
}

func (d *documents) Put(ctx context.Context, index uint64, doc []byte, names ...string) (uint64, error) {
	d.mu.Lock()
	hold := d.hold
	d.mu.Unlock()
	if hold != nil {
		select {
		case <-hold:
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.fail != nil {
		if err := d.fail(); err != nil {
			return 0, err
		}
	}
	key := strings.Join(names, "/")
	if d.data[key].Index != index {
		return 0, record.ErrConflict
	}
	d.index++
	d.puts++
	d.data[key] = record.Document{Index: d.index, JSON: doc}
	return d.index, nil
}

func (d *documents) Delete(_ context.Context, names ...string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.data, strings.Join(names, "/"))
	return nil
}

// cluster is a job with a placement, as an observer sees it.
type cluster struct {
	job     *observe.Managed
	members []observe.MemberState
	now     func() time.Time
}

const perNode = 2

func gpus(node int) []string {
	return []string{fmt.Sprintf("GPU-%d-0", node), fmt.Sprintf("GPU-%d-1", node)}
}

// newCluster places a gang of n members, one a node.
func newCluster(n int, meta map[string]string, now func() time.Time) *cluster {
	orig := &api.Job{
		ID: new("train"), Name: new("train"), Namespace: new("ml"), Type: new(api.JobTypeBatch),
		Meta:       map[string]string{"caravan_gang": "job"},
		TaskGroups: []*api.TaskGroup{{Name: new("w"), Count: new(n), Tasks: []*api.Task{{Name: "rank", Driver: "caravan"}}}},
	}
	for k, v := range meta {
		orig.Meta[k] = v
	}
	group := model.TaskGroup{Name: "w", Count: n, Devices: []model.DeviceAsk{{Task: "rank", Name: "nvidia/gpu", Count: perNode}}}
	fmt.Sscan(meta["caravan_min"], &group.Min)
	fmt.Sscan(meta["caravan_max"], &group.Max)
	c := &cluster{now: now, job: &observe.Managed{
		Namespace: "ml", ID: "train",
		Record: &record.Record{Namespace: "ml", JobID: "train", Original: orig, SpecHash: "v1", Phase: record.PhaseRunning},
		Model:  model.Job{Namespace: "ml", ID: "train", Type: "batch", Gang: model.GangJob, Groups: []model.TaskGroup{group}},
	}}
	for i := range n {
		c.add(i, i)
	}
	return c
}

// add places member i on a node.
func (c *cluster) add(i, node int) {
	id := fmt.Sprintf("alloc-%d-on-%d", i, node)
	a := &api.AllocationListStub{ID: id, Name: fmt.Sprintf("train.w[%d]", i), Namespace: "ml", JobID: "train", TaskGroup: "w",
		NodeID: fmt.Sprintf("node-%d", node), NodeName: fmt.Sprintf("n%d", node), DesiredStatus: "run", ClientStatus: "running",
		AllocatedResources: &api.AllocatedResources{Tasks: map[string]*api.AllocatedTaskResources{"rank": {Devices: []*api.AllocatedDeviceResource{{DeviceIDs: gpus(node)}}}}}}
	c.job.Allocs = append(c.job.Allocs, a)
	c.members = append(c.members, observe.MemberState{
		Member: model.Member{Group: "w", Index: i, Rank: i, Node: a.NodeID, GPUs: gpus(node)}, Alloc: a, State: observe.AllocPlaced,
	})
}

// record changes the job's record for the views to come.
func (c *cluster) record(change func(*record.Record)) {
	rec := *c.job.Record
	change(&rec)
	c.job.Record = &rec
}

// release leaves the job to Nomad, which has it as its author wrote it.
func (c *cluster) release() {
	c.record(func(rec *record.Record) { rec.Phase, rec.Members = record.PhaseReleased, nil })
	c.job.Current = c.job.Record.Original
}

// alloc changes an allocation for the views to come.
func (c *cluster) alloc(i int, change func(*api.AllocationListStub)) {
	old := c.job.Allocs[i]
	next := *old
	change(&next)
	c.job.Allocs = append([]*api.AllocationListStub(nil), c.job.Allocs...)
	c.job.Allocs[i] = &next
	for k := range c.members {
		if c.members[k].Alloc == old {
			c.members[k].Alloc = &next
		}
	}
}

func (c *cluster) view() *observe.View {
	job := *c.job
	job.Members = append([]observe.MemberState(nil), c.members...)
	v := &observe.View{Taken: c.now(), Managed: []observe.Managed{job}, Snapshot: &model.Snapshot{Levels: []string{"rack"}}}
	for i := range 10 {
		v.Nodes = append(v.Nodes, observe.NodeRef{ID: fmt.Sprintf("node-%d", i), Name: fmt.Sprintf("n%d", i), Levels: map[string]string{"rack": fmt.Sprintf("r%d", i/4)}})
	}
	return v
}

// rig is a service with its surroundings.
type rig struct {
	t       *testing.T
	docs    *documents
	cluster *cluster
	service *barrier.Service
	end     context.CancelFunc
	term    context.Context
	unfit   []barrier.Unfit
	told    *told
	mu      sync.Mutex
}

func newRig(t *testing.T, n int, meta map[string]string) *rig {
	t.Helper()
	r := &rig{t: t, docs: newDocuments(), cluster: newCluster(n, meta, time.Now)}
	r.lead()
	return r
}

// lead lets another planner take over.
func (r *rig) lead() {
	r.t.Helper()
	if r.end != nil {
		r.end()
		if err := r.service.Update(r.t.Context(), nil, nil); err != nil {
			r.t.Fatal(err)
		}
	}
	r.term, r.end = context.WithCancel(r.t.Context())
	r.t.Cleanup(r.end)
	r.told = new(told)
	r.service = barrier.NewService(barrier.Options{Documents: r.docs, Now: time.Now, Watch: r.told.watch(), Unfit: func(u barrier.Unfit) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.unfit = append(r.unfit, u)
	}})
	r.update()
}

func (r *rig) update() {
	r.t.Helper()
	time.Sleep(time.Millisecond) // of the bubble's clock: the view is newer than what was asked
	if err := r.service.Update(r.t.Context(), r.term, r.cluster.view()); err != nil {
		r.t.Fatal(err)
	}
}

// person is a member's supervisor.
type person struct {
	rig  *rig
	who  identity.Claims
	join gangapi.JoinRequest
	seen int64
	m    *rendezvous.Membership
}

func (r *rig) member(i, node int) *person {
	return &person{
		rig: r, who: identity.Claims{Namespace: "ml", Job: "train", Alloc: fmt.Sprintf("alloc-%d-on-%d", i, node), Task: "rank"},
		join: gangapi.JoinRequest{Run: fmt.Sprintf("run-%d", i), Attempt: 1, WaitMS: 10_000, Address: fmt.Sprintf("10.0.0.%d", node+1), Port: 29500 + node, GPUs: gpus(node)},
	}
}

// ask is one poll.
func (p *person) ask() (gangapi.JoinAnswer, error) {
	reply, err := p.rig.service.Join(p.rig.t.Context(), p.who, p.join)
	return whole(p.rig.t, reply), err
}

// whole puts an answer together as a client reads it.
func whole(t *testing.T, reply barrier.Reply[gangapi.JoinAnswer]) gangapi.JoinAnswer {
	t.Helper()
	if reply.Tail == nil {
		return reply.Answer
	}
	m, err := rendezvous.Decode([]byte(strings.TrimSuffix(strings.TrimPrefix(string(reply.Tail.Plain), `,"membership":`), "}")))
	if err != nil {
		t.Errorf("membership: %v", err)
	}
	reply.Answer.Membership = &m
	return reply.Answer
}

// started is when a member starts, and with whom.
type started struct {
	at time.Time
	gangapi.JoinAnswer
}

// wait polls until there is something else than to wait.
func (p *person) wait() started {
	for {
		a, err := p.ask()
		if errors.Is(err, context.Canceled) {
			return started{}
		}
		if err != nil && !errors.Is(err, barrier.ErrNotLeading) {
			p.rig.t.Errorf("join: %v", err)
			return started{}
		}
		if err == nil && a.State != gangapi.JoinWaiting {
			p.m = a.Membership
			return started{time.Now().Add(time.Duration(a.StartInMS) * time.Millisecond), a}
		}
	}
}

// report is one report that does not wait unless it is told to.
func (p *person) report(state gangapi.MemberState, change func(*gangapi.ReportRequest)) gangapi.ReportAnswer {
	p.rig.t.Helper()
	req := gangapi.ReportRequest{Run: p.join.Run, State: state, Seen: p.seen}
	if p.m != nil {
		req.Epoch, req.Generation = p.m.Epoch, p.m.Generation
	}
	if change != nil {
		change(&req)
	}
	reply, err := p.rig.service.Report(p.rig.t.Context(), p.who, req)
	if err != nil {
		p.rig.t.Errorf("report: %v", err)
		return gangapi.ReportAnswer{}
	}
	if reply.Tail != nil {
		m, err := rendezvous.Decode([]byte(strings.TrimSuffix(strings.TrimPrefix(string(reply.Tail.Plain), `,"membership":`), "}")))
		if err != nil {
			p.rig.t.Errorf("membership: %v", err)
		}
		reply.Answer.Membership, p.m = &m, &m
	}
	if o := reply.Answer.Order; o != nil {
		p.seen = o.Sequence
	}
	return reply.Answer
}

func exits(code int) func(*gangapi.ReportRequest) {
	return func(r *gangapi.ReportRequest) { r.Exit = &gangapi.Exit{Code: code, RanMS: 61_000} }
}

// together lets all wait at once, and returns what they were told.
func together(people ...*person) []started {
	out := make([]started, len(people))
	var wg sync.WaitGroup
	for i, p := range people {
		wg.Go(func() { out[i] = p.wait() })
	}
	wg.Wait()
	return out
}

func (r *rig) people(n int) []*person {
	var out []*person
	for i := range n {
		out = append(out, r.member(i, i))
	}
	return out
}

// begin lets a gang start.
func (r *rig) begin(n int) []*person {
	r.t.Helper()
	people := r.people(n)
	for _, s := range together(people...) {
		if s.State != gangapi.JoinStart {
			r.t.Fatalf("a member was told %+v", s.JoinAnswer)
		}
	}
	return people
}
