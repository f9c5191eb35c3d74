package speed

import (
	"testing"

	"github.com/caravan-sched/caravan/planner/core/model"
)

func TestWhere(t *testing.T) {
	node := func(id, block, rack, name string) *model.Node {
		n := &model.Node{ID: id, Levels: map[string]string{"block": block, "rack": rack}}
		for i := range 4 {
			n.GPUs = append(n.GPUs, model.GPU{UUID: id + string(rune('0'+i)), Model: name, Island: i / 2})
		}
		return n
	}
	nodes := map[string]*model.Node{"a": node("a", "b1", "r1", "H100"), "b": node("b", "b1", "r1", "H100"), "c": node("c", "b1", "r2", "A100"),
		"d": node("d", "b2", "r1", "H100"), "e": node("e", "", "r1", "H100")}
	member := func(at string, gpus ...string) model.Member {
		m := model.Member{Node: at}
		for _, g := range gpus {
			m.GPUs = append(m.GPUs, at+g)
		}
		return m
	}
	ended := member("d", "0")
	ended.Ended = true
	tests := map[string]struct {
		members []model.Member
		want    Config
		unknown bool
	}{
		"an island":         {members: []model.Member{member("a", "0", "1")}, want: Config{1, 2, "H100", Island}},
		"two of a node":     {members: []model.Member{member("a", "0"), member("a", "2")}, want: Config{2, 2, "H100", Node}},
		"no GPUs":           {members: []model.Member{member("a")}, want: Config{1, 0, "", Node}},
		"a rack":            {members: []model.Member{member("a", "0"), member("b", "0")}, want: Config{2, 2, "H100", Rack}},
		"a block, of two":   {members: []model.Member{member("a", "0"), member("c", "0"), ended}, want: Config{2, 2, "A100+H100", Block}},
		"racks of one name": {members: []model.Member{member("a", "0"), member("d", "0")}, want: Config{2, 2, "H100", Wider}},
		"no block":          {members: []model.Member{member("a", "0"), member("e", "0")}, want: Config{2, 2, "H100", Wider}},
		"a node that went":  {members: []model.Member{member("x", "0")}, unknown: true},
		"a GPU that went":   {members: []model.Member{member("a", "9")}, unknown: true},
		"nobody":            {unknown: true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got, ok := Where([]string{"block", "rack"}, func(id string) *model.Node { return nodes[id] }, test.members)
			if ok == test.unknown || ok && got != test.want {
				t.Errorf("%+v, %t; want %+v", got, ok, test.want)
			}
		})
	}
}
