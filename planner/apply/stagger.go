package apply

import (
	"fmt"
	"time"

	"github.com/caravan-sched/caravan/planner/core/preempt"
	"github.com/caravan-sched/caravan/planner/observe"
	"github.com/caravan-sched/caravan/planner/record"
)

// When many nodes are drained at once, their gangs do not all save their
// checkpoints at once: as many stop as may give way at once by the policy, for each
// storage, and the others when those have stopped.

// maxStagger is how long a gang waits at most to leave a node that is drained: an
// operator's drain ends what is there after an hour unless he says otherwise.
const maxStagger = 15 * time.Minute

// lookAgain is how soon it is looked whether others have stopped.
const lookAgain = 5 * time.Second

// staggered says why a gang does not leave drained nodes yet; "" if it is to leave
// now. One that Nomad has begun to stop is stopped whole.
func (j *job) staggered(bad []trouble) string {
	since := j.now()
	for _, t := range bad {
		if t.kind != "drain" || t.member.State != observe.AllocPlaced {
			return ""
		}
		if at, known := j.missing[j.key()][t.key()]; known && at.Before(since) {
			since = at
		}
	}
	var policy preempt.Policy
	if j.opts.Stops != nil {
		policy = j.opts.Stops()
	}
	gpus := 0
	for _, s := range j.states {
		gpus += len(s.Member.GPUs)
	}
	loads := j.saving()
	if j.now().Sub(since) < maxStagger && !loads.Allow(policy, &j.m.Model, gpus) {
		j.look(j.now().Add(lookAgain))
		return fmt.Sprintf("its node is drained; it leaves when fewer gangs save their checkpoints, since %s, or %s after the drain began", policy.Storage(j.m.Model.CheckpointStorage), maxStagger)
	}
	loads.Add(&j.m.Model, gpus)
	return ""
}

// saving are the gangs that are stopping, or are told to in this round.
func (r *round) saving() preempt.Loads {
	if r.saves != nil {
		return r.saves
	}
	r.saves = preempt.Loads{}
	for i := range r.view.Managed {
		m := &r.view.Managed[i]
		if m.Record == nil || m.Record.Phase != record.PhaseRollback {
			continue
		}
		other, gpus := r.job(m), 0
		live := other.live()
		for _, a := range live {
			gpus += len(deviceIDs(a))
		}
		if len(live) > 0 {
			r.saves.Add(&m.Model, gpus)
		}
	}
	return r.saves
}
