package target_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/nomad-autoscaler/sdk"

	"github.com/caravan-sched/caravan/planner/burstapi"
)

func count(n int64) func(*sdk.TargetStatus) bool {
	return func(s *sdk.TargetStatus) bool { return s.Ready && s.Count == n }
}

// A purchase comes, counts when its devices are there, and goes node by node.
func TestLife(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigOptions{})
	l := r.start()
	if s := r.status(l); !s.Ready || s.Count != 0 {
		t.Errorf("status of an empty pool is %+v", s)
	}
	r.planner.want([]burstapi.Purchase{purchase("p1", "p1-0", "p1-1")})
	r.loop(l, func(s *sdk.TargetStatus) bool {
		return count(2)(s) && slices.Contains(r.planner.told(), "present p1")
	})
	if got, want := r.nodes(), []string{"p1-0", "p1-1"}; !cmp.Equal(got, want) {
		t.Errorf("nodes are %v, want %v", got, want)
	}
	r.planner.want([]burstapi.Purchase{purchase("p1", "p1-0", "p1-1")}, "p1-0")
	r.loop(l, func(s *sdk.TargetStatus) bool {
		return count(1)(s) && len(r.nodes()) == 1 && len(r.processes()) > 0 && len(r.state()) == 1
	})
	if got, want := r.nodes(), []string{"p1-1"}; !cmp.Equal(got, want) {
		t.Errorf("after one was given back nodes are %v, want %v", got, want)
	}
	r.planner.want([]burstapi.Purchase{purchase("p1", "p1-0", "p1-1")}, "p1-0", "p1-1")
	r.loop(l, func(s *sdk.TargetStatus) bool { return count(0)(s) && len(r.state()) == 0 })
	r.nothingLeft()
	want := []string{"ordered p1", "present p1", "gone p1", "gone p1"}
	if got := r.planner.told(); !cmp.Equal(got, want) {
		t.Errorf("the planner was told %q, want %q", got, want)
	}
	if strings.Contains(l.log.String(), "planner-secret-token") {
		t.Error("the log holds the planner's token")
	}
}
