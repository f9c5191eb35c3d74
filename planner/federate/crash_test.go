package federate_test

import (
	"fmt"
	"testing"

	"github.com/caravan-sched/caravan/planner/record"
)

// A planner that is killed at any of its writes, whether that one got there or not,
// is followed by one that brings what was begun to its end, and no job ever runs in
// both regions.
func TestKilledAtEveryWrite(t *testing.T) {
	for name, test := range crashes() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			for n := 0; ; n++ {
				killed := false
				for _, unanswered := range []bool{false, true} {
					id := fmt.Sprintf("job-%d-%v", n, unanswered)
					if test.before != nil {
						test.before(r, id)
					}
					test.begin(r, id)
					r.start(n, unanswered)
					died := false
					r.until(fmt.Sprintf("%s ends as it should, killed at write %d (unanswered: %v)", id, n, unanswered), func() bool {
						died = died || r.wire.after < 0
						return test.ended(r, id)
					})
					killed = killed || died
					if status := test.ended(r, id); !status {
						t.Errorf("%s did not stay as it was", id)
					}
					if _, _, err := r.regions["eu"].Client().Jobs().Info(id, nil); err == nil {
						r.stop("eu", id)
					}
					r.until(id+" is forgotten", func() bool { return r.remembered() == 0 })
				}
				if !killed {
					if n < 3 {
						t.Errorf("it took %d writes, want to have tried more", n)
					}
					return
				}
			}
		})
	}
}

// crash is what is played while planners are killed.
type crash struct {
	// before is played without a fault.
	before func(r *rig, id string)
	begin  func(r *rig, id string)
	ended  func(r *rig, id string) bool
}

func crashes() map[string]crash {
	return map[string]crash{
		"sent": {
			begin: func(r *rig, id string) { r.submit(gang(id, 2, "")) },
			ended: runsIn("us", 2),
		},
		"stopped at home": {
			before: running("us", 2),
			begin:  func(r *rig, id string) { r.stop("eu", id) },
			ended:  gone,
		},
		"stopped where it runs": {
			before: running("us", 2),
			begin:  func(r *rig, id string) { r.stop("us", id) },
			ended:  gone,
		},
		"purged at home": {
			before: running("us", 2),
			begin: func(r *rig, id string) {
				if _, _, err := r.regions["eu"].Client().Jobs().Deregister(id, true, nil); err != nil {
					r.t.Fatal(err)
				}
			},
			ended: gone,
		},
		"submitted anew": {
			before: running("us", 2),
			begin:  func(r *rig, id string) { r.submit(gang(id, 1, "1h")) },
			ended:  runsIn("us", 1), // where it has run
		},
		"ends by itself": {
			begin: func(r *rig, id string) { r.submit(gang(id, 2, "20ms")) },
			ended: gone,
		},
	}
}

func runsIn(region string, members int) func(*rig, string) bool {
	return func(r *rig, id string) bool {
		rec, err := record.NewStore(r.regions[region].Client(), "").Get(r.t.Context(), "default", id)
		return err == nil && rec.Phase == record.PhaseRunning && r.members(region, id) == members
	}
}

func running(region string, members int) func(*rig, string) {
	return func(r *rig, id string) {
		r.start(-1, false)
		r.submit(gang(id, members, ""))
		r.until(id+" runs", func() bool { return runsIn(region, members)(r, id) })
	}
}

func gone(r *rig, id string) bool {
	return r.remembered() == 0 && r.members("us", id) == 0 && r.members("eu", id) == 0
}

// A job that is purged where it runs ends at home, when its tasks have had the time
// to stop.
func TestPurgedWhereItRuns(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	running("us", 2)(r, "big")
	if _, _, err := r.regions["us"].Client().Jobs().Deregister("big", true, nil); err != nil {
		t.Fatal(err)
	}
	r.until("it is forgotten in both", func() bool { return gone(r, "big") })
}
