package sim

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/caravan-sched/caravan/planner/sim/trace"
)

// watched is a Scheduler that is looked at when it deletes jobs so that others start.
type watched struct {
	Scheduler
	deleted func(now float64)
}

func (w watched) Decide(now float64) ([]Action, float64, error) {
	actions, again, err := w.Scheduler.Decide(now)
	for i := range actions {
		if strings.Contains(actions[i].Reason, "for an hour") {
			w.deleted(now)
		}
	}
	return actions, again, err
}

// Gangs of all sizes that each hold what the others need would do so for ever: time-outs
// and back-offs alone let none of them through. They are deleted after an hour, and not
// before, and all end.
func TestPartialGangsDoNotWaitForEver(t *testing.T) {
	c, err := Regular(64, 8)
	if err != nil {
		t.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(1, 2))
	var jobs []trace.Job
	for i := range 80 {
		jobs = append(jobs, trace.Job{ID: fmt.Sprint(i), Submit: float64(i) * 20 * rng.Float64(), Duration: 600, GPUs: []int{12, 20, 33, 64}[rng.IntN(4)]})
	}
	held, whole, deletions := map[string]bool{}, 0.0, map[float64]bool{}
	s := watched{NewKube(c, nil, nil), func(now float64) {
		if now < whole+kubeLocked {
			t.Errorf("at %g s jobs are deleted: one had all of its GPUs at %g", now, whole)
		}
		deletions[now] = true
	}}
	out, err := Run(t.Context(), Setup{Cluster: c, Jobs: jobs, Scheduler: s, Interval: 10, Log: func(e Event) {
		switch e.Event {
		case EventStart:
			held[e.Job] = true
		case EventFinish:
			whole = e.At
		}
	}})
	if err != nil {
		t.Fatal(err)
	}
	if len(out.Done()) != len(jobs) || len(held) != len(jobs) {
		t.Errorf("jobs that ended: %d of %d", len(out.Done()), len(jobs))
	}
	if len(deletions) == 0 {
		t.Error("nobody had to be deleted: the test says nothing")
	}
	if m := out.Metrics(); m.MakespanS > 80*(kubeLocked+2*600) {
		t.Errorf("all have ended after %g s: want an hour and their run times at most for each", m.MakespanS)
	}
}
