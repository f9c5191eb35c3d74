package preempt

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// Options come out as a stable sort by their bounds has them.
func TestOptionsComeInOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var heap options
		for i, bound := range rapid.SliceOf(rapid.Int64Range(0, 5)).Draw(t, "bounds") {
			heap = append(heap, option{bound, i})
		}
		want := slices.Clone(heap)
		slices.SortStableFunc(want, func(a, b option) int { return int(a.bound - b.bound) })
		heap.order()
		var got options
		for len(heap) > 0 {
			got = append(got, heap.next())
		}
		if diff := cmp.Diff([]option(want), []option(got), cmp.AllowUnexported(option{})); diff != "" && len(want) > 0 {
			t.Fatalf("order (-want +got):\n%s", diff)
		}
	})
}
