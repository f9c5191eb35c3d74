package together

import (
	"math"
	"testing"

	"pgregory.net/rapid"

	"github.com/caravan-sched/caravan/planner/core/model"
)

func TestCorrelation(t *testing.T) {
	tests := map[string]struct {
		a, b  []int
		want  float64
		known bool
	}{
		// The textbook example of IQ and hours of television: the squares of the
		// differences of ranks sum up to 194, so 1 - 6·194/(10·99) = -29/165.
		"textbook": {[]int{106, 100, 86, 101, 99, 103, 97, 113, 112, 110}, []int{7, 27, 2, 50, 28, 29, 20, 12, 6, 17}, -29.0 / 165, true},
		"the same": {[]int{1, 2, 3, 4, 5, 6, 7, 8}, []int{10, 20, 30, 40, 50, 60, 70, 99}, 1, true},
		"opposite": {[]int{1, 2, 3, 4, 5, 6, 7, 8}, []int{9, 8, 7, 6, 5, 4, 3, 2}, -1, true},
		// Ranks with ties are 2.5 and 6.5 in blocks; every second one agrees.
		"ties":       {[]int{0, 0, 0, 0, 9, 9, 9, 9}, []int{0, 9, 0, 9, 0, 9, 0, 9}, 0, true},
		"too few":    {[]int{1, 2, 3}, []int{1, 2, 3}, 0, false},
		"constant":   {[]int{5, 5, 5, 5, 5, 5, 5, 5}, []int{1, 2, 3, 4, 5, 6, 7, 8}, 0, false},
		"the latest": {[]int{99, 1, 1, 2, 3, 4, 5, 6, 7, 8}, []int{1, 2, 3, 4, 5, 6, 7, 8}, 1, true},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got, known := Correlation(tt.a, tt.b)
			if known != tt.known || math.Abs(got-tt.want) > 1e-9 {
				t.Errorf("%g, %v; want %g, %v", got, known, tt.want, tt.known)
			}
		})
	}
}

func TestCalm(t *testing.T) {
	for want, series := range map[int][]int{0: nil, 7: {7}, 4: {5, 1, 4, 2, 3}, 8: {10, 9, 8, 7, 6, 5, 4, 3, 2, 1}} {
		if got := Calm(series); got != want {
			t.Errorf("%v: %d, want %d", series, got, want)
		}
	}
}

func TestLoad(t *testing.T) {
	day := &model.Usage{MemoryMiB: 20000, Busy: 80, Minutes: []int{80, 80, 80, 80, 80, 10, 10, 10, 10, 10}}
	night := &model.Usage{MemoryMiB: 30000, Busy: 70, Minutes: []int{10, 10, 10, 10, 10, 70, 70, 70, 70, 70}}
	young := &model.Usage{MemoryMiB: 1000, Busy: 30, Minutes: []int{30}}
	g := GPU{Slices: 4, MemoryMiB: 80000}
	tests := map[string]struct {
		users []*model.Usage
		want  Load
		fits  bool
	}{
		"nobody":                     {nil, Load{}, true},
		"unknown":                    {[]*model.Usage{nil, nil, nil, nil}, Load{80000, 100}, true},
		"at different times":         {[]*model.Usage{day, night}, Load{50000, 90}, true},
		"at the same time":           {[]*model.Usage{day, day}, Load{40000, 160}, false},
		"with one that is young":     {[]*model.Usage{day, young}, Load{21000, 110}, false},
		"different times, unknown":   {[]*model.Usage{day, night, nil}, Load{70000, 115}, false},
		"too much memory":            {[]*model.Usage{night, {MemoryMiB: 60000, Busy: 1}}, Load{90000, 71}, false},
		"just as much as there is":   {[]*model.Usage{night, {MemoryMiB: 50000, Busy: 30}}, Load{80000, 100}, true},
		"young ones are added up":    {[]*model.Usage{young, young}, Load{2000, 60}, true},
		"one that is always at work": {[]*model.Usage{{MemoryMiB: 1, Busy: 100}}, Load{1, 100}, true},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if got := g.Load(tt.users); got != tt.want || g.Fits(got) != tt.fits {
				t.Errorf("%+v, %v; want %+v, %v", got, g.Fits(got), tt.want, tt.fits)
			}
		})
	}
	if !(GPU{Slices: 2}).Fits(Load{MemoryMiB: 1 << 30, Busy: 100}) {
		t.Error("a GPU whose memory is not known refuses")
	}
	if got := g.Room([]*model.Usage{night}, night, 4); got != 0 {
		t.Errorf("room for %d more at the same time, want none", got)
	}
	if got := g.Room([]*model.Usage{young}, young, 3); got != 2 {
		t.Errorf("room for %d more, want 2", got)
	}
}

func TestWorst(t *testing.T) {
	up, down := &model.Usage{Minutes: []int{1, 2, 3, 4, 5, 6, 7, 8}}, &model.Usage{Minutes: []int{8, 7, 6, 5, 4, 3, 2, 1}}
	for want, beside := range map[float64][]*model.Usage{0: {nil, {}}, -1: {down, nil}, 1: {down, up}} {
		if got := Worst(up, beside); got != want {
			t.Errorf("%g, want %g", got, want)
		}
	}
	if got := Worst(nil, []*model.Usage{up}); got != 0 {
		t.Errorf("of an unknown one %g", got)
	}
}

// However many tasks of which nothing is known there are, up to the slices, they
// fit; correlation is symmetric and between -1 and 1; and who comes in addition
// never makes a load less.
func TestProperties(t *testing.T) {
	usage := rapid.Custom(func(t *rapid.T) *model.Usage {
		if rapid.Bool().Draw(t, "unknown") {
			return nil
		}
		u := &model.Usage{MemoryMiB: rapid.IntRange(0, 90000).Draw(t, "memory"), Busy: rapid.IntRange(0, 100).Draw(t, "busy")}
		if rapid.Bool().Draw(t, "measured") {
			u.Minutes = rapid.SliceOfN(rapid.IntRange(0, 100), 12, 12).Draw(t, "minutes")
		}
		return u
	})
	rapid.Check(t, func(t *rapid.T) {
		g := GPU{Slices: rapid.IntRange(2, 32).Draw(t, "slices"), MemoryMiB: rapid.IntRange(0, 1<<20).Draw(t, "memory")}
		if got := g.Room(nil, nil, g.Slices); got != g.Slices {
			t.Fatalf("room for %d of %d unknown ones", got, g.Slices)
		}
		users := rapid.SliceOfN(usage, 0, 6).Draw(t, "users")
		more := usage.Draw(t, "more")
		before, after := g.Load(users), g.Load(append(users[:len(users):len(users)], more))
		if after.MemoryMiB < before.MemoryMiB || after.Busy < before.Busy {
			t.Fatalf("%+v with %+v more is %+v", before, more, after)
		}
		a, b := rapid.SliceOfN(rapid.IntRange(0, 5), 8, 20).Draw(t, "a"), rapid.SliceOfN(rapid.IntRange(0, 5), 8, 20).Draw(t, "b")
		x, known := Correlation(a, b)
		y, also := Correlation(b, a)
		if known != also || math.Abs(x-y) > 1e-9 || math.Abs(x) > 1+1e-9 {
			t.Fatalf("correlations %g (%v) and %g (%v)", x, known, y, also)
		}
	})
}
