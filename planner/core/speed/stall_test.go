package speed

import (
	"strings"
	"testing"

	"github.com/caravan-sched/caravan/planner/core/model"
)

func TestLimit(t *testing.T) {
	sample := func(gpus int, rate float64, change ...func(*model.SpeedSample)) model.SpeedSample {
		s := model.SpeedSample{Members: gpus, GPUs: gpus, Level: "node", Rate: rate, Spread: 0.01, Count: 10}
		for _, c := range change {
			c(&s)
		}
		return s
	}
	parts := func(fetch, prepare, compute float64) func(*model.SpeedSample) {
		return func(s *model.SpeedSample) { s.FetchS, s.PrepareS, s.ComputeS = fetch, prepare, compute }
	}
	rack := func(s *model.SpeedSample) { s.Level = "rack" }
	few := func(s *model.SpeedSample) { s.Count = 2 }
	tests := map[string]struct {
		samples []model.SpeedSample
		want    int
		why     string
		// most is what At says of 64 GPUs at most; 0 is not asked.
		most float64
	}{
		"nothing was measured":      {},
		"it grows":                  {samples: []model.SpeedSample{sample(2, 100), sample(4, 190)}},
		"more do nothing":           {samples: []model.SpeedSample{sample(2, 100), sample(4, 190), sample(8, 191)}, want: 4, why: "8 GPUs are no faster than 4 (191 and 190 samples/s)", most: 191},
		"more make it slower":       {samples: []model.SpeedSample{sample(2, 100), sample(4, 190), sample(8, 150)}, want: 4, why: "8 GPUs are no faster", most: 190},
		"a dent":                    {samples: []model.SpeedSample{sample(2, 100), sample(4, 100), sample(8, 180)}},
		"one more GPU tells little": {samples: []model.SpeedSample{sample(7, 100), sample(8, 101)}},
		"two measurements do too":   {samples: []model.SpeedSample{sample(2, 100), sample(4, 100, few)}},
		// 8 GPUs are further apart, so that the network may be what they wait for.
		"further apart":                   {samples: []model.SpeedSample{sample(4, 100), sample(8, 100, rack)}},
		"reading is what it waits for":    {samples: []model.SpeedSample{sample(4, 100, parts(0.5, 0.1, 0.2))}, want: 4, why: "reading its input allows 100 samples/s, and a step of 4 GPUs waits for it: 0.5 s of it, and 0.2 s of work", most: 100},
		"reading is not":                  {samples: []model.SpeedSample{sample(4, 100, parts(0.2, 0.1, 0.5))}},
		"CPUs come with the members":      {samples: []model.SpeedSample{sample(4, 100, parts(0.1, 0.5, 0.2))}},
		"CPUs did not":                    {samples: []model.SpeedSample{sample(2, 99, parts(0.1, 0.26, 0.2)), sample(4, 100, parts(0.1, 0.5, 0.2), few)}, want: 4, why: "preparing its input allows 100", most: 105},
		"each member reads for itself":    {samples: []model.SpeedSample{sample(2, 50, parts(0.5, 0.1, 0.2)), sample(4, 100, parts(0.5, 0.1, 0.2))}},
		"reading is used up at two sizes": {samples: []model.SpeedSample{sample(2, 90, parts(0.2, 0, 0.3)), sample(4, 100, parts(0.5, 0, 0.2))}, want: 4, why: "reading its input allows 100", most: 100},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			c := New(&model.Speed{Unit: model.UnitSamples, Samples: test.samples}, nil)
			got := c.Limit()
			if got.GPUs != test.want || !strings.Contains(got.Why, test.why) {
				t.Errorf("Limit() = %+v, want %d GPUs because %q", got, test.want, test.why)
			}
			if e := c.At(Config{Members: 64, GPUs: 64}); test.most > 0 && e.Rate > test.most*1.001 {
				t.Errorf("64 GPUs are said to do %.1f, want at most %.1f", e.Rate, test.most)
			}
		})
	}
}

// TestStalledRate: of four GPUs that wait half of a step of 0.4 s for their input
// two do as much, since they take 0.4 s to compute then; one takes 0.8 s.
func TestStalledRate(t *testing.T) {
	c := New(&model.Speed{Unit: model.UnitSteps, Samples: []model.SpeedSample{{Members: 4, GPUs: 4, Level: "node", Rate: 2.5, Count: 10, Spread: 0.01, FetchS: 0.4, ComputeS: 0.2}}}, nil)
	for gpus, want := range map[int]float64{1: 1.25, 2: 2.5, 3: 2.5, 4: 2.5, 8: 2.5} {
		if got := c.At(Config{Members: gpus, GPUs: gpus, Level: Node}); got.Rate < want*0.99 || got.Rate > want*1.01 {
			t.Errorf("%d GPUs do %+v, want %v", gpus, got, want)
		}
	}
}

// TestEfficiency: with a noise scale of 1000 and batches of 100 at 1 GPU and 400
// at 4, a sample of the larger batch is worth (1000+100)/(1000+400) = 0.786.
func TestEfficiency(t *testing.T) {
	s := &model.Speed{Unit: model.UnitSamples, NoiseScale: 1000, Samples: []model.SpeedSample{
		{Members: 1, GPUs: 1, Level: "node", Rate: 100, Count: 10, Batch: 100}, {Members: 4, GPUs: 4, Level: "node", Rate: 400, Count: 10, Batch: 400}}}
	c := New(s, nil)
	four := Config{Members: 4, GPUs: 4, Level: Node}
	if got, want := c.Goodput(four).Rate, 400*1100.0/1400; got < want*0.99 || got > want*1.01 {
		t.Errorf("goodput %.1f, want %.1f", got, want)
	}
	if got := c.Efficiency(100); got != 1 {
		t.Errorf("the smallest batch is worth %v, want 1", got)
	}
	s.NoiseScale = 0
	if got, want := New(s, nil).Goodput(four).Rate, 400.0; got < want*0.99 || got > want*1.01 {
		t.Errorf("goodput without a noise scale %.1f, want %.1f", got, want)
	}
}
