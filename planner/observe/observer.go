package observe

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v5"
	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/planner/config"
	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/record"
)

// Options are what an Observer needs.
type Options struct {
	Client  *api.Client
	Records Records
	Config  *config.Config
	// Region is the Nomad region that Client reads, where several are planned for
	// as one: the nodes' outermost level then. "" leaves the level to the nodes.
	Region string
	// Now is the clock; nil is time.Now.
	Now func() time.Time
	// Queues are the queues at a time, with what they have used; nil: those of
	// Config.
	Queues func(time.Time) []model.Queue
	// Reservations are those that count at a time; nil: those of Config.
	Reservations func(time.Time) []model.Reservation
	// Estimate notes in a job how long others like it have run; nil: nobody
	// knows. History is what is known of jobs that have ended; nil: nothing.
	Estimate func(*model.Job)
	History  func() model.History
	// Burst is where nodes can be bought and what has been, at a time; nil: nowhere.
	Burst func(time.Time) model.Burst
}

// Observer reads Nomad and keeps what it read, so that the next View costs
// only what has changed.
type Observer struct {
	src     nomad
	records Records
	managed config.Managed
	levels  []config.Level
	// levelNames are what a job's contract may name.
	levelNames []string
	// regions are what is known of regions.
	regions  []model.Region
	now      func() time.Time
	queues   func(time.Time) []model.Queue
	apart    func(time.Time) []model.Reservation
	estimate func(*model.Job)
	history  func() model.History
	burst    func(time.Time) model.Burst

	// mu lets one Refresh at a time.
	mu     sync.Mutex
	nodes  nodeWatch
	reader nodeReader
	state  *state
	// refused: Nomad has refused something since the rights were looked at.
	refused bool
}

// New returns an observer that has seen nothing yet.
func New(opts Options) *Observer {
	now := opts.Now
	if now == nil {
		now = time.Now
	}
	apart := opts.Reservations
	if apart == nil {
		apart = func(time.Time) []model.Reservation { return opts.Config.Reservations }
	}
	queues := opts.Queues
	if queues == nil {
		queues = func(time.Time) []model.Queue { return opts.Config.Queues }
	}
	estimate, history := opts.Estimate, opts.History
	if estimate == nil {
		estimate = func(*model.Job) {}
	}
	if history == nil {
		history = func() model.History { return model.History{} }
	}
	burst := opts.Burst
	if burst == nil {
		burst = func(time.Time) model.Burst { return model.Burst{} }
	}
	return &Observer{
		burst:      burst,
		queues:     queues,
		apart:      apart,
		estimate:   estimate,
		history:    history,
		src:        nomad{client: opts.Client, stateNamespace: opts.Config.State.Namespace},
		records:    opts.Records,
		managed:    opts.Config.Managed,
		levels:     opts.Config.Levels,
		levelNames: opts.Config.LevelNames(),
		regions:    opts.Config.Regions,
		now:        now,
		reader: nodeReader{
			levels: opts.Config.Levels, levelNames: opts.Config.LevelNames(), devices: opts.Config.Managed.Devices,
			topology: opts.Config.Topology, region: opts.Region, words: map[string]string{},
		},
		state: &state{},
	}
}

// Refresh returns a View that has everything that was written to Nomad before
// the call. On an error there is no View, and what was known stays.
func (o *Observer) Refresh(ctx context.Context) (*View, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	next, err := o.read(ctx, o.state, o.nodes.look(o.now()))
	o.refused = errors.Is(err, ErrDenied)
	if err != nil {
		o.nodes.failed()
		return nil, err
	}
	o.state = next
	return o.view(next), nil
}

// The waits of Watch after an error.
const (
	minRetry = 200 * time.Millisecond
	maxRetry = 15 * time.Second
)

// Watch calls wake whenever something changed in Nomad that a View shows,
// until ctx ends. It reports nothing else: an error here shows at the next
// Refresh too.
func (o *Observer) Watch(ctx context.Context, wake func()) {
	var wg sync.WaitGroup
	for p := range parts {
		wg.Go(func() { o.watch(ctx, p, wake) })
	}
	wg.Wait()
}

func (o *Observer) watch(ctx context.Context, p part, wake func()) {
	wait := backoff.NewExponentialBackOff()
	wait.InitialInterval, wait.MaxInterval = minRetry, maxRetry
	var seen uint64
	if p == partNodes {
		defer o.nodes.broke()
	}
	for ctx.Err() == nil {
		index, err := o.src.index(ctx, p, seen)
		if err != nil {
			seen = 0
			if p == partNodes {
				o.nodes.broke()
			}
			select {
			case <-ctx.Done():
			case <-time.After(wait.NextBackOff()):
			}
			continue
		}
		wait.Reset()
		if p == partNodes {
			o.nodes.answered(index != seen, o.now())
		}
		if index != seen {
			wake()
		}
		// Zero would not block, and an index that runs backwards is another
		// cluster's or a restored one's.
		seen = max(index, 1)
	}
}

// view puts together what the state holds.
func (o *Observer) view(st *state) *View {
	v := &View{
		Taken: o.now().UTC(), Index: slices.Max(st.index[:]),
		LevelMeta:    map[string]string{},
		PreemptionOn: st.preemption,
		Unseen:       st.unseen, ACLsOff: st.aclsOff,
		Devices: slices.Clone(o.managed.Devices),
	}
	snap := &model.Snapshot{Version: model.SnapshotVersion, Now: v.Taken, Regions: o.regions}
	for _, l := range o.levels {
		snap.Levels = append(snap.Levels, l.Name)
		v.LevelMeta[l.Name] = l.Meta
	}
	snap.Nodes = make([]model.Node, 0, len(st.nodes))
	v.Nodes = make([]NodeRef, 0, len(st.nodes))
	for _, id := range slices.Sorted(maps.Keys(st.nodes)) {
		e := st.nodes[id]
		snap.Nodes = append(snap.Nodes, e.model)
		v.Nodes = append(v.Nodes, e.ref)
		v.Warnings = append(v.Warnings, e.warnings...)
	}
	owner, twice := soundGPUs(snap.Nodes, st)
	v.Warnings = append(v.Warnings, twice...)
	var allocs []model.Alloc
	allocs, v.FenceEnds = st.allocModels(v.Taken)
	snap.Allocs, twice = soundAllocs(allocs, owner, st)
	v.Warnings = append(v.Warnings, twice...)
	o.addJobs(v, snap, st, owner)
	v.Warnings = append(v.Warnings, o.warnings(st)...)
	snap.Queues, snap.History = o.queues(v.Taken), o.history()
	snap.Reservations, snap.Burst = o.apart(v.Taken), o.burst(v.Taken)
	placeBought(v, snap)
	v.Warnings = append(v.Warnings, soundBought(snap, st)...)
	v.Warnings = append(v.Warnings, queueWarnings(snap)...)
	v.Snapshot = snap
	return v
}

func (o *Observer) addJobs(v *View, snap *model.Snapshot, st *state, owner map[string]string) {
	type found struct {
		m          Managed
		inSnapshot bool
	}
	var all []found
	for key, e := range st.jobs {
		rec := st.records[key]
		marked := e.gated || e.pinned
		switch {
		case e.managed || rec != nil && marked:
		case rec != nil:
			// It is exempt now and was submitted again, so it is Nomad's alone.
			v.Orphans = append(v.Orphans, rec)
			continue
		case marked:
			v.Strays = append(v.Strays, Stray{Namespace: key.namespace, ID: key.id, Gated: e.gated})
			continue
		default:
			continue
		}
		m, in := o.manage(e, rec, st.allocsByJob[key], st, owner)
		all = append(all, found{m, in})
	}
	slices.SortFunc(all, func(a, b found) int {
		return cmp.Or(a.m.Model.Submitted.Compare(b.m.Model.Submitted),
			strings.Compare(a.m.Namespace, b.m.Namespace), strings.Compare(a.m.ID, b.m.ID))
	})
	for _, f := range all {
		v.Managed = append(v.Managed, f.m)
		if f.inSnapshot {
			snap.Jobs = append(snap.Jobs, f.m.Model)
		}
		if beside, ok := canaryJob(&f.m); ok {
			soundMembers(&beside, st, owner)
			snap.Jobs = append(snap.Jobs, beside)
			nameCanaries(snap.Allocs, &f.m)
		}
	}
	slices.SortFunc(v.Strays, func(a, b Stray) int {
		return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.ID, b.ID))
	})
	for _, s := range v.Strays {
		if s.Gated {
			v.Warnings = append(v.Warnings, Warning{Subject: fmt.Sprintf("job %s in namespace %s", s.ID, s.Namespace), Text: "it is gated and Caravan does not manage it, so it waits for ever; submit it again without the gate"})
		}
	}
	for key, rec := range st.records {
		// What is hidden is not gone.
		if st.jobs[key] == nil && len(st.unseen) == 0 {
			v.Orphans = append(v.Orphans, rec)
		}
	}
	slices.SortFunc(v.Orphans, func(a, b *record.Record) int {
		return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.JobID, b.JobID))
	})
}

// warnings are those about the cluster as a whole.
func (o *Observer) warnings(st *state) []Warning {
	var out []Warning
	for _, u := range st.unseen {
		out = append(out, u.warning())
	}
	for _, kind := range []string{api.JobTypeBatch, api.JobTypeService} {
		if st.preemption[kind] {
			out = append(out, Warning{Subject: "scheduler configuration", Text: fmt.Sprintf(
				"Nomad's own preemption is on for %s jobs: gangs of that type are not admitted; turn it off with nomad operator scheduler set-config -preempt-%s-scheduler=false", kind, kind)})
		}
	}
	if st.rejectJobs {
		out = append(out, Warning{Subject: "scheduler configuration", Text: "Nomad rejects job registrations, so nothing can be admitted unless the planner's token is a management token"})
	}
	if st.pausedBroker {
		out = append(out, Warning{Subject: "scheduler configuration", Text: "Nomad's evaluation broker is paused: what is admitted will not be placed"})
	}
	if st.damaged != "" {
		out = append(out, Warning{Subject: "records", Text: st.damaged + "; those jobs count as never seen: delete the Variables named and submit the jobs again"})
	}
	return append(out, o.topologyWarnings(st)...)
}

// topologyWarnings names the entries of the topology file that no node, or
// more than one, answers to.
func (o *Observer) topologyWarnings(st *state) []Warning {
	t := o.reader.topology
	if t == nil {
		return nil
	}
	count := map[string]int{}
	for id, e := range st.nodes {
		count[id]++
		if e.model.Name != id {
			count[e.model.Name]++
		}
	}
	var out []Warning
	for _, name := range t.Names() {
		place := fmt.Sprintf("%s:%d", t.Path, t.Places[name].Line)
		switch n := count[name]; {
		case n == 0:
			out = append(out, Warning{Subject: "topology file", Text: fmt.Sprintf("%s: Nomad knows no node %q; correct the name, or leave it until the node has joined", place, name)})
		case n > 1:
			out = append(out, Warning{Subject: "topology file", Text: fmt.Sprintf("%s: %d nodes are named %q and all count as listed here; use their IDs", place, n, name)})
		}
	}
	return out
}

// errNoIndex: every answer of Nomad's carries an index.
var errNoIndex = errors.New("the answer has no X-Nomad-Index; check that the address is Nomad's")
