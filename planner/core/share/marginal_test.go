package share

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func TestSpread(t *testing.T) {
	lin := func(members, least, most int) Grower {
		return Grower{GPUs: 1, Members: members, Min: least, Max: most, Speed: linear}
	}
	con := func(members, least, most int) Grower {
		return Grower{GPUs: 1, Members: members, Min: least, Max: most, Speed: concave}
	}
	tests := map[string]struct {
		gpus    int
		growers []Grower
		want    []int
		left    int
	}{
		// The second member of the concave task returns 1.5 − 1 = 1/2 of what the first
		// does, its third 1.75 − 1.5 = 1/4; each of the linear one's returns 1.
		"where it returns most":       {3, []Grower{con(1, 1, 4), lin(1, 1, 3)}, []int{2, 3}, 0},
		"the older of equals":         {1, []Grower{lin(2, 1, 4), lin(1, 1, 4)}, []int{3, 1}, 0},
		"no more than they may":       {9, []Grower{lin(1, 1, 3), con(2, 1, 2)}, []int{3, 2}, 7},
		"no more than there are":      {3, []Grower{{GPUs: 4, Members: 1, Max: 9, Speed: linear}, {GPUs: 2, Members: 1, Max: 9, Speed: concave}}, []int{1, 2}, 1},
		"back where it matters least": {-2, []Grower{con(3, 1, 4), lin(3, 1, 3)}, []int{1, 3}, 0},
		"the younger of equals":       {-1, []Grower{lin(2, 1, 4), lin(2, 1, 4)}, []int{2, 1}, 0},
		"not below their least":       {-9, []Grower{con(3, 2, 4), lin(3, 3, 3)}, []int{2, 3}, -8},
		"a few too many":              {-3, []Grower{{GPUs: 4, Members: 3, Min: 1, Max: 9, Speed: linear}}, []int{2}, 1},
		"what returns nothing":        {5, []Grower{{GPUs: 1, Members: 2, Min: 1, Max: 9, Speed: func(int) float64 { return 1 }}}, []int{2}, 5},
		"nothing to hand out":         {0, []Grower{lin(2, 1, 4)}, []int{2}, 0},
		"does not run":                {5, []Grower{lin(0, 1, 4)}, []int{0}, 5},
		"nobody":                      {5, nil, []int{}, 5},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if got, left := Spread(tt.gpus, tt.growers); !slices.Equal(got, tt.want) || left != tt.left {
				t.Errorf("got %v, %d left; want %v, %d", got, left, tt.want, tt.left)
			}
		})
	}
}

// Nobody has more or fewer members than he may, all GPUs are accounted for, none
// are left that somebody could use, and where returns fall no member would have
// returned more elsewhere.
func TestSpreadIsWithinBounds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
		growers := make([]Grower, 1+rng.IntN(6))
		for i := range growers {
			g := Grower{GPUs: 1 + rng.IntN(4), Min: 1 + rng.IntN(3)}
			g.Members = g.Min + rng.IntN(3)
			g.Max = g.Members + rng.IntN(4)
			power := rng.Float64()
			g.Speed = func(n int) float64 { return math.Pow(float64(n), power) }
			growers[i] = g
		}
		gpus := rng.IntN(40) - 20
		got, left := Spread(gpus, growers)
		sum := left
		for i, n := range got {
			g := &growers[i]
			sum += (n - g.Members) * g.GPUs
			if n < g.Min || n > g.Max || gpus >= 0 && n < g.Members || gpus <= 0 && n > g.Members {
				t.Errorf("grower %d has %d of %+v for %d", i, n, *g, gpus)
			}
			if gpus > 0 && n < g.Max && g.GPUs <= left {
				t.Errorf("%d are left, and grower %d could have had %d", left, i, g.GPUs)
			}
			if gpus < 0 && left < 0 && n > g.Min {
				t.Errorf("%d are lacking, and grower %d keeps %d", left, i, n)
			}
		}
		if sum != gpus {
			t.Errorf("%d of %d", sum, gpus)
		}
		for i := range growers { // nobody was given one that was worth more elsewhere
			for k := range growers {
				x, y := &growers[i], &growers[k]
				if gpus > 0 && x.GPUs == y.GPUs && got[i] > x.Members && got[k] < y.Max && x.Return(got[i]-1) < y.Return(got[k])-1e-9 {
					t.Errorf("grower %d has %d, and %d has %d", i, got[i], k, got[k])
				}
			}
		}
	})
}
