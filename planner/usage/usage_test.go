package usage

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/caravan-sched/caravan/planner/core/model"
)

var start = time.Date(2031, 5, 17, 12, 0, 0, 0, time.UTC)

// ran is a task that was so busy in its minutes, with two samples in each. Its equal
// part of the GPU is 2000 MiB and 25 percent of the time.
func ran(memory int, busy ...int) *Run {
	r := &Run{}
	for i, b := range busy {
		at := start.Add(time.Duration(i) * time.Minute)
		r.Add(Sample{At: at, MemoryMiB: memory - 10, Busy: b - 5, PartMiB: 2000, PartBusy: 25})
		r.Add(Sample{At: at.Add(30 * time.Second), MemoryMiB: memory, Busy: b + 5, PartMiB: 2000, PartBusy: 25})
	}
	return r
}

func TestExpect(t *testing.T) {
	ended := func(runs ...*Run) *Book {
		b := &Book{}
		for i, r := range runs {
			b.End("nb", r, start.Add(time.Duration(i)*time.Hour))
		}
		return b
	}
	tests := map[string]struct {
		book *Book
		runs []*Run
		want *model.Usage
	}{
		"nothing is known":               {&Book{}, nil, nil},
		"nothing was measured":           {&Book{}, []*Run{{}}, nil},
		"too short says nothing":         {ended(ran(1000, 50, 50, 50, 50, 50)), nil, nil},
		"of those that ended":            {ended(ran(1000, 10, 20, 30, 40, 50, 60), ran(3000, 20, 20, 20, 20, 20, 20)), nil, &model.Usage{MemoryMiB: 3072, Busy: 50, Minutes: []int{20, 20, 20, 20, 20, 20}, Samples: 24}},
		"of itself":                      {&Book{}, []*Run{ran(500, 10, 20, 30, 40, 50, 60)}, &model.Usage{MemoryMiB: 512, Busy: 40, Minutes: []int{10, 20, 30, 40, 50}, Samples: 12}},
		"the peak may still come":        {ended(ran(9000, 90, 90, 90, 90, 90, 90)), []*Run{ran(500, 10, 10, 10, 10, 10, 10)}, &model.Usage{MemoryMiB: 9216, Busy: 10, Minutes: []int{10, 10, 10, 10, 10}, Samples: 24}},
		"others, as long as it is young": {ended(ran(9000, 90, 90, 90, 90, 90, 90)), []*Run{ran(500, 10, 10)}, &model.Usage{MemoryMiB: 9216, Busy: 90, Minutes: []int{90, 90, 90, 90, 90, 90}, Samples: 16}},
		"its part, while it is young":    {&Book{}, []*Run{ran(10, 5)}, &model.Usage{MemoryMiB: 2048, Busy: 25, Samples: 2}},
		"more than its part":             {&Book{}, []*Run{ran(5000, 80, 80, 80, 80)}, &model.Usage{MemoryMiB: 5120, Busy: 80, Minutes: []int{80, 80, 80}, Samples: 8}},
		"the busiest of its tasks":       {&Book{}, []*Run{ran(500, 10, 10, 10, 10, 10, 10), ran(200, 60, 60, 60, 60, 60, 60)}, &model.Usage{MemoryMiB: 512, Busy: 60, Minutes: []int{60, 60, 60, 60, 60}, Samples: 24}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if d := cmp.Diff(tt.want, tt.book.Expect("nb", tt.runs...)); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
		})
	}
}

func TestGapsAndGuesses(t *testing.T) {
	r := &Run{}
	at := func(minute, busy int) {
		r.Add(Sample{At: start.Add(time.Duration(minute) * time.Minute), MemoryMiB: 1, Busy: busy})
	}
	at(0, 10)
	at(1, 20)
	at(4, 50) // minutes 2 and 3 were like the one before
	at(5, 60)
	at(3, 99) // too late
	if d := cmp.Diff([]int{10, 20, 20, 20, 50}, r.last); d != "" {
		t.Errorf("minutes (-want +got):\n%s", d)
	}
	at(20, 70)
	at(21, 80)
	if d := cmp.Diff([]int{70}, r.last); d != "" {
		t.Errorf("after a long gap (-want +got):\n%s", d)
	}
	g := &Run{}
	for i := range 6 {
		g.Add(Sample{At: start.Add(time.Duration(i) * time.Minute), MemoryMiB: 300, Busy: -1, PartMiB: 2000, PartBusy: 25})
	}
	b := &Book{}
	if d := cmp.Diff(&model.Usage{MemoryMiB: 512, Busy: 25, Samples: 6}, b.Expect("x", g)); d != "" {
		t.Errorf("of memory only (-want +got):\n%s", d)
	}
	if !b.End("x", g, start) || len(b.Kinds["x"].Minutes) > 0 {
		t.Errorf("kind %+v", b.Kinds["x"])
	}
}

// However many runs and kinds there are, what is told is valid and bounded, and
// survives being written.
func TestProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := &Book{}
		for i := range rapid.IntRange(0, 20).Draw(t, "runs") {
			r := &Run{}
			at := start
			for range rapid.IntRange(0, 100).Draw(t, "samples") {
				at = at.Add(time.Duration(rapid.IntRange(0, 200).Draw(t, "seconds")) * time.Second)
				r.Add(Sample{At: at, MemoryMiB: rapid.IntRange(-1, 1<<20).Draw(t, "memory"), Busy: rapid.IntRange(-10, 200).Draw(t, "busy"), PartMiB: rapid.IntRange(-1, 1<<20).Draw(t, "part"), PartBusy: rapid.IntRange(-1, 200).Draw(t, "part busy")})
			}
			kind := fmt.Sprint(rapid.IntRange(0, 2).Draw(t, "kind"))
			u := b.Expect(kind, r)
			s := model.Snapshot{Jobs: []model.Job{{ID: "j", State: model.StateQueued, Usage: u}}}
			if err := s.Validate(); err != nil {
				t.Fatal(err)
			}
			b.End(kind, r, start.Add(time.Duration(i)*time.Hour))
		}
		data, err := b.Encode()
		if err != nil {
			t.Fatal(err)
		}
		again, err := Decode(data)
		if err != nil {
			t.Fatal(err)
		}
		for kind := range b.Kinds {
			if d := cmp.Diff(b.Expect(kind), again.Expect(kind)); d != "" {
				t.Fatalf("%s, written and read (-want +got):\n%s", kind, d)
			}
		}
	})
}

func TestForgets(t *testing.T) {
	b := &Book{}
	for i := range maxKinds + 10 {
		b.End(fmt.Sprintf("k%04d", i), ran(100, 5, 5, 5, 5, 5, 5), start.Add(time.Duration(i)*time.Minute))
	}
	if _, kept := b.Kinds["k0009"]; kept || len(b.Kinds) != maxKinds {
		t.Errorf("%d kinds, the oldest kept: %v", len(b.Kinds), kept)
	}
}

func FuzzDecode(f *testing.F) {
	b := &Book{}
	b.End("nb", ran(100, 5, 6, 7, 8, 9, 10), start)
	data, err := b.Encode()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(data)
	f.Add([]byte(`{"kinds":{"a":null,"b":{"peaks_mib":[-1],"busy":[1]}}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		b, err := Decode(data)
		if err != nil {
			return
		}
		for name := range b.Kinds {
			s := model.Snapshot{Jobs: []model.Job{{ID: "j", State: model.StateQueued, Usage: b.Expect(name)}}}
			if err := s.Validate(); err != nil {
				t.Fatal(err)
			}
		}
	})
}
