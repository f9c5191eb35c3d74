package rewrite_test

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/gangspec"
	"github.com/caravan-sched/caravan/planner/rewrite"
)

const (
	arch   = "job: ${attr.cpu.arch} = amd64"
	closed = "${meta.caravan_gate} = open"
	mark   = "${meta.caravan_gate} is_not_set"
	userG  = "  ${meta.x} != y"
	userD  = "  t0: ${device.attr.memory} >= 10 GiB"
)

func TestPin(t *testing.T) {
	c := cluster(8)
	node := func(i int) string { return nodeID(i)[:4] }
	tests := map[string]struct {
		job     *api.Job
		members []model.Member
		done    []rewrite.Place
		want    []string
	}{
		"whole nodes of one rack": {
			job:     job("batch", "job", group("w", 2, 8)),
			members: []model.Member{member("w", 0, 0, gpus(0, 0, 8)), member("w", 1, 1, gpus(1, 0, 8))},
			want: []string{arch, "job: " + mark, "job: ${meta.rack} = r0", "w × 2", userG, "  " + mark, "  distinct_hosts true",
				"  ${node.unique.id} regexp ^(" + node(0) + "|" + node(1) + ")", userD},
		},
		"whole nodes of two blocks": {
			job:     job("batch", "job", group("w", 2, 8)),
			members: []model.Member{member("w", 0, 1, gpus(1, 0, 8)), member("w", 1, 6, gpus(6, 0, 8))},
			want: []string{arch, "job: " + mark, "job: ${meta.rack} set_contains_any r0,r3", "w × 2", userG, "  " + mark, "  distinct_hosts true",
				"  ${node.unique.id} regexp ^(" + node(1) + "|" + node(6) + ")", userD},
		},
		"parts of nodes, one each": {
			job:     job("batch", "job", group("w", 2, 4)),
			members: []model.Member{member("w", 1, 1, gpus(1, 4, 4)), member("w", 0, 0, gpus(0, 0, 4))},
			want: []string{arch, "job: " + mark, "job: ${meta.rack} = r0", "w × 2", userG, "  " + mark, "  distinct_hosts true",
				"  ${node.unique.id} regexp ^(" + node(0) + "|" + node(1) + ")", userD,
				"  t0: ${device.ids} set_contains_any caravan,GPU-0-0,GPU-0-1,GPU-0-2,GPU-0-3,GPU-1-4,GPU-1-5,GPU-1-6,GPU-1-7"},
		},
		"parts of one node are split": {
			job:     job("batch", "job", group("w", 2, 1)),
			members: []model.Member{member("w", 0, 0, gpus(0, 0, 1)), member("w", 1, 0, gpus(0, 1, 1))},
			want: []string{arch, "job: " + mark, "job: ${meta.rack} = r0",
				"w-0 × 1", userG, "  " + mark, "  ${node.unique.id} regexp ^(" + node(0) + ")", userD, "  t0: ${device.ids} set_contains_any caravan,GPU-0-0",
				"w-1 × 1", userG, "  " + mark, "  ${node.unique.id} regexp ^(" + node(0) + ")", userD, "  t0: ${device.ids} set_contains_any caravan,GPU-0-1"},
		},
		"two requests in one member": {
			job:     job("batch", "job", group("w", 1, 4, 4)),
			members: []model.Member{{Group: "w", Node: nodeID(0), GPUs: gpus(0, 0, 8), Tasks: [][]string{gpus(0, 0, 4), gpus(0, 4, 4)}}},
			want: []string{arch, "job: " + mark, "job: ${meta.rack} = r0", "w × 1", userG, "  " + mark, "  ${node.unique.id} regexp ^(" + node(0) + ")",
				userD, "  t0: ${device.ids} set_contains_any caravan,GPU-0-0,GPU-0-1,GPU-0-2,GPU-0-3",
				"  t1: ${device.attr.memory} >= 10 GiB", "  t1: ${device.ids} set_contains_any caravan,GPU-0-4,GPU-0-5,GPU-0-6,GPU-0-7"},
		},
		"members one by one, some placed, one ended": {
			job:     job("batch", "none", group("w", 4, 1)),
			members: []model.Member{member("w", 2, 0, gpus(0, 0, 1))},
			done:    []rewrite.Place{{Group: "w", Index: 0}},
			want: []string{arch, "job: " + mark, "job: ${meta.rack} = r0",
				"w-2 × 1", userG, "  " + mark, "  ${node.unique.id} regexp ^(" + node(0) + ")", userD, "  t0: ${device.ids} set_contains_any caravan,GPU-0-0",
				"w × 2", userG, "  " + closed, userD},
		},
		"every member ended, another group waits": {
			job:     job("batch", "none", group("w", 1, 1), group("v", 1, 8)),
			members: []model.Member{member("v", 0, 3, gpus(3, 0, 8))},
			done:    []rewrite.Place{{Group: "w", Index: 0}},
			want: []string{arch, "job: " + mark, "job: ${meta.rack} = r1",
				"w × 0", userG, "  " + closed, userD,
				"v × 1", userG, "  " + mark, "  ${node.unique.id} regexp ^(" + node(3) + ")", userD},
		},
		"group by group": {
			job:     job("service", "group", group("a", 2, 8), group("b", 1, 8)),
			members: []model.Member{member("a", 0, 0, gpus(0, 0, 8)), member("a", 1, 1, gpus(1, 0, 8))},
			want: []string{arch, "job: " + mark, "job: ${meta.rack} = r0", "a × 2", userG, "  " + mark, "  distinct_hosts true",
				"  ${node.unique.id} regexp ^(" + node(0) + "|" + node(1) + ")", userD, "b × 1", userG, "  " + closed, userD},
		},
		"a group without GPUs": {
			job:     job("batch", "job", group("w", 1, 8), group("ps", 2)),
			members: []model.Member{member("w", 0, 0, gpus(0, 0, 8)), member("ps", 0, 1, nil), member("ps", 1, 1, nil)},
			want: []string{arch, "job: " + mark, "job: ${meta.rack} = r0", "w × 1", userG, "  " + mark, "  ${node.unique.id} regexp ^(" + node(0) + ")", userD,
				"ps-0 × 1", userG, "  " + mark, "  ${node.unique.id} regexp ^(" + node(1) + ")",
				"ps-1 × 1", userG, "  " + mark, "  ${node.unique.id} regexp ^(" + node(1) + ")"},
		},
		"a split group's name is taken": {
			job:     job("batch", "none", group("w", 2, 8), group("w-1", 1, 8)),
			members: []model.Member{member("w", 1, 0, gpus(0, 0, 8)), member("w-1", 0, 1, gpus(1, 0, 8))},
			want: []string{arch, "job: " + mark, "job: ${meta.rack} = r0",
				"w-1_ × 1", userG, "  " + mark, "  ${node.unique.id} regexp ^(" + node(0) + ")", userD, "w × 1", userG, "  " + closed, userD,
				"w-1 × 1", userG, "  " + mark, "  ${node.unique.id} regexp ^(" + node(1) + ")", userD},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			before := gangspec.Hash(test.job)
			test.job.Constraints = append(test.job.Constraints, api.NewConstraint("${meta.caravan_gate}", "=", "open"))
			got, err := rewrite.Pin(test.job, test.members, c, test.done...)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, lines(got)); diff != "" {
				t.Errorf("Pin (-want +got):\n%s", diff)
			}
			if rewrite.IsGated(got) || !rewrite.IsPinned(got) {
				t.Errorf("IsGated = %v, IsPinned = %v", rewrite.IsGated(got), rewrite.IsPinned(got))
			}
			back, err := rewrite.Strip(got, test.job)
			if err != nil {
				t.Fatal(err)
			}
			if gangspec.Hash(back) != before {
				t.Errorf("Strip is not what was pinned:\n%s", cmp.Diff(lines(test.job), lines(back)))
			}
		})
	}
}

func TestPinRefuses(t *testing.T) {
	whole := func(i, node int) model.Member { return member("w", i, node, gpus(node, 0, 8)) }
	tests := map[string]struct {
		job     *api.Job
		members []model.Member
		done    []rewrite.Place
		want    []string
	}{
		"a part of a gang":         {job("batch", "job", group("w", 2, 8)), []model.Member{whole(0, 0)}, nil, []string{"1 of the 2 members"}},
		"a part of a group's gang": {job("batch", "group", group("w", 2, 8), group("v", 1, 8)), []model.Member{whole(0, 0)}, nil, []string{"1 of the 2 members"}},
		"a gang with ended members": {job("batch", "job", group("w", 2, 8)), []model.Member{whole(0, 0)},
			[]rewrite.Place{{Group: "w", Index: 1}}, []string{"have ended"}},
		"everything wrong at once": {job("batch", "none", group("w", 2, 1, 1)),
			[]model.Member{{Group: "x", Node: "nowhere"}, whole(5, 1), whole(0, 0), whole(0, 0)}, nil,
			[]string{"no group \"x\"", "no node \"nowhere\"", "named twice", "index 5", "is given to member", "which are for which", "more"}},
		"GPUs for a group that asks for none": {job("batch", "none", group("w", 1)), []model.Member{whole(0, 0)}, nil, []string{"more device requests"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := rewrite.Pin(test.job, test.members, cluster(4), test.done...)
			if !errors.Is(err, rewrite.ErrPlacement) {
				t.Fatalf("Pin: %v, want ErrPlacement", err)
			}
			for _, want := range test.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("error %q lacks %q", err, want)
				}
			}
		})
	}
}

// TestSplitKeepsWhatTasksSee: a member of its own group sees the index, the
// names and the volumes that it would see in the user's.
func TestSplitKeepsWhatTasksSee(t *testing.T) {
	g := group("w", 3, 1)
	g.Volumes = map[string]*api.VolumeRequest{"d": {Name: "d", Type: "csi", Source: "data", PerAlloc: true}}
	g.Services = []*api.Service{{Provider: "nomad"}, {Name: "x-${TASKGROUP}", Provider: "nomad"}}
	g.Tasks[0].Services = []*api.Service{{Name: "${BASE}", Provider: "nomad"}}
	g.Tasks[0].Env = map[string]string{"A": "b"}
	g.Scaling = &api.ScalingPolicy{Max: ptr(int64(9))}
	orig := job("batch", "none", g)
	got, err := rewrite.Pin(orig, []model.Member{member("w", 2, 0, gpus(0, 3, 1))}, cluster(2))
	if err != nil {
		t.Fatal(err)
	}
	own := got.TaskGroups[0]
	group, index, split := rewrite.Origin(own)
	if group != "w" || index != 2 || !split {
		t.Errorf("Origin = %s, %d, %v", group, index, split)
	}
	wantEnv := map[string]string{"A": "b", "NOMAD_ALLOC_INDEX": "2", "NOMAD_GROUP_NAME": "w", "NOMAD_ALLOC_NAME": "train.w[2]"}
	if diff := cmp.Diff(wantEnv, own.Tasks[0].Env); diff != "" {
		t.Errorf("env (-want +got):\n%s", diff)
	}
	names := []string{own.Services[0].Name, own.Services[1].Name, own.Tasks[0].Services[0].Name}
	if diff := cmp.Diff([]string{"train-w", "x-w", "train-w-t0"}, names); diff != "" {
		t.Errorf("services (-want +got):\n%s", diff)
	}
	if v := own.Volumes["d"]; v.Source != "data[2]" || v.PerAlloc {
		t.Errorf("volume %+v", v)
	}
	if own.Scaling != nil {
		t.Error("a split group would be scaled")
	}
	back, err := rewrite.Strip(got, orig)
	if err != nil {
		t.Fatal(err)
	}
	if gangspec.Hash(back) != gangspec.Hash(orig) {
		a, _ := json.Marshal(orig)
		b, _ := json.Marshal(back)
		t.Errorf("Strip is not the original:\n%s\n%s", a, b)
	}
	for _, name := range []string{"w-0", "w-2"} {
		if g, _, split := rewrite.OriginByName(orig, name); g != "w" || !split {
			t.Errorf("OriginByName(%s) = %s, %v", name, g, split)
		}
	}
	for _, name := range []string{"w", "w-x", "v-1", "w-1_", ""} {
		if _, _, split := rewrite.OriginByName(orig, name); split {
			t.Errorf("OriginByName(%q) is split", name)
		}
	}
}

func TestServiceUpdates(t *testing.T) {
	orig := job("service", "job", group("w", 1, 8))
	orig.Update = &api.UpdateStrategy{Canary: ptr(1), MaxParallel: ptr(2)}
	orig.TaskGroups[0].Update = &api.UpdateStrategy{AutoRevert: ptr(true)}
	for name, rewritten := range map[string]func() (*api.Job, error){
		"gated": func() (*api.Job, error) { return rewrite.Gate(orig) },
		"pinned": func() (*api.Job, error) {
			return rewrite.Pin(orig, []model.Member{member("w", 0, 0, gpus(0, 0, 8))}, cluster(2))
		},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := rewritten()
			if err != nil {
				t.Fatal(err)
			}
			if *got.Update.MaxParallel != 0 || got.TaskGroups[0].Update != nil {
				t.Errorf("update is %+v, %+v", got.Update, got.TaskGroups[0].Update)
			}
			// As Nomad completes it.
			got.Canonicalize()
			back, err := rewrite.Strip(got, orig)
			if err != nil {
				t.Fatal(err)
			}
			if gangspec.Hash(back) != gangspec.Hash(orig) {
				t.Error("the update blocks did not come back")
			}
		})
	}
	got, err := rewrite.GateCurrent(orig)
	if err != nil {
		t.Fatal(err)
	}
	if !rewrite.IsGated(got) || *got.Update.Canary != 1 {
		t.Error("GateCurrent changes more than the gate")
	}
}

func TestRelease(t *testing.T) {
	whole := job("service", "job", group("w", 1, 8))
	part := job("batch", "none", group("w", 3, 1))
	pin := func(j *api.Job, m ...model.Member) *api.Job {
		t.Helper()
		out, err := rewrite.Pin(j, m, cluster(4))
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	gate := func(j *api.Job) *api.Job {
		t.Helper()
		out, err := rewrite.Gate(j)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	tests := map[string]struct {
		cur, orig *api.Job
		wantKept  bool
		want      []string
	}{
		"gated":       {gate(part), part, false, []string{arch, "w × 3", userG, userD}},
		"whole nodes": {pin(whole, member("w", 0, 0, gpus(0, 0, 8))), whole, false, []string{arch, "w × 1", userG, userD}},
		"parts stay what they are": {pin(part, member("w", 1, 0, gpus(0, 0, 1))), part, true,
			[]string{arch, "w-1 × 1", userG, userD, "  t0: ${device.ids} set_contains_any caravan,GPU-0-0", "w × 2", userG, userD}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got, kept, err := rewrite.Release(test.cur, test.orig)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, lines(got)); diff != "" || kept != test.wantKept {
				t.Errorf("Release kept %v (-want +got):\n%s", kept, diff)
			}
		})
	}
}

func TestIsGated(t *testing.T) {
	plain := job("batch", "none", group("w", 1, 1))
	grouped := job("batch", "none", group("a", 1, 1), group("b", 1, 1))
	byGroup := func(n int) *api.Job {
		j, _ := gangspec.Copy(grouped)
		for _, g := range j.TaskGroups[:n] {
			g.Constraints = append(g.Constraints, api.NewConstraint("${meta.caravan_gate}", "==", "open"))
		}
		return j
	}
	byUser, _ := gangspec.Copy(plain)
	byUser.Constraints = append(byUser.Constraints, &api.Constraint{LTarget: "${meta.caravan_gate}", RTarget: "open"})
	tests := map[string]struct {
		job  *api.Job
		want bool
	}{
		"none": {nil, false}, "plain": {plain, false}, "by its user": {byUser, true}, "without groups": {&api.Job{}, false},
		"one group of two": {byGroup(1), false}, "both groups": {byGroup(2), true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if got := rewrite.IsGated(test.job); got != test.want {
				t.Errorf("IsGated = %v, want %v", got, test.want)
			}
		})
	}
}

func TestNote(t *testing.T) {
	j := &api.Job{UI: &api.JobUIConfig{Description: "Mine.", Links: []*api.JobUILink{{Label: "a", URL: "b"}}}}
	rewrite.Note(j, "Placed in rack r1.", "http://x/")
	if j.UI.Description != "Mine.\n\nPlaced in rack r1." || len(j.UI.Links) != 2 || j.UI.Links[0].Label != "a" {
		t.Errorf("ui %+v", j.UI)
	}
	rewrite.Note(j, strings.Repeat("x", 1000), "")
	if strings.Contains(j.UI.Description, "xxx") || len(j.UI.Links) != 2 {
		t.Error("the description outgrew Nomad's limit")
	}
}

func TestPrefixesNameOneNode(t *testing.T) {
	ids := []string{"abcdef01", "abcdef02", "abcde", "abcdef", "ffff", "0"}
	var nodes []rewrite.Node
	for _, id := range ids {
		nodes = append(nodes, rewrite.Node{ID: id, GPUs: 1})
	}
	c := rewrite.NewCluster(nodes, nil)
	for _, id := range ids {
		got, err := rewrite.Pin(job("batch", "job", group("w", 1, 1)), []model.Member{{Group: "w", Node: id, GPUs: []string{"g"}}}, c)
		if err != nil {
			t.Fatal(err)
		}
		cs := got.TaskGroups[0].Constraints
		re := cs[len(cs)-1].RTarget
		matches := slices.DeleteFunc(slices.Clone(ids), func(other string) bool { return !matchString(t, re, other) })
		if diff := cmp.Diff([]string{id}, matches); diff != "" {
			t.Errorf("%s matches (-want +got):\n%s", re, diff)
		}
	}
}

func TestHold(t *testing.T) {
	sweep := job("batch", "none", group("w", 3, 1))
	pinned, err := rewrite.Pin(sweep, []model.Member{member("w", 0, 0, gpus(0, 0, 1)), member("w", 2, 0, gpus(0, 1, 1))}, cluster(2))
	if err != nil {
		t.Fatal(err)
	}
	held, _ := gangspec.Copy(pinned)
	rewrite.Hold(held, []rewrite.Place{{Group: "w", Index: 2}})
	want := map[string]bool{"w-0": true, "w-2": false, "w": false}
	for _, g := range held.TaskGroups {
		if got := rewrite.MayPlace(g); got != want[*g.Name] {
			t.Errorf("MayPlace(%s) = %v", *g.Name, got)
		}
	}
	if !rewrite.SamePins(pinned, held) || rewrite.GatedWhole(held) {
		t.Error("a held job is taken for another")
	}
	other, err := rewrite.Pin(sweep, []model.Member{member("w", 0, 0, gpus(0, 0, 1)), member("w", 2, 1, gpus(1, 1, 1))}, cluster(2))
	if err != nil {
		t.Fatal(err)
	}
	if rewrite.SamePins(pinned, other) {
		t.Error("two placements are taken for one")
	}
	back, err := rewrite.Strip(held, sweep)
	if err != nil || gangspec.Hash(back) != gangspec.Hash(sweep) {
		t.Errorf("Strip of a held job is not the original: %v", err)
	}
	// A group that is placed as a whole is held as a whole or not at all.
	gang := job("batch", "group", group("w", 2, 8))
	if pinned, err = rewrite.Pin(gang, []model.Member{member("w", 0, 0, gpus(0, 0, 8)), member("w", 1, 1, gpus(1, 0, 8))}, cluster(2)); err != nil {
		t.Fatal(err)
	}
	rewrite.Hold(pinned, []rewrite.Place{{Group: "w", Index: 0}})
	if !rewrite.MayPlace(pinned.TaskGroups[0]) {
		t.Error("a group is held for one of its members")
	}
	rewrite.Hold(pinned, []rewrite.Place{{Group: "w", Index: 0}, {Group: "w", Index: 1}})
	if rewrite.MayPlace(pinned.TaskGroups[0]) {
		t.Error("a group is not held")
	}
}
