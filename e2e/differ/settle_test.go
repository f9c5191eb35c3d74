package differ

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/internal/devcluster"
)

const (
	// patience is how long a cluster may take to come to rest.
	patience = 90 * time.Second
	// soon is how far away an evaluation that waits for its time may be for it
	// to be waited for. Those of disconnected allocations wait for an hour.
	soon = 30 * time.Second
)

// errRestless says that a cluster went on changing.
var errRestless = errors.New("it never comes to rest")

// quiet is how long nothing must change. Nomad's clients report every 200 ms,
// and its drainer and deployment watcher act in steps of up to a second.
func (w *world) quiet() (calm, poll time.Duration) {
	if w.c.Backend() == devcluster.BackendDevNomad {
		return 400 * time.Millisecond, 20 * time.Millisecond
	}
	return 1500 * time.Millisecond, 100 * time.Millisecond
}

// late is how many times as long as a look takes nothing must change. On a busy
// machine looks take longer, as does all that is still to happen.
const late = 25

// settle waits until there is nothing to do and nothing changes.
func (w *world) settle(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	calm, poll := w.quiet()
	last, since, looked, longest := "", time.Now(), time.Now(), time.Duration(0)
	for {
		mark, busy, err := w.activity()
		if err != nil {
			return err
		}
		now := time.Now()
		longest, looked = max(longest, now.Sub(looked)-poll), now
		if mark != last || busy != "" {
			last, since, longest = mark, now, 0
		}
		if now.Sub(since) >= max(calm, min(late*longest, patience/6)) {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w: %s", errRestless, busy)
		case <-time.After(poll):
		}
	}
}

// activity tells apart the states of the cluster, and what is still to happen
// in this one.
func (w *world) activity() (mark, busy string, err error) {
	evals, _, err := w.api.Evaluations().List(nil)
	if err != nil {
		return "", "", err
	}
	allocs, _, err := w.api.Allocations().List(nil)
	if err != nil {
		return "", "", err
	}
	deployments, _, err := w.api.Deployments().List(nil)
	if err != nil {
		return "", "", err
	}
	nodes, _, err := w.api.Nodes().List(nil)
	if err != nil {
		return "", "", err
	}
	var marks, work []string
	note := func(id string, index uint64) { marks = append(marks, fmt.Sprintf("%s/%d", id, index)) }
	ready := map[string]bool{}
	for _, n := range nodes {
		ready[n.ID] = n.Status == api.NodeStatusReady
		marks = append(marks, n.ID+n.Status+n.SchedulingEligibility+fmt.Sprint(n.Drain))
	}
	for _, n := range w.nodes {
		if ready[n.id] != n.up {
			work = append(work, "node "+n.name)
		}
	}
	for _, e := range evals {
		note(e.ID, e.ModifyIndex)
		if e.Status == api.EvalStatusPending && time.Until(e.WaitUntil) < soon {
			work = append(work, "evaluation of "+e.JobID+" by "+e.TriggeredBy)
		}
	}
	deployed := map[string]bool{} // by a running deployment: its job's ID and version
	for _, d := range deployments {
		note(d.ID, d.ModifyIndex)
		if d.Status == api.DeploymentStatusRunning {
			deployed[fmt.Sprint(d.JobID, d.JobVersion)] = true
			if through(d) {
				work = append(work, "deployment of "+d.JobID)
			}
		}
	}
	for _, a := range allocs {
		note(a.ID, a.ModifyIndex)
		if ready[a.NodeID] && (changes(a) || watched(a, deployed[fmt.Sprint(a.JobID, a.JobVersion)])) {
			work = append(work, fmt.Sprintf("allocation %s, %s/%s", a.Name, a.DesiredStatus, a.ClientStatus))
		}
	}
	slices.Sort(marks)
	slices.Sort(work)
	return strings.Join(marks, " "), strings.Join(work, "; "), nil
}

// changes says whether a client has yet to tell what becomes of an allocation.
func changes(a *api.AllocationListStub) bool {
	switch a.ClientStatus {
	case api.AllocClientStatusPending, api.AllocClientStatusUnknown:
		return true
	case api.AllocClientStatusRunning:
		return a.DesiredStatus != api.AllocDesiredStatusRun
	}
	return false
}

// healthSoon is when a member is healthy, or never: its min_healthy_time, and
// time for the client to tell. A deployment waits for it, on a busy machine
// longer.
const (
	healthSoon     = minHealthy + 1500*time.Millisecond
	healthDeployed = minHealthy + 30*time.Second
)

// watched says whether a member may yet be found healthy.
func watched(a *api.AllocationListStub, deployed bool) bool {
	if a.JobType != api.JobTypeService || a.ClientStatus != api.AllocClientStatusRunning || a.DesiredStatus != api.AllocDesiredStatusRun ||
		a.DeploymentStatus != nil && a.DeploymentStatus.Healthy != nil {
		return false
	}
	within := healthSoon
	if deployed {
		within = healthDeployed
	}
	return time.Since(time.Unix(0, a.ModifyTime)) < within
}

// through says whether a running deployment has all that it waits for, so that
// it is about to end.
func through(d *api.Deployment) bool {
	for _, g := range d.TaskGroups {
		if g.HealthyAllocs < g.DesiredTotal || g.DesiredCanaries > 0 && !g.Promoted {
			return false
		}
	}
	return len(d.TaskGroups) > 0
}
