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
	List(ctx context.Context) ([]record.Document, error)
	Get(ctx context.Context, names ...string) (record.Document, error)
	Put(ctx context.Context, index uint64, doc []byte, names ...string) (uint64, error)
	Delete(ctx context.Context, names ...string) error
}

// kind is what runs of one job have in common.
type kind struct{ namespace, name string }

func kindOf(j *model.Job) kind { return kind{j.Namespace, gangspec.Recurring(j.ID)} }

// learned is what is known of a kind; the rest is about keeping it.
type learned struct {
	Namespace string      `json:"namespace"`
	Name      string      `json:"name"`
	At        time.Time   `json:"at"` // of the last measurement
	Tally     speed.Tally `json:"tally"`

	index uint64
	// samples is what was shown last, and version counts how often that changed.
	samples []model.SpeedSample
	version int
	unsaved bool
	saved   time.Time
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
		l := &learned{index: doc.Index}
		if json.Unmarshal(doc.JSON, l) != nil || l.Name == "" {
			continue // it is written anew when something is learned
		}
		l.Tally.Clean()
		l.samples = l.Tally.Samples()
		s.kinds[kind{l.Namespace, l.Name}] = l
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
		if l == nil || len(l.Tally.Configs) == 0 {
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
	out := &model.Speed{Unit: l.Tally.Unit, Samples: slices.Clone(l.samples), NoiseScale: l.Tally.NoiseScale}
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
		l = &learned{Namespace: k.namespace, Name: k.name}
	}
	if !l.Tally.Add(m) {
		return
	}
	s.kinds[k] = l
	l.At, l.unsaved = now, true
	if samples := l.Tally.Samples(); !samePace(l.samples, samples) {
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
		if l.unsaved && now.Sub(l.saved) >= learnEvery {
			due = append(due, l)
		}
	}
	slices.SortFunc(due, func(a, b *learned) int { return a.At.Compare(b.At) })
	var faults []error
	for _, l := range due[:min(len(due), maxSaves)] {
		if err := s.put(ctx, l, now); err != nil {
			faults = append(faults, err)
		}
	}
	if err := s.dropOldest(ctx); err != nil {
		faults = append(faults, err)
	}
	if err := errors.Join(faults...); err != nil {
		return fmt.Errorf("write what is known of speeds: %w", err)
	}
	return nil
}

func (s *speeds) put(ctx context.Context, l *learned, now time.Time) error {
	doc, err := json.Marshal(l)
	if err != nil {
		return err
	}
	index, err := s.store.Put(ctx, l.index, doc, l.Namespace, l.Name)
	if errors.Is(err, record.ErrConflict) {
		// Somebody else has written it. What this planner measures is as good, and
		// goes over it the next time.
		theirs, found := s.store.Get(ctx, l.Namespace, l.Name)
		if found == nil || errors.Is(found, record.ErrDamaged) {
			l.index = theirs.Index
		} else if errors.Is(found, record.ErrNotFound) {
			l.index = 0
		}
		return err
	}
	if err != nil {
		return err
	}
	l.index, l.saved, l.unsaved = index, now, false
	return nil
}

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
	slices.SortFunc(all, func(a, b *learned) int { return a.At.Compare(b.At) })
	for _, l := range all[:min(len(all)-maxKinds, maxSaves)] {
		if l.index != 0 {
			if err := s.store.Delete(ctx, l.Namespace, l.Name); err != nil {
				return err
			}
		}
		delete(s.kinds, kind{l.Namespace, l.Name})
	}
	return nil
}
