package core

import (
	"slices"

	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/core/speed"
)

// knownSpeed is a curve and what it was made of. A fit takes longer than a
// decision should, and what is known of a job changes seldom.
type knownSpeed struct {
	of     *model.Speed
	models []model.ModelSpeed
	curve  *speed.Curve
}

// speedOf is what is known of a job's speed; nil for nothing.
func (p *Prepared) speedOf(j *model.Job) *speed.Curve {
	if j.Speed == nil {
		return nil
	}
	key := keyOf(j)
	if known := p.speeds[key]; known.of == j.Speed && slices.Equal(known.models, j.Models) {
		return known.curve
	}
	if p.speeds == nil || len(p.speeds) > 2*len(p.jobs)+16 {
		p.speeds = map[jobKey]knownSpeed{} // most are of jobs that have gone
	}
	curve := speed.New(j.Speed, j.Models)
	p.speeds[key] = knownSpeed{of: j.Speed, models: j.Models, curve: curve}
	return curve
}
