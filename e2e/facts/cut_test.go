package facts

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/internal/devcluster"
)

// cutSpec is two nodes with networks of their own.
func cutSpec() devcluster.Spec {
	return devcluster.Spec{Networks: true, Nodes: []devcluster.Node{{Name: "n1"}, {Name: "n2"}}}
}

// eachCut runs a fact on clusters whose nodes can be cut off.
func eachCut(t *testing.T, fact func(t *testing.T, e *env)) {
	eachOf(t, "cuts", cutSpec, fact)
}

// cut separates the node that an allocation is on, until the returned function
// is called, or the test ends.
func (e *env) cut(alloc string) (name string, heal func()) {
	e.t.Helper()
	a, _, err := e.api.Allocations().Info(alloc, nil)
	if err != nil {
		e.t.Fatal(err)
	}
	if err := e.c.Cut(a.NodeName); err != nil {
		e.t.Fatal(err)
	}
	healed := false
	heal = func() {
		e.t.Helper()
		if healed {
			return
		}
		healed = true
		if err := e.c.Heal(a.NodeName); err != nil {
			e.t.Error(err)
		}
		e.nodeIs(a.NodeName, api.NodeStatusReady)
	}
	// The test's context has ended in a cleanup.
	e.t.Cleanup(func() { (&env{t: e.t, c: e.c, api: e.api}).healAtEnd(a.NodeName, &healed) })
	return a.NodeName, heal
}

func (e *env) healAtEnd(name string, healed *bool) {
	if *healed {
		return
	}
	if err := e.c.Heal(name); err != nil {
		e.t.Error(err)
	}
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		if n := e.findNode(name); n != nil && n.Status == api.NodeStatusReady {
			return
		}
	}
	e.t.Errorf("node %s did not come back", name)
}

func (e *env) findNode(name string) *api.NodeListStub {
	list, _, err := e.api.Nodes().List(nil)
	if err != nil {
		return nil
	}
	for _, n := range list {
		if n.Name == name {
			return n
		}
	}
	return nil
}

func (e *env) nodeIs(name, want string) {
	e.t.Helper()
	e.until("node "+name+" "+want, func() (bool, any) {
		n := e.findNode(name)
		return n != nil && n.Status == want, n
	})
}

// allocStatus waits for an allocation's desired and client status.
func (e *env) allocStatus(id, desired, client string) *api.Allocation {
	e.t.Helper()
	var a *api.Allocation
	e.until(fmt.Sprintf("allocation %s %s/%s", id, desired, client), func() (bool, any) {
		var err error
		a, _, err = e.api.Allocations().Info(id, nil)
		if err != nil {
			return false, err
		}
		return a.DesiredStatus == desired && a.ClientStatus == client, a.DesiredStatus + "/" + a.ClientStatus
	})
	return a
}

// An agent that is cut off says so: it has no leader.
func TestCutAgentHasNoLeader(t *testing.T) {
	eachCut(t, func(t *testing.T, e *env) {
		agent, err := e.c.Agent("n1")
		if err != nil {
			t.Fatal(err)
		}
		leader, err := agent.Status().Leader()
		if err != nil || leader == "" {
			t.Fatalf("the leader is %q, %v", leader, err)
		}
		self, err := agent.Agent().Self()
		if err != nil || self.Stats["client"]["node_id"] != e.findNode("n1").ID {
			t.Errorf("the agent is of node %q (%v), want %q", self.Stats["client"]["node_id"], err, e.findNode("n1").ID)
		}
		if err := e.c.Cut("n1"); err != nil {
			t.Fatal(err)
		}
		healed := false
		t.Cleanup(func() { e.healAtEnd("n1", &healed) })
		// For 40 seconds it does not answer at all, since its connections seem to
		// live; then it answers with an error. So whoever asks must not wait long.
		if leader, err := leaderWithin(t, agent, 2*time.Second); err == nil {
			t.Errorf("an agent that is cut off names the leader %q", leader)
		}
		e.nodeIs("n1", api.NodeStatusDown)
		if h, err := agent.Agent().Health(); err != nil || h.Client == nil || !h.Client.Ok {
			t.Errorf("health is %+v, %v", h, err)
		}
		if err := e.c.Heal("n1"); err != nil {
			t.Fatal(err)
		}
		healed = true
		e.nodeIs("n1", api.NodeStatusReady)
		e.until("an agent with a leader", func() (bool, any) {
			leader, err := leaderWithin(t, agent, 5*time.Second)
			return err == nil && leader != "", err
		})
	})
}

func leaderWithin(t *testing.T, agent *api.Client, d time.Duration) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	defer cancel()
	leader := ""
	_, err := agent.Raw().Query("/v1/status/leader", &leader, (&api.QueryOptions{}).WithContext(ctx))
	return leader, err
}

// What happens on a node that is cut off, by the group's disconnect block.
func TestCutByDisconnectBlock(t *testing.T) {
	tests := map[string]struct {
		block *api.DisconnectStrategy
		// node is the status of the node while it is away.
		node string
		// away is the allocation's client status then, and replaced whether
		// another one runs elsewhere.
		away     string
		replaced bool
		// stops says that the client itself ends the task.
		stops bool
		// back is the client status of the old allocation after the node's
		// return, and kept whether it is that which goes on.
		back string
		kept bool
	}{
		"none": {
			node: api.NodeStatusDown, away: api.AllocClientStatusLost, replaced: true,
			back: api.AllocClientStatusComplete,
		},
		"lost_after, replace": {
			block: &api.DisconnectStrategy{LostAfter: ptr(time.Hour), Replace: ptr(true), Reconcile: ptr("keep_original")},
			node:  api.NodeStatusDisconnected, away: api.AllocClientStatusUnknown, replaced: true,
			back: api.AllocClientStatusRunning, kept: true,
		},
		"lost_after, replacement wins": {
			block: &api.DisconnectStrategy{LostAfter: ptr(time.Hour), Replace: ptr(true), Reconcile: ptr("keep_replacement")},
			node:  api.NodeStatusDisconnected, away: api.AllocClientStatusUnknown, replaced: true,
			back: api.AllocClientStatusComplete,
		},
		"lost_after, no replace": {
			block: &api.DisconnectStrategy{LostAfter: ptr(time.Hour), Replace: ptr(false)},
			node:  api.NodeStatusDisconnected, away: api.AllocClientStatusUnknown,
			back: api.AllocClientStatusRunning, kept: true,
		},
		"stop_on_client_after": {
			node: api.NodeStatusDown, away: api.AllocClientStatusLost, replaced: true, stops: true,
			back: api.AllocClientStatusComplete,
		},
	}
	for name, test := range tests {
		t.Run(strings.ReplaceAll(name, ", ", "_"), func(t *testing.T) {
			eachCut(t, func(t *testing.T, e *env) {
				beat := t.TempDir() + "/beat"
				j := e.newJob(api.JobTypeService, "dc1", 1, 0, "trap 'exit 0' INT TERM; while :; do date +%s%N > "+beat+"-$NOMAD_ALLOC_ID; sleep 0.1; done")
				j.TaskGroups[0].Disconnect = test.block
				if test.stops {
					j.TaskGroups[0].Disconnect = &api.DisconnectStrategy{StopOnClientAfter: ptr(e.aloneFor())}
				}
				e.register(j)
				old := e.running(*j.ID, 1)[0]
				name, heal := e.cut(old.ID)
				e.nodeIs(name, test.node)
				e.allocStatus(old.ID, map[bool]string{true: api.AllocDesiredStatusStop, false: api.AllocDesiredStatusRun}[test.away == api.AllocClientStatusLost], test.away)
				if test.replaced {
					e.until("a replacement", func() (bool, any) { return len(e.live(*j.ID)) == 1 && e.live(*j.ID)[0].ID != old.ID, e.describe(*j.ID) })
				}
				if test.stops {
					e.until("the task ended by its client", func() (bool, any) { return !beats(t, beat+"-"+old.ID), "it goes on" })
				} else {
					e.until("the task on the node that is away runs", func() (bool, any) { return beats(t, beat+"-"+old.ID), "it stands still" })
				}
				if n := len(e.allocs(*j.ID)); (n == 2) != test.replaced {
					t.Errorf("there are %d allocations: %s", n, e.describe(*j.ID))
				}
				heal()
				desired := api.AllocDesiredStatusStop
				if test.kept {
					desired = api.AllocDesiredStatusRun
				}
				e.allocStatus(old.ID, desired, test.back)
				if live := e.running(*j.ID, 1); (live[0].ID == old.ID) != test.kept {
					t.Errorf("what goes on: %s", e.describe(*j.ID))
				}
			})
		})
	}
}

// aloneFor is a time for stop_on_client_after. A real client counts from its
// last heartbeat, so that a time shorter than the pause between two of them
// ends tasks of a client that is well.
func (e *env) aloneFor() time.Duration {
	if e.c.Backend() == devcluster.BackendNomad {
		return 25 * time.Second
	}
	return 2 * time.Second
}

// beats says whether a task goes on writing into its file.
func beats(t *testing.T, path string) bool {
	t.Helper()
	before := readFile(t, path)
	for range 20 {
		time.Sleep(100 * time.Millisecond)
		if readFile(t, path) != before {
			return true
		}
	}
	return false
}

func readFile(t *testing.T, path string) string {
	t.Helper()
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}
