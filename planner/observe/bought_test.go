package observe

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/planner/core/model"
)

func TestBought(t *testing.T) {
	if got := bought(&api.Node{Meta: map[string]string{"caravan_node": "x"}}); got != nil {
		t.Errorf("a node of no pool is %+v", got)
	}
	got := bought(&api.Node{Meta: map[string]string{"caravan_pool": "eu", "caravan_node": "p-0", "caravan_purchase": "p", "caravan_market": "spot"}})
	if diff := cmp.Diff(&model.Bought{Pool: "eu", Name: "p-0", Purchase: "p", Market: "spot"}, got); diff != "" {
		t.Errorf("bought (-want +got):\n%s", diff)
	}
}

func TestSoundBought(t *testing.T) {
	node := func(id, name, down string) model.Node {
		return model.Node{ID: id, Name: "name-" + id, Unschedulable: down, Bought: &model.Bought{Pool: "eu", Name: name, Purchase: "p"}}
	}
	tests := map[string]struct {
		nodes []model.Node
		// want are the IDs that do not count.
		want     string
		warnings int
	}{
		"all well":              {[]model.Node{node("a", "p-0", ""), node("b", "p-1", ""), {ID: "home"}}, "", 0},
		"joined twice":          {[]model.Node{node("a", "p-0", ""), node("b", "p-0", "")}, "a", 1},
		"the old one is down":   {[]model.Node{node("a", "p-0", ""), node("b", "p-0", "down")}, "b", 1},
		"without a name":        {[]model.Node{node("a", "", ""), node("b", "p-0", "")}, "a", 1},
		"three times":           {[]model.Node{node("a", "p-0", "down"), node("b", "p-0", ""), node("c", "p-0", "down")}, "a c", 2},
		"the same in two pools": {[]model.Node{node("a", "p-0", ""), {ID: "b", Bought: &model.Bought{Pool: "us", Name: "p-0"}}}, "", 0},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			st := &state{nodes: map[string]*nodeEntry{}}
			for i, n := range test.nodes {
				st.nodes[n.ID] = &nodeEntry{createIndex: uint64(i), model: n}
			}
			snap := &model.Snapshot{Nodes: test.nodes}
			warnings := soundBought(snap, st)
			var got []string
			for i := range snap.Nodes {
				if b := snap.Nodes[i].Bought; b != nil && b.Surplus != "" {
					got = append(got, snap.Nodes[i].ID)
				}
			}
			if strings.Join(got, " ") != test.want || len(warnings) != test.warnings {
				t.Errorf("%v do not count, warnings %v; want %q, %d", got, warnings, test.want, test.warnings)
			}
		})
	}
}

// A node that says of itself only what it was bought as is where its pool's nodes are.
func TestBoughtNodesAreWhereTheirPoolIs(t *testing.T) {
	pool := model.BuyPool{Name: "eu", Near: "block", Node: model.Node{Levels: map[string]string{"region": "eu-west-1", "rack": "r9"}}}
	tests := map[string]struct {
		bought    *model.Bought
		own, want map[string]string
	}{
		"nothing of its own": {&model.Bought{Pool: "eu", Name: "p-0", Purchase: "p"}, nil, map[string]string{"region": "eu-west-1", "block": "p", "rack": "r9"}},
		"its own counts": {
			&model.Bought{Pool: "eu", Name: "p-0", Purchase: "p"}, map[string]string{"block": "b7", "rack": "r1"},
			map[string]string{"region": "eu-west-1", "block": "b7", "rack": "r1"},
		},
		"of no purchase":     {&model.Bought{Pool: "eu", Name: "p-0"}, nil, map[string]string{"region": "eu-west-1", "rack": "r9"}},
		"of an unknown pool": {&model.Bought{Pool: "us", Name: "p-0", Purchase: "p"}, nil, nil},
		"not bought":         {nil, map[string]string{"rack": "r1"}, map[string]string{"rack": "r1"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			snap := &model.Snapshot{Nodes: []model.Node{{ID: "a", Bought: test.bought, Levels: test.own}}, Burst: model.Burst{Pools: []model.BuyPool{pool}}}
			v := &View{Nodes: []NodeRef{{ID: "a", Levels: test.own}}}
			kept := len(test.own)
			placeBought(v, snap)
			if diff := cmp.Diff(test.want, snap.Nodes[0].Levels); diff != "" {
				t.Errorf("levels (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(test.want, v.Nodes[0].Levels); diff != "" {
				t.Errorf("levels of the reference (-want +got):\n%s", diff)
			}
			if len(test.own) != kept {
				t.Errorf("the entry's own levels were changed: %v", test.own)
			}
		})
	}
	if len(pool.Node.Levels) != 2 {
		t.Errorf("the pool's levels were changed: %v", pool.Node.Levels)
	}
}
