package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/caravan-sched/caravan/planner/barrier"
	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/core/speed"
	"github.com/caravan-sched/caravan/planner/gangspec"
	"github.com/caravan-sched/caravan/planner/httpapi"
	"github.com/caravan-sched/caravan/planner/observe"
	"github.com/caravan-sched/caravan/planner/record"
)

// speeds is what is learned of how fast jobs work. Runs of one job share it, and
// it is kept where another planner finds it.
type speeds struct {
	store tallies

	mu     sync.Mutex
	loaded bool
	kinds  map[kind]*learned
	meters map[jobKey]*meter
	shown  map[jobKey]shownSpeed
}

// tallies keeps what is learned, a document for each kind of job.
type tallies interface {
	documents
	List(ctx context.Context) ([]record.Document, error)
	Delete(ctx context.Context, names ...string) error
}

// kind is what runs of one job have in common.
type kind struct{ namespace, name string }

func kindOf(j *model.Job) kind { return kind{j.Namespace, gangspec.Recurring(j.ID)} }

// tallied is what is kept of a kind.
type tallied struct {
	Namespace string      `json:"namespace"`
	Name      string      `json:"name"`
	At        time.Time   `json:"at"` // of the last measurement
	Tally     speed.Tally `json:"tally"`
}

// learned is what is known of a kind.
type learned struct {
	kept kept[tallied]
	// samples is what was shown last, and version counts how often that changed.
	samples []model.SpeedSample
	version int
}

// keep is for a kind of which nothing is stored yet. What this planner measures is as
// good as what another one did.
func (s *speeds) keep(k kind) *learned {
	return &learned{kept: kept[tallied]{store: s.store, names: []string{k.namespace, k.name}, about: "what is known of speeds",
		every: learnEvery, encode: func(t *tallied) ([]byte, error) { return json.Marshal(t) }, decode: decodeTallied,
		wins: true, is: tallied{Namespace: k.namespace, Name: k.name}, loaded: true}}
}

func decodeTallied(doc []byte) (*tallied, error) {
	t := new(tallied)
	if err := json.Unmarshal(doc, t); err != nil {
		return nil, fmt.Errorf("decode what is known of speeds: %w", err)
	}
	if t.Name == "" {
		return nil, errors.New("decode what is known of speeds: it names no job")
	}
	t.Tally.Clean()
	return t, nil
}

// shownSpeed is what a snapshot was given of a job. As long as nothing changes it
// is the same in each, so that what is made of it can be kept.
type shownSpeed struct {
	declared *model.Speed
	version  int
	of       *learned
	is       *model.Speed
}

// How what is learned is kept.
const (
	// learnEvery is how seldom one kind is written, and maxSaves how many are
	// written in one look.
	learnEvery = 5 * time.Minute
	maxSaves   = 16
	// maxKinds is of how many kinds something is kept; the one that was measured
	// longest ago goes.
	maxKinds = 1024
)

// forget is for a planner that does not lead: another one measures.
func (s *speeds) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.loaded, s.kinds, s.meters, s.shown = false, nil, nil, nil
}

// load reads what another planner, or this one, has learned.
func (s *speeds) load(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.loaded {
		return nil
	}
	docs, err := s.store.List(ctx)
	if err != nil {
		return fmt.Errorf("read what is known of speeds: %w", err)
	}
	s.kinds, s.meters, s.shown = map[kind]*learned{}, map[jobKey]*meter{}, map[jobKey]shownSpeed{}
	for _, doc := range docs {
		is, err := decodeTallied(doc.JSON)
		if err != nil {
			continue // it is written anew when something is learned
		}
		k := kind{is.Namespace, is.Name}
		l := s.keep(k)
		l.kept.is, l.kept.index, l.samples = *is, doc.Index, is.Tally.Samples()
		s.kinds[k] = l
	}
	s.loaded = true
	return nil
}

// learn measures the gangs that run, and gives the snapshot's jobs what is known of
// their speed. The view itself stays as it is.
func (s *speeds) learn(v *observe.View, works map[string]barrier.Work, now time.Time) *observe.View {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.loaded {
		return v
	}
	s.measure(v, works, now)
	if len(s.kinds) == 0 {
		return v
	}
	out, snap := *v, *v.Snapshot
	snap.Jobs = slices.Clone(snap.Jobs)
	out.Snapshot = &snap
	changed := false
	shown := make(map[jobKey]shownSpeed, len(s.shown))
	for i := range snap.Jobs {
		j := &snap.Jobs[i]
		l := s.kinds[kindOf(j)]
		if l == nil || len(l.kept.is.Tally.Configs) == 0 {
			continue
		}
		key := jobKey{j.Namespace, j.ID}
		known := s.shown[key]
		if known.of != l || known.version != l.version || known.declared != j.Speed {
			known = shownSpeed{declared: j.Speed, version: l.version, of: l, is: l.with(j.Speed)}
		}
		shown[key], j.Speed, changed = known, known.is, true
	}
	s.shown = shown
	if !changed {
		return v
	}
	return &out
}

// of is what is known of a job's speed; nil for nothing.
func (s *speeds) of(j *model.Job) *model.Speed {
	s.mu.Lock()
	defer s.mu.Unlock()
	if shown, ok := s.shown[jobKey{j.Namespace, j.ID}]; ok {
		return shown.is
	}
	return j.Speed
}

// Speed is what is known of how fast a job works.
func (b backend) Speed(namespace, job string) *httpapi.Speed {
	v := b.d.view.Load()
	if v == nil {
		return nil
	}
	m, ok := v.Job(namespace, job)
	if !ok {
		return nil
	}
	j := m.Model
	j.Speed = b.d.speeds.of(&j)
	return httpapi.SpeedOf(&j)
}

// with is what is known of a job that declares so much itself.
func (l *learned) with(declared *model.Speed) *model.Speed {
	out := &model.Speed{Unit: l.kept.is.Tally.Unit, Samples: slices.Clone(l.samples), NoiseScale: l.kept.is.Tally.NoiseScale}
	if declared != nil {
		out.Declared = declared.Declared
	}
	return out
}

// measure goes through the gangs that run.
func (s *speeds) measure(v *observe.View, works map[string]barrier.Work, now time.Time) {
	if len(works) == 0 {
		s.meters = nil
		return
	}
	nodes := make(map[string]*model.Node, len(v.Snapshot.Nodes))
	for i := range v.Snapshot.Nodes {
		nodes[v.Snapshot.Nodes[i].ID] = &v.Snapshot.Nodes[i]
	}
	meters := make(map[jobKey]*meter, len(s.meters))
	for i := range v.Managed {
		m := &v.Managed[i]
		allocs := measurable(m, works)
		if allocs == nil {
			continue
		}
		config, ok := speed.Where(v.Snapshot.Levels, func(id string) *model.Node { return nodes[id] }, m.Model.Members)
		if !ok {
			continue
		}
		key, place := jobKey{m.Namespace, m.ID}, strings.Join(allocs, " ")
		gauge := s.meters[key]
		if gauge == nil || gauge.place != place || gauge.config != config {
			gauge = newMeter(place, config, now)
		}
		meters[key] = gauge
		if got, done := gauge.measure(allocs, works, now); done {
			s.take(kindOf(&m.Model), got, now)
		}
	}
	s.meters = meters
}

// measurable are the allocations of a job that is one gang, all of which run and
// one of which at least tells how far it is; nil of any other.
func measurable(m *observe.Managed, works map[string]barrier.Work) []string {
	j := &m.Model
	one := j.Gang == model.GangJob || len(j.Groups) == 1 && (j.Gang == model.GangGroup || j.Groups[0].Count == 1)
	if !one || j.State != model.StateRunning || len(m.Members) != len(j.Members) || m.Record == nil || m.Record.Rollout != nil {
		return nil
	}
	var out []string
	told := false
	for k := range m.Members {
		switch a := m.Members[k].Alloc; {
		case j.Members[k].Ended:
		case a == nil || m.Members[k].State != observe.AllocPlaced:
			return nil
		default:
			out = append(out, a.ID)
			told = told || works[a.ID].Progress != nil
		}
	}
	if !told {
		return nil
	}
	return out
}

// take adds a measurement.
func (s *speeds) take(k kind, m speed.Measured, now time.Time) {
	l := s.kinds[k]
	if l == nil {
		l = s.keep(k)
	}
	tally := &l.kept.is.Tally
	if !tally.Add(m) {
		return
	}
	s.kinds[k] = l
	l.kept.is.At, l.kept.fresh = now, true
	if samples := tally.Samples(); !samePace(l.samples, samples) {
		l.samples = samples
		l.version++
	}
}

// samePace reports whether two lists of samples say the same for all purposes: a
// decision is not to be made anew, nor a curve fitted, for each measurement.
func samePace(a, b []model.SpeedSample) bool {
	near := func(x, y, part float64) bool { return math.Abs(x-y) <= part*max(x, y) }
	for i := range b {
		s := &b[i]
		at := slices.IndexFunc(a, func(o model.SpeedSample) bool {
			return o.Members == s.Members && o.GPUs == s.GPUs && o.Model == s.Model && o.Level == s.Level && near(o.Batch, s.Batch, 0.05)
		})
		if at < 0 {
			return false
		}
		o := &a[at]
		few := s.Count <= speed.Window && 2*s.Count >= 3*o.Count
		if few || !near(o.Rate, s.Rate, 0.01) || math.Abs(o.Spread-s.Spread) > 0.01+s.Spread/4 ||
			!near(o.FetchS, s.FetchS, 0.05) || !near(o.PrepareS, s.PrepareS, 0.05) || !near(o.ComputeS, s.ComputeS, 0.05) {
			return false
		}
	}
	return len(a) == len(b)
}

// save writes what was learned, as far as that is due.
func (s *speeds) save(ctx context.Context, now time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.loaded {
		return nil
	}
	var due []*learned
	for _, l := range s.kinds {
		if l.kept.due(now) {
			due = append(due, l)
		}
	}
	slices.SortFunc(due, longestAgo)
	var faults []error
	for _, l := range due[:min(len(due), maxSaves)] {
		if _, err := l.kept.load(ctx); err != nil { // after a conflict
			faults = append(faults, err)
			continue
		}
		if err := l.kept.save(ctx, now); err != nil {
			faults = append(faults, err)
		}
	}
	if err := s.dropOldest(ctx); err != nil {
		faults = append(faults, fmt.Errorf("forget what is known of speeds: %w", err))
	}
	return errors.Join(faults...)
}

// longestAgo has those first that were measured longest ago.
func longestAgo(a, b *learned) int { return a.kept.is.At.Compare(b.kept.is.At) }

// dropOldest forgets the kinds that nothing was learned of for longest, if there
// are too many.
func (s *speeds) dropOldest(ctx context.Context) error {
	if len(s.kinds) <= maxKinds {
		return nil
	}
	all := make([]*learned, 0, len(s.kinds))
	for _, l := range s.kinds {
		all = append(all, l)
	}
	slices.SortFunc(all, longestAgo)
	for _, l := range all[:min(len(all)-maxKinds, maxSaves)] {
		if l.kept.index != 0 {
			if err := s.store.Delete(ctx, l.kept.names...); err != nil {
				return err
			}
		}
		delete(s.kinds, kind{l.kept.is.Namespace, l.kept.is.Name})
	}
	return nil
}
