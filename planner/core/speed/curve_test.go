package speed

import (
	"math"
	"testing"

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
			got := New(test.speed).At(test.at)
			if math.Abs(got.Rate-test.want) > 1e-9 || got.Seen != test.seen {
				t.Errorf("At(%+v) = %+v, want rate %v, seen %d", test.at, got, test.want, test.seen)
			}
		})
	}
}
