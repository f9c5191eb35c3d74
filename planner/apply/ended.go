package apply

import (
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/observe"
	"github.com/caravan-sched/caravan/planner/record"
)

// Ending is the end of a batch job.
type Ending struct {
	Job *model.Job
	// Service is what it has had in all of its runs.
	Service record.Service
	// Completed: each of its members has, and nobody stopped it.
	Completed bool
	At        time.Time
}

// ending says how the job ended; false for what does not end by itself. The end
// is when its last member's did, whenever that is seen.
func (j *job) ending() (Ending, bool) {
	if j.m.Model.Type != api.JobTypeBatch {
		return Ending{}, false
	}
	e := Ending{Job: &j.m.Model, Completed: !deref(j.cur.Stop), At: j.now()}
	for _, s := range j.states {
		e.Completed = e.Completed && (s.State == observe.AllocComplete || s.Member.Ended)
	}
	var last int64
	for _, a := range j.m.Allocs {
		last = max(last, a.ModifyTime)
	}
	e.Completed = e.Completed && len(j.states) > 0
	if at := time.Unix(0, last); last > 0 && at.Before(e.At) {
		e.At = at.UTC()
	}
	e.Service = j.rec.Service.UpTo(e.At)
	return e, e.Service.Ran > 0
}
