package core

import (
	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/core/queue"
	"github.com/caravan-sched/caravan/planner/core/topo"
)

// remember notes which deadlines are promised from now on, and which promises cannot
// be kept any more, by what was told of each of the Situation's jobs.
func (c *cycle) remember(s *queue.Situation, told []queue.Promise) {
	for i := range told {
		j, p := s.Jobs[i].Job, &told[i]
		kept := j.Promised.Holds(j.Deadline)
		level, domain := "", ""
		if at := &c.tree.Domains[p.Room.Domain]; p.Room.Domain != topo.Root {
			level, domain = c.tree.Levels[at.Level], at.Path
		}
		elsewhere := kept && len(p.Room.Nodes) > 0 && (level != j.Promised.Level || domain != j.Promised.Domain)
		if kept == p.Met && (kept && !elsewhere || !kept && j.Promised == nil) {
			continue
		}
		next := model.Promise{Namespace: j.Namespace, Job: j.ID, Reason: p.Why}
		switch {
		case elsewhere && p.Met:
			moved := *j.Promised
			moved.Level, moved.Domain = level, domain
			next.Promised = &moved
		case p.Met:
			next.Promised = &model.Promised{At: c.now, Deadline: j.Deadline, GPUs: s.GPUs, Level: level, Domain: domain}
		}
		if next.Reason == "" {
			next.Reason = "it has no deadline any more"
		}
		c.promises = append(c.promises, next)
	}
}
