package daemon

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/caravan-sched/caravan/planner/core/mig"
	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/httpapi"
	"github.com/caravan-sched/caravan/planner/observe"
)

// TestDivisions: a GPU that is to be divided is given to nobody until its node has
// done it, has refused, or has had its time; the others stay as they are, and the
// view that was observed is not changed.
func TestDivisions(t *testing.T) {
	began := time.Date(2031, 5, 17, 12, 0, 0, 0, time.UTC)
	const gpu = "NVIDIA H100 80GB HBM3"
	halves := []string{"3g.40gb", "3g.40gb"}
	view := func(after time.Duration, change func(*model.Node)) *observe.View {
		n := model.Node{ID: "n1", Divides: true, GPUs: []model.GPU{{UUID: "A", Model: gpu}, {UUID: "B", Model: gpu}}}
		n.Divisions = []model.Division{{GPU: "A", Profiles: halves, At: began.Add(-time.Hour), State: model.DivisionRefused}}
		if change != nil {
			change(&n)
		}
		return &observe.View{Taken: began.Add(after), Snapshot: &model.Snapshot{Nodes: []model.Node{{ID: "n0"}, n}}}
	}
	divide := func(n *model.Node) {
		n.GPUs = append(n.GPUs[1:], model.GPU{UUID: "A/0", Parent: "A", Model: gpu + mig.Mark + "3g.40gb"}, model.GPU{UUID: "A/1", Parent: "A", Model: gpu + mig.Mark + "3g.40gb"})
	}
	tests := map[string]struct {
		after   time.Duration
		change  func(*model.Node)
		pending bool
	}{
		"at once":                   {0, nil, true},
		"not seen yet":              {time.Minute, nil, true},
		"out of time":               {3 * time.Minute, nil, false},
		"done":                      {time.Minute, divide, false},
		"in the middle":             {time.Minute, func(n *model.Node) { divide(n); n.GPUs = n.GPUs[:2] }, true},
		"refused":                   {time.Minute, func(n *model.Node) { n.Divisions[0].At = began.Add(time.Second) }, false},
		"refused by a slower clock": {time.Minute, func(n *model.Node) { n.Divisions[0].At = began.Add(-time.Second) }, false},
		"its node has gone":         {time.Minute, func(n *model.Node) { n.ID = "n2" }, false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			var d divisions
			d.want(view(0, nil), []model.Repartition{{Node: "n1", GPU: "A", To: halves}}, began)
			v := view(test.after, test.change)
			was := view(test.after, test.change)
			marked := d.mark(v)
			if diff := cmp.Diff(was.Snapshot, v.Snapshot); diff != "" {
				t.Errorf("what was observed has changed (-before +after):\n%s", diff)
			}
			n := marked.Snapshot.Nodes[1]
			last := lastDivision(&n, "A")
			if (last.State == model.DivisionPending) != test.pending {
				t.Errorf("division %+v, want pending %v", last, test.pending)
			}
			for _, g := range n.GPUs {
				if mine := g.UUID == "A" || g.Parent == "A"; (g.Unhealthy != "") != (mine && test.pending) {
					t.Errorf("GPU %s: %q", g.UUID, g.Unhealthy)
				}
			}
			want := []httpapi.Division{}
			if test.pending {
				want = append(want, httpapi.Division{GPU: "A", Profiles: halves})
			}
			if diff := cmp.Diff(want, d.asked([]string{"B", "A"})); diff != "" {
				t.Errorf("the plugin is told (-want +got):\n%s", diff)
			}
			d.forget()
			if left := d.asked([]string{"A"}); len(left) > 0 {
				t.Errorf("after its term: %v", left)
			}
		})
	}
}
