package sim

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// What the core is told of the past is in order, whatever has come and been forgotten
// since the last time.
func TestPastIsInOrder(t *testing.T) {
	l, rng := newLearner(), rand.New(rand.NewPCG(1, 2))
	for now := range 200 {
		for range rng.IntN(30) {
			l.book.Demands = append(l.book.Demands, float64(rng.IntN(50)))
			l.ended++
		}
		l.book.Demands = l.book.Demands[max(0, len(l.book.Demands)-100):]
		got, news := l.past(float64(now) * tellEvery)
		if !news {
			continue
		}
		if diff := cmp.Diff(slices.Sorted(slices.Values(l.book.Demands)), got.Demands); diff != "" {
			t.Fatalf("the past is another one (-want +got):\n%s", diff)
		}
	}
}
