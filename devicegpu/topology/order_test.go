package topology

import (
	"math"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func TestOrder(t *testing.T) {
	mesh := mustParse(t, "testdata/cube-mesh.txt").Matrix
	pairs := Empty(4, 0)
	for i := range 4 {
		for j := range i {
			pairs.SetLink(i, j, Link{Kind: KindSys, GBs: 10})
		}
	}
	pairs.SetLink(0, 3, Link{KindNVLink, 4, 100})
	pairs.SetLink(1, 2, Link{KindNVLink, 4, 100})
	switched := Empty(8, 0)
	for i := range 8 {
		for j := range i {
			switched.SetLink(i, j, Link{KindNVLink, 18, 450})
		}
	}
	tests := map[string]struct {
		m    Matrix
		in   []int
		want []int
	}{
		// The ring of double links that NCCL uses on this machine.
		"cube mesh": {mesh, []int{7, 6, 5, 4, 3, 2, 1, 0}, []int{0, 3, 2, 1, 5, 6, 7, 4}},
		// 0-3-2-1 has the double links 0-3, 3-2 and 2-1.
		"half a cube mesh":   {mesh, []int{0, 1, 2, 3}, []int{0, 1, 2, 3}},
		"bridge pairs":       {pairs, []int{0, 1, 2, 3}, []int{0, 1, 2, 3}},
		"NVSwitch":           {switched, []int{5, 0, 3, 7}, []int{0, 3, 5, 7}},
		"one":                {switched, []int{5}, []int{5}},
		"none":               {switched, nil, nil},
		"two of a cube mesh": {mesh, []int{6, 1}, []int{1, 6}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got := tt.m.Order(tt.in)
			if name == "half a cube mesh" {
				// Any ring of the four keeps all three double links but one:
				// judged by the bandwidth, not by the letter.
				if lo, sum := ringBandwidth(tt.m, got); lo != 25 || sum != 175 {
					t.Errorf("order %v: slowest %g, sum %g", got, lo, sum)
				}
				return
			}
			if d := cmp.Diff(tt.want, got); d != "" {
				t.Errorf("order (-want +got):\n%s", d)
			}
		})
	}
}

func ringBandwidth(m Matrix, ring []int) (lowest, sum float64) {
	lowest = math.Inf(1)
	for i := range ring {
		gbs := m.Links[ring[i]][ring[(i+1)%len(ring)]].GBs
		lowest = min(lowest, gbs)
		sum += gbs
	}
	return lowest, sum
}

// TestOrderIsBest compares with every permutation, up to six GPUs.
func TestOrderIsBest(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 6).Draw(t, "n")
		m := Empty(n, 0)
		for i := range n {
			for j := range i {
				m.SetLink(i, j, Link{Kind: KindPIX, GBs: float64(rapid.IntRange(0, 4).Draw(t, "gbs"))})
			}
		}
		set := make([]int, n)
		for i := range set {
			set[i] = i
		}
		got := m.Order(set)
		if sorted := slices.Sorted(slices.Values(got)); !slices.Equal(sorted, set) {
			t.Fatalf("order %v is no permutation", got)
		}
		lowest, sum := ringBandwidth(m, got)
		permute(set, 0, func(p []int) {
			if lo, s := ringBandwidth(m, p); lo > lowest || lo == lowest && s > sum {
				t.Fatalf("order %v has %g and %g in sum; %v has %g and %g", got, lowest, sum, p, lo, s)
			}
		})
	})
}

func permute(p []int, k int, visit func([]int)) {
	if k == len(p) {
		visit(p)
		return
	}
	for i := k; i < len(p); i++ {
		p[k], p[i] = p[i], p[k]
		permute(p, k+1, visit)
		p[k], p[i] = p[i], p[k]
	}
}

func TestOrderOfManyIsAPermutation(t *testing.T) {
	m := Empty(20, 0)
	for i := range 20 {
		for j := range i {
			m.SetLink(i, j, Link{Kind: KindSys, GBs: float64((i*j)%7 + 1)})
		}
	}
	set := make([]int, 20)
	for i := range set {
		set[i] = 19 - i
	}
	got := m.Order(set)
	slices.Reverse(set)
	if d := cmp.Diff(set, slices.Sorted(slices.Values(got))); d != "" {
		t.Errorf("GPUs (-want +got):\n%s", d)
	}
	if got[0] != 0 {
		t.Errorf("order starts with %d", got[0])
	}
}
