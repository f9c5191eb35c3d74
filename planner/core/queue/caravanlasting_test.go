package queue

import (
	"testing"
	"time"

	"github.com/caravan-sched/caravan/planner/core/model"
)

// A gang of 40 GPUs for a minute is short on many GPUs, and goes by age where it needs most
// of them, in the order that lasts as in the one that is made anew.
func TestWhatLastsHangsOnTheClustersGPUs(t *testing.T) {
	now := time.Date(2031, 1, 1, 0, 0, 0, 0, time.UTC)
	demands := make([]float64, minDemands)
	for i := range demands {
		demands[i] = 1e6
	}
	policy, past := Policy{Order: OrderCaravan}, NewPast(demands)
	e := Entry{Job: &model.Job{ID: "gang", Submitted: now.Add(-time.Hour)}, Waiting: true, Asked: 40, Left: Estimate{Known: true, Total: time.Minute, Left: time.Minute}}
	for gpus, want := range map[int]bool{64: false, 128: true} {
		st := newCaravan(policy).Stand(Situation{Now: now, GPUs: gpus, Past: past, Jobs: []Entry{e}})
		if got := NewLasting(policy, past, gpus).Place(&e).short; got != want || isShort(&st[0]) != want {
			t.Errorf("on %d GPUs short is %v where the order lasts, %v where it is made anew; want %v", gpus, got, isShort(&st[0]), want)
		}
	}
}
