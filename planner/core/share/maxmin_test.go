package share

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// The example of the paper's section 4.1: three jobs on one V100 and one K80,
// with speeds of 40 and 10, 12 and 4, 100 and 50. It says 0.45 and 0.0, 0.45 and
// 0.09, 0.09 and 0.91, and about 10 % more speed than with a third of each.
//
// By hand: with half of either GPU they would run at 25, 8 and 75. Let all run at
// t times that: 40a = 25t; 12b + 4c = 8t; 100d + 50e = 75t. With both GPUs full,
// a + b + d = 1 and c + e = 1, and the third job always running, d + e = 1, these
// are solved by t = 8/11, a = b = 5/11, c = d = 1/11, e = 10/11. With a third of
// each GPU t would be 2/3: 8/11 is 12/11 of that.
func TestMaxMinPaper(t *testing.T) {
	runners := []Runner{
		{Jobs: 1, GPUs: 1, Speed: []float64{40, 10}},
		{Jobs: 1, GPUs: 1, Speed: []float64{12, 4}},
		{Jobs: 1, GPUs: 1, Speed: []float64{100, 50}},
	}
	got, err := MaxMin([]int{1, 1}, runners)
	if err != nil {
		t.Fatal(err)
	}
	want := [][]float64{{5. / 11, 0}, {5. / 11, 1. / 11}, {1. / 11, 10. / 11}}
	for i := range got {
		if !near(got[i].Time, want[i]) || math.Abs(got[i].Level-12./11) > 1e-9 {
			t.Errorf("job %d: %+v, want %v", i, got[i], want[i])
		}
	}
	if text := fmt.Sprintf("%.2f %.2f %.2f", got[0].Speed, got[1].Speed, got[2].Speed); text != "18.18 5.82 54.55" {
		t.Errorf("speeds %s", text)
	}
}

func TestMaxMin(t *testing.T) {
	tests := map[string]struct {
		capacity []int
		runners  []Runner
		time     [][]float64
		level    []float64
	}{
		// 4 GPUs, 4 jobs with 2 each: each half of the time, as with an equal part.
		"alike": {[]int{4}, []Runner{{Jobs: 4, GPUs: 2, Speed: []float64{7}}}, [][]float64{{0.5}}, []float64{1}},
		// 4 GPUs by a weight of 3 + 1: 3 and 1, which is all that they can use.
		"weights": {[]int{4}, []Runner{{Jobs: 1, GPUs: 4, Weight: 3, Speed: []float64{1}}, {Jobs: 1, GPUs: 4, Speed: []float64{1}}}, [][]float64{{0.75}, {0.25}}, []float64{1, 1}},
		// One with 1 GPU can use no more than it; the other two have the other 7,
		// though an equal part of 8 would be 2.67: level 1/2.67 and 3.5/2.67.
		"one is full": {[]int{8}, []Runner{{Jobs: 1, GPUs: 1, Speed: []float64{1}}, {Jobs: 2, GPUs: 8, Speed: []float64{1}}},
			[][]float64{{1}, {7. / 16}}, []float64{3. / 8, 10.5 / 8}},
		// As many as there is room for: everybody runs always, where it is fastest.
		"room for all": {[]int{2, 2}, []Runner{{Jobs: 2, GPUs: 1, Speed: []float64{2, 1}}, {Jobs: 2, GPUs: 1, Speed: []float64{1, 3}}},
			[][]float64{{1, 0}, {0, 1}}, []float64{4. / 3, 1.5}},
		"nowhere":         {[]int{2}, []Runner{{Jobs: 1, GPUs: 4, Speed: []float64{1}}, {Jobs: 1, GPUs: 2, Speed: []float64{1}}}, [][]float64{{0}, {1}}, []float64{0, 1}},
		"no such model":   {[]int{2, 0}, []Runner{{Jobs: 1, GPUs: 1, Speed: []float64{0, 5}}}, [][]float64{{0, 0}}, []float64{0}},
		"an empty set":    {[]int{2}, nil, nil, nil},
		"an empty runner": {[]int{2}, []Runner{{Jobs: 0, GPUs: 1, Speed: []float64{1}}}, [][]float64{{0}}, []float64{0}},
		"no GPUs":         {nil, []Runner{{Jobs: 1, GPUs: 1}}, [][]float64{{}}, []float64{0}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := MaxMin(tt.capacity, tt.runners)
			if err != nil || len(got) != len(tt.time) {
				t.Fatalf("%+v, %v", got, err)
			}
			for i := range got {
				if !near(got[i].Time, tt.time[i]) || math.Abs(got[i].Level-tt.level[i]) > 1e-7 {
					t.Errorf("runner %d: %+v, want %v at level %g", i, got[i], tt.time[i], tt.level[i])
				}
			}
		})
	}
}

func anyRunners(t *rapid.T, most int) ([]int, []Runner) {
	capacity := make([]int, rapid.IntRange(1, 2).Draw(t, "models"))
	for m := range capacity {
		capacity[m] = rapid.IntRange(0, 6).Draw(t, "capacity")
	}
	runners := make([]Runner, rapid.IntRange(1, most).Draw(t, "runners"))
	for i := range runners {
		runners[i] = Runner{Jobs: rapid.IntRange(1, 3).Draw(t, "jobs"), GPUs: rapid.IntRange(1, 3).Draw(t, "gpus"), Weight: float64(rapid.IntRange(1, 2).Draw(t, "weight"))}
		for range capacity {
			runners[i].Speed = append(runners[i].Speed, float64(rapid.IntRange(0, 4).Draw(t, "speed")))
		}
	}
	return capacity, runners
}

// No capacity is exceeded, nobody has more than all of the time, and what a
// runner has does not depend on where it stands in the list.
func TestMaxMinKeepsToCapacity(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		capacity, runners := anyRunners(t, 8)
		got, err := MaxMin(capacity, runners)
		if err != nil {
			t.Fatal(err)
		}
		used := make([]float64, len(capacity))
		for i, part := range got {
			sum := 0.0
			for m, time := range part.Time {
				if time < 0 || time > 0 && (runners[i].Speed[m] == 0 || runners[i].GPUs > capacity[m]) {
					t.Errorf("runner %d: %g of model %d", i, time, m)
				}
				sum += time
				used[m] += time * float64(runners[i].Jobs*runners[i].GPUs)
			}
			if sum > 1+1e-6 {
				t.Errorf("runner %d has %g of the time", i, sum)
			}
		}
		for m := range used {
			if used[m] > float64(capacity[m])+1e-6 {
				t.Errorf("model %d: %g of %d", m, used[m], capacity[m])
			}
		}
		back := slices.Clone(runners)
		slices.Reverse(back)
		other, err := MaxMin(capacity, back)
		if err != nil {
			t.Fatal(err)
		}
		for i := range got {
			if a, b := got[i].Level, other[len(got)-1-i].Level; math.Abs(a-b) > 1e-6 {
				t.Errorf("runner %d: level %g, and %g in another order", i, a, b)
			}
		}
	})
}

// Nobody could have more without taking it from somebody who has no more than
// he: for each runner the best corner of the program in which all who have as
// little keep theirs is what it has.
func TestMaxMinCannotBeRaised(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		capacity, runners := anyRunners(t, 3)
		got, err := MaxMin(capacity, runners)
		if err != nil {
			t.Fatal(err)
		}
		p := newFairProgram(capacity, runners)
		if len(p.runners) == 0 {
			return
		}
		d, err := p.dictionary()
		if err != nil {
			t.Fatal(err)
		}
		level := make([]float64, len(p.runners)) // as the program counts it
		for k, i := range p.runners {
			level[k] = got[i].Level
		}
		n := len(p.times) - 1
		for k := range p.runners {
			rows, bounds := [][]float64{}, []float64{}
			for r, cells := range d.cells {
				if r >= len(p.runners) {
					rows, bounds = append(rows, cells[1:]), append(bounds, d.bound[r])
				} else if level[r] <= level[k]+1e-9 {
					rows, bounds = append(rows, cells[1:]), append(bounds, -level[r])
				}
			}
			objective := make([]float64, n)
			for j := range objective {
				objective[j] = -d.cells[k][j+1]
			}
			if best := bestCorner(objective, rows, bounds); best > level[k]+1e-5 {
				t.Errorf("runner %d has level %g and could have %g: %v %+v", p.runners[k], level[k], best, capacity, runners)
			}
		}
	})
}

func BenchmarkMaxMin(b *testing.B) {
	for _, n := range []int{16, 48, 96} {
		b.Run(fmt.Sprintf("runners=%d/models=4", n), func(b *testing.B) {
			runners := make([]Runner, n)
			for i := range runners {
				runners[i] = Runner{Jobs: 1 + i*7%40, GPUs: 1 << (i % 6), Speed: []float64{1 + float64(i%5), 1 + float64(i*3%7)/2, 1, float64(i*5%3) / 2}}
			}
			for b.Loop() {
				if _, err := MaxMin([]int{4096, 2048, 1024, 512}, runners); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
