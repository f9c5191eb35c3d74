package target_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/nomad-autoscaler/sdk"

	"github.com/caravan-sched/caravan/planner/burstapi"
)

// failsFor says that a loop has come to nothing, which the planner knows.
func (r *rig) failsFor(purchase string, reason burstapi.Reason) func(*sdk.TargetStatus) bool {
	return func(s *sdk.TargetStatus) bool {
		return s.Ready && len(r.state()) == 0 && slices.Contains(r.planner.told(), fmt.Sprintf("failed %s %s", purchase, reason))
	}
}

// What a purchase can fail of: each time all of it is rolled back, the planner is
// told why, and nothing is left.
func TestPurchasesThatFail(t *testing.T) {
	tests := map[string]struct {
		options rigOptions
		reason  burstapi.Reason
	}{
		"the cloud has none left": {rigOptions{vars: map[string]any{"fail": map[string]string{"b": "api error InsufficientInstanceCapacity: none left"}}}, burstapi.ReasonCapacity},
		"a node does not come":    {rigOptions{joinTimeout: "1s", vars: map[string]any{"boot_seconds": 300}}, burstapi.ReasonTimeout},
		"another model":           {rigOptions{model: "mock:dgxa100"}, burstapi.ReasonRefused},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, test.options)
			l := r.start()
			r.planner.want([]burstapi.Purchase{purchase("p1", "a", "b")})
			r.loop(l, r.failsFor("p1", test.reason))
			r.nothingLeft()
			// Another purchase is not held up by the first.
			if test.reason == burstapi.ReasonCapacity {
				r.planner.want([]burstapi.Purchase{purchase("p2", "c")})
				r.loop(l, count(1))
			}
		})
	}
}

// A plugin that is killed, at whatever step, is followed by another that finishes: no
// machine is left that nobody wants, and none is missing.
func TestKilledAtEachStep(t *testing.T) {
	const journal, values = ".caravan/default/nodes.journal.json", ".caravan/default/nodes.tfvars.json"
	tests := map[string]struct {
		reached func(r *rig) bool
		wanted  bool // still, when another plugin starts
	}{
		"the plan is being made":  {reached: func(r *rig) bool { return r.exists(journal) }, wanted: true},
		"a machine is being made": {reached: func(r *rig) bool { return r.exists("nodes/a") || r.exists("nodes/b") }},
		"all machines were made":  {reached: func(r *rig) bool { return r.exists("nodes/a/pid") && r.exists("nodes/b/pid") }, wanted: true},
		"they are in the state":   {reached: func(r *rig) bool { return r.exists(values) }},
		"all is done":             {reached: func(r *rig) bool { return r.exists(values) && !r.exists(journal) }, wanted: true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, rigOptions{})
			l := r.start()
			r.planner.want([]burstapi.Purchase{purchase("p1", "a", "b")})
			go func() { _ = l.Scale(scale(2, sdk.ScaleDirectionUp), r.policy) }() // it is killed
			for end := time.Now().Add(60 * time.Second); !test.reached(r); time.Sleep(time.Millisecond) {
				if time.Now().After(end) {
					t.Fatal("the step was not reached")
				}
			}
			l.client.Kill()
			if !test.wanted {
				r.planner.want(nil)
			}
			l = r.start()
			gone := func(s *sdk.TargetStatus) bool {
				return count(0)(s) && len(r.state()) == 0 && len(r.processes()) == 0 && !r.exists(journal)
			}
			if test.wanted {
				r.loop(l, func(s *sdk.TargetStatus) bool { return count(2)(s) && slices.Contains(r.planner.told(), "present p1") })
				if got := fmt.Sprint(r.nodes()); got != "[a b]" {
					t.Errorf("nodes are %s, want a and b", got)
				}
				r.planner.want(nil)
			}
			r.loop(l, gone)
			r.nothingLeft()
		})
	}
}

func (r *rig) exists(name string) bool {
	_, err := os.Stat(filepath.Join(r.dir, name))
	return err == nil
}

// A machine whose client is killed does not count any more, and a plugin that is
// killed while nodes are given back is followed by one that ends them.
func TestKilledDuringGiveBack(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigOptions{})
	l := r.start()
	r.planner.want([]burstapi.Purchase{purchase("p1", "a", "b")})
	r.loop(l, count(2))
	r.planner.want([]burstapi.Purchase{purchase("p1", "a", "b")}, "a", "b")
	_ = l.Scale(scale(0, sdk.ScaleDirectionDown), r.policy) // it drains; the rest is another pass's
	l.client.Kill()
	l = r.start()
	r.loop(l, func(s *sdk.TargetStatus) bool { return count(0)(s) && len(r.state()) == 0 })
	r.nothingLeft()
}

// Where no planner names nodes they have numbers, and the policy's count decides.
func TestWithoutAPlanner(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigOptions{noPlanner: true})
	l := r.start()
	n := int64(2)
	h := &handler{target: l, policy: r.policy, want: func() int64 { return n }, max: 3}
	await := func(names string) {
		t.Helper()
		for end := time.Now().Add(60 * time.Second); ; time.Sleep(250 * time.Millisecond) {
			h.evaluate(time.Now())
			if h.status.Ready && h.status.Count == n && fmt.Sprint(r.state()) == names {
				return
			}
			if time.Now().After(end) {
				t.Fatalf("nodes are %v, status %+v, errors %v; want %s", r.state(), h.status, h.errs, names)
			}
		}
	}
	await("[n1 n2]")
	n = 5 // the policy's max is 3
	h.evaluate(time.Now())
	n = 3
	await("[n1 n2 n3]")
	n = 0
	await("[]")
	r.nothingLeft()
}

// Nodes that say they belong to the pool and are not Terraform's are left alone.
func TestStrangersAreLeftAlone(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigOptions{})
	l := r.start()
	stranger := r.join("stranger", "a")
	r.planner.want([]burstapi.Purchase{purchase("p1", "a")})
	err := l.Scale(scale(1, sdk.ScaleDirectionUp), r.policy)
	wantError(t, "a key that a stranger has", err, "Terraform's state does not know it")
	s := r.status(l)
	if s.Count != 0 || !strings.Contains(s.Meta["caravan.unknown_nodes"], "a (") {
		t.Errorf("status is %+v, want the stranger named and not counted", s)
	}
	r.planner.want([]burstapi.Purchase{purchase("p2", "b")})
	r.loop(l, count(1))
	r.planner.want(nil)
	r.loop(l, func(s *sdk.TargetStatus) bool { return count(0)(s) && len(r.state()) == 0 })
	if got := fmt.Sprint(r.nodes()); got != "[a]" {
		t.Errorf("nodes are %s, want the stranger only", got)
	}
	stranger()
}
