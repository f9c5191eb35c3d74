package server

import (
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/nomad/api"
)

// normalize changes a canonical job as Nomad's server does before it stores
// it: what was pushed down into the groups is dropped from the job, tasks get
// their default identity, and what a task needs of its node becomes a
// constraint of its group. So a job reads back a little different from what
// was submitted.
func normalize(job *api.Job) {
	update := &api.UpdateStrategy{
		Stagger: new(time.Duration), MaxParallel: ptr(0), HealthCheck: ptr(""), MinHealthyTime: new(time.Duration), HealthyDeadline: new(time.Duration),
		ProgressDeadline: new(time.Duration), AutoRevert: ptr(false), AutoPromote: ptr(false), Canary: ptr(0),
	}
	if u := job.Update; u != nil && deref(u.MaxParallel) > 0 {
		update.Stagger, update.MaxParallel = ptr(deref(u.Stagger)), ptr(*u.MaxParallel)
	}
	job.Update, job.Migrate, job.Reschedule = update, nil, nil
	for _, tg := range job.TaskGroups {
		if tg.PreventRescheduleOnLost == nil {
			tg.PreventRescheduleOnLost = ptr(false)
		}
		for _, n := range tg.Networks {
			defaultHostNetwork(n.DynamicPorts)
			defaultHostNetwork(n.ReservedPorts)
		}
		var signals []string
		for _, t := range tg.Tasks {
			canonicalIdentities(t)
			if t.KillSignal != "" {
				signals = append(signals, t.KillSignal)
			}
		}
		if len(signals) > 0 {
			slices.Sort(signals)
			needSignals(tg, strings.Join(slices.Compact(signals), ","))
		}
	}
}

func defaultHostNetwork(ports []api.Port) {
	for i := range ports {
		if ports[i].HostNetwork == "" {
			ports[i].HostNetwork = "default"
		}
	}
}

// needSignals adds the constraint that the node knows the signals, unless it
// is there.
func needSignals(tg *api.TaskGroup, signals string) {
	c := api.Constraint{LTarget: "${attr.os.signals}", Operand: api.ConstraintSetContains, RTarget: signals}
	if !slices.ContainsFunc(tg.Constraints, func(old *api.Constraint) bool { return *old == c }) {
		tg.Constraints = append(tg.Constraints, &c)
	}
}
