package topo

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/caravan-sched/caravan/planner/core/model"
)

func node(id string, levels ...string) model.Node {
	n := model.Node{ID: id, Levels: map[string]string{}}
	for i := 0; i < len(levels); i += 2 {
		n.Levels[levels[i]] = levels[i+1]
	}
	return n
}

// outline draws a tree.
func outline(t *Tree, domain int32, indent string) string {
	d := &t.Domains[domain]
	out := ""
	for n := d.Lo; n < d.Own; n++ {
		out += indent + t.Nodes[n].Model.ID + "\n"
	}
	for _, kid := range d.Kids {
		k := &t.Domains[kid]
		out += indent + t.Levels[k.Level] + " " + k.Path + "\n" + outline(t, kid, indent+"  ")
	}
	return out
}

func TestNew(t *testing.T) {
	tests := map[string]struct {
		levels []string
		nodes  []model.Node
		want   string
	}{
		"empty": {nil, nil, ""},
		"names in the order of people": {nil, []model.Node{
			node("n10", "rack", "r10"), node("n9", "rack", "r9"), node("n2", "rack", "r9"),
		}, "rack r9\n  n2\n  n9\nrack r10\n  n10\n"},
		"a rack is another one in another block": {nil, []model.Node{
			node("a", "block", "b1", "rack", "r1"), node("b", "block", "b2", "rack", "r1"), node("c", "block", "b1", "rack", "r1"),
		}, "block b1\n  rack b1/r1\n    a\n    c\nblock b2\n  rack b2/r1\n    b\n"},
		"missing levels": {nil, []model.Node{
			node("a"), node("b", "block", "b1"), node("c", "block", "b1", "domain", "d1"), node("d", "block", "b1", "rack", "r1", "domain", "d1"),
			node("e", "rack", "r1"),
		}, "a\nrack r1\n  e\nblock b1\n  b\n  domain b1/d1\n    c\n  rack b1/r1\n    domain b1/r1/d1\n      d\n"},
		"custom levels": {[]string{"hall", "row"}, []model.Node{
			node("a", "hall", "h1", "row", "1"), node("b", "hall", "h1"),
		}, "hall h1\n  b\n  row h1/1\n    a\n"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			tree := New(&model.Snapshot{Levels: tt.levels, Nodes: tt.nodes})
			if diff := cmp.Diff(tt.want, outline(tree, Root, "")); diff != "" {
				t.Errorf("tree (-want +got):\n%s", diff)
			}
			for i := range tree.Nodes {
				if at, ok := tree.Find(tree.Nodes[i].Model.ID); !ok || int(at) != i {
					t.Errorf("Find %q: %d, %v, want %d", tree.Nodes[i].Model.ID, at, ok, i)
				}
			}
		})
	}
}

func TestCompareNatural(t *testing.T) {
	order := []string{"", "01", "1", "2", "10", "a", "a1", "a1b", "a2", "a10", "b"}
	for i, a := range order {
		for j, b := range order {
			want := 0
			switch {
			case i < j:
				want = -1
			case i > j:
				want = 1
			}
			if got := CompareNatural(a, b); got != want {
				t.Errorf("compare %q and %q: %d, want %d", a, b, got, want)
			}
		}
	}
}

func TestKinds(t *testing.T) {
	gpu := func(name, memory, matrix string) model.GPU {
		return model.GPU{Vendor: "nvidia", Type: "gpu", Model: name, Attributes: map[string]string{"memory": memory, "unique.matrix": matrix}}
	}
	tree := New(&model.Snapshot{Nodes: []model.Node{
		{ID: "a", GPUs: []model.GPU{gpu("H100", "80 GiB", "1"), gpu("H100", "80 GiB", "1")}},
		{ID: "b", GPUs: []model.GPU{gpu("A100", "80 GiB", "2"), gpu("H100", "80 GiB", "2"), gpu("A100", "80 GiB", "2")}},
		{ID: "c", GPUs: []model.GPU{gpu("H100", "94 GiB", "3")}},
	}})
	want := [][]Group{{{0, 0b11}}, {{1, 0b101}, {0, 0b10}}, {{2, 0b1}}}
	for i := range tree.Nodes {
		if diff := cmp.Diff(want[i], tree.Nodes[i].Groups); diff != "" {
			t.Errorf("groups of %s (-want +got):\n%s", tree.Nodes[i].Model.ID, diff)
		}
	}
}

func TestShapes(t *testing.T) {
	links := [][]model.Link{{{Kind: "X"}, {Kind: "NV4"}}, {{Kind: "NV4"}, {Kind: "X"}}}
	gpus := func(island int) []model.GPU {
		return []model.GPU{{UUID: "x", Island: 5}, {UUID: "y", Island: island}}
	}
	tree := New(&model.Snapshot{Nodes: []model.Node{
		{ID: "a", GPUs: gpus(5), Links: links}, {ID: "b", GPUs: gpus(5), Links: [][]model.Link{{{Kind: "X"}, {GBs: 100}}, {{GBs: 100}, {Kind: "X"}}}}, {ID: "c", GPUs: gpus(1)},
	}})
	if tree.Nodes[0].Shape != tree.Nodes[1].Shape {
		t.Error("nodes joined alike have different shapes")
	}
	if diff := cmp.Diff([]uint64{0b01, 0b10}, tree.Nodes[2].Shape.Islands); diff != "" {
		t.Errorf("islands (-want +got):\n%s", diff)
	}
	if got := tree.Nodes[0].Shape.Bandwidth[0][1]; got != 100 {
		t.Errorf("four NVLinks: %g GB/s, want 100", got)
	}
}

// A summary that is kept up to date equals one made anew, and sums are those
// of the nodes.
func TestSummary(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var s model.Snapshot
		for i := range rapid.IntRange(1, 20).Draw(t, "nodes") {
			n := model.Node{ID: fmt.Sprint(i), Levels: map[string]string{}}
			for _, level := range []string{"block", "rack"} {
				if v := rapid.SampledFrom([]string{"", "1", "2"}).Draw(t, level); v != "" {
					n.Levels[level] = v
				}
			}
			s.Nodes = append(s.Nodes, n)
		}
		tree := New(&s)
		fit := func() Fit {
			return Fit{Members: int32(rapid.IntRange(0, 3).Draw(t, "members")), Score: uint32(rapid.IntRange(0, 3).Draw(t, "score")), Why: uint8(rapid.IntRange(0, 2).Draw(t, "why")), GPUs: int32(rapid.IntRange(0, 8).Draw(t, "gpus"))}
		}
		fits := make([]Fit, len(tree.Nodes))
		kept, fresh := NewSummary(tree), NewSummary(tree)
		for range rapid.IntRange(0, 40).Draw(t, "changes") {
			n := rapid.IntRange(0, len(fits)-1).Draw(t, "node")
			fits[n] = fit()
			kept.Set(int32(n), fits[n])
		}
		fresh.SetAll(func(n int32) Fit { return fits[n] })
		if *kept.Why() != *fresh.Why() {
			t.Fatalf("why: kept %v, fresh %v", *kept.Why(), *fresh.Why())
		}
		for i := range tree.Domains {
			d := &tree.Domains[i]
			members, gpus, best, found := 0, 0, int32(0), false
			for n := d.Lo; n < d.Hi; n++ {
				members, gpus = members+int(fits[n].Members), gpus+int(fits[n].GPUs)
				if fits[n].Members > 0 && (!found || fits[n].Score < fits[best].Score) {
					best, found = n, true
				}
			}
			for name, s := range map[string]*Summary{"kept": kept, "fresh": fresh} {
				n, score, ok := s.Best(d.Lo, d.Hi)
				if s.Members(int32(i)) != members || s.GPUs(int32(i)) != gpus || ok != found || ok && (n != best || score != fits[best].Score) {
					t.Fatalf("%s: domain %q: %d members, %d GPUs, best %d %v; want %d, %d, %d %v", name, d.Path, s.Members(int32(i)), s.GPUs(int32(i)), n, ok, members, gpus, best, found)
				}
			}
		}
	})
}

// Undoing brings back exactly what was, and followers of the changes see it.
func TestUndo(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := NewState(4)
		for n := range int32(4) {
			s.Set(n, Row{GPUs: 0xff, Free: model.Resources{CPUMHz: 1000, MemoryMiB: 1000}, Ports: []uint16{22}})
		}
		text := func() string { return fmt.Sprintf("%+v", s.rows) }
		shadow := append([]Row(nil), s.rows...)
		version := s.Version()
		var undos []Undo
		var befores []string
		for range rapid.IntRange(1, 30).Draw(t, "steps") {
			n := int32(rapid.IntRange(0, 3).Draw(t, "node"))
			switch rapid.IntRange(0, 3).Draw(t, "step") {
			case 0:
				befores = append(befores, text())
				undos = append(undos, s.Take(n, Claim{GPUs: rapid.Uint64Range(0, 255).Draw(t, "gpus"), Resources: model.Resources{CPUMHz: 7}, Ports: []uint16{uint16(rapid.IntRange(1, 9).Draw(t, "port"))}}))
			case 1:
				befores = append(befores, text())
				undos = append(undos, s.Keep(n, int32(rapid.IntRange(0, 2).Draw(t, "owner"))))
			default:
				if len(undos) == 0 {
					continue
				}
				k := rapid.IntRange(0, len(undos)-1).Draw(t, "undo")
				s.Revert(undos[k])
				if diff := cmp.Diff(befores[k], text()); diff != "" {
					t.Fatalf("after undo (-want +got):\n%s", diff)
				}
				undos, befores = undos[:k], befores[:k]
			}
		}
		told := map[int32]int{}
		if now := s.EachChanged(version, func(n int32) { told[n]++ }); now != s.Version() {
			t.Fatalf("version %d, want %d", now, s.Version())
		}
		changed, _, ok := s.Since(version)
		for _, n := range changed {
			if told[n] != 1 {
				t.Fatalf("node %d has changed, and is told of %d times", n, told[n])
			}
			told[n] = 1
		}
		if len(told) > len(changed) {
			t.Fatalf("told of %v, changed are %v", told, changed)
		}
		if !ok {
			t.Fatal("changes were dropped")
		}
		for _, n := range changed {
			shadow[n] = s.rows[n]
		}
		if diff := cmp.Diff(fmt.Sprintf("%+v", shadow), text()); diff != "" {
			t.Fatalf("changes do not tell everything (-followed +state):\n%s", diff)
		}
	})
}

func TestSinceForgets(t *testing.T) {
	s := NewState(1)
	for range 5000 {
		s.Set(0, Row{})
	}
	if _, _, ok := s.Since(0); ok {
		t.Error("all changes are still there: memory grows for ever")
	}
	told := 0
	if now := s.EachChanged(0, func(int32) { told++ }); told != 1 || now != 5000 {
		t.Errorf("told of %d nodes at %d, want of the one at 5000", told, now)
	}
	if _, now, ok := s.Since(s.Version()); !ok || now != 5000 {
		t.Errorf("Since now: %d, %v, want 5000, true", now, ok)
	}
}
