package observe

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/nomad/api"
	"pgregory.net/rapid"

	"github.com/caravan-sched/caravan/planner/config"
	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/record"
)

var gate = api.NewConstraint("${meta.caravan_gate}", "=", "open")

func gated(j *api.Job) *api.Job { return j.Constrain(gate) }

func queuedRecord(j *api.Job, phase record.Phase, members ...model.Member) *record.Record {
	return &record.Record{Namespace: "default", JobID: *j.ID, Original: j, SpecHash: "h", Submitted: time.Unix(500, 0).UTC(), Phase: phase, Members: members}
}

func TestManagedJobs(t *testing.T) {
	members := []model.Member{{Group: "workers", Index: 0, Rank: 0, Node: "id-a", GPUs: []string{"a-1", "a-0"}}, {Group: "workers", Index: 1, Rank: 1, Node: "id-b", GPUs: []string{"b-0", "b-1"}}}
	onA := alloc("x1", "train", "workers", "id-a", 1, "a-0", "a-1")
	onB := alloc("x2", "train", "workers", "id-b", 0, "b-0", "b-1")
	with := func(a *api.AllocationListStub, change func(*api.AllocationListStub)) *api.AllocationListStub {
		c := *a
		change(&c)
		return &c
	}
	tests := map[string]struct {
		job    *api.Job
		record *record.Record
		allocs []*api.AllocationListStub
		config func(*config.Config)
		fake   func(*fakeNomad)

		wantNone    bool // not managed
		wantState   model.State
		wantHold    string
		wantMembers []AllocState
		wantAdopted bool
		wantDone    bool
		notInSnap   bool
	}{
		"new, gated":   {job: gated(gpuJob("train", 2, 2)), wantState: model.StateQueued},
		"new, ungated": {job: gpuJob("train", 2, 2), wantState: model.StateQueued},
		"no device": {job: func() *api.Job {
			j := gpuJob("train", 2, 2)
			j.TaskGroups[0].Tasks[0].Resources.Devices = nil
			return j
		}(),
			wantNone: true},
		"exempt": {job: gpuJob("train", 2, 2), wantNone: true,
			config: func(c *config.Config) { c.Managed.ExemptNamespaces = []string{"def*"} }},
		"unreadable": {job: gpuJob("train", 2, 2).SetMeta("caravan_gang", "sure"), wantState: model.StateQueued, wantHold: "caravan_gang"},
		"Nomad preempts": {job: gated(gpuJob("train", 2, 2)), wantState: model.StateQueued, wantHold: "-preempt-batch-scheduler=false",
			fake: func(f *fakeNomad) { f.sched.PreemptionConfig.BatchSchedulerEnabled = true }},
		"placed by Nomad before": {job: gpuJob("train", 2, 2), allocs: []*api.AllocationListStub{onA, onB},
			wantState: model.StateRunning, wantAdopted: true, wantMembers: []AllocState{AllocPlaced, AllocPlaced}},
		"queued": {job: gated(gpuJob("train", 2, 2)), record: queuedRecord(gpuJob("train", 2, 2), record.PhaseQueued), wantState: model.StateQueued},
		"queued, still stopping": {job: gated(gpuJob("train", 2, 2)), record: queuedRecord(gpuJob("train", 2, 2), record.PhaseQueued),
			allocs:    []*api.AllocationListStub{with(onA, func(a *api.AllocationListStub) { a.DesiredStatus = "stop" })},
			wantState: model.StateStopping},
		"admitted, one placed": {job: gpuJob("train", 2, 2), record: queuedRecord(gpuJob("train", 2, 2), record.PhaseAdmitted, members...),
			allocs: []*api.AllocationListStub{onA}, wantState: model.StateAdmitted, wantMembers: []AllocState{AllocPlaced, AllocNone}},
		"running": {job: gpuJob("train", 2, 2), record: queuedRecord(gpuJob("train", 2, 2), record.PhaseRunning, members...),
			allocs: []*api.AllocationListStub{onA, onB}, wantState: model.StateRunning, wantMembers: []AllocState{AllocPlaced, AllocPlaced}},
		"running, on other GPUs": {job: gpuJob("train", 2, 2), record: queuedRecord(gpuJob("train", 2, 2), record.PhaseRunning, members...),
			allocs:    []*api.AllocationListStub{onA, alloc("x3", "train", "workers", "id-b", 0, "b-0")},
			wantState: model.StateRunning, wantMembers: []AllocState{AllocPlaced, AllocMisplaced}},
		"running, one lost": {job: gpuJob("train", 2, 2), record: queuedRecord(gpuJob("train", 2, 2), record.PhaseRunning, members...),
			allocs:    []*api.AllocationListStub{onA, with(onB, func(a *api.AllocationListStub) { a.ClientStatus = "unknown" })},
			wantState: model.StateRunning, wantMembers: []AllocState{AllocPlaced, AllocLost}},
		"running, one told to stop": {job: gpuJob("train", 2, 2), record: queuedRecord(gpuJob("train", 2, 2), record.PhaseRunning, members...),
			allocs:    []*api.AllocationListStub{onA, with(onB, func(a *api.AllocationListStub) { a.DesiredStatus = "evict" })},
			wantState: model.StateRunning, wantMembers: []AllocState{AllocPlaced, AllocStopping}},
		"running, one completed": {job: gpuJob("train", 2, 2), record: queuedRecord(gpuJob("train", 2, 2), record.PhaseRunning, members...),
			allocs:    []*api.AllocationListStub{onA, with(onB, func(a *api.AllocationListStub) { a.ClientStatus = "complete" })},
			wantState: model.StateRunning, wantMembers: []AllocState{AllocPlaced, AllocComplete}, wantDone: true},
		"running, one of before is dead": {job: gpuJob("train", 2, 2), record: queuedRecord(gpuJob("train", 2, 2), record.PhaseAdmitted, members...),
			allocs: []*api.AllocationListStub{with(onA, func(a *api.AllocationListStub) {
				a.ClientStatus, a.DesiredStatus = "complete", "stop"
			})},
			wantState: model.StateAdmitted, wantMembers: []AllocState{AllocNone, AllocNone}},
		"queued again after a completed member": {job: gated(gpuJob("train", 2, 2)), record: queuedRecord(gpuJob("train", 2, 2), record.PhaseQueued),
			allocs:    []*api.AllocationListStub{with(onA, func(a *api.AllocationListStub) { a.ClientStatus = "complete" })},
			wantState: model.StateQueued, wantDone: true, wantHold: "second time"},
		"rolling back": {job: gated(gpuJob("train", 2, 2)), record: queuedRecord(gpuJob("train", 2, 2), record.PhaseRollback), wantState: model.StateStopping},
		"released":     {job: gpuJob("train", 2, 2), record: queuedRecord(gpuJob("train", 2, 2), record.PhaseReleased), wantState: model.StateRunning, notInSnap: true},
		"released, a part runs": {job: gpuJob("train", 2, 2), record: queuedRecord(gpuJob("train", 2, 2), record.PhaseReleased),
			allocs: []*api.AllocationListStub{onA}, wantState: model.StateRunning, notInSnap: true, wantMembers: []AllocState{AllocPlaced}},
		"stopped by its user, record left": {job: func() *api.Job { j := gpuJob("train", 2, 2); j.Stop, j.Status = ptr(true), ptr("dead"); return j }(),
			record: queuedRecord(gpuJob("train", 2, 2), record.PhaseRunning, members...), wantState: model.StateStopping,
			wantMembers: []AllocState{AllocNone, AllocNone}, notInSnap: true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			f := newFake(t)
			f.putNode(node("a", 2))
			f.putNode(node("b", 2))
			f.putJob(test.job)
			if test.record != nil {
				f.putRecord(test.record)
			}
			for _, a := range test.allocs {
				f.putAlloc(a)
			}
			if test.fake != nil {
				test.fake(f)
			}
			change := func(*config.Config) {}
			if test.config != nil {
				change = test.config
			}
			v := refresh(t, f.observer(t, change))
			if test.wantNone {
				if len(v.Managed) != 0 || len(v.Snapshot.Jobs) != 0 {
					t.Errorf("managed = %+v, want none", v.Managed)
				}
				return
			}
			if len(v.Managed) != 1 {
				t.Fatalf("managed = %+v, want one", v.Managed)
			}
			m := v.Managed[0]
			if m.Model.State != test.wantState {
				t.Errorf("state = %s, want %s", m.Model.State, test.wantState)
			}
			if (m.Model.Hold != "") != (test.wantHold != "") || !strings.Contains(m.Model.Hold, test.wantHold) {
				t.Errorf("hold = %q, want %q in it", m.Model.Hold, test.wantHold)
			}
			var states []AllocState
			for _, s := range m.Members {
				states = append(states, s.State)
			}
			if diff := cmp.Diff(test.wantMembers, states); diff != "" {
				t.Errorf("members (-want +got):\n%s", diff)
			}
			if m.Adopted != test.wantAdopted || m.BatchDone != test.wantDone {
				t.Errorf("adopted = %v, done = %v; want %v, %v", m.Adopted, m.BatchDone, test.wantAdopted, test.wantDone)
			}
			if got := len(v.Snapshot.Jobs) == 0; got != test.notInSnap {
				t.Errorf("absent from the snapshot: %v, want %v", got, test.notInSnap)
			}
			for _, c := range m.Model.Constraints {
				if c.Left == gate.LTarget {
					t.Error("the core sees the gate")
				}
			}
		})
	}
}

func TestOrphans(t *testing.T) {
	f := newFake(t)
	f.putRecord(queuedRecord(gpuJob("gone", 1, 1), record.PhaseRunning))
	v := refresh(t, f.observer(t))
	if len(v.Orphans) != 1 || v.Orphans[0].JobID != "gone" || len(v.Managed) != 0 {
		t.Errorf("orphans = %+v, managed = %+v; want gone to be an orphan", v.Orphans, v.Managed)
	}
}

func TestAllocsThatHold(t *testing.T) {
	base := alloc("x", "j", "g", "id-a", 0, "a-0")
	tests := map[string]struct {
		desired, client, node string
		want                  AllocState
		wantHolds             bool
	}{
		"running":                       {"run", "running", "ready", AllocPlaced, true},
		"pending":                       {"run", "pending", "ready", AllocPlaced, true},
		"complete":                      {"run", "complete", "ready", AllocComplete, false},
		"failed":                        {"run", "failed", "ready", AllocDead, false},
		"lost":                          {"stop", "lost", "down", AllocDead, false},
		"stopping":                      {"stop", "running", "ready", AllocStopping, true},
		"evicted":                       {"evict", "running", "ready", AllocStopping, true},
		"unknown":                       {"run", "unknown", "disconnected", AllocLost, true},
		"unknown and told to stop":      {"stop", "unknown", "disconnected", AllocLost, true},
		"running on a node that's down": {"run", "running", "down", AllocLost, true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			a := *base
			a.DesiredStatus, a.ClientStatus = test.desired, test.client
			if got := stateOf(&a, test.node); got != test.want {
				t.Errorf("state = %s, want %s", got, test.want)
			}
			m, holds := allocModel(&a, test.node, func(string) *api.TaskLifecycle { return nil })
			if holds != test.wantHolds {
				t.Errorf("holds = %v, want %v", holds, test.wantHolds)
			}
			if m.Lost != (test.want == AllocLost) || m.Stopping != (test.want == AllocStopping) {
				t.Errorf("model = %+v", m)
			}
		})
	}
}

func TestAllocResourcesByPhase(t *testing.T) {
	task := func(cpu, memory int64) *api.AllocatedTaskResources {
		return &api.AllocatedTaskResources{Cpu: api.AllocatedCpuResources{CpuShares: cpu}, Memory: api.AllocatedMemoryResources{MemoryMB: memory}}
	}
	r := &api.AllocatedResources{Tasks: map[string]*api.AllocatedTaskResources{
		"init": task(900, 100), "side": task(50, 50), "main": task(500, 400), "core": task(2000, 10),
	}}
	r.Tasks["core"].Cpu.ReservedCores = []uint16{1, 2}
	phases := map[string]*api.TaskLifecycle{"init": {Hook: "prestart"}, "side": {Hook: "prestart", Sidecar: true}}
	got := allocResources(r, func(t string) *api.TaskLifecycle { return phases[t] })
	want := model.Resources{CPUMHz: 2000 + 950, Cores: 2, MemoryMiB: 460}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("resources (-want +got):\n%s", diff)
	}
}

// What ended before the placement in force was made is not its members'.
func TestPairLeavesEarlierPlacements(t *testing.T) {
	members := []model.Member{{Group: "workers", Node: "n0", GPUs: []string{"g0"}}}
	tests := map[string]struct {
		client string
		floor  uint64
		want   AllocState
		// node is where it is, "" where the member is to be.
		node string
	}{
		"failed in this placement":     {client: "failed", floor: 6, want: AllocDead},
		"failed in an earlier one":     {client: "failed", floor: 7, want: AllocNone},
		"completed in an earlier one":  {client: "complete", floor: 7, want: AllocNone},
		"runs, and is of earlier even": {client: "running", floor: 7, want: AllocPlaced},
		"lost in this placement":       {client: "unknown", floor: 6, want: AllocLost},
		"lost in an earlier one":       {client: "unknown", floor: 7, node: "n1", want: AllocNone},
		"moved, and lost":              {client: "unknown", floor: 6, node: "n1", want: AllocLost},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			at := "n0"
			if test.node != "" {
				at = test.node
			}
			a := alloc("x", "j", "workers", at, 0, "g0")
			a.ClientStatus, a.CreateIndex = test.client, 7
			got := pair(originsOf(gpuJob("j", 1, 1), nil), members, []*api.AllocationListStub{a}, &state{}, test.floor)
			if got[0].State != test.want {
				t.Errorf("the member is %s, want %s", got[0].State, test.want)
			}
		})
	}
}

// Whatever allocations there are, a member gets at most one, none is given
// twice, and what was placed exactly is found.
func TestPairIsAMatching(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		nodes := []string{"n0", "n1", "n2"}
		members := make([]model.Member, rapid.IntRange(0, 4).Draw(t, "members"))
		for i := range members {
			members[i] = model.Member{Group: "workers", Index: i, Node: rapid.SampledFrom(nodes).Draw(t, "node"), GPUs: []string{"g" + string(rune('0'+i))}}
		}
		var allocs []*api.AllocationListStub
		exact := map[string]bool{}
		for i := range rapid.IntRange(0, 6).Draw(t, "allocs") {
			a := alloc("x"+string(rune('0'+i)), "j", "workers", rapid.SampledFrom(nodes).Draw(t, "node"), i, "g"+string(rune('0'+rapid.IntRange(0, 5).Draw(t, "gpu"))))
			a.ClientStatus = rapid.SampledFrom([]string{"running", "complete", "failed", "unknown"}).Draw(t, "client")
			allocs = append(allocs, a)
			for _, m := range members {
				if a.ClientStatus == "running" && a.NodeID == m.Node && AllocGPUs(a)[0] == m.GPUs[0] {
					exact[m.GPUs[0]] = true
				}
			}
		}
		got := pair(originsOf(gpuJob("j", 1, 1), nil), members, allocs, &state{}, 0)
		seen := map[string]bool{}
		for i, m := range got {
			if m.Member.Index != members[i].Index {
				t.Errorf("member %d is at place %d", m.Member.Index, i)
			}
			if exact[members[i].GPUs[0]] != (m.State == AllocPlaced) {
				t.Errorf("member %d is %s; placed exactly: %v", i, m.State, exact[members[i].GPUs[0]])
			}
			if (m.Alloc == nil) != (m.State == AllocNone) {
				t.Errorf("member %d is %s with allocation %v", i, m.State, m.Alloc)
			}
			if m.Alloc != nil && seen[m.Alloc.ID] {
				t.Errorf("allocation %s is given twice", m.Alloc.ID)
			} else if m.Alloc != nil {
				seen[m.Alloc.ID] = true
			}
		}
	})
}

// A job that was managed and is exempt now is Nomad's alone once it bears no
// mark of Caravan's any more, and its record is to be forgotten; until then it
// is looked after.
func TestExemptedJobs(t *testing.T) {
	for name, test := range map[string]struct {
		job                      *api.Job
		wantManaged, wantOrphans int
	}{
		"still gated":     {gated(gpuJob("train", 2, 2)), 1, 0},
		"submitted again": {gpuJob("train", 2, 2), 0, 1},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFake(t)
			f.putNode(node("a", 2))
			f.putJob(test.job)
			f.putRecord(queuedRecord(gpuJob("train", 2, 2), record.PhaseQueued))
			v := refresh(t, f.observer(t, func(c *config.Config) { c.Managed.ExemptNamespaces = []string{"default"} }))
			if len(v.Managed) != test.wantManaged || len(v.Orphans) != test.wantOrphans {
				t.Errorf("%d managed, %d orphans; want %d and %d", len(v.Managed), len(v.Orphans), test.wantManaged, test.wantOrphans)
			}
		})
	}
}
