package server

import (
	"maps"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/internal/devnomad/sched"
	"github.com/caravan-sched/caravan/internal/devnomad/state"
)

// Node subsystem names of node events.
const (
	subsystemCluster = "Cluster"
	subsystemDrain   = "Drain"
)

// Connect registers a client or its new fingerprint; the node counts as
// reporting until Disconnect.
func (s *Server) Connect(n *state.Node) error {
	s.mu.Lock()
	delete(s.silent, n.ID)
	s.mu.Unlock()
	return s.update(state.EventNodeRegistration, func(tx *state.Tx) error {
		old := tx.Node(n.ID)
		n.Status, n.StatusUpdatedAt = api.NodeStatusReady, tx.Now.Unix()
		n.SchedulingEligibility = api.NodeSchedulingEligible
		wasReady, oldClass := false, ""
		if old != nil {
			wasReady, oldClass = old.Status == api.NodeStatusReady, old.ComputedClass
			n.SchedulingEligibility, n.DrainStrategy, n.Drain = old.SchedulingEligibility, old.DrainStrategy, old.Drain
			n.LastDrain, n.Events = old.LastDrain, old.Events
		}
		switch {
		case old == nil:
			addEvent(tx, n, subsystemCluster, "Node registered")
		case !wasReady:
			addEvent(tx, n, subsystemCluster, "Node reregistered by heartbeat")
		}
		if tx.Pool(n.NodePool) == nil {
			tx.PutPool(&api.NodePool{Name: n.NodePool})
		}
		tx.PutNode(n)
		if !wasReady {
			evalsForNode(tx, n.ID, sched.TriggerNodeUpdate)
		}
		if n.Ready() && (!wasReady || oldClass != n.ComputedClass || !sameDevices(old, n)) {
			s.unblock(tx, n)
		}
		return nil
	})
}

// sameDevices says whether two fingerprints have the same healthy devices.
func sameDevices(a, b *state.Node) bool {
	return maps.Equal(healthyDevices(a), healthyDevices(b))
}

func healthyDevices(n *state.Node) map[string]bool {
	out := map[string]bool{}
	for _, d := range n.NodeResources.Devices {
		for _, x := range d.Instances {
			if x.Healthy {
				out[d.Vendor+"/"+d.Type+"/"+d.Name+"/"+x.ID] = true
			}
		}
	}
	return out
}

// Disconnect notes that a client went silent. It is lost, or disconnected,
// when LostAfter has passed.
func (s *Server) Disconnect(id string) {
	s.mu.Lock()
	s.silent[id] = s.Now()
	s.mu.Unlock()
	s.kick()
}

// expireNodes marks nodes that were silent for too long.
func (s *Server) expireNodes(now time.Time) bool {
	var gone []string
	s.mu.Lock()
	for id, since := range s.silent {
		if now.Sub(since) >= s.cfg.LostAfter {
			gone = append(gone, id)
			delete(s.silent, id)
		}
	}
	s.mu.Unlock()
	for _, id := range gone {
		err := s.store.Update(state.EventNode, now, func(tx *state.Tx) error {
			if tx.Node(id) == nil {
				return nil
			}
			status := api.NodeStatusDown
			if mayComeBack(tx, id) {
				status = api.NodeStatusDisconnected
			}
			tx.EditNode(id, func(n *state.Node) {
				n.Status, n.StatusUpdatedAt = status, now.Unix()
				addEvent(tx, n, subsystemCluster, "Node heartbeat missed")
			})
			evalsForNode(tx, id, sched.TriggerNodeUpdate)
			return nil
		})
		if err != nil {
			s.logf("mark node %s lost: %v", id, err)
		}
	}
	return len(gone) > 0
}

// mayComeBack says whether an allocation of the node waits for it to return.
func mayComeBack(tx *state.Tx, id string) bool {
	for _, a := range tx.AllocsOfNode(id) {
		if state.Terminal(a) || a.Job == nil {
			continue
		}
		if tg := a.Job.LookupTaskGroup(a.TaskGroup); tg != nil && tg.Disconnect != nil && deref(tg.Disconnect.LostAfter) > 0 {
			return true
		}
	}
	return false
}

func addEvent(tx *state.Tx, n *state.Node, subsystem, message string) {
	e := &api.NodeEvent{Subsystem: subsystem, Message: message, Timestamp: tx.Now, CreateIndex: tx.Index}
	n.Events = append(append([]*api.NodeEvent(nil), n.Events...), e)
	if over := len(n.Events) - 10; over > 0 {
		n.Events = n.Events[over:]
	}
}

// NodeEvent adds an event of a client to those of its node.
func (s *Server) NodeEvent(id, subsystem, message string, details map[string]string) {
	err := s.update(state.EventNode, func(tx *state.Tx) error {
		if tx.Node(id) == nil {
			return nil
		}
		tx.EditNode(id, func(n *state.Node) {
			addEvent(tx, n, subsystem, message)
			n.Events[len(n.Events)-1].Details = details
		})
		return nil
	})
	if err != nil {
		s.logf("add event to node %s: %v", id, err)
	}
}

// SetEligibility changes whether new work may be placed on a node.
func (s *Server) SetEligibility(id, eligibility string) (*api.NodeEligibilityUpdateResponse, error) {
	resp := &api.NodeEligibilityUpdateResponse{}
	err := s.update(state.EventNodeEligibility, func(tx *state.Tx) error {
		n := tx.Node(id)
		switch {
		case n == nil:
			return errorf(500, "node not found")
		case eligibility != api.NodeSchedulingEligible && eligibility != api.NodeSchedulingIneligible:
			return errorf(500, "invalid scheduling eligibility %q", eligibility)
		case n.DrainStrategy != nil && eligibility == api.NodeSchedulingEligible:
			return errorf(500, "can not set node's scheduling eligibility to eligible while it is draining")
		}
		resp.NodeModifyIndex, resp.LastIndex = tx.Index, tx.Index
		if n.SchedulingEligibility == eligibility {
			return nil
		}
		tx.EditNode(id, func(n *state.Node) {
			n.SchedulingEligibility = eligibility
			addEvent(tx, n, subsystemCluster, "Node marked as "+eligibility+" for scheduling")
		})
		if eligibility == api.NodeSchedulingEligible {
			resp.EvalIDs, resp.EvalCreateIndex = evalsForNode(tx, id, sched.TriggerNodeUpdate), tx.Index
			s.unblock(tx, n)
		}
		return nil
	})
	return resp, err
}

// EvaluateNode makes evaluations of all that runs on a node.
func (s *Server) EvaluateNode(id string) ([]string, error) {
	var ids []string
	err := s.update(state.EventEvaluation, func(tx *state.Tx) error {
		if tx.Node(id) == nil {
			return errorf(500, "node not found")
		}
		ids = evalsForNode(tx, id, sched.TriggerNodeUpdate)
		return nil
	})
	return ids, err
}

// Purge forgets a node.
func (s *Server) Purge(id string) (*api.NodePurgeResponse, error) {
	resp := &api.NodePurgeResponse{}
	err := s.update(state.EventNodeDeregistered, func(tx *state.Tx) error {
		if tx.Node(id) == nil {
			return errorf(500, "node not found")
		}
		tx.DeleteNode(id)
		resp.NodeModifyIndex, resp.EvalCreateIndex = tx.Index, tx.Index
		resp.EvalIDs = evalsForNode(tx, id, sched.TriggerNodeUpdate)
		return nil
	})
	return resp, err
}
