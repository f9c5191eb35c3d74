package queue

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/caravan-sched/caravan/planner/core/model"
)

// By hand, for jobs that needed 4, 8 and 12 (the distribution of J2 in Tiresias'
// example): who has had nothing is through with all chances in 8 on average,
// 1/8, against (1/3)/4 within 4 and (2/3)/(20/3) within 8. Who has had 4 needs 4
// or 8 more, 6 on average; who has had 8 needs 4.
func TestGittinsIndex(t *testing.T) {
	for _, tt := range []struct {
		past      []float64
		had, want float64
	}{
		{[]float64{8, 12, 4}, 0, 1.0 / 8},
		{[]float64{4, 8, 12}, 3.5, 2.0 / 3}, // one in three within half a second
		{[]float64{4, 8, 12}, 4, 1.0 / 6},
		{[]float64{4, 8, 12}, 8, 1.0 / 4},
		{[]float64{4, 8, 12}, 11, 1},
		{[]float64{4, 8, 12}, 12, 0},
		// Most are through soon, and who is not takes long.
		{[]float64{1, 1, 1, 1, 100}, 0, 0.8},
		{[]float64{1, 1, 1, 1, 100}, 1, 1.0 / 99},
		{[]float64{6}, 0, 1.0 / 6},
	} {
		if got := NewPast(tt.past).index(tt.had); math.Abs(got-tt.want) > 1e-12 {
			t.Errorf("%v after %g: %g, want %g", tt.past, tt.had, got, tt.want)
		}
	}
}

// The sup over d, tried for many d.
func TestGittinsIndexIsTheBest(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		past := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) float64 { return float64(rapid.IntRange(0, 40).Draw(t, "s")) }), 1, 12).Draw(t, "past")
		had := float64(rapid.IntRange(0, 82).Draw(t, "had")) / 2
		got, best := NewPast(past).index(had), 0.0
		for d := 0.25; d <= 41; d += 0.25 {
			through, takes := 0.0, 0.0
			for _, s := range past {
				if s > had {
					takes += min(s-had, d)
					if s-had <= d {
						through++
					}
				}
			}
			if takes > 0 {
				best = max(best, through/takes)
			}
		}
		if math.Abs(got-best) > 1e-9 {
			t.Errorf("%v after %g: %g, trying says %g", past, had, got, best)
		}
	})
}

// One GPU; jobs of the past needed one hour, and one in five a hundred. "old"
// has had an hour when "new" comes: new is likelier to be through soon. By hand:
// 4/5 of an hour's jobs against one that needs 99 more.
func TestGittinsPrefersWhoIsLikelyToEnd(t *testing.T) {
	past := slices.Repeat([]float64{3600, 3600, 3600, 3600, 360000}, 2)
	entries := []Entry{{Job: &model.Job{ID: "old"}, Attained: 3600}, {Job: &model.Job{ID: "new"}}, {Job: &model.Job{ID: "endless"}, Attained: 400000}}
	got := Policy{Order: OrderGittins, LAS: LAS{Thresholds: []float64{1e6}}}.Discipline().Stand(Situation{Jobs: entries, Past: NewPast(past)})
	want := []Standing{
		{Key: -1.0 / (99 * 3600), Why: "queue 1 of 2, after 60.0 GPU-minutes; by the 2 of 10 ended jobs that needed more, one like it ends for each 99.0 GPU-hours"},
		{Key: -0.8 / 3600, Why: "queue 1 of 2, after 0 GPU-seconds; by the 10 of 10 ended jobs that needed more, one like it ends for each 75.0 GPU-minutes"},
		{Why: "queue 1 of 2, after 111.1 GPU-hours; none of 10 jobs that have ended needed so much"},
	}
	near := cmp.Comparer(func(a, b float64) bool { return math.Abs(a-b) <= 1e-12 })
	if diff := cmp.Diff(want, got, near); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	few := Policy{Order: OrderGittins}.Discipline().Stand(Situation{Jobs: entries[:1], Past: NewPast(past[:9])})
	if few[0].Key != 0 || few[0].Class != 1 || !strings.HasSuffix(few[0].Why, "; 9 jobs have ended so far, and 10 are needed to tell how long others run") {
		t.Errorf("with a short past: %+v", few[0])
	}
}

// Within a queue gittins may turn the order of age round, across queues it goes
// like las: played on one GPU, the job that has not run yet goes before the one
// that has had its hour and was not through.
func TestGittinsPlayed(t *testing.T) {
	past := slices.Repeat([]float64{3600, 3600, 3600, 3600, 360000}, 2)
	tasks := []*task{{id: "long", long: 5 * h, gpus: 1}, {id: "a", at: h / 2, long: h, gpus: 1}, {id: "b", at: h / 2, long: h, gpus: 1}}
	_, rows := play(t, Policy{Order: OrderGittins, LAS: LAS{Thresholds: []float64{5400}}}, past, 1, h/2, tasks...)
	if diff := cmp.Diff("long long long a a b b long long long long long long long", strings.Join(rows, " ")); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func BenchmarkGittins(b *testing.B) {
	var past []float64
	for i := range 1000 {
		past = append(past, float64(i*i))
	}
	s := Situation{Past: NewPast(past)}
	for i := range 10000 {
		s.Jobs = append(s.Jobs, Entry{Job: &model.Job{ID: fmt.Sprint(i)}, Attained: float64(i / 10)})
	}
	d := Policy{Order: OrderGittins}.Discipline()
	for b.Loop() {
		d.Stand(s)
	}
}
