package devrun

import (
	"context"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/planner/core/model"
)

// drainTime is what a drain may take before it stops what is still there. The
// planner moves the gang long before.
const drainTime = 10 * time.Minute

// playDrain drains a member's node.
func (r *run) playDrain(ctx context.Context) error {
	node, err := r.startAndPick(ctx)
	if err != nil {
		return err
	}
	r.step(r.nodes[node], "draining it")
	drain := &api.DrainOptions{DrainSpec: &api.DrainSpec{Deadline: drainTime}}
	if _, err := r.cluster.Client().Nodes().UpdateDrainOpts(node, drain, nil); err != nil {
		return fmt.Errorf("drain %s: %w", r.nodes[node], err)
	}
	if err := r.waitMoved(ctx, node); err != nil {
		return err
	}
	return poll(ctx, "the drain is complete", func() (bool, error) {
		n, _, err := r.cluster.Client().Nodes().Info(node, nil)
		if err == nil && n.DrainStrategy != nil {
			err = fmt.Errorf("node %s still drains", r.nodes[node])
		}
		return err == nil, err
	})
}

// playNodeLoss kills a member's client, and brings it back when the gang runs
// elsewhere: what is left of the member must go.
func (r *run) playNodeLoss(ctx context.Context) error {
	node, err := r.startAndPick(ctx)
	if err != nil {
		return err
	}
	name := r.nodes[node]
	r.step(name, "killing its client")
	if err := r.cluster.StopNode(name); err != nil {
		return err
	}
	before, _, err := r.watch.now()
	if err != nil {
		return err
	}
	if err := r.waitMoved(ctx, node); err != nil {
		return err
	}
	seen, _, err := r.watch.now()
	if err != nil {
		return err
	}
	e, err := r.planner.api.Explain(ctx, api.DefaultNamespace, trainGang)
	if err != nil {
		return fmt.Errorf("explain %s: %w", trainGang, err)
	}
	r.report.Checks = append(r.report.Checks, checkKeptNodes(before, seen, trainGang, node),
		checkToldOf(trainGang, []string{e.Reason}, "node "+name+" is lost, so member", "the other 1 keep their nodes"))
	index := seen.index()
	r.step(name, "bringing it back")
	if err := r.cluster.StartNode(name); err != nil {
		return err
	}
	if err := r.cluster.WaitReady(ctx); err != nil {
		return err
	}
	// A job after it shows that the planner has been through everything that
	// the return may have caused.
	if err := r.startWhole(ctx, "single-gpu", singleFile); err != nil {
		return err
	}
	if seen, _, err = r.watch.now(); err != nil {
		return err
	}
	r.report.Checks = append(r.report.Checks, checkMembersUntouched(seen, trainGang, index))
	return nil
}

// playSickGPU lets a GPU of a member report a fatal error.
func (r *run) playSickGPU(ctx context.Context) error {
	node, err := r.startAndPick(ctx)
	if err != nil {
		return err
	}
	r.step(r.nodes[node], "its GPU 0 falls off the bus")
	if err := os.WriteFile(faultsFile(r.dir, r.nodes[node]), []byte("0 lost\n"), 0o644); err != nil {
		return fmt.Errorf("make a GPU ill: %w", err)
	}
	return r.waitMoved(ctx, node)
}

// playPreemption submits a gang while Nomad's own preemption is on for its
// type, and turns it off.
func (r *run) playPreemption(ctx context.Context) error {
	set := func(on bool) error {
		conf := &api.SchedulerConfiguration{PreemptionConfig: api.PreemptionConfig{BatchSchedulerEnabled: on}}
		if _, _, err := r.cluster.Client().Operator().SchedulerSetConfiguration(conf, nil); err != nil {
			return fmt.Errorf("set Nomad's preemption: %w", err)
		}
		return nil
	}
	r.step("nomad", "its own preemption is turned on for batch jobs")
	if err := set(true); err != nil {
		return err
	}
	if _, err := r.submit(trainGangFile); err != nil {
		return err
	}
	err := poll(ctx, "the planner holds the gang and says why", func() (bool, error) {
		e, err := r.planner.api.Explain(ctx, api.DefaultNamespace, trainGang)
		if err == nil && (e.State != model.StateQueued || e.Reason == "") {
			err = fmt.Errorf("it is %s: %s", e.State, e.Reason)
		}
		if err == nil {
			r.step(trainGang, "waits: "+e.Reason)
		}
		return err == nil, err
	})
	if err != nil {
		return err
	}
	seen, _, err := r.watch.now()
	if err != nil {
		return err
	}
	held := seen.index()
	r.step("nomad", "its own preemption is turned off")
	if err := set(false); err != nil {
		return err
	}
	if err := r.waitWhole(ctx, trainGang); err != nil {
		return err
	}
	if seen, _, err = r.watch.now(); err != nil {
		return err
	}
	r.report.Checks = append(r.report.Checks, checkWaitedWhole(seen, trainGang, held))
	return nil
}

// startAndPick starts the gang and returns the ID of a member's node.
func (r *run) startAndPick(ctx context.Context) (node string, err error) {
	if _, err := r.submit(trainGangFile); err != nil {
		return "", err
	}
	if err := r.waitWhole(ctx, trainGang); err != nil {
		return "", err
	}
	seen, _, err := r.watch.now()
	if err != nil {
		return "", err
	}
	return seen.members(trainGang)[0].node, nil
}

// waitMoved waits until the gang runs whole without that node, and checks that
// it moved whole.
func (r *run) waitMoved(ctx context.Context, node string) error {
	_, err := r.watch.await(ctx, "the gang runs whole elsewhere", func(t timeline) bool {
		members := t.members(trainGang)
		return t.runningMembers(trainGang) == trainGangMembers && len(members) == trainGangMembers &&
			!slices.ContainsFunc(members, func(a *allocState) bool { return a.node == node })
	})
	if err != nil {
		return r.because(trainGang, err)
	}
	if err := r.waitWhole(ctx, trainGang); err != nil {
		return err
	}
	e, err := r.planner.api.Explain(ctx, api.DefaultNamespace, trainGang)
	if err != nil {
		return fmt.Errorf("explain %s: %w", trainGang, err)
	}
	for _, h := range e.History {
		r.step(trainGang, fmt.Sprintf("before: %s: %s", h.Action, h.Reason))
	}
	seen, _, err := r.watch.now()
	if err != nil {
		return err
	}
	r.report.Checks = append(r.report.Checks, checkMoved(seen, trainGang, node, r.nodes[node]))
	return nil
}

// checkKeptNodes: only what was on one node is on another one now.
func checkKeptNodes(before, after timeline, job, node string) Check {
	now := map[string]bool{}
	for _, a := range after.members(job) {
		now[a.node] = true
	}
	var faults []string
	kept := 0
	for _, a := range before.members(job) {
		switch {
		case a.node == node:
		case now[a.node]:
			kept++
		default:
			faults = append(faults, a.name+" has another node, though its own was sound")
		}
	}
	return result("kept-nodes:"+job, faults, count(kept, "member")+" started again on the same node, and one on another")
}
