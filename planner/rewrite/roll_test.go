package rewrite_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/gangspec"
	"github.com/caravan-sched/caravan/planner/rewrite"
)

// TestRoll: in the middle of an update the groups that had their turn say what
// the new version says, and the others exactly what they said before.
func TestRoll(t *testing.T) {
	c := cluster(4)
	version := func(v string) *api.Job {
		j := job("service", "none", group("w", 2, 4))
		j.Meta["version"] = v
		j.TaskGroups[0].Tasks[0].Env = map[string]string{"V": v}
		return j
	}
	before, next := version("1"), version("2")
	members := []model.Member{member("w", 0, 0, gpus(0, 0, 4)), member("w", 1, 0, gpus(0, 4, 4))}
	pinned, err := rewrite.Pin(before, members, c)
	if err != nil {
		t.Fatal(err)
	}
	mixed, err := rewrite.Roll(pinned, rewrite.Update{Before: before, Next: next, Members: members, Rolled: []rewrite.Place{{Group: "w", Index: 1}}}, c)
	if err != nil {
		t.Fatal(err)
	}
	says := func(j *api.Job, name string) map[string]string {
		g := j.LookupTaskGroup(name)
		out := map[string]string{"env V": g.Tasks[0].Env["V"], "devices": g.Tasks[0].Resources.Devices[0].Constraints[0].RTarget}
		for _, meta := range []map[string]string{j.Meta, g.Meta} {
			for k, v := range meta {
				out["meta "+k] = v
			}
		}
		return out
	}
	if diff := cmp.Diff(says(pinned, "w-0"), says(mixed, "w-0")); diff != "" {
		t.Errorf("a member that had not its turn (-before +after):\n%s", diff)
	}
	whole, err := rewrite.Pin(next, members, c)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(says(whole, "w-1"), says(mixed, "w-1")); diff != "" {
		t.Errorf("a member that had its turn (-want +got):\n%s", diff)
	}
	if got, want := rewrite.RollingTo(mixed), gangspec.Hash(next); got != want || rewrite.RollingTo(pinned) != "" {
		t.Errorf("it is on its way to %q, want %q", got, want)
	}
}

// TestPinsHold: pins may be written in several ways; only what they allow
// counts.
func TestPinsHold(t *testing.T) {
	c := cluster(16)
	orig := job("service", "job", group("w", 2, 8))
	members := []model.Member{member("w", 0, 3, gpus(3, 0, 8)), member("w", 1, 5, gpus(5, 0, 8))}
	pinned, err := rewrite.Pin(orig, members, c)
	if err != nil {
		t.Fatal(err)
	}
	edit := func(change func(*api.Job)) *api.Job {
		out, err := gangspec.Copy(pinned)
		if err != nil {
			t.Fatal(err)
		}
		change(out)
		return out
	}
	node := func(j *api.Job) *api.Constraint {
		for _, con := range j.TaskGroups[0].Constraints {
			if con.LTarget == "${node.unique.id}" {
				return con
			}
		}
		return nil
	}
	tests := map[string]struct {
		change func(*api.Job)
		want   bool
	}{
		"as it is":           {func(*api.Job) {}, true},
		"longer prefixes":    {func(j *api.Job) { node(j).RTarget = "^(" + nodeID(5) + "$|" + nodeID(3)[:14] + ")" }, true},
		"held":               {func(j *api.Job) { rewrite.Hold(j, []rewrite.Place{{Group: "w"}, {Group: "w", Index: 1}}) }, true},
		"a text for people":  {func(j *api.Job) { rewrite.Note(j, "hello", "http://x") }, true},
		"another node":       {func(j *api.Job) { node(j).RTarget = "^(" + nodeID(3) + "|" + nodeID(6) + ")" }, false},
		"a node more":        {func(j *api.Job) { node(j).RTarget = "^(" + nodeID(3) + "|" + nodeID(5) + "|" + nodeID(6) + ")" }, false},
		"any node":           {func(j *api.Job) { node(j).RTarget = ".*" }, false},
		"more than a prefix": {func(j *api.Job) { node(j).RTarget = "^(" + nodeID(3) + "|.*)" }, false},
		"not its own host":   {func(j *api.Job) { j.TaskGroups[0].Constraints = append(j.TaskGroups[0].Constraints[:1:1], node(j)) }, false},
		"no pins":            {func(j *api.Job) { j.TaskGroups[0].Constraints = nil }, false},
		"only some GPUs": {func(j *api.Job) {
			j.TaskGroups[0].Tasks[0].Resources.Devices[0].Constraints = []*api.Constraint{{LTarget: "${device.ids}", Operand: "set_contains_any", RTarget: "caravan,GPU-1"}}
		}, false},
		"levels of elsewhere": {func(j *api.Job) {
			j.Constraints = append(j.Constraints, api.NewConstraint("${meta.nowhere}", "=", "x"))
		}, false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if got := rewrite.PinsHold(edit(test.change), pinned, c); got != test.want {
				t.Errorf("pins hold: %v, want %v", got, test.want)
			}
		})
	}
}
