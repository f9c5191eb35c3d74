package purchases

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/caravan-sched/caravan/planner/burstapi"
)

// Nodes in doubt are told of until the target says that they are not, also when their
// purchase is known no more.
func TestNodesInDoubt(t *testing.T) {
	b, s := &Book{}, snapshot()
	say := func(at time.Time, purchase string, nodes ...string) {
		t.Helper()
		r := burstapi.Report{Pool: "eu", Purchase: purchase, Kind: burstapi.ReportInDoubt, Nodes: nodes, Message: "look for it"}
		if err := r.Check(); err != nil {
			t.Fatal(err)
		}
		if !b.Report(&r, at) {
			t.Fatal("it is not kept")
		}
	}
	say(t0, "p", "p-1", "p-0")
	say(t0.Add(time.Minute), "q", "q-0")
	say(t0.Add(time.Hour), "p", "p-1") // p-0 was found
	text, err := b.Encode()
	if err != nil {
		t.Fatal(err)
	}
	if b, err = Decode(text); err != nil {
		t.Fatal(err)
	}
	b = b.Clone()
	want := []burstapi.Doubt{{Name: "p-1", Purchase: "p", Since: t0, Why: "look for it"}, {Name: "q-0", Purchase: "q", Since: t0.Add(time.Minute), Why: "look for it"}}
	if diff := cmp.Diff(want, b.Pools(s, nil, nil)[0].InDoubt); diff != "" {
		t.Errorf("in doubt (-want +got):\n%s", diff)
	}
	say(t0.Add(2*time.Hour), "p")
	if diff := cmp.Diff(want[1:], b.Pools(s, nil, nil)[0].InDoubt); diff != "" {
		t.Errorf("in doubt (-want +got):\n%s", diff)
	}
	b.Carry(s, nil, time.Minute, t0.Add(50*time.Hour))
	if got := b.Pools(s, nil, nil)[0].InDoubt; len(got) > 0 {
		t.Errorf("after two days without a word %v are in doubt", got)
	}
}
