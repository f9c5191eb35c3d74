package rendezvous

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func allocs(members []Member) []string {
	out := make([]string, len(members))
	for i, m := range members {
		out[i] = m.Alloc
	}
	return out
}

func TestOrder(t *testing.T) {
	at := func(alloc, node, group string, index int, path ...string) Placed {
		return Placed{Member: Member{Alloc: alloc, Node: "id-" + node, NodeName: node, Group: group, Index: index}, Path: path}
	}
	members := []Placed{
		at("f", "n1", "g", 0, "b1", "r10"),
		at("e", "n10", "g", 1, "b1", "r2"),
		at("d", "n9", "g", 2, "b1", "r2"),
		at("c", "n9", "g", 10, "b1", "r2"),
		at("b", "n9", "a", 11, "b1", "r2"),
		at("a", "n3", "g", 4, "b0"),
	}
	tests := map[string]struct {
		first string
		want  []string
	}{
		"by the tree":               {"", []string{"a", "b", "d", "c", "e", "f"}},
		"stranger first":            {"z", []string{"a", "b", "d", "c", "e", "f"}},
		"its rack goes first":       {"f", []string{"f", "b", "d", "c", "e", "a"}},
		"its node goes first":       {"e", []string{"e", "b", "d", "c", "f", "a"}},
		"it goes first on its node": {"c", []string{"c", "b", "d", "e", "f", "a"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, allocs(Order(members, test.first))); diff != "" {
				t.Errorf("order (-want +got):\n%s", diff)
			}
		})
	}
}

func TestNatural(t *testing.T) {
	// Of two names that differ in leading zeros only, the bytes decide.
	want := []string{"", "0", "00", "7", "a", "a01", "a1", "a2", "a10", "a10b", "ab", "r1-9", "r1-10"}
	got := slices.Clone(want)
	slices.Reverse(got)
	slices.SortFunc(got, natural)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("order (-want +got):\n%s", diff)
	}
}

// drawn is a gang on a random tree of three levels above the node.
func drawn(t *rapid.T) []Placed {
	n := rapid.IntRange(1, 40).Draw(t, "members")
	out := make([]Placed, n)
	for i := range out {
		region, rack, node := rapid.IntRange(0, 2).Draw(t, "region"), rapid.IntRange(0, 11).Draw(t, "rack"), rapid.IntRange(0, 3).Draw(t, "node")
		name := fmt.Sprintf("node-%d-%d-%d", region, rack, node)
		path := []string{fmt.Sprint("region-", region), fmt.Sprint("rack-", region, "-", rack)}
		if rack == 0 {
			path = path[:1] // this one's nodes have no rack
		}
		out[i] = Placed{
			Member: Member{Alloc: fmt.Sprint("alloc-", i), Group: rapid.SampledFrom([]string{"a", "b"}).Draw(t, "group"), Index: i,
				Node: name + "-id", NodeName: name, Processes: rapid.IntRange(1, 16).Draw(t, "processes")},
			Path: path,
		}
	}
	return out
}

func TestOrderProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		members := drawn(t)
		first := rapid.SampledFrom([]string{"", members[0].Alloc, members[len(members)-1].Alloc, "stranger"}).Draw(t, "first")
		ordered := Order(members, first)

		// A permutation, whatever the order of the input.
		got, want := allocs(ordered), make([]string, len(members))
		for i, m := range members {
			want[i] = m.Alloc
		}
		slices.Sort(got)
		slices.Sort(want)
		if !slices.Equal(got, want) {
			t.Fatalf("members %v, want %v", got, want)
		}
		if again := Order(rapid.Permutation(members).Draw(t, "shuffled"), first); !cmp.Equal(ordered, again) {
			t.Fatalf("another order of the input gives %v, want %v", allocs(again), allocs(ordered))
		}
		if first != "" && first != "stranger" && ordered[0].Alloc != first {
			t.Fatalf("rank 0 is %s, want %s", ordered[0].Alloc, first)
		}
		contiguous(t, members, ordered)

		// Every rank of the world is somebody's, exactly once.
		m := Membership{Members: ordered}
		next := 0
		for i, member := range ordered {
			p, err := m.Find(member.Alloc)
			if err != nil || p.NodeRank != i || p.Rank != next {
				t.Fatalf("member %d is at %+v, %v; want rank %d", i, p, err, next)
			}
			next += member.Processes
		}
		if m.World() != next {
			t.Fatalf("world of %d ranks, want %d", m.World(), next)
		}
	})
}

// contiguous checks that the members of each domain, and of each node, have
// neighbouring ranks.
func contiguous(t *rapid.T, members []Placed, ordered []Member) {
	domains := map[string]map[string]bool{}
	put := func(domain, alloc string) {
		if domains[domain] == nil {
			domains[domain] = map[string]bool{}
		}
		domains[domain][alloc] = true
	}
	for _, m := range members {
		for i := range m.Path {
			put(fmt.Sprint(m.Path[:i+1]), m.Alloc)
		}
		put(m.Node, m.Alloc)
	}
	for domain, inside := range domains {
		from, to := len(ordered), -1
		for i, m := range ordered {
			if inside[m.Alloc] {
				from, to = min(from, i), max(to, i)
			}
		}
		if to-from+1 != len(inside) {
			t.Fatalf("the %d members of %s have the ranks %d to %d in %v", len(inside), domain, from, to, allocs(ordered))
		}
	}
}

// Members that stay keep their order among themselves when others leave.
func TestOrderIsStable(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		members := drawn(t)
		first := members[0].Alloc
		left := slices.DeleteFunc(slices.Clone(members), func(p Placed) bool {
			return p.Alloc != first && rapid.Bool().Draw(t, "leaves")
		})
		stays := map[string]bool{}
		for _, m := range left {
			stays[m.Alloc] = true
		}
		want := slices.DeleteFunc(allocs(Order(members, first)), func(a string) bool { return !stays[a] })
		if got := allocs(Order(left, first)); !slices.Equal(got, want) {
			t.Fatalf("order %v, want %v", got, want)
		}
	})
}
