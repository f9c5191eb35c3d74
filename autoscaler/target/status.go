package target

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hashicorp/nomad-autoscaler/plugins/shared"
	"github.com/hashicorp/nomad-autoscaler/sdk"

	"github.com/caravan-sched/caravan/autoscaler/terraform"
)

// reading is one look at a pool, for all calls of Status that wait for it.
type reading struct {
	done   chan struct{}
	status *sdk.TargetStatus
}

// Status implements the autoscaler's target interface. The autoscaler gives it three
// quarters of the evaluation interval, and never starts a policy whose first Status
// fails. So only a configuration that cannot be used is an error; whatever may pass
// by itself is a target that is not ready, with the reason in the log and the meta.
func (p *Plugin) Status(config map[string]string) (*sdk.TargetStatus, error) {
	j, err := p.begin(config)
	if err != nil {
		return nil, fmt.Errorf("status: %w", err)
	}
	budget := j.dir.Config().PlanLimit
	if d, err := time.ParseDuration(config[shared.PluginConfigKeyGRPCTimeout]); err == nil {
		budget = min(budget, d*4/5)
	}
	r := p.read(j)
	timer := time.NewTimer(budget)
	defer timer.Stop()
	select {
	case <-r.done:
		return r.status, nil
	case <-timer.C:
		return &sdk.TargetStatus{Meta: map[string]string{MetaWhy: "the state is still being read: a longer evaluation_interval gives it more time"}}, nil
	}
}

// read joins the look that is under way, or begins one.
func (p *Plugin) read(j *job) *reading {
	w := j.worker
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.reading != nil {
		return w.reading
	}
	r := &reading{done: make(chan struct{})}
	w.reading = r
	p.tidying.Go(func() {
		ctx, cancel := context.WithTimeout(context.Background(), j.dir.Config().PlanLimit)
		defer cancel()
		status, err := p.examine(ctx, j)
		if err != nil {
			status = &sdk.TargetStatus{Meta: map[string]string{MetaWhy: err.Error()}}
			if !errors.Is(err, terraform.ErrBusy) {
				j.log.Error("the pool cannot be read; it is not scaled", "error", err)
			}
		}
		r.status = status
		w.mu.Lock()
		w.reading = nil
		w.mu.Unlock()
		close(r.done)
	})
	return r
}

// examine looks at the pool, and starts what is to be finished.
func (p *Plugin) examine(ctx context.Context, j *job) (*sdk.TargetStatus, error) {
	if err := j.leader(ctx); err != nil {
		return nil, err
	}
	see, err := j.look(ctx, j.dir.Nodes)
	if err != nil {
		return nil, err
	}
	status := &sdk.TargetStatus{Ready: true, Count: int64(see.ready()), Meta: see.meta()}
	j.worker.mu.Lock()
	if j.worker.why != "" {
		status.Meta[MetaWhy] = j.worker.why
	}
	j.worker.mu.Unlock()
	if !j.worker.pass.TryLock() {
		status.Ready = false
		return status, nil
	}
	j.worker.pass.Unlock()
	interrupted, err := j.dir.Interrupted()
	if err != nil {
		j.log.Warn("whether an apply was interrupted is not known", "error", err)
	}
	if !j.dryRun && (interrupted != nil || see.unsettled(j.planner != nil) || see.doubtful(p.now(), j.pool.JoinTimeout) || j.misses(ctx, see)) {
		p.tidy(j)
	}
	return status, nil
}

// misses says whether nodes have vanished of which the planner is to be told. Where it
// cannot be asked there is nobody to tell.
func (j *job) misses(ctx context.Context, see sight) bool {
	if j.planner == nil {
		return false
	}
	wants, err := j.wants(ctx)
	if err != nil {
		return false
	}
	in := input{planned: true, wants: wants}
	in.see(see)
	return len(in.vanished()) > 0
}

// tidy starts a pass that finishes what is under way.
func (p *Plugin) tidy(j *job) {
	j.worker.mu.Lock()
	defer j.worker.mu.Unlock()
	now := p.now()
	if now.Sub(j.worker.tidied) < j.settings.settle {
		return
	}
	j.worker.tidied = now
	p.tidying.Go(func() {
		_, err := j.pass(context.Background(), p.now, order{count: noCount})
		if err != nil && !errors.Is(err, errUnderWay) && !errors.Is(err, terraform.ErrBusy) {
			j.log.Error("what is under way could not be finished", "error", err)
		}
	})
}

// Wait returns when no pass is under way that Status has started.
func (p *Plugin) Wait() { p.tidying.Wait() }

// sight is what there is of a pool.
type sight struct {
	pool  string
	state terraform.State
	nodes map[string]machine
	notes map[string]note
	// doubts are nodes that an apply which was cut short may have made.
	doubts map[string]terraform.Doubt
}

// look reads the state, Nomad, and our notes.
func (j *job) look(ctx context.Context, state func(context.Context) (terraform.State, error)) (sight, error) {
	s := sight{pool: j.pool.Name, notes: map[string]note{}}
	var err error
	if s.state, err = state(ctx); err != nil {
		return s, err
	}
	bounded, cancel := context.WithTimeout(ctx, nomadLimit)
	defer cancel()
	if s.nodes, err = machines(bounded, j.nomad, j.pool); err != nil {
		return s, err
	}
	if _, err := j.dir.ReadNote(notesName, &s.notes); err != nil {
		j.log.Warn("what was noted of the nodes is lost; they have their time anew", "error", err)
		s.notes = map[string]note{}
	}
	if s.doubts, err = j.dir.Doubts(); err != nil {
		j.log.Warn("which nodes an apply that was cut short may have made is not known", "error", err)
	}
	return s, nil
}

func (s sight) ready() int {
	n := 0
	for name, node := range s.state {
		if !node.Tainted && s.nodes[name].Ready {
			n++
		}
	}
	return n
}

// unknown are nodes that say they belong to the pool, and Terraform does not know.
func (s sight) unknown() []string {
	var out []string
	for key, m := range s.nodes {
		if _, known := s.state[key]; !known && m.Lives {
			out = append(out, fmt.Sprintf("%s (%s)", key, m.ID))
		}
	}
	slices.Sort(out)
	return out
}

// unsettled says whether a pass would find something to finish.
func (s sight) unsettled(planned bool) bool {
	for name, node := range s.state {
		n, noted := s.notes[name]
		if node.Tainted || !noted || !s.nodes[name].Ready || !n.Joined || planned && n.Purchase != "" && !n.Told {
			return true
		}
	}
	return false
}

func (s sight) meta() map[string]string {
	m := map[string]string{MetaReady: strconv.Itoa(s.ready()), MetaComing: strconv.Itoa(len(s.state) - s.ready())}
	if u := s.unknown(); len(u) > 0 {
		m[MetaUnknown] = strings.Join(u, ", ")
	}
	if len(s.doubts) > 0 {
		m[MetaDoubt] = strings.Join(slices.Sorted(maps.Keys(s.doubts)), ", ")
	}
	var last time.Time
	for _, n := range s.notes {
		if n.Ordered.After(last) {
			last = n.Ordered
		}
	}
	if !last.IsZero() {
		m[sdk.TargetStatusMetaKeyLastEvent] = strconv.FormatInt(last.UnixNano(), 10)
	}
	return m
}
