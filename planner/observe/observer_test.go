package observe

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/planner/config"
	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/record"
)

func refresh(t *testing.T, o *Observer) *View {
	t.Helper()
	v, err := o.Refresh(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func TestRefreshSeesTheCluster(t *testing.T) {
	f := newFake(t)
	f.putNode(node("b", 2))
	f.putNode(node("a", 2))
	f.putJob(gpuJob("train", 2, 2))
	f.putAlloc(alloc("x1", "other", "g", "id-b", 3, "b-1"))
	v := refresh(t, f.observer(t))

	gpu := func(id string, island int) model.GPU {
		return model.GPU{UUID: id, Vendor: "nvidia", Type: "gpu", Model: "H100",
			Attributes: map[string]string{"memory": "81920 MiB", "driver_version": `"535.104"`}, Island: island, NUMA: -1}
	}
	wantA := model.Node{
		ID: "id-a", Name: "a", Datacenter: "dc1", Pool: "default",
		Attributes: map[string]string{
			"attr.kernel.name": "linux", "attr.driver.raw_exec": "1", "meta.caravan_rack": "r1",
			"node.unique.id": "id-a", "node.unique.name": "a", "node.datacenter": "dc1", "node.class": "", "node.pool": "default",
		},
		Levels:        map[string]string{"rack": "r1"},
		Capacity:      model.Resources{CPUMHz: 9500, Cores: 4, MemoryMiB: 63000, DiskMiB: 90000},
		ReservedPorts: []int{22, 8000, 8001, 8002},
		GPUs:          []model.GPU{gpu("a-0", 0), gpu("a-1", 1)},
	}
	if diff := cmp.Diff(wantA, v.Snapshot.Nodes[0]); diff != "" {
		t.Errorf("node (-want +got):\n%s", diff)
	}
	wantAllocs := []model.Alloc{{
		ID: "x1", Namespace: "default", Job: "other", Group: "g", Index: 3, Node: "id-b", GPUs: []string{"b-1"},
		Resources: model.Resources{CPUMHz: 100, MemoryMiB: 300, DiskMiB: 300}, Ports: []int{25000},
	}}
	if diff := cmp.Diff(wantAllocs, v.Snapshot.Allocs); diff != "" {
		t.Errorf("allocations (-want +got):\n%s", diff)
	}
	wantRef := NodeRef{ID: "id-a", Name: "a", Levels: map[string]string{"rack": "r1"}, Meta: map[string]string{"caravan_rack": "r1"}, GPUs: 2, TopologyFault: noTopology}
	if diff := cmp.Diff(wantRef, v.Nodes[0]); diff != "" {
		t.Errorf("node reference (-want +got):\n%s", diff)
	}
	if len(v.Snapshot.Jobs) != 1 || v.Snapshot.Jobs[0].ID != "train" || v.Snapshot.Jobs[0].State != model.StateQueued {
		t.Errorf("jobs = %+v, want train, queued", v.Snapshot.Jobs)
	}
	if got := v.Snapshot.Jobs[0].Submitted; !got.Equal(time.Unix(900, 0)) {
		t.Errorf("submitted = %v", got)
	}
	if v.Index != f.index {
		t.Errorf("index = %d, want %d", v.Index, f.index)
	}
}

func TestRefreshReadsOnlyWhatChanged(t *testing.T) {
	f := newFake(t)
	f.putNode(node("a", 1))
	f.putNode(node("b", 1))
	f.putJob(gpuJob("one", 1, 1))
	f.putJob(gpuJob("two", 1, 1))
	f.putRecord(&record.Record{Namespace: "default", JobID: "one", SpecHash: "h", Phase: record.PhaseQueued, Original: gpuJob("one", 1, 1)})
	o := f.observer(t)
	refresh(t, o)
	paths := []string{"node/id-a", "node/id-b", "nodes", "job/one", "job/two", "jobs", "allocations", "records"}
	counts := func() map[string]int {
		out := map[string]int{}
		for _, p := range paths {
			out[p] = f.count(p)
		}
		return out
	}
	before := counts()
	refresh(t, o)
	if diff := cmp.Diff(before, counts()); diff != "" {
		t.Errorf("an unchanged cluster was read again (-want +got):\n%s", diff)
	}
	f.putNode(node("b", 2))
	f.putJob(gpuJob("two", 2, 1))
	v := refresh(t, o)
	want := before
	for _, p := range []string{"node/id-b", "nodes", "job/two", "jobs"} {
		want[p]++
	}
	if diff := cmp.Diff(want, counts()); diff != "" {
		t.Errorf("reads after a change (-want +got):\n%s", diff)
	}
	if got := len(v.Snapshot.Nodes[1].GPUs); got != 2 {
		t.Errorf("node b has %d GPUs, want 2", got)
	}
}

func TestRefreshKeepsNothingHalf(t *testing.T) {
	status := func(code int) func(http.ResponseWriter) {
		return func(w http.ResponseWriter) { http.Error(w, "no", code) }
	}
	faults := map[string]struct {
		answer func(w http.ResponseWriter)
		want   string
		denied bool
	}{
		"500":                 {answer: status(500), want: "500"},
		"429":                 {answer: status(429), want: "429"},
		"403 of the token":    {answer: status(403), want: "ACL policy", denied: true},
		"garbage":             {answer: func(w http.ResponseWriter) { _, _ = w.Write([]byte("<html>")) }, want: "read"},
		"wrong JSON":          {answer: func(w http.ResponseWriter) { _, _ = w.Write([]byte(`"x"`)) }, want: "read"},
		"JSON of another app": {answer: func(w http.ResponseWriter) { _, _ = w.Write([]byte(`null`)) }, want: "read"},
	}
	for _, path := range []string{"jobs", "nodes", "allocations", "operator/scheduler/configuration"} {
		for name, fault := range faults {
			t.Run(path+" "+name, func(t *testing.T) {
				f := newFake(t)
				f.putNode(node("a", 1))
				o := f.observer(t)
				f.failWith(func(w http.ResponseWriter, p string) bool {
					if p == path {
						fault.answer(w)
					}
					return p == path
				})
				v, err := o.Refresh(t.Context())
				if err == nil {
					t.Fatalf("got a view of %d nodes", len(v.Snapshot.Nodes))
				}
				if !strings.Contains(err.Error(), fault.want) || errors.Is(err, ErrDenied) != fault.denied {
					t.Errorf("error = %v, want %q in it, denied: %v", err, fault.want, fault.denied)
				}
				f.failWith(nil)
				if v := refresh(t, o); len(v.Snapshot.Nodes) != 1 {
					t.Errorf("after the fault: %d nodes, want 1", len(v.Snapshot.Nodes))
				}
			})
		}
	}
}

func TestRefreshNodeGoneInBetween(t *testing.T) {
	f := newFake(t)
	f.putNode(node("a", 1))
	f.putNode(node("b", 1))
	o := f.observer(t)
	f.failWith(func(w http.ResponseWriter, p string) bool {
		if p == "node/id-b" {
			http.Error(w, "node not found", http.StatusNotFound)
			return true
		}
		return false
	})
	if v := refresh(t, o); len(v.Nodes) != 1 || v.Nodes[0].Name != "a" {
		t.Errorf("nodes = %+v, want a alone", v.Nodes)
	}
}

func TestWatchWakesOnEveryPart(t *testing.T) {
	f := newFake(t)
	o := f.observer(t)
	ctx, cancel := context.WithCancel(t.Context())
	woken := make(chan struct{}, 100)
	var wg sync.WaitGroup
	wg.Go(func() { o.Watch(ctx, func() { woken <- struct{}{} }) })
	for range parts { // the first answer of each part
		<-woken
	}
	for name, do := range map[string]func(){
		"nodes":  func() { f.putNode(node("a", 1)) },
		"jobs":   func() { f.putJob(gpuJob("j", 1, 1)) },
		"allocs": func() { f.putAlloc(alloc("x", "j", "workers", "id-a", 0)) },
		"vars":   func() { f.putRecord(&record.Record{Namespace: "default", JobID: "j"}) },
	} {
		do()
		select {
		case <-woken:
		case <-time.After(90 * time.Second):
			t.Errorf("a change of %s wakes nobody", name)
		}
	}
	cancel()
	wg.Wait()
}

func TestNodeFaultsAreWarnings(t *testing.T) {
	f := newFake(t)
	n := node("a", 2)
	n.NodeResources.Devices[0].Attributes["unique.caravan_topology"] = &api.Attribute{StringVal: ptr("ct1.truncat")}
	n.ReservedResources.Networks.ReservedHostPorts = "22,x"
	f.putNode(n)
	v := refresh(t, f.observer(t))
	if got := v.Snapshot.Nodes[0]; len(got.GPUs) != 2 || got.Links != nil || got.GPUs[0].Attributes["unique.caravan_topology"] != "" {
		t.Errorf("node = %+v, want two GPUs without links", got)
	}
	var texts []string
	for _, w := range v.Warnings {
		texts = append(texts, w.Subject+": "+w.Text)
	}
	all := strings.Join(texts, "\n")
	for _, want := range []string{"node a: the topology", "node a: the agent's reserved_ports"} {
		if !strings.Contains(all, want) {
			t.Errorf("warnings lack %q:\n%s", want, all)
		}
	}
}

func TestUnschedulable(t *testing.T) {
	tests := map[string]struct {
		change func(*api.Node)
		want   string
	}{
		"ready":        {func(*api.Node) {}, ""},
		"down":         {func(n *api.Node) { n.Status = api.NodeStatusDown }, "down"},
		"disconnected": {func(n *api.Node) { n.Status = api.NodeStatusDisconnected }, "disconnected"},
		"initializing": {func(n *api.Node) { n.Status = api.NodeStatusInit }, "initializing"},
		"draining":     {func(n *api.Node) { n.Drain, n.SchedulingEligibility = true, "ineligible" }, "draining"},
		"ineligible":   {func(n *api.Node) { n.SchedulingEligibility = "ineligible" }, "ineligible"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			n := node("a", 1)
			test.change(n)
			if got := unschedulable(n); got != test.want {
				t.Errorf("unschedulable = %q, want %q", got, test.want)
			}
		})
	}
}

func TestTopologyFile(t *testing.T) {
	f := newFake(t)
	f.putNode(node("a", 1))
	f.putNode(node("b", 1))
	top, err := config.ParseTopology([]byte("block \"b1\" {\n rack \"r9\" {\n  nodes = [\"a\", \"gone\"]\n }\n}"), "t.hcl", []string{"block", "rack"})
	if err != nil {
		t.Fatal(err)
	}
	v := refresh(t, f.observer(t, func(c *config.Config) { c.Topology = top }))
	want := []NodeRef{
		{ID: "id-a", Name: "a", Levels: map[string]string{"block": "b1", "rack": "r9"}, GPUs: 1, TopologyFault: noTopology},
		{ID: "id-b", Name: "b", Levels: map[string]string{"rack": "r1"}, Meta: map[string]string{"caravan_rack": "r1"}, GPUs: 1, TopologyFault: noTopology},
	}
	if diff := cmp.Diff(want, v.Nodes); diff != "" {
		t.Errorf("nodes (-want +got):\n%s", diff)
	}
	has := func(text string) bool {
		return slices.ContainsFunc(v.Warnings, func(w Warning) bool { return strings.Contains(w.Text, text) })
	}
	if !has(`t.hcl:3: Nomad knows no node "gone"`) || !has(`meta caravan_rack is "r1", but the topology file says "r9"`) {
		t.Errorf("warnings = %+v", v.Warnings)
	}
}

const noTopology = "the attribute unique.caravan_topology is missing"

// What the doctor reads of a node beside its model.
func TestNodeFaults(t *testing.T) {
	broken := node("b", 1)
	broken.NodeResources.Devices[0].Attributes["unique.caravan_topology"] = &api.Attribute{StringVal: ptr("v9 nonsense")}
	double := node("c", 2)
	double.NodeResources.Devices = append(double.NodeResources.Devices, double.NodeResources.Devices[0])
	bare := node("d", 0)
	f := newFake(t)
	for _, n := range []*api.Node{broken, double, bare} {
		f.putNode(n)
	}
	v := refresh(t, f.observer(t))
	if got := v.Nodes[0].TopologyFault; got == "" || got == noTopology {
		t.Errorf("fault of an undecodable topology = %q", got)
	}
	if v.Nodes[1].Twice != 2 || v.Nodes[1].GPUs != 2 {
		t.Errorf("node with two plugins = %+v, want two GPUs, each listed twice", v.Nodes[1])
	}
	if got := v.Nodes[2]; got.TopologyFault != "" || got.GPUs != 0 {
		t.Errorf("node without GPUs = %+v", got)
	}
}

// Jobs that Caravan does not manage and that carry its marks are strays; those
// without marks are nobody's business.
func TestStrays(t *testing.T) {
	f := newFake(t)
	f.putNode(node("a", 2))
	exempt := gated(gpuJob("exempt", 1, 1))
	exempt.NodePool = ptr("lab")
	other := gpuJob("other", 1, 1)
	other.TaskGroups[0].Tasks[0].Resources.Devices = nil
	f.putJob(exempt)
	f.putJob(other)
	f.putJob(gated(gpuJob("managed", 1, 1)))
	v := refresh(t, f.observer(t, func(c *config.Config) { c.Managed.ExemptNodePools = []string{"lab"} }))
	if diff := cmp.Diff([]Stray{{Namespace: "default", ID: "exempt", Gated: true}}, v.Strays); diff != "" {
		t.Errorf("strays (-want +got):\n%s", diff)
	}
	if !slices.ContainsFunc(v.Warnings, func(w Warning) bool { return strings.Contains(w.Subject, "exempt") }) {
		t.Errorf("warnings = %+v, want one about the job that waits for ever", v.Warnings)
	}
}

// An allocation that was given up for lost may still run, on a node that is cut
// off and when it comes back: until its client has spoken of it, or long enough
// was quiet, its GPUs are nobody else's, whoever lists them.
func TestReturnedNodeIsFenced(t *testing.T) {
	back := func(ago time.Duration) *api.Node {
		n := node("a", 2)
		n.StatusUpdatedAt = time.Unix(1000, 0).Add(-ago).Unix()
		return n
	}
	down := back(time.Hour)
	down.Status = api.NodeStatusDown
	tests := map[string]struct {
		node   *api.Node
		status string
		want   []string // the GPUs that are held
		ends   time.Time
	}{
		"just back":             {back(5 * time.Second), api.AllocClientStatusLost, []string{"a-1"}, time.Unix(1025, 0)},
		"the client has spoken": {back(5 * time.Second), api.AllocClientStatusComplete, nil, time.Time{}},
		"back for long":         {back(time.Hour), api.AllocClientStatusLost, nil, time.Time{}},
		"still down":            {down, api.AllocClientStatusLost, []string{"a-1"}, time.Time{}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			f := newFake(t)
			f.putNode(test.node)
			a := alloc("x", "train", "workers", "id-a", 0, "a-1")
			a.DesiredStatus, a.ClientStatus = api.AllocDesiredStatusStop, test.status
			f.putAlloc(a)
			v := refresh(t, f.observer(t))
			var got []string
			for _, a := range v.Snapshot.Allocs {
				got = append(got, a.GPUs...)
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("held (-want +got):\n%s", diff)
			}
			if !v.FenceEnds.Equal(test.ends) {
				t.Errorf("fence ends %v, want %v", v.FenceEnds, test.ends)
			}
		})
	}
}
