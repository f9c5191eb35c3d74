package queue

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/core/share"
)

// onModels is a job with a GPU that is as fast as that on each model.
func onModels(id string, gpus int, speeds map[string]float64) Entry {
	e := due(id, gpus, 0, 0)
	for name, speed := range speeds {
		e.Job.Models = append(e.Job.Models, model.ModelSpeed{Name: name, Speed: speed})
	}
	slices.SortFunc(e.Job.Models, func(a, b model.ModelSpeed) int { return strings.Compare(a.Name, b.Name) })
	return e
}

// The example of the paper's section 4.1 (see package share): with one V100 and
// one K80 the first two jobs are to run on the V100 45 % of the time, and the third
// on the K80 91 %. In the first round nobody has had anything, so those are chosen
// that are to have most.
func TestMaxMinPaper(t *testing.T) {
	jobs := []Entry{
		onModels("0", 1, map[string]float64{"V100": 40, "K80": 10}),
		onModels("1", 1, map[string]float64{"V100": 12, "K80": 4}),
		onModels("2", 1, map[string]float64{"V100": 100, "K80": 50}),
	}
	s := Situation{Now: deadlineNow, GPUs: 2, Models: []ModelGPUs{{"K80", 1}, {"V100", 1}}, Jobs: jobs}
	p := Policy{Order: OrderMaxMin, MaxMin: MaxMin{Round: 6 * time.Minute}}
	got := p.Discipline().Stand(s)
	for i, want := range []string{
		"to run 45 % on V100 of the time, 1.1 times an equal part; has run 0 %; chosen for the next round on V100",
		"to run 9 % on K80 and 45 % on V100 of the time, 1.1 times an equal part; has run 0 %; not chosen for the next round, so it gets what others leave",
		"to run 91 % on K80 and 9 % on V100 of the time, 1.1 times an equal part; has run 0 %; chosen for the next round on K80",
	} {
		if got[i].Why != want {
			t.Errorf("job %d: %s\nwant %s", i, got[i].Why, want)
		}
	}
	if got[0].Model != "V100" || got[1].Model != "" || got[2].Model != "K80" || got[0].Class != classChosen || got[1].Class != classOther {
		t.Errorf("%+v", got)
	}
}

// A job that names no models is placed on whatever it fits, so nothing else is said of
// it; one that runs is where it is.
func TestMaxMinNamesWhatIsKept(t *testing.T) {
	waits, running, named := due("a", 1, 0, 0), runs(due("b", 1, 0, 0), 1), due("c", 1, 0, 0)
	running.Model = "H100"
	named.Job.Groups = []model.TaskGroup{{Devices: []model.DeviceAsk{{Name: "nvidia/gpu/H100", Count: 1}}}}
	s := Situation{Now: deadlineNow, GPUs: 4, Models: []ModelGPUs{{"A100", 2}, {"H100", 2}}, Jobs: []Entry{waits, running, named}}
	got := Policy{Order: OrderMaxMin, MaxMin: MaxMin{Round: 6 * time.Minute}}.Discipline().Stand(s)
	for i, want := range []string{
		"to run 100 % of the time, on whatever it fits, 0.75 times an equal part; has run 0 %; chosen for the next round",
		"to run 100 % of the time, on whatever it fits, 0.75 times an equal part; has run 100 %; chosen for the next round on H100",
		"to run 100 % on H100 of the time, 1.5 times an equal part; has run 0 %; chosen for the next round on H100",
	} {
		if got[i].Why != want || got[i].Model != "" {
			t.Errorf("job %d, model %q: %s\nwant %s", i, got[i].Model, got[i].Why, want)
		}
	}
}

// The paper's example of the mechanism (section 5): what three jobs are to have of
// a V100, a P100 and a K80, and how many rounds they have had on each. By the one
// over the other the first goes to the P100 next (0.4/1), the second to the K80 and
// the third to the V100, where they have not been yet.
func TestMaxMinMechanism(t *testing.T) {
	models := []ModelGPUs{{"K80", 1}, {"P100", 1}, {"V100", 1}}
	target := [][]float64{{0, 0.4, 0.6}, {0.2, 0.6, 0.2}, {0.8, 0, 0.2}}
	rounds := [][]int{{0, 1, 3}, {0, 3, 1}, {4, 0, 0}}
	r := &round{kinds: &kinds{}, free: []int{1, 1, 1}}
	s := Situation{Models: models}
	for i := range target {
		e := onModels(fmt.Sprint(i), 1, map[string]float64{"K80": 1, "P100": 1, "V100": 1})
		e.Job.RanByModel = map[string]time.Duration{}
		for m, n := range rounds[i] {
			e.Job.RanByModel[models[m].Name] = time.Duration(n) * 6 * time.Minute
		}
		e.Ran = 4 * 6 * time.Minute
		e.Job.Ran = e.Ran
		s.Jobs = append(s.Jobs, e)
		r.kinds.of, r.kinds.speeds, r.parts = append(r.kinds.of, i), append(r.kinds.speeds, []float64{1, 1, 1}), append(r.parts, share.Part{Time: target[i]})
	}
	r.s = &s
	if got := r.choose([]int{0, 1, 2}); !cmp.Equal(got, map[int]int{0: 1, 1: 0, 2: 2}) {
		t.Errorf("got %v", got)
	}
}

// What is noted of past runs counts where it was; what is not as it was to be.
func TestReceivedOn(t *testing.T) {
	e := runs(onModels("a", 1, map[string]float64{"A": 1, "B": 1}), 1) // an hour, now
	e.Job.Ran, e.Ran, e.Waited = 3*time.Hour, 4*time.Hour, 4*time.Hour
	e.Job.RanByModel = map[string]time.Duration{"A": time.Hour}
	e.Model = "B"
	s := Situation{Models: []ModelGPUs{{"A", 1}, {"B", 1}}, Jobs: []Entry{e}}
	r := &round{s: &s, kinds: &kinds{of: []int{0}}, parts: []share.Part{{Time: []float64{0.25, 0.75}}}}
	// 8 hours: one on A and one on B as noted, and two that were to be 0.5 and 1.5.
	if got := r.receivedOn(0); !cmp.Equal(got, []float64{1.5 / 8, 2.5 / 8}) {
		t.Errorf("got %v", got)
	}
}

func TestSpeedsOf(t *testing.T) {
	models := []ModelGPUs{{"A", 1}, {"B", 1}}
	named := due("a", 1, 0, 0)
	named.Job.Groups = []model.TaskGroup{{Devices: []model.DeviceAsk{{Name: "nvidia/gpu/B"}}}}
	for name, tt := range map[string]struct {
		e    Entry
		want []float64
	}{
		"any":    {due("a", 1, 0, 0), []float64{1, 1}},
		"one":    {named, []float64{0, 1}},
		"said":   {onModels("a", 1, map[string]float64{"B": 2.5, "C": 9}), []float64{0, 2.5}},
		"absent": {onModels("a", 1, map[string]float64{"C": 9}), []float64{0, 0}},
	} {
		if got := speedsOf(&tt.e, models); !cmp.Equal(got, tt.want) {
			t.Errorf("%s: %v, want %v", name, got, tt.want)
		}
	}
}

// There are as many kinds as the program can bear, and of ten thousand jobs none
// is forgotten.
func TestKinds(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	s := Situation{Models: []ModelGPUs{{"A", 9}, {"B", 9}}}
	for i := range 10000 {
		s.Jobs = append(s.Jobs, onModels(fmt.Sprint(i), 1+rng.IntN(64), map[string]float64{"A": 1, "B": 1 + 4*rng.Float64()}))
	}
	k := kindsOf(&s)
	jobs, gpus, want := 0, 0.0, 0
	for _, r := range k.runners {
		jobs += r.Jobs
		gpus += float64(r.Jobs * r.GPUs)
	}
	for i := range s.Jobs {
		want += s.Jobs[i].Asked
	}
	if len(k.runners) > maxTimes/2 || len(k.runners) < 16 || jobs != 10000 || math.Abs(gpus/float64(want)-1) > 0.02 {
		t.Errorf("%d kinds, %d jobs with %g of %d GPUs", len(k.runners), jobs, gpus, want)
	}
	s.Jobs = s.Jobs[:20]
	if k = kindsOf(&s); len(k.runners) != 20 {
		t.Errorf("%d kinds of 20 jobs", len(k.runners))
	}
}

// Two jobs with all GPUs take turns of a round.
func TestMaxMinTakesTurns(t *testing.T) {
	p := Policy{Order: OrderMaxMin, MaxMin: MaxMin{Round: 20 * time.Minute}}
	tasks := newTasks(2, func(int) task { return task{long: time.Hour, gpus: 4} })
	_, rows := play(t, p, nil, 4, 10*time.Minute, tasks...)
	if got, want := strings.Join(rows, " "), "t0 t0 t1 t1 t0 t0 t1 t1 t0 t0 t1 t1"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestMaxMinValidate(t *testing.T) {
	err := Policy{MaxMin: MaxMin{Round: -1}}.Validate()
	if !errors.Is(err, ErrPolicy) || !strings.Contains(err.Error(), "maxmin.round -1ns: want 10s to 720h") {
		t.Errorf("%v", err)
	}
	if err := (MaxMin{Round: time.Hour}).Validate(); err != nil {
		t.Error(err)
	}
}

// Whatever there is, no model has more chosen than it has GPUs, what is placed keeps
// its round, and twice is the same.
func TestMaxMinStandings(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
		s := anySituation(rng)
		a := rng.IntN(s.GPUs + 1)
		s.Models = []ModelGPUs{{"A", a}, {"B", s.GPUs - a}}
		free := map[string]int{"A": a, "B": s.GPUs - a}
		for i := range s.Jobs {
			e := &s.Jobs[i]
			if rng.IntN(2) == 0 {
				e.Job.Models = []model.ModelSpeed{{Name: "A", Speed: 1}, {Name: "B", Speed: float64(1 + rng.IntN(5))}}
			}
			if e.Running {
				if e.Model = "A"; free["A"] < e.Held {
					e.Model = "B"
				}
				free[e.Model] -= e.Held
			}
		}
		p := Policy{Order: OrderMaxMin}
		got := p.Discipline().Stand(s)
		if again := p.Discipline().Stand(s); !cmp.Equal(got, again) {
			t.Errorf("twice: %s", cmp.Diff(got, again))
		}
		used := map[string]int{}
		for i, st := range got {
			e := &s.Jobs[i]
			if (e.Running && e.Turn < DefaultRound) != (st.Class == classHeld) || st.Why == "" || math.IsNaN(st.Key) {
				t.Errorf("%s: %+v, turn %s", e.Job.ID, st, e.Turn)
			}
			if st.Model != "" && (e.Running || st.Class != classChosen) {
				t.Errorf("%s: model %q", e.Job.ID, st.Model)
			}
			switch {
			case st.Class == classHeld || st.Class == classChosen && e.Running:
				used[e.Model] += e.Held
			case st.Class == classChosen && !e.namesModels():
				used["any"] += e.Asked
			case st.Class == classChosen && strings.HasSuffix(st.Why, "on A"):
				used["A"] += e.Asked
			case st.Class == classChosen:
				used["B"] += e.Asked
			}
		}
		if all := used["A"] + used["B"] + used["any"]; all > s.GPUs && free["A"] >= 0 && free["B"] >= 0 {
			t.Errorf("%d of %d GPUs are given", all, s.GPUs)
		}
		for name, n := range used {
			// Drawn jobs may hold more than there is; of that nothing is given on.
			if n > max(s.GPUs-a, 0) && name == "B" && free["B"] >= 0 || n > a && name == "A" {
				t.Errorf("%d GPUs of model %s are given, of %v", n, name, s.Models)
			}
		}
	})
}

func BenchmarkMaxMinStand(b *testing.B) {
	s := benchSituation()
	d := newMaxMin(Policy{})
	for b.Loop() {
		d.Stand(s)
	}
}
