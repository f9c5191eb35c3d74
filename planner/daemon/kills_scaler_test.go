package daemon

import (
	"context"
	"errors"
	"maps"
	"runtime"
	"slices"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/nomad-autoscaler/sdk"
	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/autoscaler/strategy"
	"github.com/caravan-sched/caravan/autoscaler/target"
	"github.com/caravan-sched/caravan/autoscaler/terraform"
	"github.com/caravan-sched/caravan/planner/burstapi"
)

// scaler is the autoscaler with its plugins: the real strategy and the real target, a
// loop like its policy handler (policy/handler.go of v0.5.0), and caravan-apm, of
// which only counts whether it answers.
type scaler struct {
	strategy *strategy.Plugin
	target   *target.Plugin
	// dead are the processes of it that were killed. The autoscaler starts no plugin
	// again: back is when somebody has started all of it again.
	dead map[process]bool
	back time.Time
	// turn tells the target's process from those before it.
	turn int
}

func (w *world) startScaler() {
	turn := 0
	if w.scaler != nil {
		turn = w.scaler.turn + 1
		w.say("autoscaler: is started again")
	}
	s := &scaler{dead: map[process]bool{}, turn: turn, strategy: strategy.New(hclog.NewNullLogger())}
	w.scaler = s
	s.target = target.NewOn(hclog.NewNullLogger(), target.Parts{
		Now: func() time.Time { return w.now.Add(w.skew) }, Nomad: killNomad{w, turn},
		Open: func(terraform.Config, hclog.Logger) (target.Directory, error) { return killDirectory{w, turn}, nil },
	})
	link := map[string]string{"planner_address": w.planner.server.URL, "planner_timeout": "10m"}
	config := map[string]string{target.KeyPools: w.planner.poolsFile, target.KeySettle: "1s"}
	maps.Copy(config, link)
	if err := errors.Join(s.target.SetConfig(config), s.strategy.SetConfig(link)); err != nil {
		w.t.Fatal(err)
	}
}

// kill ends processes of the autoscaler.
func (s *scaler) kill(w *world, p process) {
	s.dead[p] = true
	if p == processAutoscaler { // its plugins end with it
		s.dead[processTarget], s.dead[processStrategy], s.dead[processAPM] = true, true, true
	}
	if s.dead[processTarget] {
		w.tf.locked = false // the kernel's
	}
	s.back = w.now.Add(mended)
}

// evaluate is one turn of the policy handler.
func (w *world) evaluate() {
	s := w.scaler
	if len(s.dead) > 0 {
		if w.now.Before(s.back) {
			if s.dead[processAutoscaler] || s.dead[processTarget] {
				return
			}
		} else {
			w.startScaler()
			s = w.scaler
		}
	}
	policy := map[string]string{target.KeyPool: "p", sdk.TargetConfigKeyDrainDeadline: "15m"}
	var status *sdk.TargetStatus
	if !s.call(w, func() { status, _ = s.target.Status(policy); s.target.Wait() }) || status == nil {
		return
	}
	if !status.Ready || s.dead[processAPM] || s.dead[processStrategy] {
		return
	}
	eval := &sdk.ScalingCheckEvaluation{
		Check:  &sdk.ScalingPolicyCheck{Strategy: &sdk.ScalingPolicyStrategy{Config: map[string]string{strategy.KeyPool: "p"}}},
		Action: &sdk.ScalingAction{},
	}
	if _, err := s.strategy.Run(eval, status.Count); err != nil {
		return // hold
	}
	action := *eval.Action
	action.CapCount(0, 8)
	if action.Direction == sdk.ScaleDirectionNone || action.Count == status.Count {
		return
	}
	if action.Direction == sdk.ScaleDirectionUp {
		w.trigger.reach(w, stepTold)
		if s.dead[processAutoscaler] || s.dead[processTarget] {
			return
		}
	}
	s.call(w, func() {
		if err := s.target.Scale(action, policy); err != nil {
			w.say("target: %v", err)
		}
	})
}

// call lets the target's process do something, and reports whether it outlived that.
func (s *scaler) call(w *world, f func()) bool {
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	for {
		select {
		case <-done:
			return !s.dead[processTarget]
		case <-w.tf.died: // the process that called is no more: nobody answers
			return false
		}
	}
}

// lives ends the process that calls if it was killed.
func (w *world) lives(turn int) {
	if w.scaler.turn != turn || w.scaler.dead[processTarget] {
		select {
		case w.tf.died <- struct{}{}:
		default:
		}
		runtime.Goexit()
	}
}

// killNomad is the cluster, as a target's process sees it.
type killNomad struct {
	w    *world
	turn int
}

// Leader implements target.Nomad.
func (n killNomad) Leader(context.Context) error {
	n.w.lives(n.turn)
	if n.w.now.Before(n.w.leaderless) {
		return errors.New("no cluster leader")
	}
	return nil
}

// Nodes implements target.Nomad.
func (n killNomad) Nodes(context.Context, string) ([]*api.Node, map[string][]*api.Allocation, error) {
	n.w.lives(n.turn)
	w, allocs := n.w, map[string][]*api.Allocation{}
	var out []*api.Node
	for i, m := range w.cloud {
		if !m.knownToNomad || m.purged {
			continue
		}
		node := &api.Node{ID: m.id, Name: m.name, CreateIndex: uint64(i + 1), Status: api.NodeStatusReady, SchedulingEligibility: api.NodeSchedulingEligible,
			Meta: map[string]string{burstapi.MetaPool: "p", burstapi.MetaNode: m.name, burstapi.MetaPurchase: m.purchase, burstapi.MetaMarket: m.market}, NodeResources: &api.NodeResources{}}
		if !w.up(m) {
			node.Status = api.NodeStatusDown
		}
		if w.ready(m) {
			group := &api.NodeDeviceResource{Vendor: "nvidia", Type: "gpu", Name: "H100"}
			for range 4 {
				group.Instances = append(group.Instances, &api.NodeDevice{Healthy: true})
			}
			node.NodeResources.Devices = append(node.NodeResources.Devices, group)
		}
		if m.drained {
			node.SchedulingEligibility = api.NodeSchedulingIneligible
			node.LastDrain = &api.DrainMetadata{Meta: map[string]string{"drained_by": "caravan-terraform"}}
			if w.busy(m) {
				node.DrainStrategy = &api.DrainStrategy{}
			}
		}
		out = append(out, node)
		for _, g := range w.gangs {
			if slices.Contains(g.whole, m.id) {
				allocs[m.id] = append(allocs[m.id], &api.Allocation{Namespace: "default", JobID: g.ID})
			}
		}
	}
	return out, allocs, nil
}

// Drain implements target.Nomad.
func (n killNomad) Drain(_ context.Context, id string, _ time.Duration, _ bool) error {
	n.w.lives(n.turn)
	if m := n.w.byID(id); m != nil {
		m.drained = true
		n.w.say("target: drains %s", m.name)
	}
	n.w.trigger.reach(n.w, stepDrain)
	n.w.lives(n.turn)
	return nil
}

// Undrain implements target.Nomad.
func (n killNomad) Undrain(_ context.Context, id string) error {
	n.w.lives(n.turn)
	if m := n.w.byID(id); m != nil {
		m.drained = false
	}
	return nil
}

// Purge implements target.Nomad.
func (n killNomad) Purge(_ context.Context, id string) error {
	n.w.lives(n.turn)
	n.w.trigger.reach(n.w, stepUnreported)
	n.w.lives(n.turn)
	if m := n.w.byID(id); m != nil {
		m.purged = true
	}
	return nil
}
