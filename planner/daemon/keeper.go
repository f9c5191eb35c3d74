package daemon

import (
	"sync"

	"github.com/hashicorp/go-hclog"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/caravan-sched/caravan/planner/core"
	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/core/queue"
)

// verifyEvery is after how many looks what is kept between them is compared with
// what it would be if it were made anew.
const verifyEvery = 100

// keeper decides on the cluster's own snapshots, one after the other, at the
// cost of what has changed between them.
type keeper struct {
	mu   sync.Mutex
	kept core.Kept
	// looks counts the decisions since the last comparison.
	looks int
}

// decide makes the plan for a snapshot. A plan that turns out to differ from one
// that is made from nothing is not used: the latter is, and the operator is told.
func (k *keeper) decide(snap *model.Snapshot, policy queue.Policy, log hclog.Logger, diverged prometheus.Counter) (*model.Plan, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	plan, err := k.kept.Decide(snap, policy)
	if err != nil {
		return nil, err
	}
	if k.looks++; k.looks < verifyEvery {
		return plan, nil
	}
	k.looks = 0
	plan, err = k.kept.Verify(plan)
	if err != nil {
		log.Error("what the planner keeps of the cluster between two looks was wrong; it has been made anew, and nothing is lost: please report this with the output of caravan snapshot", "error", err)
		diverged.Inc()
	}
	return plan, nil
}

// forget frees what is kept, since another planner decides now.
func (k *keeper) forget() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.kept, k.looks = core.Kept{}, 0
}
