package observe

import (
	"cmp"
	"fmt"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/gangspec"
	"github.com/caravan-sched/caravan/planner/record"
)

// wait sets when the job may be placed again: not while a member may still run
// on a node that is cut off, lest two write one checkpoint.
func (st *state) wait(m *Managed, origins origins) {
	if m.Record == nil {
		return
	}
	m.Model.RetryAfter, m.Model.RetryFor = m.Record.RetryAfter, ""
	if m.Record.Original == nil {
		return
	}
	for _, a := range m.Allocs {
		n := st.nodes[a.NodeID]
		if n == nil || !nodeCutOff(n.status) || !mayRun(a) {
			continue
		}
		fence := gangspec.Fence(m.Record.Original, origins.of(a).group)
		if until := n.cutOffAt.Add(fence).UTC(); fence > 0 && until.After(m.Model.RetryAfter) {
			m.Model.RetryAfter = until
			m.Model.RetryFor = fmt.Sprintf("the fence of %s", cmp.Or(n.model.Name, a.NodeID))
		}
	}
}

// mayRun says whether an allocation on a node that is cut off may have tasks
// that run, whatever the servers have made of it since.
func mayRun(a *api.AllocationListStub) bool {
	return a.ClientStatus != api.AllocClientStatusComplete && a.ClientStatus != api.AllocClientStatusFailed
}

// avoid keeps the job off the nodes that its own preflight has found unfit.
func avoid(j *model.Job, rec *record.Record, now time.Time) {
	if rec == nil {
		return
	}
	for _, a := range rec.Avoided {
		if now.Before(a.Until) {
			j.Constraints = append(j.Constraints[:len(j.Constraints):len(j.Constraints)], Avoid(a))
		}
	}
}

// Avoid is the constraint that keeps a job off a node that its preflight has
// found unfit.
func Avoid(a record.Avoided) model.Constraint {
	return model.Constraint{Left: "${node.unique.id}", Operand: "!=", Right: a.Node}
}
