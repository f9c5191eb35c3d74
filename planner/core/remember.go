package core

import (
	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/core/queue"
)

// remember notes which deadlines are promised from now on, and which promises cannot
// be kept any more, by what was told of each of the Situation's jobs.
func (c *cycle) remember(s *queue.Situation, told []queue.Promise) {
	for i := range told {
		j, p := s.Jobs[i].Job, &told[i]
		if kept := j.Promised.Holds(j.Deadline); kept == p.Met && (kept || j.Promised == nil) {
			continue
		}
		next := model.Promise{Namespace: j.Namespace, Job: j.ID, Reason: p.Why}
		if p.Met {
			next.Promised = &model.Promised{At: c.now, Deadline: j.Deadline, GPUs: s.GPUs}
		}
		if next.Reason == "" {
			next.Reason = "it has no deadline any more"
		}
		c.promises = append(c.promises, next)
	}
}
