package model

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Every GPU is found where it is first listed, and no other.
func TestOwnersFindEveryGPU(t *testing.T) {
	var nodes []Node
	for i := range 300 {
		n := Node{ID: fmt.Sprint("n", i)}
		for k := range i % 9 {
			n.GPUs = append(n.GPUs, GPU{UUID: fmt.Sprintf("GPU-%d-%d", i, k)})
		}
		nodes = append(nodes, n)
	}
	nodes[0].GPUs = []GPU{{UUID: ""}}
	o := newOwners(nodes)
	for i := range nodes {
		o.hash(i)
		for k := range nodes[i].GPUs {
			if nodes[i].GPUs[k].UUID == "" {
				continue
			}
			if _, dup := o.add(i, k); dup {
				t.Fatalf("node %d, GPU %d is there before it was added", i, k)
			}
		}
	}
	number := int32(0)
	for i := range nodes {
		for k := range nodes[i].GPUs {
			uuid := nodes[i].GPUs[k].UUID
			want := gpuAt{int32(i), number}
			number++
			for _, near := range []int{i, (i + 7) % len(nodes)} {
				if at, ok := o.findNear(near, uuid); ok != (uuid != "") || ok && at != want {
					t.Errorf("%q is found at %+v, %v; want %+v", uuid, at, ok, want)
				}
			}
		}
	}
	if at, ok := o.find("GPU-1-1"); ok {
		t.Errorf("a UUID that nobody has is found at %+v", at)
	}
	if first, dup := o.add(8, 3); !dup || first.node != 8 || !o.twice {
		t.Errorf("added again: %+v, %v; want that of node 8", first, dup)
	}
}

// Nodes are checked by two at the same time, and jobs beside them. What they find
// is told in the snapshot's order all the same.
func TestFaultsAreToldInOrder(t *testing.T) {
	s := &Snapshot{}
	for i := range 6 {
		s.Nodes = append(s.Nodes, Node{ID: fmt.Sprint("n", i), GPUs: []GPU{{UUID: fmt.Sprint("g", i)}}})
	}
	s.Nodes[1].Levels = map[string]string{"aisle": "a1"}
	s.Nodes[2].ID = "n0"
	s.Nodes[4].GPUs[0].NUMA = -2
	s.Nodes[4].GPUs = append(s.Nodes[4].GPUs, GPU{UUID: "g1"})
	s.Nodes[5].ID = ""
	s.Jobs = []Job{{ID: "j", State: "asleep"}}
	s.Allocs = []Alloc{{ID: "a", Node: "n1", GPUs: []string{"g1"}}, {ID: "b", Node: "n1", GPUs: []string{"g1", "g4"}}}
	var got []string
	for _, line := range strings.Split(s.Validate().Error(), "\n") {
		place, _, _ := strings.Cut(strings.TrimPrefix(line, ErrSnapshot.Error()+": "), ": ")
		got = append(got, place)
	}
	want := []string{
		"nodes[1] (n1).levels", "nodes[2].id", "nodes[4] (n4).gpus[0].numa", "nodes[4].gpus[1].uuid", "nodes[5].id",
		"jobs[0] (j).state", "allocs[1] (b).gpus[0]", "allocs[1] (b).gpus[1]",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("faults (-want +got):\n%s", diff)
	}
	called := false
	if err := s.ValidateAnd(func() { called = true }); err == nil || called {
		t.Errorf("error %v, meanwhile called: %v; want an error, and no call where nodes are wrong", err, called)
	}
	s = &Snapshot{Jobs: s.Jobs}
	if err := s.ValidateAnd(func() { called = true }); err == nil || !called {
		t.Errorf("error %v, meanwhile called: %v; want an error, and a call since the nodes are right", err, called)
	}
}
