package speed

import (
	"encoding/json"
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/caravan-sched/caravan/planner/core/model"
)

func measured(members int, rate float64) Measured {
	return Measured{SpeedSample: model.SpeedSample{Members: members, GPUs: members, Level: "node", Rate: rate}, Unit: model.UnitSteps}
}

func TestTally(t *testing.T) {
	var tally Tally
	for _, rate := range []float64{10, 10.2, 9.8, 500, 10.1} {
		tally.Add(measured(2, rate))
	}
	tally.Add(measured(4, 19))
	// The median is 10.1, and the distances of the logarithms are 0, 0.0099,
	// 0.0099, 0.0302 and 3.9: their median is 0.0099, times 1.4826 is 0.0147.
	want := []model.SpeedSample{
		{Members: 2, GPUs: 2, Level: "node", Rate: 10.1, Spread: 0.01475, Count: 5},
		{Members: 4, GPUs: 4, Level: "node", Rate: 19, Count: 1},
	}
	near := cmp.Comparer(func(a, b float64) bool { return math.Abs(a-b) <= 1e-3*math.Abs(a) })
	if diff := cmp.Diff(want, tally.Samples(), near); diff != "" {
		t.Errorf("samples (-want +got):\n%s", diff)
	}
	for name, m := range map[string]Measured{
		"no rate": measured(1, 0), "a negative one": measured(1, -1), "infinite": measured(1, math.Inf(1)), "no number": measured(1, math.NaN()),
		"no members": measured(0, 1), "no unit": {SpeedSample: model.SpeedSample{Members: 1, Rate: 1}},
	} {
		if tally.Add(m) {
			t.Errorf("%s: was taken in", name)
		}
	}
	samples := measured(2, 640)
	samples.Unit, samples.Batch, samples.NoiseScale = model.UnitSamples, 64, 2000
	if !tally.Add(samples) || tally.Add(measured(2, 10)) {
		t.Error("steps were taken in beside samples")
	}
	if diff := cmp.Diff([]model.SpeedSample{{Members: 2, GPUs: 2, Level: "node", Rate: 640, Count: 1, Batch: 64}}, tally.Samples(), near); diff != "" || tally.NoiseScale != 2000 {
		t.Errorf("after the first samples, noise %v (-want +got):\n%s", tally.NoiseScale, diff)
	}
}

// TestTallyBounded adds whatever there may be: the tally stays small enough to
// keep, and every sample is one that a snapshot may hold.
func TestTallyBounded(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var tally Tally
		rates := rapid.Float64()
		for range rapid.IntRange(0, 120).Draw(t, "measurements") {
			m := measured(rapid.IntRange(-1, 200).Draw(t, "members"), rates.Draw(t, "rate"))
			m.Level, m.Batch, m.FetchS = rapid.SampledFrom([]string{"node", "rack", ""}).Draw(t, "level"), rates.Draw(t, "batch"), rates.Draw(t, "fetch")
			m.Unit = rapid.SampledFrom([]string{model.UnitSteps, model.UnitSteps, model.UnitSamples}).Draw(t, "unit")
			m.NoiseScale = rates.Draw(t, "noise")
			tally.Add(m)
		}
		raw, err := json.Marshal(&tally)
		if err != nil {
			t.Fatal(err)
		}
		if len(raw) > 24<<10 {
			t.Fatalf("%d bytes", len(raw))
		}
		for _, s := range tally.Samples() {
			if !(s.Rate > 0) || math.IsInf(s.Rate, 0) || s.Count < 1 || s.Spread < 0 || math.IsNaN(s.Spread) || s.Batch < 0 || s.FetchS < 0 || math.IsNaN(s.Batch+s.FetchS) {
				t.Fatalf("sample %+v", s)
			}
		}
	})
}

// TestTallyChanged: four slower measurements may be the weather, the fifth means
// that the job is another one, whatever its sizes did before.
func TestTallyChanged(t *testing.T) {
	var tally Tally
	tally.Add(measured(8, 70))
	for range 10 {
		tally.Add(measured(4, 40))
	}
	for range 4 {
		tally.Add(measured(4, 20))
	}
	if got := tally.Samples(); len(got) != 2 || got[1].Rate != 40 {
		t.Errorf("after four: %+v", got)
	}
	tally.Add(measured(4, 21))
	if got := tally.Samples(); len(got) != 1 || got[0].Rate != 20 || got[0].Count != 5 {
		t.Errorf("after five: %+v", got)
	}
}
