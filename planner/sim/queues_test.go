package sim

import (
	"strings"
	"testing"
	"time"

	"github.com/caravan-sched/caravan/planner/core"
	"github.com/caravan-sched/caravan/planner/core/burst"
	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/sim/trace"
)

// equals are two queues of equal weight.
func equals() []model.Queue { return []model.Queue{{Path: "x"}, {Path: "y"}} }

// Worked by hand: x has had the cluster for a day when x2 and then y1 are submitted.
// Both queues have nothing once x1 has ended, so it is what x has used that lets y1 go
// first; where the past does not count x2 does, which was there first.
func TestQueuesHaveAPast(t *testing.T) {
	const day = 86400
	jobs := []trace.Job{{ID: "x1", Duration: day, GPUs: 8, Queue: "x"}, {ID: "x2", Submit: day - 20, Duration: 100, GPUs: 8, Queue: "x"}, {ID: "y1", Submit: day - 10, Duration: 100, GPUs: 8, Queue: "y"}}
	for name, test := range map[string]struct {
		halfLife time.Duration
		want     string
	}{"it counts half after a day": {24 * time.Hour, "86400 start y1"}, "it does not count": {0, "86400 start x2"}} {
		t.Run(name, func(t *testing.T) {
			c := small(t)
			s, err := newPlanner(c, core.Policy{Order: "fairshare"}, equals(), test.halfLife)
			if err != nil {
				t.Fatal(err)
			}
			if got, _ := story(t, Setup{Cluster: c, Jobs: jobs, Scheduler: s}); !strings.Contains(got, test.want) {
				t.Errorf("story:\n%s\nwant %s", got, test.want)
			}
			if past := s.(*planner).past.UpTo(clock(day), test.halfLife)["x"][model.ResourceGPU]; test.halfLife > 0 && !(past > 3.9 && past < 4.1) {
				t.Errorf("x has used %g GPUs on average after a half-life with 8: want 4", past)
			}
		})
	}
}

// What a queue has on bought nodes counts for what it has used.
func TestQueuesUseBoughtNodes(t *testing.T) {
	c, err := Regular(4, 4)
	if err != nil {
		t.Fatal(err)
	}
	c = c.WithPools(pools(2, 0))
	policy := core.Policy{Order: "fairshare", Burst: burst.Policy{Default: model.BurstAllow, WaitOver: time.Minute}}
	s, err := NewPlanner(c, policy, equals())
	if err != nil {
		t.Fatal(err)
	}
	jobs := []trace.Job{{ID: "a", Duration: 10 * hour, GPUs: 4, Queue: "x"}, {ID: "b", Submit: 60, Duration: 10 * hour, GPUs: 4, Queue: "x"}}
	most := 0
	log := func(Event) { most = max(most, s.(*planner).past.Using["x"][model.ResourceGPU]) }
	if _, err := Run(t.Context(), Setup{Cluster: c, Jobs: jobs, Estimates: []float64{10 * hour, 10 * hour}, Scheduler: s, Log: log}); err != nil {
		t.Fatal(err)
	}
	if most != 8 {
		t.Errorf("x has used %d GPUs at once: want the 4 that are owned and 4 that are bought", most)
	}
}

// A queue's row tells of its jobs alone.
func TestRowsOfQueues(t *testing.T) {
	c := small(t)
	jobs := []trace.Job{{ID: "f", Duration: 10, GPUs: 8}, {ID: "a", Submit: 50, Duration: 100, GPUs: 8, Queue: "x"}, {ID: "b", Submit: 60, Duration: 30, GPUs: 4, Queue: "y"}, {ID: "z", Submit: 100, Duration: 10, GPUs: 1}}
	_, out := story(t, Setup{Cluster: c, Jobs: jobs, Scheduler: planned(t, c, core.Policy{})})
	rows := out.Metrics().Queues
	if len(rows) != 2 || rows[0].Name != "x" || rows[1].Name != "y" {
		t.Fatalf("rows %+v: want x and y", rows)
	}
	near(t, "x waits", rows[0].QueueMean, 0)
	near(t, "y waits", rows[1].QueueMean, 90)
	near(t, "x has", rows[0].GPUHours, 8*100/3600.0)
	near(t, "y has", rows[1].GPUHours, 4*30/3600.0)
	near(t, "ρ of x", rows[0].FairnessMean, 100/(100*2.4)) // 2.4 jobs on average while it is there
}
