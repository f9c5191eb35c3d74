package daemon

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/planner/core"
	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/gangspec"
	"github.com/caravan-sched/caravan/planner/httpapi"
	"github.com/caravan-sched/caravan/planner/observe"
	"github.com/caravan-sched/caravan/planner/record"
)

// whatIf is a planner that has seen a node with four GPUs, on two of which
// "nightly" runs, while "next" waits for two.
func whatIf(t *testing.T, policy core.Policy) *Daemon {
	t.Helper()
	d, _ := testDaemon(t)
	if _, err := d.refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	d.decide = func(s *model.Snapshot) (*model.Plan, error) { return core.Decide(s, policy) }
	n := model.Node{ID: "n1", Name: "gpu-1", Capacity: model.Resources{CPUMHz: 8000, MemoryMiB: 8000, DiskMiB: 8000}, Datacenter: "dc1", Pool: "default", Attributes: map[string]string{"attr.driver.raw_exec": "1"}}
	for i := range 4 {
		n.GPUs = append(n.GPUs, model.GPU{UUID: fmt.Sprint("GPU-", i), Vendor: "nvidia", Type: "gpu", Model: "H100", NUMA: -1})
	}
	ask := []model.TaskGroup{{Name: "g", Count: 1, Devices: []model.DeviceAsk{{Name: "nvidia/gpu", Count: 2}}}}
	v := *d.view.Load()
	now := d.now().UTC()
	v.Snapshot = &model.Snapshot{
		Now: now, Nodes: []model.Node{n},
		Jobs: []model.Job{
			{Namespace: "default", ID: "nightly", Type: "batch", State: model.StateRunning, Gang: model.GangJob, Priority: 10, Groups: ask, Members: []model.Member{{Group: "g", Node: "n1", GPUs: []string{"GPU-0", "GPU-1"}}}, Submitted: now, Started: now},
			{Namespace: "default", ID: "next", Type: "batch", State: model.StateQueued, Gang: model.GangJob, Priority: 50, Groups: ask, Submitted: now},
		},
		Allocs: []model.Alloc{{ID: "a1", Namespace: "default", Job: "nightly", Group: "g", Node: "n1", GPUs: []string{"GPU-0", "GPU-1"}}},
	}
	d.view.Store(&v)
	return d
}

// asks is a job file with a member of so many GPUs.
func asks(priority, gpus int) *api.Job {
	j := api.NewBatchJob("new", "new", "global", priority).SetMeta("caravan_gang", "job")
	j.Datacenters = []string{"*"}
	task, count := api.NewTask("t", "raw_exec"), uint64(gpus)
	task.Resources = &api.Resources{Devices: []*api.RequestedDevice{{Name: "nvidia/gpu", Count: &count}}}
	return j.AddTaskGroup(api.NewTaskGroup("g", 1).AddTask(task))
}

// The answer to a job that is not submitted yet says who would give way to it,
// and whom it would pass.
func TestPlanSaysWhatItWouldDoToOthers(t *testing.T) {
	preempting := core.Policy{}
	preempting.Preempt.Enabled = true
	tests := map[string]struct {
		policy         core.Policy
		priority, gpus int
		wantAction     model.Action
		wantVictims    string
		wantEffects    string
	}{
		"one that has to wait":      {priority: 50, gpus: 2, wantAction: model.ActionWait},
		"one that passes another":   {priority: 60, gpus: 2, wantAction: model.ActionAdmit, wantEffects: "next admit→wait"},
		"one to which others yield": {policy: preempting, priority: 90, gpus: 4, wantAction: model.ActionWait, wantVictims: "nightly", wantEffects: "next admit→wait"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			r, err := whatIf(t, test.policy).Plan(t.Context(), asks(test.priority, test.gpus))
			if err != nil {
				t.Fatal(err)
			}
			if r.Decision.Action != test.wantAction {
				t.Errorf("decision %+v: want %s", r.Decision, test.wantAction)
			}
			var victims, effects []string
			for _, p := range r.Preemptions {
				victims = append(victims, p.Job)
			}
			for _, e := range r.Effects {
				effects = append(effects, fmt.Sprintf("%s %s→%s", e.Job, e.Now, e.Then))
				if e.Reason == "" {
					t.Errorf("%s: no reason", e.Job)
				}
			}
			if got := strings.Join(victims, " "); got != test.wantVictims {
				t.Errorf("victims %q: want %q", got, test.wantVictims)
			}
			if got := strings.Join(effects, " "); got != test.wantEffects {
				t.Errorf("effects %q: want %q", got, test.wantEffects)
			}
		})
	}
}

// A file of a job that is there is answered as its submission would be: the same
// changes nothing, the same members stay, anything else ends what runs, and what
// it holds counts as free.
func TestPlanLooksAtWhatIsThere(t *testing.T) {
	tests := map[string]struct {
		change      func(j *api.Job)
		state       model.State
		wantPresent string
		wantAction  model.Action
		wantReason  string
	}{
		"the same, running": {state: model.StateRunning, wantPresent: httpapi.PresentUnchanged, wantAction: model.ActionAdmit, wantReason: "unchanged, nothing would be registered; running"},
		"the same, waiting": {state: model.StateQueued, wantPresent: httpapi.PresentUnchanged, wantAction: model.ActionWait, wantReason: "unchanged, nothing would be registered; needs"},
		"another command": {state: model.StateRunning, change: func(j *api.Job) { j.TaskGroups[0].Tasks[0].Config = map[string]any{"command": "x"} },
			wantPresent: httpapi.PresentStays, wantAction: model.ActionAdmit, wantReason: "the gang would stay on its nodes"},
		"more GPUs": {state: model.StateRunning, change: func(j *api.Job) { *j.TaskGroups[0].Tasks[0].Resources.Devices[0].Count = 3 },
			wantPresent: httpapi.PresentEnds, wantAction: model.ActionWait, wantReason: "what runs would end first, since it differs in more than counts; "},
		"fewer GPUs": {state: model.StateRunning, change: func(j *api.Job) { *j.TaskGroups[0].Tasks[0].Resources.Devices[0].Count = 1 },
			wantPresent: httpapi.PresentEnds, wantAction: model.ActionAdmit, wantReason: "what runs would end first"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			d := whatIf(t, core.Policy{})
			v := *d.view.Load()
			snap := *v.Snapshot
			there := asks(50, 2)
			there.Status = new("running")
			rec := &record.Record{Namespace: "default", JobID: "new", Original: there, SpecHash: gangspec.Hash(there), Phase: record.PhaseQueued}
			spec, err := gangspec.Parse(there)
			if err != nil {
				t.Fatal(err)
			}
			m := gangspec.ToModel(there, spec)
			m.State, m.Submitted = test.state, snap.Now
			if test.state == model.StateRunning {
				m.Started = snap.Now
				m.Members = []model.Member{{Group: "g", Node: "n1", GPUs: []string{"GPU-2", "GPU-3"}}}
				rec.Phase, rec.PlacedHash, rec.Members = record.PhaseRunning, rec.SpecHash, m.Members
				snap.Allocs = append(snap.Allocs, model.Alloc{ID: "a2", Namespace: "default", Job: "new", Group: "g", Node: "n1", GPUs: []string{"GPU-2", "GPU-3"}})
			} else {
				snap.Jobs[1].Priority = 90 // it takes what is free
			}
			snap.Jobs = slices.Insert(snap.Jobs, 1, m)
			if test.state == model.StateRunning {
				snap.Jobs = snap.Jobs[:2]
			}
			v.Snapshot, v.Managed = &snap, []observe.Managed{{Namespace: "default", ID: "new", Current: there, Record: rec, SpecHash: rec.SpecHash, Model: m}}
			d.view.Store(&v)
			asked := asks(50, 2)
			if test.change != nil {
				test.change(asked)
			}
			r, err := d.Plan(t.Context(), asked)
			if err != nil {
				t.Fatal(err)
			}
			if r.Present != test.wantPresent || r.Decision.Action != test.wantAction || !strings.HasPrefix(r.Decision.Reason, test.wantReason) {
				t.Errorf("present %q, %s: %q; want %q, %s: %q…", r.Present, r.Decision.Action, r.Decision.Reason, test.wantPresent, test.wantAction, test.wantReason)
			}
			if len(r.Effects) > 0 {
				t.Errorf("effects %+v: nobody else is touched", r.Effects)
			}
		})
	}
}
