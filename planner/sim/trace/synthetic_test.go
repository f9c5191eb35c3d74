package trace

import (
	"errors"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func TestSynthetic(t *testing.T) {
	s := Synthetic{Jobs: 20000, Days: 30, GPUsPerNode: 8, MaxNodes: 512, Small: 0.5, Seed: 7}
	jobs, err := s.Make()
	if err != nil {
		t.Fatal(err)
	}
	sum := NewDescriber()
	for i := range jobs {
		sum.Add(&jobs[i])
	}
	d := sum.Summary()
	if d.Jobs != 20000 || d.MaxGPUs < 512 || d.MaxGPUs > 4096 || d.Days > 30 || d.Days < 29 {
		t.Errorf("summary %+v", d)
	}
	work := map[bool]float64{}
	for i := range jobs {
		work[jobs[i].GPUs >= 64] += jobs[i].Work()
	}
	if part := work[true] / (work[true] + work[false]); part < 0.5 {
		t.Errorf("gangs of 64 GPUs or more have %.2f of the GPU time: want most of it", part)
	}
	if _, err := (Synthetic{Jobs: 0}).Make(); err == nil {
		t.Error("no jobs are made up")
	}
}

// In how many parts the jobs are made changes nothing: they are all there, in order.
func TestSyntheticInParts(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := Synthetic{Jobs: rapid.IntRange(1, 400).Draw(t, "jobs"), Days: rapid.Float64Range(0.01, 50).Draw(t, "days"), GPUsPerNode: 8, MaxNodes: 4, Small: 0.5, Seed: rapid.Uint64().Draw(t, "seed")}
		want, err := s.Make()
		if err != nil || len(want) != s.Jobs || want[0].Submit != 0 {
			t.Fatalf("%d jobs, %v: want %d, the first at 0", len(want), err, s.Jobs)
		}
		sorted := slices.Clone(want)
		Sort(sorted)
		if diff := cmp.Diff(sorted, want); diff != "" {
			t.Errorf("not in order:\n%s", diff)
		}
		most := rapid.IntRange(1, 100).Draw(t, "most")
		var got []Job
		if err := s.inParts(most, func(j Job) error {
			got = append(got, j)
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("in parts of %d (-at once +in parts):\n%s", most, diff)
		}
	})
	full := errors.New("full")
	if err := (Synthetic{Jobs: 9, Days: 1, GPUsPerNode: 8, MaxNodes: 4}).Each(func(Job) error { return full }); !errors.Is(err, full) {
		t.Errorf("%v: want it to stop where nothing can be written", err)
	}
}
