package daemon

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/nomad/api"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/caravan-sched/caravan/planner/barrier"
	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/observe"
	"github.com/caravan-sched/caravan/planner/record"
)

func TestBarrierMetrics(t *testing.T) {
	m := newMetrics()
	m.waitingMembers(func() int { return 5 })
	var over []barrier.Over
	w := m.watch(func(o barrier.Over) { over = append(over, o) })
	w.Started(4, 3*time.Second)
	w.Told(20 * time.Millisecond)
	w.Failed(barrier.CauseOOM)
	w.Failed(barrier.CauseOOM)
	w.Over(barrier.Over{Job: "train"})
	if len(over) != 1 || over[0].Job != "train" {
		t.Errorf("passed on %v", over)
	}
	rec := httptest.NewRecorder()
	promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{}).ServeHTTP(rec, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	for _, want := range []string{
		"caravan_barrier_waiting_members 5", "caravan_gang_starts_total 1",
		`caravan_member_failures_total{cause="oom"} 2`, `caravan_member_failures_total{cause="exit"} 0`, `caravan_member_failures_total{cause="preflight"} 0`,
		`caravan_gang_start_spread_seconds_sum 0.02`, `caravan_barrier_seconds_sum 3`,
	} {
		if !strings.Contains(rec.Body.String(), want+"\n") {
			t.Errorf("no %s in\n%s", want, rec.Body)
		}
	}
}

func TestOverInForce(t *testing.T) {
	member := func(id string, ended bool) observe.MemberState {
		return observe.MemberState{Alloc: &api.AllocationListStub{ID: id}, Member: model.Member{Ended: ended}}
	}
	m := &observe.Managed{
		Members:  []observe.MemberState{{}, member("a", false), member("ended", true)},
		Canaries: []observe.MemberState{member("canary", false)},
	}
	tests := map[string]struct {
		rec   record.Record
		alloc string
		want  bool
	}{
		"it runs":              {record.Record{Phase: record.PhaseRunning}, "a", true},
		"it is being placed":   {record.Record{Phase: record.PhaseAdmitted}, "a", true},
		"it is taken off":      {record.Record{Phase: record.PhaseRollback}, "a", false},
		"it is known":          {record.Record{Phase: record.PhaseRunning, GangFailures: map[string]string{"w": "x"}}, "a", false},
		"another is known":     {record.Record{Phase: record.PhaseRunning, GangFailures: map[string]string{"v": "x"}}, "a", true},
		"it was placed anew":   {record.Record{Phase: record.PhaseRunning}, "b", false},
		"a canary":             {record.Record{Phase: record.PhaseRunning}, "canary", false},
		"it is given up":       {record.Record{Phase: record.PhaseRunning}, "ended", false},
		"it has no allocation": {record.Record{Phase: record.PhaseRunning}, "", false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if got := overInForce(m, &tt.rec, barrier.Over{Group: "w", Alloc: tt.alloc, Why: "x"}); got != tt.want {
				t.Errorf("%v, want %v", got, tt.want)
			}
		})
	}
}
