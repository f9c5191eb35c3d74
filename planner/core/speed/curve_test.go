package speed

import (
	"math"
	"testing"

	"pgregory.net/rapid"

	"github.com/caravan-sched/caravan/planner/core/model"
)

func TestCurveAt(t *testing.T) {
	declared := []model.SpeedPoint{{Members: 1, Rate: 1}, {Members: 2, Rate: 1.9}, {Members: 4, Rate: 3.5}}
	tests := map[string]struct {
		speed *model.Speed
		at    Config
		want  float64
		seen  int
	}{
		"nothing is known":            {nil, Config{Members: 2, GPUs: 16}, 16, 0},
		"declared":                    {&model.Speed{Declared: declared}, Config{Members: 2}, 1.9, 0},
		"between two declared points": {&model.Speed{Declared: declared}, Config{Members: 3}, 3.5 * math.Pow(0.75, math.Log2(3.5/1.9)), 0},
		"measured": {&model.Speed{Declared: declared, Samples: []model.SpeedSample{{Members: 2, Level: "rack", Rate: 38, Count: 5}}},
			Config{Members: 2, Level: Rack}, 38, 5},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got := New(test.speed, nil).At(test.at)
			if math.Abs(got.Rate-test.want) > 0.001*test.want || got.Seen != test.seen {
				t.Errorf("At(%+v) = %+v, want rate %v, seen %d", test.at, got, test.want, test.seen)
			}
		})
	}
}

// TestModels measures one model at four sizes and another at one: what the
// second does at the other sizes follows from the first.
func TestModels(t *testing.T) {
	sample := func(gpus int, name string, rate float64) model.SpeedSample {
		return model.SpeedSample{Members: gpus, GPUs: gpus, Model: name, Level: "node", Rate: rate, Spread: 0.01, Count: 10}
	}
	// A step takes 0.1 + 1.6/GPUs seconds on the first, and half of that on the
	// second, which needs no time to synchronise either.
	s := &model.Speed{Unit: model.UnitSteps, Samples: []model.SpeedSample{
		sample(1, "A100", 1/1.7), sample(2, "A100", 1/0.9), sample(4, "A100", 1/0.5), sample(8, "A100", 1/0.3), sample(2, "H100", 2/0.9)}}
	c := New(s, []model.ModelSpeed{{Name: "A100", Speed: 1}, {Name: "H100", Speed: 1.5}, {Name: "L4", Speed: 0.25}})
	tests := map[string]struct {
		gpus       int
		model      string
		want, near float64
	}{
		"measured":                   {4, "A100", 2, 0.01},
		"measured of the other":      {2, "H100", 2 / 0.9, 0.02},
		"the other at more":          {8, "H100", 2 / 0.3, 0.15},
		"one that is only spoken of": {8, "L4", 0.25 / 0.3, 0.05},
		"one that nobody knows":      {8, "B200", 1 / 0.3, 0.05},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got := c.At(Config{Members: test.gpus, GPUs: test.gpus, Model: test.model, Level: Node})
			if math.Abs(math.Log(got.Rate/test.want)) > test.near {
				t.Errorf("At = %+v, want %.3f", got, test.want)
			}
			if measured := got.Seen > 0; measured != (got.Error < 0.03) {
				t.Errorf("At = %+v: the error is not what was seen", got)
			}
		})
	}
}

// TestPrior: what is declared counts for less the more is measured.
func TestPrior(t *testing.T) {
	declared := []model.SpeedPoint{{Members: 1, Rate: 1}, {Members: 8, Rate: 8}}
	truth := func(n int) model.SpeedSample {
		return model.SpeedSample{Members: n, GPUs: n, Level: "node", Rate: 10 / (0.5 + 0.5/float64(n)), Spread: 0.01, Count: 10}
	}
	eight := Config{Members: 8, GPUs: 8, Level: Node}
	want := truth(8).Rate
	first := New(&model.Speed{Unit: model.UnitSteps, Declared: declared, Samples: []model.SpeedSample{truth(1)}}, nil).At(eight)
	if first.Rate < 5*truth(1).Rate {
		t.Errorf("after one size: %+v, want about 8 times %.1f as declared", first, truth(1).Rate)
	}
	later := New(&model.Speed{Unit: model.UnitSteps, Declared: declared, Samples: []model.SpeedSample{truth(1), truth(2), truth(3), truth(4)}}, nil).At(eight)
	if math.Abs(math.Log(later.Rate/want)) > 0.1 {
		t.Errorf("after four sizes: %+v, want %.1f", later, want)
	}
}

// TestCurveOrder: the order in which things are listed means nothing, whatever
// they are, and no speed is anything but a number above 0.
func TestCurveOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := &model.Speed{Unit: rapid.SampledFrom([]string{model.UnitSteps, model.UnitSamples}).Draw(t, "unit")}
		for range rapid.IntRange(0, 6).Draw(t, "samples") {
			m := model.SpeedSample{Members: rapid.IntRange(1, 64).Draw(t, "members"), Rate: math.Exp(rapid.Float64Range(-10, 10).Draw(t, "rate")),
				Count: rapid.IntRange(1, 20).Draw(t, "count"), Spread: rapid.Float64Range(0, 1).Draw(t, "spread"),
				Level: rapid.SampledFrom([]string{"island", "node", "rack", "zone"}).Draw(t, "level"), Model: rapid.SampledFrom([]string{"A", "B"}).Draw(t, "model")}
			m.GPUs = m.Members * rapid.IntRange(0, 2).Draw(t, "gpus")
			m.Batch = rapid.SampledFrom([]float64{0, 32, 64}).Draw(t, "batch")
			m.FetchS, m.ComputeS = rapid.Float64Range(0, 1).Draw(t, "fetch"), rapid.Float64Range(0, 1).Draw(t, "compute")
			s.Samples = append(s.Samples, m)
		}
		for i := range rapid.IntRange(0, 3).Draw(t, "declared") {
			s.Declared = append(s.Declared, model.SpeedPoint{Members: 1 << i, Rate: math.Exp(rapid.Float64Range(-2, 2).Draw(t, "speed"))})
		}
		other := *s
		other.Samples, other.Declared = rapid.Permutation(s.Samples).Draw(t, "order"), rapid.Permutation(s.Declared).Draw(t, "order of points")
		at := Config{Members: rapid.IntRange(1, 128).Draw(t, "at"), GPUs: rapid.IntRange(0, 512).Draw(t, "at GPUs"), Model: "A", Level: Rack}
		got, again := New(s, nil).At(at), New(&other, nil).At(at)
		if got != again {
			t.Fatalf("%+v, and in another order %+v", got, again)
		}
		if !(got.Rate > 0) || math.IsInf(got.Rate, 0) || !(got.Error > 0) || math.IsInf(got.Error, 0) {
			t.Fatalf("At(%+v) = %+v", at, got)
		}
	})
}

func TestSized(t *testing.T) {
	sample := func(members, each int, level string) model.SpeedSample {
		return model.SpeedSample{Members: members, GPUs: members * each, Model: "H100", Level: level, Rate: float64(members), Count: 3}
	}
	tests := map[string]struct {
		samples []model.SpeedSample
		members int
		want    Config
	}{
		"nothing is known":         {nil, 2, Config{Members: 2, GPUs: 16}},
		"as at the nearest size":   {[]model.SpeedSample{sample(2, 8, "rack"), sample(8, 8, "block")}, 6, Config{6, 48, "H100", Block}},
		"one member":               {[]model.SpeedSample{sample(2, 8, "rack")}, 1, Config{1, 8, "H100", Node}},
		"the second node":          {[]model.SpeedSample{sample(1, 8, "island")}, 2, Config{2, 16, "H100", Rack}},
		"the second GPU of a node": {[]model.SpeedSample{sample(1, 1, "island")}, 2, Config{2, 16, "H100", Island}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if got := New(&model.Speed{Unit: model.UnitSteps, Samples: test.samples}, nil).Sized(test.members, 8*test.members); got != test.want {
				t.Errorf("%+v, want %+v", got, test.want)
			}
		})
	}
}
