package core

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/core/preempt"
	"github.com/caravan-sched/caravan/planner/core/queue"
)

// Nothing is bought for a deadline for which others give way in time. Only who has none
// himself is reckoned with, who gives way at all, and each of his GPUs once.
func TestBuysWhereOthersGiveWay(t *testing.T) {
	due := func(in time.Duration) func(*model.Job) {
		return func(j *model.Job) { j.Deadline, j.Checkpoint = testNow.Add(in), 30*time.Minute }
	}
	for name, tt := range map[string]struct {
		running, jobs string
		set           func(*model.Snapshot, *Policy)
		want          []string
	}{
		"they give way": {running: "a 0 1h elastic:1 runs:30h saves\nb 0 1h elastic:1 runs:30h saves", jobs: "m 1x4 runs:2h"},
		"nobody does": {running: "a 0 1h elastic:1 runs:30h saves\nb 0 1h elastic:1 runs:30h saves", jobs: "m 1x4 runs:2h",
			set: func(_ *model.Snapshot, p *Policy) { p.Preempt.Enabled = false }, want: []string{"m 1"}},
		"they never do":            {running: "a 0 1h elastic:1 runs:30h never\nb 0 1h elastic:1 runs:30h never", jobs: "m 1x4 runs:2h", want: []string{"m 1"}},
		"they save nothing":        {running: "a 0 1h elastic:1 runs:30h\nb 0 1h elastic:1 runs:30h", jobs: "m 1x4 runs:2h", want: []string{"m 1"}},
		"one of them does":         {running: "a 0 1h elastic:1 runs:30h never\nb 0 1h elastic:1 runs:30h saves", jobs: "m 1x4 runs:2h"},
		"one of two that it needs": {running: "a 0 1h elastic:1 runs:30h never\nb 0 1h elastic:1 runs:30h saves", jobs: "m 2x4 runs:2h", want: []string{"m 2"}},
		"two for two":              {running: "a 0 1h elastic:1 runs:30h saves\nb 0 1h elastic:1 runs:30h saves", jobs: "m 1x4 runs:2h\nn 1x4 runs:2h"},
		"one for two":              {running: "a 0 1h elastic:1 runs:30h never\nb 0 1h elastic:1 runs:30h saves", jobs: "m 1x4 runs:2h\nn 1x4 runs:2h", want: []string{"n 1"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := draw(t, "b1 r1 n1 aaaa\nb1 r1 n2 bbbb")
			describe(t, s, tt.running)
			submit(t, s, tt.jobs)
			for _, id := range []string{"m", "n"} {
				bursts(s, id, due(4*time.Hour))
			}
			s.Burst = model.Burst{Currency: "EUR", Pools: []model.BuyPool{buyPool("eu", 4)}}
			p := Policy{Order: queue.OrderDeadline, Preempt: preempt.Policy{Enabled: true, SavedOnly: true}}
			if tt.set != nil {
				tt.set(s, &p)
			}
			out := plan(t, s, p)
			var got []string
			for _, o := range out.Demand.Buy {
				got = append(got, fmt.Sprintf("%s %d", o.For.ID, o.Nodes))
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("purchases (-want +got):\n%s", diff)
				for _, d := range out.Decisions {
					t.Log(d.Job, d.Reason)
				}
			}
		})
	}
}
