package target

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/caravan-sched/caravan/autoscaler/terraform"
	"github.com/caravan-sched/caravan/planner/burstapi"
)

var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

// stateOf is a state of nodes, each NAME or NAME=PURCHASE; one that ends in ! is
// tainted.
func stateOf(nodes ...string) terraform.State {
	s := terraform.State{}
	for _, n := range nodes {
		n, tainted := strings.CutSuffix(n, "!")
		name, purchase, _ := strings.Cut(n, "=")
		s[name] = terraform.Node{Name: name, Tainted: tainted, Value: terraform.Value{Purchase: purchase, Market: "spot"}}
	}
	return s
}

func buy(id string, state burstapi.State, names ...string) burstapi.Purchase {
	return burstapi.Purchase{ID: id, Gang: "default/g", Nodes: len(names), Names: names, Market: burstapi.Spot, State: state}
}

var (
	up      = machine{ID: "up", Lives: true, Ready: true}
	running = machine{ID: "running", Lives: true, Ready: true, Runs: []string{"default/gang"}}
	booting = machine{ID: "booting", Lives: true, Why: "is initializing in Nomad"}
	down    = machine{ID: "down", Why: "is down in Nomad"}
	drained = machine{ID: "drained", Lives: true, Draining: true, Ours: true, Why: "is drained"}
	leaving = machine{ID: "leaving", Lives: true, Draining: true, Ours: true, Runs: []string{"default/gang"}, Why: "is drained"}
	another = machine{ID: "another", Lives: true, Wrong: true, Why: "has 8 A100, and the pool promises 8 H100"}
)

// ordered are notes of nodes that had time until some time from noon.
func ordered(left time.Duration, names ...string) map[string]note {
	out := map[string]note{}
	for _, n := range names {
		out[n] = note{Ordered: noon.Add(-time.Hour), JoinBy: noon.Add(left)}
	}
	return out
}

// Nodes that were there and are neither in the state nor in Nomad count as gone, and
// are not made again; those of a purchase that is being made are still to come.
func TestVanishedNodes(t *testing.T) {
	tests := map[string]struct {
		in   input
		want string
	}{
		"of one that was there":          {input{state: stateOf("a=p"), nodes: map[string]machine{"a": up}, wants: burstapi.Pool{Purchases: []burstapi.Purchase{buy("p", burstapi.Present, "a", "b")}}}, "map[p:[b]]"},
		"of one that failed":             {input{wants: burstapi.Pool{Purchases: []burstapi.Purchase{buy("p", burstapi.Failed, "a")}}}, "map[p:[a]]"},
		"of one that comes":              {input{wants: burstapi.Pool{Purchases: []burstapi.Purchase{buy("p", burstapi.Coming, "a"), buy("q", burstapi.Wanted, "b")}}}, "map[]"},
		"that is to go":                  {input{wants: burstapi.Pool{Purchases: []burstapi.Purchase{buy("p", burstapi.Coming, "a", "b")}, GiveBack: []burstapi.GiveBack{{Name: "a"}}}}, "map[p:[a]]"},
		"that lives in Nomad":            {input{nodes: map[string]machine{"a": booting}, wants: burstapi.Pool{Purchases: []burstapi.Purchase{buy("p", burstapi.Failed, "a")}}}, "map[]"},
		"that is down there":             {input{nodes: map[string]machine{"a": down}, wants: burstapi.Pool{Purchases: []burstapi.Purchase{buy("p", burstapi.Failed, "a")}}}, "map[p:[a]]"},
		"that is in doubt":               {input{doubts: map[string]terraform.Doubt{"a": {}}, wants: burstapi.Pool{Purchases: []burstapi.Purchase{buy("p", burstapi.Failed, "a")}}}, "map[]"},
		"while an apply is not finished": {input{cutShort: true, wants: burstapi.Pool{Purchases: []burstapi.Purchase{buy("p", burstapi.Failed, "a")}}}, "map[]"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			test.in.planned, test.in.now, test.in.count = true, noon, 8
			d := decide(test.in)
			if got := fmt.Sprint(d.vanished); got != test.want {
				t.Errorf("vanished are %s, want %s", got, test.want)
			}
			for _, names := range d.vanished {
				for _, name := range names {
					if slices.Contains(d.add, name) {
						t.Errorf("%s is made again", name)
					}
				}
			}
		})
	}
}

func TestDecide(t *testing.T) {
	type result struct {
		Want, Add, Drain, Undrain, Remove, Failed, Present string
		Ready, Coming                                      int
	}
	tests := map[string]struct {
		in   input
		want result
		why  string
	}{
		"a purchase is made whole": {
			in:   input{count: 2, planned: true, wants: burstapi.Pool{Purchases: []burstapi.Purchase{buy("p", burstapi.Wanted, "a", "b")}}},
			want: result{Want: "a b", Add: "a b"},
		},
		"or not at all": {
			in:   input{count: 3, planned: true, wants: burstapi.Pool{Purchases: []burstapi.Purchase{buy("p", burstapi.Wanted, "a", "b"), buy("q", burstapi.Wanted, "c", "d"), buy("r", burstapi.Wanted, "e")}}},
			want: result{Want: "a b e", Add: "a b e"}, why: "purchase q needs 2 more nodes beside 2, and the policy allows 3",
		},
		"a pass that nobody has asked for buys nothing": {
			in:   input{count: noCount, planned: true, wants: burstapi.Pool{Purchases: []burstapi.Purchase{buy("p", burstapi.Wanted, "a")}}},
			want: result{}, why: "waits for the policy",
		},
		"nodes that boot have their time": {
			in:   input{count: 2, planned: true, state: stateOf("a=p", "b=p"), nodes: map[string]machine{"a": up, "b": booting}, notes: ordered(time.Minute, "a", "b"), wants: burstapi.Pool{Purchases: []burstapi.Purchase{buy("p", burstapi.Coming, "a", "b")}}},
			want: result{Want: "a b", Ready: 1, Coming: 1},
		},
		"one that is late takes the whole purchase": {
			in: input{count: noCount, planned: true, state: stateOf("a=p", "b=p", "c=q"), nodes: map[string]machine{"a": up, "b": booting, "c": running}, notes: ordered(-time.Minute, "b"),
				wants: burstapi.Pool{Purchases: []burstapi.Purchase{buy("p", burstapi.Coming, "a", "b"), buy("q", burstapi.Present, "c")}}},
			want: result{Want: "a b c", Drain: "a b", Failed: "p timeout a b", Ready: 2, Present: "q"},
		},
		"one that never came is no more to be drained": {
			in:   input{count: noCount, planned: true, state: stateOf("a=p"), notes: ordered(-time.Minute, "a"), wants: burstapi.Pool{Purchases: []burstapi.Purchase{buy("p", burstapi.Coming, "a")}}},
			want: result{Remove: "a", Failed: "p timeout a"},
		},
		"one that had joined before is not late": {
			in:   input{count: 1, planned: true, state: stateOf("a=p"), nodes: map[string]machine{"a": down}, notes: map[string]note{"a": {JoinBy: noon.Add(-time.Hour), Joined: true}}, wants: burstapi.Pool{Purchases: []burstapi.Purchase{buy("p", burstapi.Present, "a")}}},
			want: result{Want: "a"},
		},
		"another model than promised": {
			in:   input{count: 1, planned: true, state: stateOf("a=p"), nodes: map[string]machine{"a": another}, notes: ordered(time.Hour, "a"), wants: burstapi.Pool{Purchases: []burstapi.Purchase{buy("p", burstapi.Coming, "a")}}},
			want: result{Want: "a", Drain: "a", Failed: "p refused a"},
		},
		"half made": {
			in:   input{count: noCount, planned: true, state: stateOf("a=p", "b=p!"), notes: ordered(time.Hour, "a", "b"), wants: burstapi.Pool{Purchases: []burstapi.Purchase{buy("p", burstapi.Coming, "a", "b")}}},
			want: result{Remove: "a b", Failed: "p error a b", Coming: 1},
		},
		"all there for the first time": {
			in:   input{count: 2, planned: true, state: stateOf("a=p", "b=p"), nodes: map[string]machine{"a": up, "b": up}, wants: burstapi.Pool{Purchases: []burstapi.Purchase{buy("p", burstapi.Coming, "a", "b")}}},
			want: result{Want: "a b", Ready: 2, Present: "p"},
		},
		"all there, and told": {
			in:   input{count: 2, planned: true, state: stateOf("a=p"), nodes: map[string]machine{"a": up}, notes: map[string]note{"a": {Purchase: "p", Joined: true, Told: true}}, wants: burstapi.Pool{Purchases: []burstapi.Purchase{buy("p", burstapi.Present, "a")}}},
			want: result{Want: "a", Ready: 1},
		},
		"given back: drained first": {
			in: input{count: 1, planned: true, state: stateOf("a=p", "b=p"), nodes: map[string]machine{"a": running, "b": up}, notes: map[string]note{"a": {Told: true}, "b": {Told: true}},
				wants: burstapi.Pool{Purchases: []burstapi.Purchase{buy("p", burstapi.Present, "a", "b")}, GiveBack: []burstapi.GiveBack{{Name: "b"}}}},
			want: result{Want: "a b", Drain: "b", Ready: 2},
		},
		"given back, drained and empty": {
			in: input{count: noCount, planned: true, state: stateOf("a=p", "b=p"), nodes: map[string]machine{"a": running, "b": drained}, notes: map[string]note{"b": {Joined: true}},
				wants: burstapi.Pool{Purchases: []burstapi.Purchase{buy("p", burstapi.Present, "a", "b")}, GiveBack: []burstapi.GiveBack{{Name: "b"}}}},
			want: result{Want: "a", Remove: "b", Ready: 1},
		},
		"given back, and its gang not gone": {
			in: input{count: 0, planned: true, state: stateOf("b=p"), nodes: map[string]machine{"b": leaving}, notes: map[string]note{"b": {Joined: true}},
				wants: burstapi.Pool{Purchases: []burstapi.Purchase{buy("p", burstapi.Present, "b")}, GiveBack: []burstapi.GiveBack{{Name: "b"}}}},
			want: result{Want: "b"}, why: "waits for the end of default/gang",
		},
		"wanted again while it is drained": {
			in:   input{count: 1, planned: true, state: stateOf("b=p"), nodes: map[string]machine{"b": leaving}, notes: map[string]note{"b": {Joined: true}}, wants: burstapi.Pool{Purchases: []burstapi.Purchase{buy("p", burstapi.Present, "b")}}},
			want: result{Want: "b", Undrain: "b"},
		},
		"drained by somebody else": {
			in: input{count: 1, planned: true, state: stateOf("b=p"), nodes: map[string]machine{"b": {ID: "b", Lives: true, Draining: true, Why: "is drained"}}, notes: map[string]note{"b": {Joined: true}},
				wants: burstapi.Pool{Purchases: []burstapi.Purchase{buy("p", burstapi.Present, "b")}}},
			want: result{Want: "b"},
		},
		"of a purchase that the planner counts as failed": {
			in:   input{count: noCount, planned: true, state: stateOf("a=p"), nodes: map[string]machine{"a": up}, notes: map[string]note{"a": {Told: true}}, wants: burstapi.Pool{Purchases: []burstapi.Purchase{buy("p", burstapi.Failed, "a")}}},
			want: result{Want: "a", Drain: "a", Ready: 1},
		},
		"unknown to the planner, and idle": {
			in:   input{count: 0, planned: true, state: stateOf("x"), nodes: map[string]machine{"x": up}},
			want: result{Want: "x", Drain: "x", Ready: 1},
		},
		"unknown to the planner, and running a gang": {
			in:   input{count: 0, planned: true, state: stateOf("x"), nodes: map[string]machine{"x": running}},
			want: result{Want: "x", Ready: 1}, why: "node x stays although the planner does not know it",
		},
		"the policy's min": {
			in: input{count: 1, floor: 1, planned: true, state: stateOf("a=p", "b=p"), nodes: map[string]machine{"a": up, "b": up}, notes: map[string]note{"a": {Told: true}, "b": {Told: true}},
				wants: burstapi.Pool{Purchases: []burstapi.Purchase{buy("p", burstapi.GivingBack, "a", "b")}}},
			want: result{Want: "a b", Drain: "b", Ready: 2}, why: "the policy's min is 1",
		},
		"said to be by two": {
			in:   input{count: 0, planned: true, state: stateOf("a"), nodes: map[string]machine{"a": {ID: "1", Lives: true, Ready: true, Twice: []string{"1", "2"}}}},
			want: result{Want: "a", Ready: 1}, why: "nodes 1 and 2 both say that they are it",
		},
		"lives, and the state has forgotten it": {
			in:   input{count: 1, planned: true, nodes: map[string]machine{"a": up}, wants: burstapi.Pool{Purchases: []burstapi.Purchase{buy("p", burstapi.Wanted, "a")}}},
			want: result{}, why: "Terraform's state does not know it",
		},
		"held by the strategy, and one that is not": {
			in:   input{count: 1, planned: true, allowed: map[string]bool{"q": true}, wants: burstapi.Pool{Purchases: []burstapi.Purchase{buy("p", burstapi.Wanted, "a"), buy("q", burstapi.Wanted, "b")}}},
			want: result{Want: "b", Add: "b"}, why: "purchase p is held by the strategy",
		},
		"begun before, by one that was killed": {
			in:   input{count: 1, planned: true, allowed: map[string]bool{}, wants: burstapi.Pool{Purchases: []burstapi.Purchase{buy("p", burstapi.Coming, "a")}}},
			want: result{Want: "a", Add: "a"},
		},
		"failed here before": {
			in:   input{count: 1, planned: true, lost: map[string]bool{"p": false}, wants: burstapi.Pool{Purchases: []burstapi.Purchase{buy("p", burstapi.Wanted, "a")}}},
			want: result{}, why: "is not tried again",
		},
		"by number": {
			in:   input{count: 3, state: stateOf("n2"), nodes: map[string]machine{"n2": up}},
			want: result{Want: "n1 n2 n3", Add: "n1 n3", Ready: 1},
		},
		"by number, the idle ones go first": {
			in:   input{count: 1, state: stateOf("n1", "n2", "n3"), nodes: map[string]machine{"n1": up, "n2": running, "n3": up}},
			want: result{Want: "n1 n2 n3", Drain: "n1 n3", Ready: 3},
		},
		"by number, those that run go when all do": {
			in:   input{count: 0, state: stateOf("n1", "n2"), nodes: map[string]machine{"n1": up, "n2": running}},
			want: result{Want: "n1 n2", Drain: "n1 n2", Ready: 2},
		},
		"by number, after a failure": {
			in:   input{count: 1, blocked: noon.Add(time.Minute)},
			want: result{}, why: "wait until 2026-01-01T12:01:00Z",
		},
		"by number, late": {
			in:   input{count: 2, state: stateOf("n1", "n2"), nodes: map[string]machine{"n1": up}, notes: ordered(-time.Second, "n2")},
			want: result{Want: "n1 n3", Add: "n3", Remove: "n2", Ready: 1, Failed: " timeout n2"},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			test.in.now = noon
			d := decide(test.in)
			got := result{
				Want: strings.Join(slices.Sorted(maps.Keys(d.want)), " "), Add: strings.Join(d.add, " "), Drain: strings.Join(d.drain, " "), Undrain: strings.Join(d.undrain, " "),
				Remove: strings.Join(d.remove, " "), Present: strings.Join(d.present, " "), Ready: d.ready, Coming: d.coming,
			}
			for _, f := range d.failed {
				got.Failed += fmt.Sprintf("%s %s %s", f.purchase, f.reason, strings.Join(f.names, " "))
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("decision (-want +got):\n%s", diff)
			}
			if why := strings.Join(d.why, "; "); !strings.Contains(why, test.why) || test.why == "" && why != "" {
				t.Errorf("why is %q, want %q in it", why, test.why)
			}
		})
	}
}

// What no decision may do, whatever there is.
func TestDecideNever(t *testing.T) {
	all := []machine{{}, up, running, booting, down, drained, leaving, another, {ID: "x", Lives: true, Ready: true, Twice: []string{"x", "y"}}}
	rapid.Check(t, func(t *rapid.T) {
		in := input{now: noon, count: rapid.IntRange(-1, 6).Draw(t, "count"), planned: rapid.Bool().Draw(t, "planned"), state: terraform.State{}, nodes: map[string]machine{}, notes: map[string]note{}}
		in.floor = rapid.IntRange(0, max(0, in.count)).Draw(t, "floor")
		given := map[string]bool{}
		for p := range rapid.IntRange(0, 3).Draw(t, "purchases") {
			id := fmt.Sprintf("p%d", p)
			var names []string
			for n := range rapid.IntRange(1, 3).Draw(t, "nodes") {
				name := fmt.Sprintf("%s-%d", id, n)
				names = append(names, name)
				if rapid.Bool().Draw(t, "there") {
					in.state[name] = terraform.Node{Name: name, Value: terraform.Value{Purchase: id}, Tainted: rapid.IntRange(0, 9).Draw(t, "tainted") == 0}
				}
				if m := rapid.SampledFrom(all).Draw(t, "machine"); m.ID != "" {
					in.nodes[name] = m
				}
				if rapid.Bool().Draw(t, "noted") {
					in.notes[name] = note{Purchase: id, JoinBy: noon.Add(time.Duration(rapid.IntRange(-5, 5).Draw(t, "left")) * time.Minute), Joined: rapid.Bool().Draw(t, "joined")}
				}
				if rapid.IntRange(0, 3).Draw(t, "back") == 0 {
					given[name] = true
				}
			}
			if rapid.IntRange(0, 3).Draw(t, "known") > 0 {
				in.wants.Purchases = append(in.wants.Purchases, buy(id, rapid.SampledFrom([]burstapi.State{burstapi.Wanted, burstapi.Coming, burstapi.Present, burstapi.Failed, burstapi.GivingBack}).Draw(t, "state"), names...))
			}
		}
		for _, name := range slices.Sorted(maps.Keys(given)) {
			in.wants.GiveBack = append(in.wants.GiveBack, burstapi.GiveBack{Name: name})
		}
		d := decide(in)
		for _, name := range d.remove {
			if m := in.nodes[name]; m.Lives && len(m.Runs) > 0 || len(m.Twice) > 1 {
				t.Fatalf("node %s goes while %v runs there, or is said to be by %v", name, m.Runs, m.Twice)
			}
			if _, stays := d.want[name]; stays {
				t.Fatalf("node %s goes and stays", name)
			}
			if m := in.nodes[name]; m.Lives && !m.Draining {
				t.Fatalf("node %s goes without a drain", name)
			}
		}
		for name := range in.state {
			if _, stays := d.want[name]; !stays && !slices.Contains(d.remove, name) {
				t.Fatalf("node %s neither stays nor goes", name)
			}
		}
		for _, name := range slices.Concat(d.drain, d.undrain) {
			if in.nodes[name].ID == "" || in.state[name].Name == "" {
				t.Fatalf("node %s is drained, and there is none in the state and Nomad", name)
			}
		}
		if in.count == noCount && len(d.add) > 0 {
			t.Fatalf("%v are bought without leave", d.add)
		}
		if len(d.add) > 0 && len(d.want)-len(d.drain) > max(in.count, 0)+len(in.state) {
			t.Fatalf("%d nodes beside %d, and the policy allows %d", len(d.add), len(in.state), in.count)
		}
		for _, p := range in.wants.Purchases { // all or nothing
			if !in.planned {
				break
			}
			var added, missing int
			for _, name := range p.Names {
				if in.state[name].Name == "" && !given[name] {
					missing++
				}
				if slices.Contains(d.add, name) {
					added++
				}
			}
			if added != 0 && added != missing {
				t.Fatalf("%d of the %d missing nodes of %s are bought", added, missing, p.ID)
			}
		}
	})
}
