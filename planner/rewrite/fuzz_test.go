package rewrite_test

import (
	"encoding/json"
	"testing"

	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/gangspec"
	"github.com/caravan-sched/caravan/planner/rewrite"
)

// FuzzRewriteJSON: whatever JSON is taken for a job, gating and taking apart
// is no panic and no error, and what is taken apart stays so.
func FuzzRewriteJSON(f *testing.F) {
	f.Add([]byte(`{}`))
	f.Add([]byte(`{"Constraints":[null,{"LTarget":"${meta.caravan_gate}","Operand":"is_not_set"}],"TaskGroups":[null,{"Meta":{"caravan_count":"-1"}},{"Name":"w-0","Meta":{"caravan_group":"w","caravan_index":"0","caravan_count":"3"},"Tasks":[null,{"Resources":{"Devices":[null,{"Constraints":[null]}]}}]}]}`))
	f.Add([]byte(`{"Type":"service","Update":{"MaxParallel":0},"UI":{"Links":[null]},"TaskGroups":[{"Volumes":{"v":null},"Scaling":{}}]}`))
	pinned, err := rewrite.Pin(job("batch", "none", group("w", 3, 1)), []model.Member{member("w", 1, 0, gpus(0, 0, 1))}, cluster(2))
	if err != nil {
		f.Fatal(err)
	}
	data, err := json.Marshal(pinned)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(data)
	f.Fuzz(func(t *testing.T, data []byte) {
		j := new(api.Job)
		if json.Unmarshal(data, j) != nil {
			return
		}
		gated, err := rewrite.Gate(j)
		if err != nil || !rewrite.IsGated(gated) {
			t.Fatalf("Gate: %v", err)
		}
		once, err := rewrite.Strip(gated, nil)
		if err != nil {
			t.Fatal(err)
		}
		twice, err := rewrite.Strip(once, j)
		if err != nil {
			t.Fatal(err)
		}
		if rewrite.IsGated(twice) && len(twice.TaskGroups) > 0 || rewrite.IsPinned(twice) {
			t.Error("gate or pins stay")
		}
		rewrite.IsPinned(j)
		if _, _, err := rewrite.Release(j, j); err != nil {
			t.Fatal(err)
		}
		_, _ = rewrite.Pin(j, []model.Member{{Group: "w", Node: nodeID(0), GPUs: []string{"a"}}}, cluster(1))
		_ = gangspec.Hash(once)
	})
}

// FuzzOriginByName: a name that is read as that of a member's group, in a slot or not, or of
// those that have no place yet, is the one that they have; any other is a group's own.
func FuzzOriginByName(f *testing.F) {
	for _, name := range []string{"w", "w-0", "w-1_", "w-99999999999999999999", "-1", "w--1", "", "_", "w-01", "w-+1",
		"w-v1", "-v1", "w-1-v2", "w-0-v3_", "w-v0", "w-v01", "w-rest", "-rest", "w-rest_", "w-rest-v1"} {
		f.Add(name)
	}
	orig := job("batch", "none", group("w", 3, 1), group("w-1", 2, 1), group("", 1, 1))
	f.Fuzz(func(t *testing.T, name string) {
		group, index, split := rewrite.OriginByName(orig, name)
		slot := rewrite.SlotByName(orig, name)
		rest := name == group+"-rest" && !split && slot == 0
		if index < 0 || slot < 0 || rewrite.GroupName(orig, group, index, split, slot) != name && !rest {
			t.Errorf("OriginByName(%q) = %q, %d, %t, in slot %d", name, group, index, split, slot)
		}
	})
}
