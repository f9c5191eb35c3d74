package daemon

import (
	"context"
	"errors"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/driver/gangapi"
	"github.com/caravan-sched/caravan/planner/barrier"
	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/core/speed"
	"github.com/caravan-sched/caravan/planner/observe"
	"github.com/caravan-sched/caravan/planner/record"
)

// fakeTallies keeps documents by name.
type fakeTallies struct {
	docs   map[string]record.Document
	index  uint64
	writes int
	fail   error
}

func (f *fakeTallies) List(context.Context) ([]record.Document, error) {
	var out []record.Document
	for _, d := range f.docs {
		out = append(out, d)
	}
	return out, f.fail
}

func (f *fakeTallies) Get(_ context.Context, names ...string) (record.Document, error) {
	d, ok := f.docs[fmt.Sprint(names)]
	if !ok {
		return d, record.ErrNotFound
	}
	return d, f.fail
}

func (f *fakeTallies) Put(_ context.Context, index uint64, doc []byte, names ...string) (uint64, error) {
	if f.fail != nil {
		return 0, f.fail
	}
	if index != f.docs[fmt.Sprint(names)].Index {
		return 0, record.ErrConflict
	}
	f.index++
	f.writes++
	if f.docs == nil {
		f.docs = map[string]record.Document{}
	}
	f.docs[fmt.Sprint(names)] = record.Document{JSON: doc, Index: f.index}
	return f.index, nil
}

func (f *fakeTallies) Delete(_ context.Context, names ...string) error {
	delete(f.docs, fmt.Sprint(names))
	return f.fail
}

// speedRig is a gang of members on nodes of one GPU, and what they tell.
type speedRig struct {
	t      *testing.T
	speeds *speeds
	now    time.Time
	view   *observe.View
	works  map[string]barrier.Work
}

func newSpeedRig(t *testing.T, store tallies, id string, members int) *speedRig {
	r := &speedRig{t: t, speeds: &speeds{store: store}, now: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), works: map[string]barrier.Work{}}
	if err := r.speeds.load(context.Background()); err != nil {
		t.Fatal(err)
	}
	r.size(id, members)
	return r
}

// size gives the gang so many members.
func (r *speedRig) size(id string, members int) {
	job := model.Job{Namespace: "ml", ID: id, State: model.StateRunning, Gang: model.GangJob, Groups: []model.TaskGroup{{Name: "w", Count: members}}}
	snap := &model.Snapshot{Levels: []string{"rack"}}
	m := observe.Managed{Namespace: "ml", ID: id, Record: &record.Record{}}
	for i := range members {
		name := fmt.Sprint("n", i)
		snap.Nodes = append(snap.Nodes, model.Node{ID: name, Levels: map[string]string{"rack": "r"}, GPUs: []model.GPU{{UUID: "g-" + name, Model: "H100"}}})
		member := model.Member{Group: "w", Index: i, Node: name, GPUs: []string{"g-" + name}}
		job.Members = append(job.Members, member)
		m.Members = append(m.Members, observe.MemberState{Member: member, Alloc: &api.AllocationListStub{ID: fmt.Sprint("a", i)}, State: observe.AllocPlaced})
	}
	snap.Jobs, m.Model = []model.Job{job}, job
	r.view = &observe.View{Snapshot: snap, Managed: []observe.Managed{m}}
}

// run has all members work for a while at so many steps per second, and looks
// after each half minute. Change says what else they tell.
func (r *speedRig) run(long time.Duration, rate float64, change func(i int, w *barrier.Work)) *model.Speed {
	r.t.Helper()
	var out *observe.View
	for end := r.now.Add(long); r.now.Before(end); {
		r.now = r.now.Add(30 * time.Second)
		for i := range r.view.Snapshot.Jobs[0].Members {
			alloc := fmt.Sprint("a", i)
			step := new(int64)
			if was := r.works[alloc]; was.Step != nil {
				*step = *was.Step
			}
			*step += int64(math.Round(30 * rate))
			w := barrier.Work{Step: step, Running: true, Progress: &gangapi.Progress{At: r.now, Step: step}}
			if change != nil {
				change(i, &w)
			}
			r.works[alloc] = w
		}
		out = r.speeds.learn(r.view, r.works, r.now)
	}
	return out.Snapshot.Jobs[0].Speed
}

// A gang is measured every half minute once it has settled, by the steps of its
// members, at each of its sizes; the next run of the job starts with that.
func TestSpeedsAreLearned(t *testing.T) {
	store := &fakeTallies{}
	r := newSpeedRig(t, store, "train-2026-01-01", 2)
	if got := r.run(90*time.Second, 2, nil); got != nil {
		t.Errorf("while it settles: %+v", got)
	}
	two := model.SpeedSample{Members: 2, GPUs: 2, Model: "H100", Level: "rack", Rate: 2, Count: 5}
	got := r.run(150*time.Second, 2, nil)
	if diff := cmp.Diff(&model.Speed{Unit: model.UnitSteps, Samples: []model.SpeedSample{two}}, got); diff != "" {
		t.Errorf("two members (-want +got):\n%s", diff)
	}
	if r.view.Snapshot.Jobs[0].Speed != nil {
		t.Error("the view was changed that others read")
	}
	if again := r.speeds.learn(r.view, r.works, r.now); again.Snapshot.Jobs[0].Speed != got {
		t.Error("nothing is new, and the speed is another one")
	}
	r.size("train-2026-01-01", 4)
	if got := r.run(2*time.Minute, 3.5, nil); len(got.Samples) != 2 || got.Samples[1].Members != 4 || got.Samples[1].Rate != 3.5 || got.Samples[1].Count != 1 {
		t.Errorf("four members: %+v", got)
	}
	if err := r.speeds.save(context.Background(), r.now); err != nil || store.writes != 1 {
		t.Fatalf("%d writes, %v", store.writes, err)
	}
	r.run(time.Minute, 3.5, nil)
	if err := r.speeds.save(context.Background(), r.now); err != nil || store.writes != 1 {
		t.Errorf("a minute later: %d writes, %v", store.writes, err)
	}
	next := newSpeedRig(t, store, "train-2026-01-02", 2)
	next.view.Snapshot.Jobs[0].Speed = &model.Speed{Declared: []model.SpeedPoint{{Members: 1, Rate: 1}}}
	first := next.speeds.learn(next.view, nil, next.now).Snapshot.Jobs[0].Speed
	if len(first.Samples) != 2 || len(first.Declared) != 1 {
		t.Errorf("another planner, the next day's run: %+v", first)
	}
	if c := speed.New(first, nil).At(speed.Config{Members: 4, GPUs: 4, Model: "H100", Level: speed.Rack}); math.Abs(c.Rate-3.5) > 0.1 {
		t.Errorf("four members are said to do %+v", c)
	}
}

// What is told of a gang decides what is measured: samples before steps, and
// nothing of gangs that do not work as a whole.
func TestSpeedsMeasure(t *testing.T) {
	tells := func(every bool, x float64) func(int, *barrier.Work) {
		return func(i int, w *barrier.Work) {
			if i == 0 || every {
				w.Progress.Throughput = &x
			}
		}
	}
	tests := map[string]struct {
		change func(int, *barrier.Work)
		prior  func(*speedRig)
		want   *model.Speed
	}{
		"one tells for all":   {change: tells(false, 128), want: &model.Speed{Unit: "samples", Samples: []model.SpeedSample{{Rate: 128, Batch: 64}}}},
		"each tells its part": {change: tells(true, 64), want: &model.Speed{Unit: "samples", Samples: []model.SpeedSample{{Rate: 192, Batch: 96}}}},
		"two of three tell": {change: func(i int, w *barrier.Work) {
			if x := 5.0; i < 2 {
				w.Progress.Throughput = &x
			}
		}},
		"the parts of a step": {change: func(i int, w *barrier.Work) {
			fetch, compute, batch, noise := 0.1*float64(i+1), 0.5, 300.0, 2000.0
			w.Progress.FetchS, w.Progress.ComputeS, w.Progress.Batch, w.Progress.NoiseScale = &fetch, &compute, &batch, &noise
		}, want: &model.Speed{Unit: "steps", NoiseScale: 2000, Samples: []model.SpeedSample{{Rate: 2, Batch: 300, FetchS: 0.2, ComputeS: 0.5}}}},
		"one is suspended": {change: func(i int, w *barrier.Work) { w.Running = i != 1 }},
		"one tells nothing": {change: func(i int, w *barrier.Work) {
			if i == 1 {
				*w = barrier.Work{}
			}
		}, want: &model.Speed{Unit: "steps", Samples: []model.SpeedSample{{Rate: 2}}}},
		"nobody tells anything":   {change: func(_ int, w *barrier.Work) { *w = barrier.Work{} }},
		"it stands still":         {change: func(_ int, w *barrier.Work) { w.Step = new(int64(7)) }},
		"it is not placed whole":  {prior: func(r *speedRig) { r.view.Managed[0].Members[2].Alloc = nil }},
		"it stops":                {prior: func(r *speedRig) { r.view.Managed[0].Model.State = model.StateStopping }},
		"it is being updated":     {prior: func(r *speedRig) { r.view.Managed[0].Record.Rollout = &record.Rollout{} }},
		"its members are no gang": {prior: func(r *speedRig) { r.view.Managed[0].Model.Gang = model.GangNone }},
		"a node is not known":     {prior: func(r *speedRig) { r.view.Snapshot.Nodes[0].ID = "other" }},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			r := newSpeedRig(t, &fakeTallies{}, "train", 3)
			if test.prior != nil {
				test.prior(r)
			}
			if test.want != nil {
				s := &test.want.Samples[0]
				s.Members, s.GPUs, s.Model, s.Level, s.Count = 3, 3, "H100", "rack", 1
			}
			if diff := cmp.Diff(test.want, r.run(2*time.Minute, 2, test.change)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// Another planner may have written; documents may be damaged, too many, or out of
// reach: nothing of this stops anybody.
func TestSpeedsAreKept(t *testing.T) {
	ctx := context.Background()
	store := &fakeTallies{docs: map[string]record.Document{
		"[ml damaged]": {Index: 7, JSON: []byte(`"no object"`)},
		"[ml odd]":     {Index: 8, JSON: []byte(`{"namespace":"ml","name":"odd","tally":{"unit":"steps","configs":[{"members":-1,"count":1,"rates":[1]},{"members":1,"level":"node","count":-5,"rates":[-1,2]}]}}`)},
	}, index: 8}
	r := newSpeedRig(t, store, "odd", 1)
	got := r.speeds.learn(r.view, nil, r.now).Snapshot.Jobs[0].Speed
	if diff := cmp.Diff(&model.Speed{Unit: "steps", Samples: []model.SpeedSample{{Members: 1, Level: "node", Rate: 2, Count: 1}}}, got); diff != "" {
		t.Errorf("an odd document (-want +got):\n%s", diff)
	}
	r = newSpeedRig(t, store, "damaged", 1)
	r.run(3*time.Minute, 2, nil)
	if err := r.speeds.save(ctx, r.now); !errors.Is(err, record.ErrConflict) {
		t.Errorf("over what another has written: %v", err)
	}
	if err := r.speeds.save(ctx, r.now); err != nil || store.docs["[ml damaged]"].Index != 9 {
		t.Errorf("the second time: %v, %+v", err, store.docs)
	}
	store.fail = errors.New("no leader")
	if err := (&speeds{store: store}).load(ctx); !errors.Is(err, store.fail) {
		t.Errorf("load: %v", err)
	}
	if v := (&speeds{store: store}).learn(r.view, r.works, r.now); v != r.view {
		t.Error("what is not loaded is shown")
	}
	r.run(6*time.Minute, 2, nil)
	if err := r.speeds.save(ctx, r.now); !errors.Is(err, store.fail) {
		t.Errorf("save: %v", err)
	}
	store.fail = nil
	for i := range maxKinds + 3 {
		k := kind{"ml", fmt.Sprint("job", i)}
		r.speeds.kinds[k] = r.speeds.keep(k)
		r.speeds.kinds[k].kept.is.At = r.now.Add(-time.Duration(i) * time.Second)
	}
	if err := r.speeds.save(ctx, r.now); err != nil || len(r.speeds.kinds) != maxKinds {
		t.Errorf("%d kinds, %v", len(r.speeds.kinds), err)
	}
	if r.speeds.kinds[kind{"ml", "job0"}] == nil || r.speeds.kinds[kind{"ml", fmt.Sprint("job", maxKinds+2)}] != nil {
		t.Error("the wrong ones were forgotten")
	}
}

// What is known is there for the decision, and for those who ask.
func TestSpeedsAreDecidedOn(t *testing.T) {
	d, _ := testDaemon(t, job("train-2026-01-05"))
	d.speeds.store = &fakeTallies{docs: map[string]record.Document{"[default train]": {Index: 1,
		JSON: []byte(`{"namespace":"default","name":"train","tally":{"unit":"steps","configs":[{"members":1,"level":"node","count":3,"rates":[2,2,2]}]}}`)}}}
	var seen *model.Speed
	d.decide = func(s *model.Snapshot) (*model.Plan, error) {
		seen = s.Jobs[0].Speed
		return waitAll(s)
	}
	if _, err := d.cycle(t.Context()); err != nil {
		t.Fatal(err)
	}
	if seen == nil || len(seen.Samples) != 1 || seen.Samples[0].Rate != 2 {
		t.Errorf("decided on %+v", seen)
	}
	if got := (backend{d}).Speed("default", "train-2026-01-05"); got == nil || got.Unit != "steps" {
		t.Errorf("told %+v", got)
	}
	if got := (backend{d}).Speed("default", "other"); got != nil {
		t.Errorf("told of a job that is not there: %+v", got)
	}
}

// A job that goes on as it did is no news for a decision.
func TestSamePace(t *testing.T) {
	sample := func(members, count int, rate float64) model.SpeedSample {
		return model.SpeedSample{Members: members, Rate: rate, Count: count, Spread: 0.02}
	}
	one := []model.SpeedSample{sample(1, 20, 10)}
	stalls := sample(1, 21, 10)
	stalls.FetchS = 0.2
	tests := map[string]struct {
		was, is []model.SpeedSample
		want    bool
	}{
		"once more":             {one, []model.SpeedSample{sample(1, 21, 10.05)}, true},
		"slower":                {one, []model.SpeedSample{sample(1, 21, 9.8)}, false},
		"another size":          {one, []model.SpeedSample{sample(1, 20, 10), sample(2, 1, 19)}, false},
		"forgotten":             {[]model.SpeedSample{sample(1, 20, 10), sample(2, 20, 19)}, one, false},
		"the first few":         {[]model.SpeedSample{sample(1, 2, 10)}, []model.SpeedSample{sample(1, 3, 10)}, false},
		"the twelfth":           {[]model.SpeedSample{sample(1, 11, 10)}, []model.SpeedSample{sample(1, 12, 10)}, true},
		"it waits for its data": {one, []model.SpeedSample{stalls}, false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if got := samePace(test.was, test.is); got != test.want {
				t.Errorf("%t, want %t", got, test.want)
			}
		})
	}
}
