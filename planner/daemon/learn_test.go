package daemon

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/caravan-sched/caravan/planner/apply"
	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/record"
)

func ending(id string, minutes int) apply.Ending {
	ran := time.Duration(minutes) * time.Minute
	return apply.Ending{Job: &model.Job{Namespace: "default", Queue: "ml/ada", ID: id}, Completed: true, At: time.Unix(1000, 0),
		Service: record.Service{Ran: ran, GPUSeconds: 8 * ran.Seconds()}}
}

// What one planner has learned, the next one knows; it is written once a minute,
// and by the one that leads only.
func TestLearner(t *testing.T) {
	ctx, at := context.Background(), time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	store := &fakeUsage{}
	l := &learner{kept: keepHistory(store)}
	if err := errors.Join(l.load(ctx), l.save(ctx, at)); err != nil || store.writes != 0 {
		t.Fatalf("nothing is known, %d writes: %v", store.writes, err)
	}
	if said := l.accuracy(); said != "" {
		t.Errorf("accuracy %q", said)
	}
	for i, minutes := range []int{10, 20, 30} {
		l.ended(ending(fmt.Sprintf("train-%d", i), minutes))
		if err := l.save(ctx, at.Add(time.Duration(i)*time.Second)); err != nil {
			t.Fatal(err)
		}
	}
	if store.writes != 1 {
		t.Errorf("%d writes, want 1", store.writes)
	}
	if err := l.save(ctx, at.Add(time.Hour)); err != nil || store.writes != 2 {
		t.Errorf("%d writes, want 2: %v", store.writes, err)
	}
	next := &learner{kept: keepHistory(store)}
	if err := next.load(ctx); err != nil {
		t.Fatal(err)
	}
	j := model.Job{Namespace: "default", Queue: "ml/ada", ID: "train-77"}
	next.predict(&j)
	if j.Estimate != 20*time.Minute || j.EstimateSpread != 10*time.Minute || j.EstimateRuns != 3 {
		t.Errorf("predicted %s ± %s of %d", j.Estimate, j.EstimateSpread, j.EstimateRuns)
	}
	if diff := cmp.Diff(model.History{Demands: []float64{4800, 9600, 14400}}, next.past()); diff != "" {
		t.Errorf("past (-want +got):\n%s", diff)
	}
	if said := next.accuracy(); said != "half of the last 2 predictions were off by 100% or less" {
		t.Errorf("accuracy %q", said)
	}
	next.ended(ending("eval", 5))
	l.ended(ending("eval", 5))
	if err := next.save(ctx, at.Add(2*time.Hour)); err != nil {
		t.Fatal(err)
	}
	if err := l.save(ctx, at.Add(2*time.Hour)); !errors.Is(err, record.ErrConflict) {
		t.Errorf("written by two: %v", err)
	}
	if err := l.load(ctx); err != nil || len(l.past().Demands) != 4 {
		t.Errorf("after the conflict %v is known: %v", l.past(), err)
	}
	l.forget()
	l.ended(ending("eval", 5))
	if err := l.save(ctx, at.Add(3*time.Hour)); err != nil || store.writes != 3 {
		t.Errorf("one that does not lead writes: %d, %v", store.writes, err)
	}
}

func TestLearnerTroubles(t *testing.T) {
	ctx, away := context.Background(), errors.New("away")
	if err := (&learner{kept: keepHistory(&fakeUsage{fail: away})}).load(ctx); !errors.Is(err, away) {
		t.Errorf("Nomad is away: %v", err)
	}
	for name, f := range map[string]*fakeUsage{"damaged": {index: 3, fail: record.ErrDamaged}, "no JSON": {index: 3, doc: []byte("{")}} {
		l := &learner{kept: keepHistory(f)}
		if err := l.load(ctx); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		f.fail = nil
		l.ended(ending("x", 1))
		if err := l.save(ctx, time.Now()); err != nil || f.writes != 1 {
			t.Errorf("%s is not written over: %v", name, err)
		}
	}
}
