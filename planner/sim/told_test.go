package sim

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/caravan-sched/caravan/planner/core"
	"github.com/caravan-sched/caravan/planner/core/model"
)

// Orders by speed are told of elastic jobs whose kind the trace knows; no other order
// is told of any.
func TestTellsSpeeds(t *testing.T) {
	perNode := small(t).PerNode
	line := &model.Speed{Declared: []model.SpeedPoint{{Members: 1, Rate: 1}, {Members: 2, Rate: 2}}}
	elastic := Ask{ID: "a", GPUs: perNode, Min: perNode, Max: 2 * perNode, Model: "bert"}
	classed, unknown, rigid := elastic, elastic, elastic
	classed.Model, classed.Class = "", "sweep"
	unknown.Model = ""
	rigid.Min, rigid.Max = 0, 0
	for order, want := range map[string][4]*model.Speed{
		"goodput": {line, line, nil, nil}, "maxmin": {line, line, nil, nil}, "caravan": {}, "las": {}, "marginal": {}, "fifo": {},
	} {
		p := planned(t, small(t), core.Policy{Order: order}).(*planner)
		for i, ask := range []Ask{elastic, classed, unknown, rigid} {
			ask.Job = i
			if err := p.Submit(0, ask); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want[i], p.jobs[i].Speed); diff != "" {
				t.Errorf("%s, job %d (-want +got):\n%s", order, i, diff)
			}
		}
	}
}
