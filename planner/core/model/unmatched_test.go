package model

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestUnmatched(t *testing.T) {
	var nodes []*Node
	for i := range 8 {
		nodes = append(nodes, &Node{ID: fmt.Sprint("id", i), Name: fmt.Sprint("gpu-", i), Levels: map[string]string{"block": "b1", "rack": fmt.Sprint("r", i/4)}})
	}
	for name, test := range map[string]struct {
		r    Reservation
		want []string
	}{
		"all there":             {Reservation{Nodes: []string{"gpu-1", "id2", "gpu-*"}}, nil},
		"one of them is not":    {Reservation{Nodes: []string{"gpu-1", "gpu-12"}}, []string{`no node has the name or ID "gpu-12"; there are gpu-0, gpu-1, gpu-2, gpu-3, gpu-4 and 3 more`}},
		"a domain":              {Reservation{Level: "rack", Domain: "r1"}, nil},
		"a domain by its path":  {Reservation{Level: "rack", Domain: "b1/r1"}, nil},
		"a domain of elsewhere": {Reservation{Level: "rack", Domain: "b2/r1"}, []string{`no node is in rack "b2/r1"; there are r0, r1`}},
		"some domain":           {Reservation{Level: "rack"}, nil},
		"a level of no node":    {Reservation{Level: "zone"}, []string{"no node says in which zone it is, so that none is meant"}},
		"everything":            {Reservation{}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, test.r.Unmatched(nodes, DefaultLevels)); diff != "" {
				t.Errorf("unmatched (-want +got):\n%s", diff)
			}
			if got := test.r.Unmatched(nil, DefaultLevels); got != nil {
				t.Errorf("of a cluster that nobody has seen: %q", got)
			}
		})
	}
}
