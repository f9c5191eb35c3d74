package driver

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/internal/devcluster"
)

// longTests is the variable that has the stand-in play what takes minutes, too.
const longTests = "CARAVAN_E2E_LONG"

// fenceSlack is how much later than fenceAfter a member's code may end: the
// agent is asked every few seconds, and answers slowly while it is cut off.
const fenceSlack = 50 * time.Second

// A member's node is cut off, by each kind of disconnect block: its code ends in
// time, the gang starts elsewhere after that, and when the node is back there is
// one gang, whole.
func TestPartition(t *testing.T) {
	kinds := []struct {
		name  string
		block *api.DisconnectStrategy
	}{
		{"none", nil},
		{"no-replace", &api.DisconnectStrategy{LostAfter: new(time.Hour), Replace: new(false)}},
		{"best-score", &api.DisconnectStrategy{LostAfter: new(time.Hour), Replace: new(true), Reconcile: new("best_score")}},
		{"keep-original", &api.DisconnectStrategy{LostAfter: new(time.Hour), Replace: new(true), Reconcile: new("keep_original")}},
		{"keep-replacement", &api.DisconnectStrategy{LostAfter: new(time.Hour), Replace: new(true), Reconcile: new("keep_replacement")}},
		{"longest-running", &api.DisconnectStrategy{LostAfter: new(time.Hour), Replace: new(true), Reconcile: new("longest_running")}},
		{"lost-soon", &api.DisconnectStrategy{LostAfter: new(20 * time.Second), Replace: new(true), Reconcile: new("best_score")}},
		{"stop-on-client", &api.DisconnectStrategy{StopOnClientAfter: new(25 * time.Second)}},
	}
	onEachOf(t, cuts, true, func(t *testing.T, r *rig) {
		for _, kind := range kinds {
			t.Run(kind.name, func(t *testing.T) {
				if r.cluster.Backend() == devcluster.BackendDevNomad && kind.block != nil && os.Getenv(longTests) == "" {
					t.Skipf("takes half a minute: set %s=1, or run on a real Nomad", longTests)
				}
				newRig(t, r.stage).cutOff(kind.block)
			})
		}
	})
}

func (r *rig) cutOff(block *api.DisconnectStrategy) {
	k := gpus(task("train", trainer), 8).SetConfig("fence_after", fenceAfter.String())
	// Nomad sets the status of a disconnected node anew with each heartbeat that is
	// due, here every 13 s, and the planner counts from the last time: a longer
	// fence would end with the disconnection only.
	k.KillTimeout = new(time.Second)
	g := group("w", 2, k)
	g.Disconnect = block
	j := r.job(g)
	d := r.start(j, 2)
	victim := d.rank(1).alloc
	node := r.alloc(victim).NodeName
	r.goOn(d.ids()...)
	// The fence is armed when the agent has been seen.
	cut := time.Now()
	if err := r.cluster.Cut(node); err != nil {
		r.t.Fatal(err)
	}
	healed := false
	defer func() {
		if !healed {
			r.heal(node)
		}
	}()
	d = r.await("the gang has started elsewhere", func(d diary) bool { return len(d.after(cut).with("start")) == 2 })
	if n := r.together(d, 2); n != 2 {
		r.t.Errorf("%d epochs:\n%s", n, d)
	}
	mine := d.of(victim)
	if ran := mine[len(mine)-1].at.Sub(cut); ran > fenceAfter+fenceSlack || ran < fenceAfter/4 {
		r.t.Errorf("the member's code ran on for %v, want about %v", ran, fenceAfter)
	}
	healed = true
	r.heal(node)
	ids := d.ids()
	r.until("there is one gang", func() (bool, any) {
		running, text := 0, ""
		for _, a := range r.allocs(*j.ID) {
			text += fmt.Sprintf("%.8s %s/%s; ", a.ID, a.DesiredStatus, a.ClientStatus)
			if !ended(a.ClientStatus) {
				running++
			}
		}
		return running == 2, text
	})
	// Whoever is back must not have disturbed those.
	d = r.goOn(ids...)
	if starts := d.after(cut).with("start"); len(starts) != 2 {
		r.t.Errorf("%d starts after the cut, want 2:\n%s", len(starts), d)
	}
	r.neverTwice(d)
}

func (r *rig) heal(node string) {
	r.t.Helper()
	if err := r.cluster.Heal(node); err != nil {
		r.t.Error(err)
	}
	r.until(node+" is ready", func() (bool, any) {
		list, _, err := r.nomad.Nodes().List(nil)
		text := ""
		for _, n := range list {
			text += n.Name + " is " + n.Status + "; "
		}
		return err == nil && strings.Contains(text, node+" is ready"), text
	})
}

// neverTwice checks that no rank's code ran in two allocations at a time.
func (r *rig) neverTwice(d diary) {
	r.t.Helper()
	rank, holder := map[string]string{}, map[string]entry{}
	for _, e := range d {
		if e.word == "start" {
			rank[e.alloc] = e.values["rank"]
		} else if was := holder[rank[e.alloc]]; was.alloc != e.alloc {
			r.t.Errorf("rank %s in %s (%s at %s) beside %s", rank[e.alloc], e.alloc, e.word, e.at.Format("05.000"), was.alloc)
			return
		}
		holder[rank[e.alloc]] = e
	}
}
