package rewrite_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"

	"github.com/hashicorp/nomad/api"
	"pgregory.net/rapid"

	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/gangspec"
	"github.com/caravan-sched/caravan/planner/rewrite"
)

// drawUpdate is an update of a service with canaries on nodes of their own.
func drawUpdate(t *rapid.T) (u rewrite.Update, spec drawn) {
	d := draw(t)
	d.job.Type = ptr("service")
	next, err := gangspec.Copy(d.job)
	if err != nil {
		t.Fatal(err)
	}
	for _, j := range []*api.Job{d.job, next} {
		for _, g := range j.TaskGroups {
			g.Tasks[0].Env = map[string]string{"V": map[bool]string{true: "2", false: "1"}[j == next]}
			g.Tasks[0].Services = []*api.Service{{Name: "s", Tags: []string{"live"}, CanaryTags: []string{"canary"}}}
		}
	}
	u = rewrite.Update{Before: d.job, Next: next, Members: d.members}
	slot := rapid.IntRange(1, 30).Draw(t, "slot")
	for _, m := range d.members {
		if g := d.job.LookupTaskGroup(m.Group); d.job.Meta["caravan_gang"] == "none" && m.Index > 0 && *g.Count > 1 {
			continue
		}
		beside := m
		beside.Slot, beside.Node, beside.GPUs = slot, "", nil
		var at int
		for at = range 64 {
			if nodeID(at) == m.Node {
				break
			}
		}
		beside.Node = nodeID(at + 64)
		for k := range m.GPUs {
			beside.GPUs = append(beside.GPUs, fmt.Sprintf("%s-beside-%d", m.GPUs[k], k))
		}
		u.Canaries = append(u.Canaries, beside)
	}
	return u, d
}

// TestCanariesLeaveTheRestAlone: the groups of the old members say what they
// said, those of the canaries say what the members' will, and a promotion
// changes nothing of either that would restart them.
func TestCanariesLeaveTheRestAlone(t *testing.T) {
	c := cluster(128)
	rapid.Check(t, func(t *rapid.T) {
		u, d := drawUpdate(t)
		pinned := must(rewrite.Pin(u.Before, u.Members, c))
		mixed := must(rewrite.Roll(pinned, u, c))
		restarts := func(j *api.Job, g *api.TaskGroup) string {
			meta := map[string]string{}
			for _, m := range []map[string]string{j.Meta, g.Meta} {
				for k, v := range m {
					meta[k] = v
				}
			}
			out, _ := json.Marshal([]any{meta, g.Tasks[0].Env, g.Tasks[0].Config, g.Tasks[0].Resources, g.Count})
			return string(out)
		}
		for _, g := range pinned.TaskGroups {
			if got := mixed.LookupTaskGroup(*g.Name); got == nil || restarts(mixed, got) != restarts(pinned, g) {
				t.Fatalf("group %s of the old version was changed", *g.Name)
			}
		}
		canaries, names := 0, map[string]bool{}
		for _, g := range mixed.TaskGroups {
			if names[*g.Name] {
				t.Fatalf("two groups are named %s", *g.Name)
			}
			names[*g.Name] = true
			if !rewrite.IsCanary(g) {
				continue
			}
			canaries += *g.Count
			if g.Tasks[0].Env["V"] != "2" || g.Tasks[0].Services[0].Tags[0] != "canary" || g.Scaling != nil {
				t.Fatalf("group %s is no canary: %v", *g.Name, g.Tasks[0])
			}
			if rewrite.Slot(g) != u.Canaries[0].Slot || rewrite.SlotByName(u.Next, *g.Name) != rewrite.Slot(g) {
				t.Fatalf("group %s is in slot %d, by its name in %d", *g.Name, rewrite.Slot(g), rewrite.SlotByName(u.Next, *g.Name))
			}
			group, index, split := rewrite.Origin(g)
			if a, b, again := rewrite.OriginByName(u.Next, *g.Name); a != group || b != index || again != split {
				t.Fatalf("group %s is of %s[%d], by its name of %s[%d]", *g.Name, group, index, a, b)
			}
		}
		if canaries != len(u.Canaries) {
			t.Fatalf("%d canaries, want %d", canaries, len(u.Canaries))
		}
		if back := must(rewrite.Strip(mixed, nil)); len(back.TaskGroups) != len(d.job.TaskGroups) {
			t.Fatalf("Strip leaves %d groups, want %d", len(back.TaskGroups), len(d.job.TaskGroups))
		}
		promoted := u
		promoted.Canaries, promoted.Members = nil, slices.Clone(u.Members)
		for _, x := range u.Canaries {
			at := slices.IndexFunc(promoted.Members, func(m model.Member) bool { return m.Group == x.Group && m.Index == x.Index })
			promoted.Members[at] = x
			promoted.Rolled = append(promoted.Rolled, rewrite.Place{Group: x.Group, Index: x.Index})
		}
		after := must(rewrite.Roll(mixed, promoted, c))
		final := must(rewrite.Repin(after, u.Next, promoted.Members, c))
		for _, g := range mixed.TaskGroups {
			if !rewrite.IsCanary(g) {
				continue
			}
			for _, j := range []*api.Job{after, final} {
				got := j.LookupTaskGroup(*g.Name)
				if got == nil || restarts(j, got) != restarts(mixed, g) {
					t.Fatalf("the canary %s was changed", *g.Name)
				}
				if got.Tasks[0].Services[0].Tags[0] != "live" || rewrite.IsCanary(got) {
					t.Fatalf("%s is a canary still", *g.Name)
				}
			}
		}
		if back := must(rewrite.Strip(final, u.Next)); gangspec.Hash(back) != gangspec.Hash(u.Next) {
			t.Fatal("Strip is not the new version")
		}
	})
}

// TestSlotNames: no two members, canaries and groups of the user's get one
// name, however the user named them, and each can be told by it.
func TestSlotNames(t *testing.T) {
	names := []string{"w", "w-0", "w-v1", "w-0-v1", "w-0_", "w-v1_", "w_", "-v1"}
	rapid.Check(t, func(t *rapid.T) {
		j := &api.Job{ID: ptr("j")}
		for _, n := range names {
			if rapid.Bool().Draw(t, n) {
				j.TaskGroups = append(j.TaskGroups, &api.TaskGroup{Name: ptr(n), Count: ptr(2)})
			}
		}
		seen := map[string]string{}
		for _, g := range j.TaskGroups {
			for _, split := range []bool{false, true} {
				for slot := range 3 {
					name := rewrite.GroupName(j, *g.Name, 0, split, slot)
					what := fmt.Sprint(*g.Name, split, slot)
					if other, taken := seen[name]; taken {
						t.Fatalf("%q is the name of %s and of %s", name, other, what)
					}
					seen[name] = what
					group, _, again := rewrite.OriginByName(j, name)
					if group != *g.Name || again != split || rewrite.SlotByName(j, name) != slot {
						t.Fatalf("%q is of %s, and was read as %s %v %d", name, what, group, again, rewrite.SlotByName(j, name))
					}
				}
			}
		}
	})
}

// TestCanaryFaults: what cannot be beside the members is refused.
func TestCanaryFaults(t *testing.T) {
	c := cluster(4)
	orig := job("service", "group", group("w", 2, 8))
	members := []model.Member{member("w", 0, 0, gpus(0, 0, 8)), member("w", 1, 1, gpus(1, 0, 8))}
	slot := func(n int, m model.Member) model.Member { m.Slot = n; return m }
	for name, canaries := range map[string][]model.Member{
		"a part of a gang": {slot(1, member("w", 0, 2, gpus(2, 0, 8)))},
		"no slot":          {member("w", 0, 2, gpus(2, 0, 8)), member("w", 1, 3, gpus(3, 0, 8))},
		"a member's GPUs":  {slot(1, member("w", 0, 2, gpus(2, 0, 8))), slot(1, member("w", 1, 1, gpus(1, 0, 8)))},
	} {
		if _, err := rewrite.Roll(nil, rewrite.Update{Before: orig, Next: orig, Members: members, Canaries: canaries}, c); err == nil {
			t.Errorf("%s is taken", name)
		}
	}
}
