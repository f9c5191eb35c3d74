package target_test

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/nomad-autoscaler/sdk"

	"github.com/caravan-sched/caravan/autoscaler/target"
	"github.com/caravan-sched/caravan/planner/burstapi"
)

// scale is what the policy handler sends.
func scale(n int64, direction sdk.ScaleDirection) sdk.ScalingAction {
	return sdk.ScalingAction{Count: n, Direction: direction, Reason: "test", Meta: map[string]any{"nomad_policy_id": "id"}}
}

// wantError checks that each part is in an error.
func wantError(t *testing.T, what string, err error, parts ...string) {
	t.Helper()
	if err == nil {
		t.Errorf("%s: no error, want %q", what, parts)
		return
	}
	for _, part := range parts {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%s: error is %v, want %q in it", what, err, part)
		}
	}
}

// An error on every call, as the autoscaler would see it: across the process.
func TestErrorsOnEveryCall(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigOptions{})
	l := r.launch()
	info, err := l.PluginInfo()
	if err != nil || info.Name != "caravan-terraform" || info.PluginType != sdk.PluginTypeTarget {
		t.Errorf("plugin info is %+v (%v)", info, err)
	}
	_, err = l.Status(r.policy)
	wantError(t, "status before SetConfig", err, "SetConfig comes first")
	wantError(t, "scale before SetConfig", l.Scale(scale(1, sdk.ScaleDirectionUp), r.policy), "SetConfig comes first")
	wantError(t, "an empty configuration", l.SetConfig(map[string]string{}), target.KeyPools)
	bad := map[string]string{
		target.KeyPools: filepath.Join(r.dir, "none.hcl"), target.KeyPlanner: "ftp://x", target.KeyInit: "perhaps", target.KeyPlanLimit: "-1s", "terraform_binry": "tofu",
		"nomad_address": r.cluster.Address(),
	}
	wantError(t, "a configuration full of faults", l.SetConfig(bad), "none.hcl", `planner_address is "ftp://x"`, `terraform_init is "perhaps"`, `terraform_plan_timeout is "-1s"`, `terraform_binry`)
	if err := l.SetConfig(r.config); err != nil {
		t.Fatal(err)
	}
	for what, policy := range map[string]map[string]string{
		"no pool": {}, "a pool that is not there": {target.KeyPool: "q"},
	} {
		_, err := l.Status(policy)
		wantError(t, what, err, "pools.hcl: p")
		wantError(t, what, l.Scale(scale(1, sdk.ScaleDirectionUp), policy), "pools.hcl: p")
	}
	policy := map[string]string{target.KeyPool: "p", sdk.TargetConfigKeyDrainDeadline: "soon", sdk.TargetConfigKeyNodePurge: "x", "dry-run": "y"}
	_, err = l.Status(policy)
	wantError(t, "a policy full of faults", err, "node_drain_deadline", "node_purge", "dry-run")
	wantError(t, "a count below zero", l.Scale(scale(-3, sdk.ScaleDirectionDown), r.policy), "-3")
	r.planner.want([]burstapi.Purchase{purchase("p1", "a")})
	holds := map[string]func(on bool){
		"the planner is away":       func(on bool) { r.planner.set(func(p *planner) { p.away = on }) },
		"the planner does not lead": func(on bool) { r.planner.set(func(p *planner) { p.follows = on }) },
		"another pools file": func(on bool) {
			r.planner.set(func(p *planner) { p.pool.Name = map[bool]string{true: "q", false: "p"}[on] })
		},
	}
	for what, set := range holds {
		set(true)
		wantError(t, what, l.Scale(scale(1, sdk.ScaleDirectionUp), r.policy), "hold: everything stays as it is")
		if s := r.status(l); !s.Ready || s.Count != 0 {
			t.Errorf("%s: status is %+v, want it to be told nonetheless", what, s)
		}
		set(false)
	}
	for what, answer := range map[string]string{"no leader": `""`, "an error": `No cluster leader`} {
		r.stand.Fail(func(q *http.Request) (int, string) {
			if q.URL.Path != "/v1/status/leader" {
				return 0, ""
			}
			if answer == `""` {
				return http.StatusOK, answer
			}
			return http.StatusInternalServerError, answer
		})
		wantError(t, "Nomad: "+what, l.Scale(scale(1, sdk.ScaleDirectionUp), r.policy), "hold")
		if s := r.status(l); s.Ready || !strings.Contains(s.Meta[target.MetaWhy], "hold") {
			t.Errorf("Nomad: %s: status is %+v, want it not ready", what, s)
		}
		r.stand.Fail(nil)
	}
	main := filepath.Join(r.dir, "main.tf")
	whole, err := os.ReadFile(main)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(main, []byte("resource {"), 0o644); err != nil {
		t.Fatal(err)
	}
	if s := r.status(l); s.Ready || !strings.Contains(s.Meta[target.MetaWhy], "state cannot be read") {
		t.Errorf("status is %+v, want it not ready since the state cannot be read", s)
	}
	wantError(t, "files that cannot be read", l.Scale(scale(1, sdk.ScaleDirectionUp), r.policy), "state cannot be read")
	if err := os.WriteFile(main, append(whole, []byte("\nresource \"terraform_data\" \"network\" {}\n")...), 0o644); err != nil {
		t.Fatal(err)
	}
	wantError(t, "a plan that would do more", l.Scale(scale(1, sdk.ScaleDirectionUp), r.policy), "terraform_data.network: it would be created")
	if got := fmt.Sprint(r.planner.told()); got != "[ordered p1 failed p1 refused]" {
		t.Errorf("the planner was told %s, want that the purchase was refused", got)
	}
	r.nothingLeft()
}

// A dry run says what it would do and touches nothing, neither does Status.
func TestDryRun(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigOptions{})
	l := r.start()
	r.planner.want([]burstapi.Purchase{purchase("p1", "a", "b")})
	r.policy["dry-run"] = "true"
	h := &handler{target: l, policy: r.policy, want: r.planner.wanted, max: 8, cooldown: time.Minute}
	start := time.Now()
	for i := range 4 {
		h.evaluate(start.Add(time.Duration(i) * time.Second))
	}
	if len(h.errs) > 0 || len(r.state()) > 0 || len(r.planner.told()) > 0 {
		t.Errorf("errors %v, state %v, reports %v; want nothing touched", h.errs, r.state(), r.planner.told())
	}
	if !strings.Contains(l.log.String(), "make a, b") {
		t.Error("the log does not say what would be done")
	}
	action := scale(2, sdk.ScaleDirectionUp)
	action.SetDryRun()
	delete(r.policy, "dry-run")
	if err := l.Scale(action, r.policy); err != nil || len(r.state()) > 0 {
		t.Errorf("a dry action: %v, state %v", err, r.state())
	}
	r.nothingLeft()
}

// The policy's bounds and its cooldown hold, and a call that had nothing to do
// starts none.
func TestBoundsAndCooldown(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigOptions{})
	l := r.start()
	r.planner.want([]burstapi.Purchase{purchase("p1", "a"), purchase("p2", "b", "c"), purchase("p3", "d")})
	h := &handler{target: l, policy: r.policy, want: r.planner.wanted, max: 2, cooldown: time.Minute}
	now := time.Now()
	h.evaluate(now)
	if got := fmt.Sprint(r.state()); h.scaled != 1 || got != "[a d]" {
		t.Fatalf("scaled %d times to %s (errors %v, no-ops %v), want a and d: p2 does not fit as a whole", h.scaled, got, h.errs, h.noOps)
	}
	for i := range 100 { // within the cooldown nothing is called
		h.evaluate(now.Add(time.Second))
		if h.status.Count == 2 || i == 99 {
			break
		}
		time.Sleep(250 * time.Millisecond)
	}
	if h.scaled != 1 || h.status.Count != 2 || h.status.Meta[sdk.TargetStatusMetaKeyLastEvent] == "" {
		t.Errorf("scaled %d times, status %+v; want two nodes by one call, and when that was", h.scaled, h.status)
	}
	r.planner.want([]burstapi.Purchase{purchase("p1", "a"), purchase("p2", "b", "c"), purchase("p3", "d")})
	h.max = 3
	for end := time.Now().Add(60 * time.Second); len(h.noOps) == 0 && time.Now().Before(end); time.Sleep(250 * time.Millisecond) {
		h.evaluate(now.Add(2 * time.Minute)) // while Status' own pass is under way it is not called
	}
	if len(h.noOps) != 1 || !strings.Contains(h.noOps[0], "purchase p2 needs 2 more nodes beside 2, and the policy allows 3") {
		t.Errorf("no-ops are %q, want one for p2", h.noOps)
	}
	if h.outUntil.After(now.Add(2 * time.Minute)) {
		t.Error("a call that did nothing started a cooldown")
	}
	r.planner.want(nil)
	h.min = 1
	for end := time.Now().Add(60 * time.Second); len(r.state()) > 1; {
		h.evaluate(now.Add(time.Hour))
		now = now.Add(time.Hour)
		if time.Now().After(end) {
			t.Fatalf("nodes are %v (errors %v, no-ops %v), want one left", r.state(), h.errs, h.noOps)
		}
		time.Sleep(250 * time.Millisecond)
	}
	h.evaluate(now.Add(time.Hour))
	if n := len(r.state()); n != 1 {
		t.Errorf("%d nodes are left, want the policy's min of 1", n)
	}
	if len(h.errs) > 0 {
		t.Errorf("errors: %v", h.errs)
	}
	h.min = 0
	r.loop(l, func(s *sdk.TargetStatus) bool { return count(0)(s) && len(r.state()) == 0 })
	r.nothingLeft()
}
