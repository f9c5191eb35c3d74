package daemon

import (
	"fmt"

	"github.com/caravan-sched/caravan/planner/core"
	"github.com/caravan-sched/caravan/planner/core/model"
)

// Unblock implements httpapi.Backend, on the last view.
func (b backend) Unblock(namespace, job string) (*model.Unblock, error) {
	v := b.d.view.Load()
	if v == nil {
		return nil, errNoView
	}
	found, ok, err := core.Unblock(v.Snapshot, b.d.queues.order(), model.JobName{Namespace: namespace, ID: job})
	if err != nil {
		return nil, fmt.Errorf("look for what would unblock %s: %w", job, err)
	}
	if !ok {
		return nil, nil
	}
	return &found, nil
}
