package sim

import (
	"fmt"
	"math"
	"testing"

	"pgregory.net/rapid"

	"github.com/caravan-sched/caravan/planner/core"
	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/sim/trace"
)

// By hand, for fine-tuning on 16 GPUs, 2·15/16·2.8 = 5.25 GB and 30 hops of 5 µs: 105 ms
// on 50 GB/s, 420 ms on 12.5 and 840 ms on 6.25, beside 1 s of computing with γ = 2.
func TestOversubscription(t *testing.T) {
	took := func(link float64) float64 { return math.Hypot(1, 5.25/link+30*5e-6) }
	c, err := Regular(512, 8)
	if err != nil {
		t.Fatal(err)
	}
	eight := []int8{0, 1, 2, 3, 4, 5, 6, 7}
	for name, test := range map[string]struct {
		o                           Oversubscription
		rack, betweenRacks, between float64
	}{
		"as it is by default": {Oversubscription{}, 1, 1, took(50) / took(25)},
		"four and eight":      {Oversubscription{4, 8}, 1, took(50) / took(12.5), took(50) / took(6.25)},
		"nowhere":             {Oversubscription{1, 1}, 1, 1, 1},
	} {
		s := NewSpeed(&c, H100NDR(test.o))
		for _, at := range []struct {
			node int
			want float64
		}{{1, test.rack}, {4, test.betweenRacks}, {32, test.between}} {
			near(t, fmt.Sprintf("%s: nodes 0 and %d", name, at.node), s.Of(&JobShape{GPUs: 16, Class: "finetune"}, []Piece{{Node: 0, GPUs: eight}, {Node: at.node, GPUs: eight}}), at.want)
		}
	}
}

// Whatever the shape of racks and blocks, no place is better than the best, and a gang
// that a rack has room for works at full speed there.
func TestNoPlaceIsBetterThanTheBest(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		src := ""
		for i := range rapid.IntRange(1, 2).Draw(t, "blocks of nodes") {
			src += fmt.Sprintf("nodes \"n%d\" {\n  count = %d\n  gpus = %d\n  model = \"H100\"\n  nodes_per_rack = %d\n  racks_per_block = %d\n}\n", i,
				rapid.IntRange(1, 40).Draw(t, "count"), rapid.SampledFrom([]int{4, 8}).Draw(t, "gpus"), rapid.IntRange(1, 12).Draw(t, "rack"), rapid.IntRange(1, 4).Draw(t, "block"))
		}
		c, err := ParseCluster([]byte(src), "c.hcl")
		if err != nil {
			t.Fatal(err)
		}
		o := Oversubscription{Rack: rapid.Float64Range(1, 4).Draw(t, "above racks")}
		o.Block = o.Rack * rapid.Float64Range(1, 4).Draw(t, "above blocks")
		if rapid.Bool().Draw(t, "bought") {
			pool := model.BuyPool{Name: "cloud", Node: c.Nodes[0], Quota: 20}
			pool.Node.Levels = nil
			c = c.WithPools(model.Burst{Pools: []model.BuyPool{pool}})
		}
		s := NewSpeed(&c, H100NDR(o))
		from := rapid.IntRange(0, len(c.Nodes)-1).Draw(t, "from")
		var pieces []Piece
		gpus, racks := 0, map[string]bool{}
		for n := from; n < min(len(c.Nodes), from+rapid.IntRange(1, 12).Draw(t, "nodes")); n++ {
			p := Piece{Node: n}
			for g := range c.Nodes[n].GPUs {
				p.GPUs = append(p.GPUs, int8(g))
			}
			pieces, gpus = append(pieces, p), gpus+len(p.GPUs)
			racks[c.Nodes[n].Levels[model.LevelBlock]+"/"+c.Nodes[n].Levels[model.LevelRack]] = true
		}
		speed := s.Of(&JobShape{GPUs: gpus, Class: "finetune"}, pieces)
		if !(speed > 0 && speed <= 1) || len(racks) == 1 && gpus > c.PerNode && speed != 1 {
			t.Errorf("%d GPUs on nodes %d to %d, %d racks: speed %g\n%s", gpus, from, pieces[len(pieces)-1].Node, len(racks), speed, src)
		}
	})
}

// By hand, for fine-tuning that asks for 16 GPUs: an iteration takes √(1² + 0.10515²) s
// there, and √(0.5² + 0.10865²) on 32, with 2·31/32·2.8 GB on 50 GB/s and 62 hops. On 8 it
// would take less than twice as long, but counts for half.
func TestElasticJobsByTheModel(t *testing.T) {
	c, err := Regular(512, 8)
	if err != nil {
		t.Fatal(err)
	}
	s := NewSpeed(&c, H100NDR(DefaultOversubscription))
	near(t, "twice", s.Grows("finetune", 16, 32), math.Hypot(1, 0.10515)/math.Hypot(0.5, 2*31/32.0*2.8/50+62*5e-6))
	near(t, "as asked", s.Grows("finetune", 16, 16), 1)
	near(t, "half", s.Grows("finetune", 16, 8), 0.5)
	for _, class := range []string{"foundation", "finetune", "sweep", ""} {
		if x := s.Grows(class, 64, 128); !(1 < x && x < 2) || x > s.Grows(class, 64, 192) {
			t.Errorf("%q: %g times as fast with twice the GPUs", class, x)
		}
	}
}

// An elastic job that has twice its GPUs takes longer by the model than by the line, and
// orders by speed are told of just that.
func TestElasticSpeedOfARun(t *testing.T) {
	jobs := []trace.Job{{ID: "a", Duration: 36000, GPUs: 16, Min: 16, Max: 32, Class: trace.ClassFineTune, Submit: 0}, {ID: "b", Duration: 60, GPUs: 8, Submit: 30000}}
	cluster, err := Regular(32, 8)
	if err != nil {
		t.Fatal(err)
	}
	s := NewSpeed(&cluster, H100NDR(DefaultOversubscription))
	ended := map[bool]float64{}
	for _, byModel := range []bool{false, true} {
		c := Comparison{Cluster: cluster, Jobs: jobs, Policies: []string{"goodput"}, Load: trace.Load(jobs, 32), Seeds: 1, Replay: true, Interval: 30, Restart: DefaultRestart, ElasticModel: byModel}
		results, err := c.Run(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		ended[byModel] = results[0].Outcome.Done()[0].Ended
	}
	if !(ended[false] < ended[true] && ended[true] < 36000) {
		t.Errorf("it ends at %g s by the line and at %g s by the model: want it later by the model, and both before 36000", ended[false], ended[true])
	}
	p := planned(t, cluster, core.Policy{Order: "goodput"}).(*planner)
	p.growth = s.Grows
	if err := p.Submit(0, Ask{ID: "a", GPUs: 16, Min: 8, Max: 32, Class: "finetune"}); err != nil {
		t.Fatal(err)
	}
	got := p.jobs[0].Speed.Declared
	if len(got) != 3 || got[0] != (model.SpeedPoint{Members: 1, Rate: 1}) || got[1] != (model.SpeedPoint{Members: 2, Rate: 2}) || got[2].Members != 4 {
		t.Fatalf("told %v", got)
	}
	near(t, "told of four nodes", got[2].Rate, 2*s.Grows("finetune", 16, 32))
}
