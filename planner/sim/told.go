package sim

import (
	"slices"

	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/core/queue"
)

// bySpeed are the orders that choose sizes or shares by how fast jobs work with more
// members (Pollux, OSDI'21; Gavel, OSDI'20), and are nothing without knowing it.
var bySpeed = [...]string{queue.OrderGoodput, queue.OrderMaxMin}

// told is what those orders are told of an elastic job's speed, where the trace says
// what model or class of work it is; nil: nothing. It is what others of its kind have
// shown in the simulation: by how much they are faster on the best place for each size.
func (p *planner) told(ask *Ask) *model.Speed {
	if ask.Max == 0 || ask.Model == "" && ask.Class == "" || !slices.Contains(bySpeed[:], p.policy.Order) {
		return nil
	}
	perNode := p.cluster.largest(ask.Models)
	most := max(1, ask.Max/perNode)
	points := []model.SpeedPoint{{Members: 1, Rate: 1}}
	if p.growth == nil { // a line
		if most > 1 {
			points = append(points, model.SpeedPoint{Members: most, Rate: float64(most)})
		}
		return &model.Speed{Declared: points}
	}
	one := p.growth(ask.Class, ask.GPUs, perNode)
	for nodes := 2; nodes <= most; nodes = max(nodes+1, min(most, 2*nodes)) {
		points = append(points, model.SpeedPoint{Members: nodes, Rate: p.growth(ask.Class, ask.GPUs, nodes*perNode) / one})
	}
	return &model.Speed{Declared: points}
}
