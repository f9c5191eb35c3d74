package optimality

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/caravan-sched/caravan/planner/core"
	"github.com/caravan-sched/caravan/planner/core/model"
)

// Nothing is left waiting that has a place, nobody gives way in vain, and hardly
// ever is a better choice missed.
func TestDecisionsAreGood(t *testing.T) {
	r, err := Measure(2000, 7)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%+v %+v", r.Placement, r.Victims)
	for _, f := range r.Faults {
		t.Logf("cluster %d: %s: %s", f.Cluster, f.What, f.Reason)
	}
	p, v := r.Placement, r.Victims
	if p.Possible < 300 || v.Possible < 300 {
		t.Errorf("%d gangs could be placed, room could be made for %d: want hundreds of each", p.Possible, v.Possible)
	}
	if p.Missed+p.Phantom+p.WorseLevel > 0 || p.SameShare < 0.995 {
		t.Errorf("placement: %+v", p)
	}
	if v.Missed+v.Needless > 0 || v.CheapestShare < 0.995 {
		t.Errorf("victims: %+v", v)
	}
}

// What is wrong is found.
func TestMeasureFindsFaults(t *testing.T) {
	edit := func(change func(s *model.Snapshot, plan *model.Plan, d *model.Decision)) decide {
		return func(s *model.Snapshot, p core.Policy) (*model.Plan, error) {
			plan, err := core.Decide(s, p)
			if err == nil {
				at := slices.IndexFunc(plan.Decisions, func(d model.Decision) bool { return d.Job == "gang" })
				change(s, plan, &plan.Decisions[at])
			}
			return plan, err
		}
	}
	tests := map[string]struct {
		do    decide
		found func(*Report) int
	}{
		"waits for nothing": {edit(func(_ *model.Snapshot, _ *model.Plan, d *model.Decision) { d.Action, d.Members = model.ActionWait, nil }),
			func(r *Report) int { return r.Placement.Missed }},
		"takes what others have": {edit(func(s *model.Snapshot, _ *model.Plan, d *model.Decision) {
			if len(d.Members) > 0 && len(s.Allocs) > 0 {
				d.Members[0].Node, d.Members[0].GPUs = s.Allocs[0].Node, s.Allocs[0].GPUs
			}
		}), func(r *Report) int { return r.Placement.Phantom }},
		"goes where it is told not to": {func(s *model.Snapshot, p core.Policy) (*model.Plan, error) {
			other := *s
			other.Jobs = slices.Clone(s.Jobs)
			other.Jobs[len(other.Jobs)-1].Topology = model.Topology{}
			return core.Decide(&other, p)
		}, func(r *Report) int { return r.Placement.Phantom }},
		"prefers what is wide": {func(s *model.Snapshot, p core.Policy) (*model.Plan, error) {
			other := *s
			other.Jobs = slices.Clone(s.Jobs)
			if j := &other.Jobs[len(other.Jobs)-1]; j.Topology.Mode != model.TopologyRequire {
				j.Topology = model.Topology{Mode: model.TopologyPrefer, Level: "block"}
			}
			return core.Decide(&other, p)
		}, func(r *Report) int { return r.Placement.WorseLevel }},
		"displaces nobody": {func(s *model.Snapshot, _ core.Policy) (*model.Plan, error) { return core.Decide(s, core.Policy{}) },
			func(r *Report) int { return r.Victims.Missed }},
		"displaces all": {edit(func(s *model.Snapshot, plan *model.Plan, _ *model.Decision) {
			plan.Preemptions = nil
			for _, j := range s.Jobs {
				if len(j.Members) > 0 && j.ID != "gang" {
					plan.Preemptions = append(plan.Preemptions, model.Preemption{Job: j.ID, Members: j.Members, Cost: model.Cost{Lost: 1 << 30}})
				}
			}
		}), func(r *Report) int { return min(r.Victims.Needless, r.Victims.Possible-r.Victims.Cheapest) }},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			r, err := measure(150, 3, tt.do)
			if err != nil {
				t.Fatal(err)
			}
			if tt.found(r) == 0 || len(r.Faults) == 0 {
				t.Errorf("not found: %+v %+v", r.Placement, r.Victims)
			}
		})
	}
}

// The search itself, on clusters whose best places are plain.
func TestBest(t *testing.T) {
	node := func(id, block, rack string, mhz int, islands ...int) room {
		return room{&model.Node{ID: id, Levels: map[string]string{"block": block, "rack": rack}}, islands, mhz}
	}
	free := []room{node("a", "b1", "r1", 1000, 2, 2), node("b", "b1", "r1", 1000, 1, 3), node("c", "b1", "r2", 1000, 4)}
	tests := map[string]struct {
		count, gpus, mhz int
		topology         model.Topology
		alone            bool
		want             cost
		ok               bool
	}{
		"one island, used up":           {count: 2, gpus: 1, want: cost{0, 0, 0}, ok: true},
		"the larger island":             {count: 1, gpus: 4, want: cost{0, 0, 0}, ok: true},
		"one node":                      {count: 2, gpus: 2, topology: model.Topology{Mode: "prefer", Level: "node"}, want: cost{0, 0, 0}, ok: true},
		"pairs in islands of their own": {count: 2, gpus: 2, mhz: 500, want: cost{0, 0, 0}, ok: true},
		"a rack":                        {count: 2, gpus: 4, want: cost{2, 0, 0}, ok: true},
		"a block":                       {count: 3, gpus: 4, want: cost{3, 0, 0}, ok: true},
		"no rack for so many":           {count: 3, gpus: 4, topology: require("rack")},
		"no node has the CPU":           {count: 1, gpus: 1, mhz: 1001},
		"apart":                         {count: 3, gpus: 1, alone: true, want: cost{3, 0, 0}, ok: true},
		"more than all":                 {count: 4, gpus: 4},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			s := &model.Snapshot{Levels: []string{"block", "rack"}}
			j := &model.Job{Topology: tt.topology, Groups: []model.TaskGroup{{Count: tt.count, Resources: model.Resources{CPUMHz: tt.mhz}, Devices: []model.DeviceAsk{{Name: "gpu", Count: tt.gpus}}}}}
			if tt.alone {
				j.Constraints = []model.Constraint{{Operand: "distinct_hosts"}}
			}
			got, ok := best(s, free, j)
			if ok != tt.ok || got != tt.want {
				t.Errorf("%+v %v, want %+v %v", got, ok, tt.want, tt.ok)
			}
		})
	}
	if diff := cmp.Diff([]int{2, 2}, free[0].islands); diff != "" {
		t.Errorf("the search changes what is free:\n%s", diff)
	}
}
