package queue

import (
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func TestApportion(t *testing.T) {
	tests := map[string]struct {
		gpus   int
		claims []claim
		want   []int // members
		left   int
	}{
		"nobody": {gpus: 4, left: 4},
		// A's second member is worth 5, its third 3; B's 4 and 1.
		"the most for a GPU first": {5, []claim{
			{sizes: []int{1, 2, 3}, each: 1, worth: []float64{0, 5, 8}},
			{sizes: []int{1, 2, 3}, each: 1, worth: []float64{0, 4, 5}}}, []int{3, 2}, 0},
		// B's step is worth more, but 3 for each of two GPUs against 5.
		"for each GPU": {5, []claim{
			{sizes: []int{1, 2}, each: 1, worth: []float64{0, 5}},
			{sizes: []int{1, 2}, each: 2, worth: []float64{0, 6}}}, []int{2, 1}, 1},
		// A second member makes it slower, four are worth it.
		"over a dent":                {4, []claim{{sizes: []int{1, 2, 4}, each: 1, worth: []float64{0, -1, 6}}}, []int{4}, 0},
		"not over half a dent":       {3, []claim{{sizes: []int{1, 2, 4}, each: 1, worth: []float64{0, -1, 6}}}, []int{1}, 2},
		"nothing for nothing":        {9, []claim{{sizes: []int{1, 2, 3}, each: 1, worth: []float64{0, 5, 5}}}, []int{2}, 7},
		"what is left is used":       {4, []claim{{sizes: []int{1, 3, 4}, each: 1, worth: []float64{0, 1, 9}}, {sizes: []int{1}, each: 1, worth: []float64{0}}}, []int{3, 1}, 0},
		"the first of those who tie": {3, []claim{{sizes: []int{1, 2}, each: 1, worth: []float64{0, 1}}, {sizes: []int{1, 2}, each: 1, worth: []float64{0, 1}}}, []int{2, 1}, 0},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			at, left := apportion(test.gpus, test.claims)
			var got []int
			for i, k := range at {
				got = append(got, test.claims[i].sizes[k])
			}
			if !slices.Equal(got, test.want) || left != test.left {
				t.Errorf("%v, %d left; want %v, %d", got, left, test.want, test.left)
			}
		})
	}
}

// drawClaims draws claims whose least sizes fit. Concave ones have steps of one
// member and one GPU.
func drawClaims(t *rapid.T, concave bool) (int, []claim) {
	claims := make([]claim, rapid.IntRange(1, 4).Draw(t, "claims"))
	least := 0
	for i := range claims {
		c := &claims[i]
		c.each = 1
		if !concave {
			c.each = rapid.IntRange(1, 4).Draw(t, "each")
		}
		n := rapid.IntRange(1, 5).Draw(t, "sizes")
		first, worth, gain := rapid.IntRange(1, 3).Draw(t, "least"), 0.0, 16.0
		for k := range n {
			c.sizes = append(c.sizes, first+k)
			c.worth = append(c.worth, worth)
			if concave {
				gain *= rapid.Float64Range(0.1, 1).Draw(t, "less")
				worth += gain
			} else {
				worth += float64(rapid.IntRange(-4, 16).Draw(t, "gain"))
			}
		}
		least += c.sizes[0] * c.each
	}
	return least + rapid.IntRange(0, 12).Draw(t, "more"), claims
}

func total(claims []claim, at []int) (worth float64, gpus int) {
	for i, k := range at {
		worth += claims[i].worth[k]
		gpus += claims[i].sizes[k] * claims[i].each
	}
	return worth, gpus
}

// bestOf tries all.
func bestOf(gpus int, claims []claim, at []int) float64 {
	if len(at) == len(claims) {
		if worth, used := total(claims, at); used <= gpus {
			return worth
		}
		return math.Inf(-1)
	}
	best := math.Inf(-1)
	for k := range claims[len(at)].sizes {
		best = max(best, bestOf(gpus, claims, append(slices.Clone(at), k)))
	}
	return best
}

// TestApportionBest compares with all there are. Where steps are alike in size
// and worth less and less the greedy way is the best; else it may be worse by no
// more than one step is worth.
func TestApportionBest(t *testing.T) {
	draws, worse, regret := 0, 0, 0.0
	rapid.Check(t, func(t *rapid.T) {
		concave := rapid.Bool().Draw(t, "concave")
		gpus, claims := drawClaims(t, concave)
		at, left := apportion(gpus, claims)
		worth, used := total(claims, at)
		if used+left != gpus || left < 0 {
			t.Fatalf("used %d and left %d of %d", used, left, gpus)
		}
		best, most := bestOf(gpus, claims, nil), 0.0
		for i := range claims {
			for _, s := range claims[i].steps {
				most = max(most, s.slope*float64(s.gpus))
			}
		}
		draws++
		if best > worth+1e-9 {
			worse++
			regret += (best - worth) / best
		}
		if concave && best > worth+1e-9 || best > worth+most+1e-9 {
			t.Fatalf("worth %v, want %v (concave: %t)", worth, best, concave)
		}
	})
	t.Logf("%d of %d draws are worse than the best, by %.1f %% of it on average", worse, draws, 100*regret/float64(max(worse, 1)))
}

// TestApportionMonotone: with one GPU more nobody gets less, where steps are alike.
func TestApportionMonotone(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		gpus, claims := drawClaims(t, true)
		less, _ := apportion(gpus, claims)
		more, _ := apportion(gpus+1, claims)
		for i := range claims {
			if more[i] < less[i] {
				t.Fatalf("claim %d gets size %d of %d GPUs and %d of one more", i, less[i], gpus, more[i])
			}
		}
	})
}

func TestSizesOf(t *testing.T) {
	if got, want := sizesOf(2, 6), []int{2, 3, 4, 5, 6}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	got := sizesOf(1, 100_000, 777)
	if len(got) > 2*mostSizes || got[0] != 1 || got[len(got)-1] != 100_000 || !slices.Contains(got, 777) || !slices.IsSorted(got) {
		t.Errorf("%v", got)
	}
}
