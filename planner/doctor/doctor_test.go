package doctor

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/planner/config"
	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/httpapi"
	"github.com/caravan-sched/caravan/planner/observe"
	"github.com/caravan-sched/caravan/planner/record"
)

// cluster is two sound nodes of eight GPUs in a pool of their own, and one
// node without GPUs in the default one.
func cluster() *observe.View {
	v := &observe.View{Devices: []string{"nvidia/gpu"}, PreemptionOn: map[string]bool{}, Snapshot: &model.Snapshot{}}
	for _, n := range []struct {
		name, pool string
		gpus       int
	}{{"cpu", "default", 0}, {"gpu-1", "gpus", 8}, {"gpu-2", "gpus", 8}} {
		m := model.Node{ID: n.name + "-id", Name: n.name, Pool: n.pool, Attributes: map[string]string{"attr.nomad.version": "1.10.2"}}
		for i := range n.gpus {
			m.GPUs = append(m.GPUs, model.GPU{UUID: fmt.Sprintf("GPU-%s-%d", n.name, i)})
		}
		v.Snapshot.Nodes = append(v.Snapshot.Nodes, m)
		v.Nodes = append(v.Nodes, observe.NodeRef{ID: m.ID, Name: n.name, GPUs: n.gpus})
	}
	return v
}

func pinned(id string) *api.Job {
	return &api.Job{ID: &id, TaskGroups: []*api.TaskGroup{{}}}
}

// What is read from the View alone.
func TestClusterChecks(t *testing.T) {
	tests := map[string]struct {
		change func(v *observe.View)
		// want are the checks that are not ok, and a part of their detail.
		want map[string]string
	}{
		"sound": {func(*observe.View) {}, nil},
		"a GPU node without GPUs, by its pool": {func(v *observe.View) {
			v.Nodes[0].GPUs = 0
			v.Snapshot.Nodes[0].Pool = "gpus"
		}, map[string]string{"warn device-plugin": "1 node should have GPUs and show none: cpu (node pool gpus)"}},
		"a GPU node without GPUs, by its meta": {func(v *observe.View) {
			v.Snapshot.Nodes[0].Attributes["meta.caravan_rack"] = "r1"
		}, map[string]string{"warn device-plugin": "1 node should have GPUs and show none: cpu"}},
		"a node that is down is no fault of its plugin": {func(v *observe.View) {
			v.Snapshot.Nodes[0].Attributes["meta.caravan_rack"] = "r1"
			v.Snapshot.Nodes[0].Unschedulable = "down"
		}, nil},
		"no GPU at all": {func(v *observe.View) {
			for i := range v.Nodes {
				v.Nodes[i].GPUs = 0
			}
		}, map[string]string{"fail device-plugin": `none of 3 nodes shows a device that matches ["nvidia/gpu"]`}},
		"two plugins": {func(v *observe.View) { v.Nodes[1].Twice = 8 },
			map[string]string{"fail device-plugin-once": "8 GPUs listed twice on 1 node"}},
		"no topology": {func(v *observe.View) { v.Nodes[2].TopologyFault = "version 9" },
			map[string]string{"warn topology": "unknown on 1 node: gpu-2: version 9"}},
		"a sick GPU": {func(v *observe.View) { v.Snapshot.Nodes[1].GPUs[3].Unhealthy = "XID 79" },
			map[string]string{"warn gpu-health": "1 GPU is unhealthy: gpu-1 GPU-gpu-1-3 (XID 79)"}},
		"an open gate": {func(v *observe.View) { v.Snapshot.Nodes[0].Attributes["meta.caravan_gate"] = "open" },
			map[string]string{"fail gate": "1 node with meta caravan_gate"}},
		"Nomad preempts": {func(v *observe.View) {
			v.PreemptionOn = map[string]bool{"batch": true, "service": true, "system": true, "sysbatch": true}
		}, map[string]string{"fail preemption-batch": "batch jobs", "fail preemption-service": "service jobs", "warn preemption-sysbatch": "sysbatch job"}},
		"old and many versions": {func(v *observe.View) { v.Snapshot.Nodes[1].Attributes["attr.nomad.version"] = "1.6.4" },
			map[string]string{"fail versions": "1 Nomad client is too old: gpu-1"}},
		"many versions": {func(v *observe.View) {
			v.Snapshot.Nodes[1].Attributes["attr.nomad.version"] = "2.0.1"
			v.Snapshot.Nodes[2].Attributes["attr.nomad.version"] = "1.9.0"
		}, map[string]string{"warn versions": "3 versions: 1.10.2, 1.9.0, 2.0.1"}},
		"leftovers": {func(v *observe.View) {
			v.Orphans = []*record.Record{{Namespace: "a", JobID: "gone"}}
			v.Strays = []observe.Stray{{Namespace: "a", ID: "lost", Gated: true}, {Namespace: "b", ID: "pin"}}
			on := func(node string, state observe.AllocState) []observe.MemberState {
				return []observe.MemberState{{Member: model.Member{Node: node}, State: state}}
			}
			running := &record.Record{Phase: record.PhaseRunning}
			v.Managed = []observe.Managed{
				{Namespace: "a", ID: "fine", Current: pinned("fine"), Record: running, Members: on("gpu-1-id", observe.AllocPlaced)},
				{Namespace: "a", ID: "moved", Current: pinned("moved"), Record: running, Members: on("old-id", observe.AllocLost)},
				{Namespace: "a", ID: "done", Current: pinned("done"), Record: running, Members: on("old-id", observe.AllocComplete)},
			}
		}, map[string]string{
			"warn records-without-jobs": "a/gone", "warn unmanaged-jobs": "2 jobs with gate or pins, and not managed by Caravan: exempt, or without a managed device: a/lost (gated: it waits for ever), b/pin (pinned)",
			"warn pins-to-gone-nodes": "1 job pinned to a node that Nomad does not know any more: a/moved (node old-id)",
		}},
		"warnings": {func(v *observe.View) { v.Warnings = []observe.Warning{{Subject: "node a", Text: "odd"}} },
			map[string]string{"warn warnings": "1 warning: node a: odd"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			v := cluster()
			test.change(v)
			cfg := config.Default()
			x := &examination{Patient: Patient{View: v, Config: &cfg}, ctx: t.Context()}
			for _, check := range []func(){x.versions, x.plugins, x.doubled, x.topology, x.health, x.gate, x.preemption, x.leftovers, x.warnings} {
				check()
			}
			got := map[string]string{}
			for _, c := range x.checks {
				if c.Status == httpapi.CheckOK {
					continue
				}
				key := string(c.Status) + " " + c.Name
				got[key] = c.Detail
				if c.Do == "" || !strings.Contains(c.Detail, test.want[key]) {
					t.Errorf("check %+v, want %q and what to do", c, test.want[key])
				}
			}
			var keys, want []string
			for k := range got {
				keys = append(keys, k)
			}
			for k := range test.want {
				want = append(want, k)
			}
			slices.Sort(keys)
			slices.Sort(want)
			if diff := cmp.Diff(want, keys); diff != "" {
				t.Errorf("checks not ok (-want +got):\n%s", diff)
			}
		})
	}
}

func TestClock(t *testing.T) {
	for skew, want := range map[time.Duration]httpapi.CheckStatus{
		0: httpapi.CheckOK, -4 * time.Second: httpapi.CheckOK, 20 * time.Second: httpapi.CheckWarn, -2 * time.Minute: httpapi.CheckFail,
	} {
		x := &examination{Patient: Patient{Skew: func() (time.Duration, bool) { return skew, true }}}
		if x.clock(); x.checks[0].Status != want {
			t.Errorf("skew %v: %+v, want %s", skew, x.checks[0], want)
		}
	}
	x := &examination{Patient: Patient{Skew: func() (time.Duration, bool) { return 0, false }}}
	if x.clock(); x.checks[0].Status != httpapi.CheckWarn {
		t.Errorf("unknown: %+v", x.checks[0])
	}
}

// The rule that counts is the one that fits best.
func TestClosest(t *testing.T) {
	rules := []namespaceRule{{Name: "*", Policy: "write"}, {Name: "team-*", Capabilities: []string{"list-jobs"}}, {Name: "team-a", Policy: "read"}, {Name: "team-a", Capabilities: []string{"submit-job"}}, {Name: "shut", Capabilities: []string{"deny", "read-job"}}}
	tests := map[string]map[string]bool{
		"else":   {"submit-job": true, "alloc-lifecycle": true},
		"team-b": {"list-jobs": true, "submit-job": false},
		"team-a": {"read-job": true, "submit-job": true, "alloc-lifecycle": false},
		"shut":   {"read-job": false},
	}
	for ns, grants := range tests {
		for capability, want := range grants {
			got := slices.ContainsFunc(closest(rules, ns), func(r namespaceRule) bool { return r.grants(capability) })
			if got != want {
				t.Errorf("%s in %s: %v, want %v", capability, ns, got, want)
			}
		}
	}
}
