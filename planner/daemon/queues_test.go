package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/caravan-sched/caravan/planner/config"
	"github.com/caravan-sched/caravan/planner/core/model"
	known "github.com/caravan-sched/caravan/planner/history"
	"github.com/caravan-sched/caravan/planner/record"
)

// fakeUsage keeps one document.
type fakeUsage struct {
	doc    []byte
	index  uint64
	writes int
	fail   error
}

func (f *fakeUsage) Get(context.Context, ...string) (record.Document, error) {
	if f.index == 0 && f.fail == nil {
		return record.Document{}, record.ErrNotFound
	}
	return record.Document{JSON: f.doc, Index: f.index}, f.fail
}

func (f *fakeUsage) Put(_ context.Context, index uint64, doc []byte, _ ...string) (uint64, error) {
	if f.fail != nil {
		return 0, f.fail
	}
	if index != f.index {
		return 0, record.ErrConflict
	}
	f.doc, f.writes, f.index = doc, f.writes+1, f.index+1
	return f.index, nil
}

func gpuUse(n int) []model.QueueUse {
	return []model.QueueUse{{Path: "a", Used: map[string]int{"gpu": n}}}
}

func pastOf(q *queues, now time.Time) float64 { return q.at(now)[0].History["gpu"] }

// The past halves by half-lives, is written at most once a minute, and another
// planner goes on from what was written, the time between counted.
func TestUsageOfQueues(t *testing.T) {
	store := &fakeUsage{}
	cfg := &config.Config{Queues: []model.Queue{{Path: "a"}}, Policy: config.Policy{HalfLife: time.Hour}}
	q := &queues{kept: keepUsage(store)}
	q.configure(cfg)
	ctx, at := context.Background(), time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	step := func(q *queues, after time.Duration, used int, want float64) {
		t.Helper()
		at = at.Add(after)
		if err := q.load(ctx); err != nil {
			t.Fatal(err)
		}
		if got := pastOf(q, at); math.Abs(got-want) > 0.01 {
			t.Errorf("after %s: %.3f, want %.3f", after, got, want)
		}
		if err := q.note(ctx, at, gpuUse(used), true); err != nil {
			t.Fatal(err)
		}
	}
	step(q, 0, 8, 0)
	step(q, time.Hour, 8, 4)
	step(q, time.Hour, 0, 6)
	step(q, time.Second, 0, 6) // not written
	step(q, time.Hour, 0, 3)
	if store.writes != 4 {
		t.Errorf("%d writes, want 4", store.writes)
	}
	next := &queues{kept: keepUsage(store)}
	next.configure(cfg)
	step(next, time.Hour, 0, 1.5)
	// The first one has lost the leadership, and does not write over it.
	if err := q.note(ctx, at.Add(time.Hour), gpuUse(1), true); !errors.Is(err, record.ErrConflict) {
		t.Errorf("written by two: %v", err)
	}
	step(q, 2*time.Hour, 0, 0.375)
	var kept known.Queues
	if err := json.Unmarshal(store.doc, &kept); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]map[string]float64{"a": {"gpu": 0.375}}, kept.Average, cmpopts.EquateApprox(0, 0.01)); diff != "" {
		t.Errorf("kept (-want +got):\n%s", diff)
	}
}

func TestUsageOfQueuesTroubles(t *testing.T) {
	ctx, at := context.Background(), time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	with := func(f *fakeUsage) *queues {
		q := &queues{kept: keepUsage(f)}
		q.configure(&config.Config{Queues: []model.Queue{{Path: "a"}}, Policy: config.Policy{HalfLife: time.Hour}})
		return q
	}
	away := errors.New("away")
	if err := with(&fakeUsage{fail: away}).load(ctx); !errors.Is(err, away) {
		t.Errorf("Nomad is away: %v", err)
	}
	for name, f := range map[string]*fakeUsage{"damaged": {index: 3, fail: record.ErrDamaged}, "no JSON": {index: 3, doc: []byte("{")}} {
		q := with(f)
		if err := q.load(ctx); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		f.fail = nil
		if err := q.note(ctx, at, gpuUse(1), true); err != nil || f.writes != 1 {
			t.Errorf("%s is not written over: %v", name, err)
		}
	}
	still := &fakeUsage{}
	q := with(still)
	if err := errors.Join(q.load(ctx), q.note(ctx, at, gpuUse(1), false)); err != nil || still.writes != 0 {
		t.Errorf("who only observes has written: %v", err)
	}
	q.forget()
	if err := q.note(ctx, at.Add(time.Hour), gpuUse(1), true); err != nil || still.writes != 0 {
		t.Errorf("who does not lead has written: %v", err)
	}
	if got := (&queues{}).at(at); got != nil {
		t.Errorf("no queues: %v", got)
	}
}

// A reload changes policy and queues, and keeps the past.
func TestReloadOfQueues(t *testing.T) {
	q := &queues{kept: keepUsage(&fakeUsage{})}
	cfg := config.Default()
	cfg.Queues = []model.Queue{{Path: "a"}}
	q.configure(&cfg)
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	if err := q.note(context.Background(), at, gpuUse(8), false); err != nil {
		t.Fatal(err)
	}
	cfg.Queues, cfg.Policy.Order = []model.Queue{{Path: "a", Weight: 2}, {Path: "b"}}, "fairshare"
	q.configure(&cfg)
	got := q.at(at.Add(24 * time.Hour))
	if len(got) != 2 || got[0].Weight != 2 || math.Abs(got[0].History["gpu"]-4) > 0.01 || q.order().Order != "fairshare" {
		t.Errorf("queues %+v, order %q", got, q.order().Order)
	}
}
