package share

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"
)

// concave is a speed of 1, 1.5, 1.75 … with 1, 2, 3 … members.
func concave(members int) float64 { return 2 - math.Pow(0.5, float64(members-1)) }

func linear(members int) float64 { return float64(members) }

func TestFill(t *testing.T) {
	never := math.Inf(1)
	rigid := func(gpus int, work, deadline float64) Task {
		return Task{Work: work, Min: 1, Max: 1, GPUs: gpus, Deadline: deadline}
	}
	runs := func(t Task) Task { t.Running, t.Members = true, t.Min; return t }
	kept := func(t Task) Task { t.Kept = true; return t }
	tests := map[string]struct {
		gpus   int
		tasks  []Task
		margin float64
		want   []Verdict
	}{
		// The paper's point that the earliest deadline first with all GPUs is not
		// enough. Two jobs of 3 units on 2 GPUs: 1 GPU does 1 unit an hour, 2 do 1.5.
		// One after the other with both they end at 2 and 4; with 1 each at 3.
		"a share each rather than all by turns": {
			gpus:  2,
			tasks: []Task{{Work: 3, Speed: concave, Min: 1, Max: 2, GPUs: 1, Deadline: 3}, {Work: 3, Speed: concave, Min: 1, Max: 2, GPUs: 1, Deadline: 3.5}},
			want:  []Verdict{{Admitted: true, Members: 1, First: 1, End: 3}, {Admitted: true, Members: 1, First: 1, End: 3}},
		},
		// 3 of 4 GPUs are taken until 2. With 1 member the 6 units end at 6; with up
		// to 2 they are 1·2 + 2·2 = 6 at 4.
		"fills what becomes free": {
			gpus:  4,
			tasks: []Task{{Firm: true, Members: 3, GPUs: 1, Work: 2}, {Work: 6, Speed: linear, Min: 1, Max: 4, GPUs: 1, Deadline: 4}},
			want:  []Verdict{{}, {Admitted: true, Members: 2, First: 1, End: 4}},
		},
		// Each takes all GPUs for 2. In the order of their deadlines the first two end
		// at 2 and 4; the third could not before 6.
		"no to the third": {
			gpus: 4, tasks: []Task{rigid(4, 2, 2), rigid(4, 2, 4), rigid(4, 2, 5)},
			want: []Verdict{{Admitted: true, Members: 1, First: 1, End: 2}, {Admitted: true, Members: 1, First: 1, Begin: 2, End: 4}, {Begin: 4, End: 6}},
		},
		// The third to come has the earliest deadline, and would make the first late.
		"who was there first stays": {
			gpus: 4, tasks: []Task{rigid(4, 2, 5), rigid(4, 2, 4), rigid(4, 2, 2)},
			want: []Verdict{{Admitted: true, Members: 1, First: 1, Begin: 2, End: 4}, {Admitted: true, Members: 1, First: 1, End: 2}, {Begin: 4, End: 6}},
		},
		"too long even alone":  {gpus: 4, tasks: []Task{rigid(4, 5, 4)}, want: []Verdict{{End: 5}}},
		"larger than all":      {gpus: 4, tasks: []Task{rigid(5, 1, 4)}, want: []Verdict{{Begin: never, End: never}}},
		"nobody says how long": {gpus: 4, tasks: []Task{{Firm: true, Members: 1, GPUs: 2, Work: never}, rigid(3, 1, 9)}, want: []Verdict{{}, {Begin: never, End: never}}},
		// The one that runs has two members of 2 GPUs at least, and the one that waits
		// gets the other 4; with 3 members it would be done at 8/3.
		"what runs goes on": {
			gpus: 8, tasks: []Task{rigid(4, 3, 3.5), runs(Task{Work: 8, Speed: linear, Min: 2, Max: 4, GPUs: 2, Deadline: 4})},
			want: []Verdict{{Admitted: true, Members: 1, First: 1, End: 3}, {Admitted: true, Members: 2, First: 2, End: 4}},
		},
		// The first needs all four GPUs for 4 by 12, when the second has run. The third has
		// the other two for 7 by 15: beside the second, if it goes before the first, which
		// is looked for only if it was admitted before.
		"beside what runs": {
			gpus: 4, tasks: []Task{kept(rigid(4, 4, 12)), kept(runs(rigid(2, 6.5, 11.5))), kept(rigid(2, 7, 15))},
			want: []Verdict{{Admitted: true, Members: 1, First: 1, Begin: 7, End: 11}, {Admitted: true, Members: 1, First: 1, End: 6.5}, {Admitted: true, Members: 1, First: 1, End: 7}},
		},
		"beside what runs anew": {
			gpus: 4, tasks: []Task{kept(rigid(4, 4, 12)), kept(runs(rigid(2, 6.5, 11.5))), rigid(2, 7, 15)},
			want: []Verdict{{Admitted: true, Members: 1, First: 1, Begin: 6.5, End: 10.5}, {Admitted: true, Members: 1, First: 1, End: 6.5}, {Begin: 10.5, End: 17.5}},
		},
		"what runs is late": {gpus: 8, tasks: []Task{runs(rigid(4, 3, 2))}, want: []Verdict{{End: 3}}},
		// Each needs an hour of the only GPU, by 3: a margin of half an hour later all
		// is well. An hour and a half later the second would end at 3.5.
		"can wait":    {gpus: 1, margin: 0.5, tasks: []Task{rigid(1, 1, 3), rigid(1, 1, 3)}, want: []Verdict{{Admitted: true, Members: 1, First: 1, End: 1}, {Admitted: true, Members: 1, First: 1, Begin: 1, End: 2}}},
		"cannot wait": {gpus: 1, margin: 1.5, tasks: []Task{rigid(1, 1, 3), rigid(1, 1, 3)}, want: []Verdict{{Admitted: true, Members: 1, First: 1, End: 1}, {Admitted: true, Members: 1, First: 1, End: 1, Urgent: true}}},
		// Only the second must begin: the first has until 9.
		"one of two cannot wait": {gpus: 2, margin: 1, tasks: []Task{rigid(1, 1, 9), rigid(1, 2, 2.5)}, want: []Verdict{{Admitted: true, Members: 1, First: 1, End: 1}, {Admitted: true, Members: 1, First: 1, End: 2, Urgent: true}}},
		"nobody":                 {gpus: 1, want: []Verdict{}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got := Fill(tt.gpus, nil, tt.tasks, tt.margin)
			if diff := cmp.Diff(tt.want, got, cmpopts.EquateApprox(0, 1e-9)); diff != "" {
				t.Errorf("verdicts (-want +got):\n%s", diff)
			}
		})
	}
}

// worker is a task in a run.
type worker struct {
	Task
	arrives          float64
	admitted, denied bool
	ended            float64
}

func anyWorkers(rng *rand.Rand, gpus int) []*worker {
	var out []*worker
	for range 2 + rng.IntN(9) {
		w := &worker{arrives: float64(rng.IntN(12)), ended: math.Inf(1)}
		w.GPUs = 1 + rng.IntN(3)
		w.Min = 1 + rng.IntN(2)
		w.Max = w.Min
		if rng.IntN(2) == 0 {
			w.Max += rng.IntN(4)
			w.Speed = []func(int) float64{linear, concave}[rng.IntN(2)]
		}
		w.Work = float64(1+rng.IntN(12)) / 2
		w.Deadline = w.arrives + float64(1+rng.IntN(30))/2
		out = append(out, w)
	}
	slices.SortStableFunc(out, func(a, b *worker) int { return int(a.arrives - b.arrives) })
	return out
}

// With exact estimates whoever is admitted stays so, ends by its deadline, and
// no GPU is used twice, though others come and are told no.
func TestAdmittedTasksEndInTime(t *testing.T) {
	admitted, denied := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
		gpus := 2 + rng.IntN(8)
		workers := anyWorkers(rng, gpus)
		for now := 0.0; now < 1000; {
			next := runOnce(t, gpus, workers, now)
			if math.IsInf(next, 1) {
				break
			}
			next = math.Round(next*1e6) / 1e6
			for _, w := range workers {
				if w.Members > 0 {
					w.Work -= (next - now) * w.speed(w.Members)
					if w.Work < 1e-5 {
						w.Work, w.Members, w.ended = 0, 0, next
					}
				}
			}
			now = next
		}
		for i, w := range workers {
			if w.admitted {
				admitted++
				if w.ended > w.Deadline+1e-4 {
					t.Errorf("worker %d was admitted and ended at %g, its deadline was %g", i, w.ended, w.Deadline)
				}
			} else {
				denied++
			}
		}
	})
	t.Logf("%d admitted, %d not", admitted, denied)
}

// runOnce plans, lets those begin that are to, and says when something changes.
func runOnce(t *rapid.T, gpus int, workers []*worker, now float64) float64 {
	var tasks []Task
	var of []*worker
	next := math.Inf(1)
	for _, w := range workers {
		switch {
		case w.arrives > now:
			next = min(next, w.arrives)
		case w.Work > 0 && !w.denied:
			task := w.Task
			task.Deadline, task.Running = w.Deadline-now, w.Members > 0
			tasks, of = append(tasks, task), append(of, w)
		}
	}
	used := 0
	for i, v := range Fill(gpus, nil, tasks, 0) {
		w := of[i]
		if w.admitted && !v.Admitted {
			t.Fatalf("at %g a task was admitted and is not any more: %+v", now, w)
		}
		if !v.Admitted {
			w.denied = true
			continue
		}
		w.admitted = true
		if v.Begin == 0 {
			w.Members = v.First
			used += w.Members * w.GPUs
			if w.Members < w.Min || w.Members > w.Max {
				t.Fatalf("%d members of %d to %d", w.Members, w.Min, w.Max)
			}
		} else {
			next = min(next, now+v.Begin)
		}
		next = min(next, now+v.End)
	}
	if used > gpus {
		t.Fatalf("at %g %d of %d GPUs are used", now, used, gpus)
	}
	return next
}

// The order of the list is that of submission; else nothing depends on it.
func TestFillDoesNotDependOnWhereATaskStands(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
		gpus := 2 + rng.IntN(8)
		var tasks []Task
		for _, w := range anyWorkers(rng, gpus) {
			tasks = append(tasks, w.Task)
		}
		first := Fill(gpus, nil, tasks, 1)
		if again := Fill(gpus, nil, tasks, 1); !cmp.Equal(first, again) {
			t.Errorf("twice: %s", cmp.Diff(first, again))
		}
		// Whoever is told no changes nothing for the others.
		var kept []Task
		var want []Verdict
		for i, v := range first {
			if v.Admitted {
				kept, want = append(kept, tasks[i]), append(want, v)
			}
		}
		if got := Fill(gpus, nil, kept, 1); !cmp.Equal(want, got, cmpopts.EquateEmpty()) {
			t.Errorf("without those told no: %s", cmp.Diff(want, got))
		}
	})
}

func BenchmarkFill(b *testing.B) {
	for name, slack := range map[string]float64{"room": 1e6, "crowd": 3} {
		for _, n := range []int{100, 1000, 10000} {
			b.Run(fmt.Sprintf("%s/tasks=%d", name, n), func(b *testing.B) {
				rng := rand.New(rand.NewPCG(1, 2))
				tasks := make([]Task, n)
				for i := range tasks {
					t := Task{Work: 60 + 36000*rng.Float64(), Min: 1, Max: 1, GPUs: 1 << rng.IntN(6)}
					if i%4 == 0 {
						t.Min, t.Max, t.Speed, t.GPUs = 1, 16, func(m int) float64 { return math.Sqrt(float64(m)) }, 8
					}
					t.Deadline = t.Work * (1 + slack*rng.Float64())
					tasks[i] = t
				}
				for b.Loop() {
					Fill(16384, nil, tasks, 300)
				}
			})
		}
	}
}

// TestFillRooms: three places, of which the first keeps one for 10 seconds and the
// others need two each: one begins at once, the other when it has ended, though there
// are GPUs enough for both; and one that needs four never begins.
func TestFillRooms(t *testing.T) {
	need := func(n int) []Need { return []Need{{Room: 0, Places: n}} }
	tasks := []Task{
		{Firm: true, Members: 1, GPUs: 1, Work: 10, Needs: need(1)},
		{Min: 1, Max: 1, GPUs: 1, Work: 20, Deadline: 20, Needs: need(2)},
		{Min: 1, Max: 1, GPUs: 1, Work: 20, Deadline: 40, Needs: need(2)},
		{Min: 1, Max: 1, GPUs: 1, Work: 20, Deadline: 400, Needs: need(4)},
		{Min: 1, Max: 3, GPUs: 1, Work: 20, Deadline: 400, Needs: need(3), Speed: func(n int) float64 { return float64(n) }},
	}
	got := Fill(100, []int{3}, tasks, 0)
	type times struct {
		admitted   bool
		begin, end float64
	}
	want := []times{{}, {true, 0, 20}, {true, 20, 40}, {false, math.Inf(1), math.Inf(1)}, {true, 40, 60}}
	for i, v := range got {
		if (times{v.Admitted, v.Begin, v.End}) != want[i] && i > 0 {
			t.Errorf("task %d: %+v, want %+v", i, v, want[i])
		}
	}
}

// TestFillChoices: two rooms of two places, and one of all four. Who may choose takes the
// room in which it ends in time; who may be in either has to leave room for those in the
// one that somebody who waits has to be in, and for nobody in the other.
func TestFillChoices(t *testing.T) {
	const left, right, all = 0, 1, 2
	in := func(room, n int) []Need {
		return []Need{{Room: room, Places: n}, {Room: all, Places: n}}
	}
	anywhere := func(n int) [][]Need {
		return [][]Need{{{Room: all, Places: n}, {Room: left, Places: n, Most: 2}, {Room: right, Places: n, Most: 2}}}
	}
	one := func(deadline float64, choices ...[]Need) Task {
		return Task{Min: 1, Max: 1, GPUs: 1, Work: 20, Deadline: deadline, Choices: choices}
	}
	held := func(room int) Task { return Task{Firm: true, Members: 1, GPUs: 1, Work: 10, Needs: in(room, 2)} }
	type verdict struct {
		admitted bool
		choice   int
		begin    float64
	}
	tests := map[string]struct {
		tasks []Task
		want  []verdict
	}{
		"the other room":         {[]Task{held(left), one(20, in(left, 2), in(right, 2))}, []verdict{{}, {true, 1, 0}}},
		"the first that will do": {[]Task{held(left), one(30, in(left, 2), in(right, 2))}, []verdict{{}, {true, 0, 10}}},
		"neither":                {[]Task{held(left), held(right), one(20, in(left, 2), in(right, 2))}, []verdict{{}, {}, {false, 0, 10}}},
		"beside one that may be in its way": {[]Task{one(20, in(left, 2)), one(20, anywhere(1)...), one(20, in(right, 2))},
			[]verdict{{true, 0, 0}, {false, 0, 20}, {true, 0, 0}}},
		"who may be anywhere is in nobody's way": {[]Task{one(20, anywhere(2)...), one(20, anywhere(2)...)}, []verdict{{true, 0, 0}, {true, 0, 0}}},
		"he takes no more of it than there is":   {[]Task{one(20, anywhere(4)...), one(40, in(left, 2))}, []verdict{{true, 0, 0}, {true, 0, 20}}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			var got []verdict
			for _, v := range Fill(100, []int{2, 2, 4}, tt.tasks, 0) {
				got = append(got, verdict{v.Admitted, v.Choice, v.Begin})
			}
			if diff := cmp.Diff(tt.want, got, cmp.AllowUnexported(verdict{})); diff != "" {
				t.Errorf("verdicts (-want +got):\n%s", diff)
			}
		})
	}
}
