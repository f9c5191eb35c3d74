package queue

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// Two jobs on 8 GPUs, each an hour old, with 8 GPUs each: an equal part is 4, with
// which each would take twice as long.
//
// "a" takes 2 hours and has run for one: 1 + 1 hours from its submission to its
// end, by 2·2 alone, is 0.5. "b" takes one hour and has waited: 1 + 1 by 1·2 is 1.
// With f = 0.5 one of the two is offered GPUs: b, and a's lease of half an hour is
// over. Waiting for another lease would make b's ρ 2.5/2 of what it is; for each of
// its 8 GPUs that is ln(1.25)/8 = 0.0279.
func TestFTF(t *testing.T) {
	p := Policy{Order: OrderFTF, FTF: FTF{Fairness: 0.5, Lease: 30 * time.Minute}}
	b := due("b", 8, 1, 0)
	b.Waited = time.Hour
	got := p.Discipline().Stand(Situation{Now: deadlineNow, GPUs: 8, Jobs: []Entry{runs(due("a", 8, 2, 0), 1), b}})
	if got[0].Class != classOther || got[1].Class != classChosen || math.Abs(got[1].Key+math.Log(1.25)/8) > 1e-12 {
		t.Errorf("%+v", got)
	}
	for i, want := range []string{
		"finish-time fairness 0.50: 2h0m0s from submission to end, 4h0m0s with 4 GPUs to itself; 2 of 2 by that, of which 1 are worst off, and its lease is over",
		"finish-time fairness 1.00: 2h0m0s from submission to end, 2h0m0s with 4 GPUs to itself; 1 of 2 by that, of which 1 are worst off, so it is offered GPUs first",
	} {
		if got[i].Why != want {
			t.Errorf("why %q, want %q", got[i].Why, want)
		}
	}
	// A quarter of an hour after it was placed it still has its lease.
	got = p.Discipline().Stand(Situation{Now: deadlineNow, GPUs: 8, Jobs: []Entry{runs(due("a", 8, 2, 0), 0.25), b}})
	if got[0].Class != classHeld || !strings.HasSuffix(got[0].Why, "; it has a lease for another 15m0s") {
		t.Errorf("%+v", got[0])
	}
}

// What an equal part is to a job: 4 GPUs of 8 take twice as long by turns. An
// elastic gang of 8 members with a GPU each that can do with 2 has 4 of them; where
// its speed is known to be the square root of their number it takes √2 times as
// long, and where nothing is known twice. One that needs 8 at least has them half
// of the time.
func TestSlowdown(t *testing.T) {
	speedy := func(least int) Entry {
		e := elastic(due("a", 8, 1, 0), least, 8, 8)
		e.Speed = rooted()
		return e
	}
	for name, tt := range map[string]struct {
		e    Entry
		part float64
		want float64
	}{
		"fits":           {due("a", 8, 1, 0), 8, 1},
		"more than fits": {due("a", 8, 1, 0), 64, 1},
		"by turns":       {due("a", 8, 1, 0), 4, 2},
		"elastic":        {speedy(2), 4, math.Sqrt2},
		"unknown":        {elastic(due("a", 8, 1, 0), 2, 8, 8), 4, 2},
		"least":          {speedy(8), 4, 2},
		"least by turns": {speedy(4), 2, 2 * math.Sqrt2},
	} {
		if got := tt.e.slowdown(tt.part); math.Abs(got-tt.want) > 0.01 {
			t.Errorf("%s: %g, want %g", name, got, tt.want)
		}
	}
}

// A job of which nobody knows how long it runs is taken to run as long again, and
// so is one that runs for longer than was said.
func TestFTFGuesses(t *testing.T) {
	f := FTF{}.WithDefaults()
	for name, tt := range map[string]struct {
		e    Entry
		left float64
	}{
		"new":      {due("a", 1, 0, 0), 20 * 60},
		"runs":     {runs(due("a", 1, 0, 0), 3), 3 * 3600},
		"overruns": {runs(due("a", 1, 2, 0), 3), 3 * 3600},
		"known":    {runs(due("a", 1, 4, 0), 3), 3600},
	} {
		got := ftf{f}.times(&tt.e, 1)
		if got.left != tt.left || got.guessed != (name != "known") {
			t.Errorf("%s: %+v, want %g left", name, got, tt.left)
		}
	}
}

func TestFTFValidate(t *testing.T) {
	for _, f := range []FTF{{}, {Fairness: 0.99, Lease: MinLease}} {
		if err := f.Validate(); err != nil {
			t.Errorf("%+v: %v", f, err)
		}
	}
	for _, bad := range []float64{1, -0.1, math.NaN()} {
		err := Policy{FTF: FTF{Fairness: bad, Lease: time.Second}}.Validate()
		if !errors.Is(err, ErrPolicy) || !strings.Contains(err.Error(), "ftf.fairness") || !strings.Contains(err.Error(), "ftf.lease 1s: want 10s to 720h") {
			t.Errorf("%g: %v", bad, err)
		}
	}
}

// rhos are the jobs' ρ at their ends in a played example: what each took by what it
// would have taken with an equal part.
func rhos(gpus int, tasks []*task, ends map[string]time.Duration) (worst float64) {
	for _, k := range tasks {
		alone := k.long.Seconds() * max(1, float64(k.gpus*len(tasks))/float64(gpus))
		worst = max(worst, (ends[k.id]-k.at).Seconds()/alone)
	}
	return worst
}

func newTasks(n int, make func(i int) task) []*task {
	out := []*task{}
	for i := range n {
		k := make(i)
		k.id, k.says = fmt.Sprint("t", i), k.long
		out = append(out, &k)
	}
	return out
}

// The sharing incentive: nobody is slower than with an equal part of the cluster
// to himself. Where all come at once, and each takes all GPUs, there is a schedule
// that gives it (round-robin in small steps does), and ftf finds one, but for the
// leases that it is kept waiting in.
func TestFTFSharingIncentive(t *testing.T) {
	rapid.Check(t, func(t2 *rapid.T) {
		rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t2, "seed"), 0))
		n, step := 2+rng.IntN(5), 10*time.Minute
		tasks := newTasks(n, func(int) task { return task{long: time.Duration(1+rng.IntN(30)) * step, gpus: 4} })
		ends, _ := play(t, Policy{Order: OrderFTF, FTF: FTF{Lease: step, Fairness: 0.99}}, nil, 4, step, tasks...)
		for _, k := range tasks {
			if alone := k.long * time.Duration(n); ends[k.id] > alone+step*time.Duration(n-1) {
				t2.Errorf("%s takes %s, and alone %s with an equal part", k.id, ends[k.id], alone)
			}
		}
	})
}

// Where jobs differ the worst off is better off than in the order in which they
// came, in most draws and on average.
func TestFTFIsFairer(t *testing.T) {
	var byAge, fair float64
	better, worse := 0, 0
	for seed := range uint64(60) {
		worst := map[string]float64{}
		for _, order := range []string{OrderFIFO, OrderFTF} {
			rng := rand.New(rand.NewPCG(seed, 0))
			tasks := newTasks(8, func(i int) task {
				return task{at: time.Duration(rng.IntN(6)) * 10 * time.Minute, long: time.Duration(1+rng.IntN(30)) * 10 * time.Minute, gpus: 1 + rng.IntN(4)}
			})
			ends, _ := play(t, Policy{Order: order}, nil, 6, 10*time.Minute, tasks...)
			worst[order] = rhos(6, tasks, ends)
		}
		byAge, fair = byAge+worst[OrderFIFO]/60, fair+worst[OrderFTF]/60
		switch {
		case worst[OrderFTF] < worst[OrderFIFO]-1e-9:
			better++
		case worst[OrderFTF] > worst[OrderFIFO]+1e-9:
			worse++
		}
	}
	t.Logf("the worst ρ is %.2f on average, %.2f by age; better in %d draws, worse in %d", fair, byAge, better, worse)
	if fair > 0.8*byAge || better < 3*worse {
		t.Errorf("the worst ρ is %.2f on average, %.2f by age; better in %d draws, worse in %d", fair, byAge, better, worse)
	}
}

// No job is stopped before its lease is over.
func TestFTFKeepsLeases(t *testing.T) {
	rapid.Check(t, func(t2 *rapid.T) {
		rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t2, "seed"), 0))
		tasks := newTasks(6, func(int) task {
			return task{at: time.Duration(rng.IntN(6)) * 10 * time.Minute, long: time.Duration(1+rng.IntN(12)) * 10 * time.Minute, gpus: 1 + rng.IntN(4)}
		})
		ends, rows := play(t, Policy{Order: OrderFTF, FTF: FTF{Lease: 30 * time.Minute}}, nil, 4, 10*time.Minute, tasks...)
		for _, k := range tasks {
			turn := 0
			for step, row := range rows {
				switch {
				case strings.Contains(" "+row+" ", " "+k.id+" "):
					turn++
				case turn > 0 && turn < 3 && ends[k.id] != time.Duration(step)*10*time.Minute:
					t2.Errorf("%s was stopped after %d steps: %v", k.id, turn, rows)
					turn = 0
				default:
					turn = 0
				}
			}
		}
	})
}

func anySituation(rng *rand.Rand) Situation {
	s := Situation{Now: deadlineNow, GPUs: 1 + rng.IntN(40)}
	free := s.GPUs
	for i := range 1 + rng.IntN(12) {
		e := anyDue(rng, i)
		if e.Held > free {
			e = due(fmt.Sprint("j", i), e.Asked, 1, 0)
		}
		free -= e.Held
		e.Waited = time.Duration(rng.IntN(300)) * time.Minute
		s.Jobs = append(s.Jobs, e)
	}
	return s
}

func TestFTFStandings(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := anySituation(rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0)))
		p := Policy{Order: OrderFTF}
		got := p.Discipline().Stand(s)
		if again := p.Discipline().Stand(s); !cmp.Equal(got, again) {
			t.Errorf("twice: %s", cmp.Diff(got, again))
		}
		chosen, bidders := 0, 0
		for i, st := range got {
			e := &s.Jobs[i]
			if held := e.Running && e.Turn < DefaultLease; held != (st.Class == classHeld) {
				t.Errorf("%s: class %d, turn %s", e.Job.ID, st.Class, e.Turn)
			} else if !held {
				bidders++
			}
			if st.Class == classChosen {
				chosen++
			}
			if st.Why == "" || math.IsNaN(st.Key) || math.IsInf(st.Key, 0) {
				t.Errorf("%s: %+v", e.Job.ID, st)
			}
			if st.Members != 0 && (!e.elastic() || st.Members < e.Min || st.Members > max(e.Max, e.Members)) {
				t.Errorf("%s: %d members", e.Job.ID, st.Members)
			}
		}
		if bidders > 0 && (chosen < 1 || chosen > bidders) {
			t.Errorf("%d of %d are chosen", chosen, bidders)
		}
	})
}

func BenchmarkFTFStand(b *testing.B) {
	s := benchSituation()
	d := newFTF(Policy{})
	for b.Loop() {
		d.Stand(s)
	}
}
