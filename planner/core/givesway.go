package core

import (
	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/core/queue"
)

// Where most of the work is of jobs that give way to nobody, it is of little use to find
// out who should run now: for most of them nobody can be displaced. Then the default order
// is the one in which nobody gives way, with its reservations, and those who do give way do
// so for priorities, guarantees, deadlines and interactive jobs.

// setTurns brings the policy in force up to date with that.
func (p *Prepared) setTurns() {
	p.policy.Caravan.DeadlinesOnly = p.chosen.Caravan.DeadlinesOnly || p.mostStay()
}

// mostStay reports whether jobs that do not give way ask for more than half of the GPUs
// that all ask for, who run or wait, or nobody gives way at all. Services do not count for
// the half: they do not wait long as a rule, and those that give way to nobody only leave a
// smaller cluster to the others.
func (p *Prepared) mostStay() bool {
	if !p.policy.Preempt.Enabled || p.policy.Order != queue.OrderCaravan || len(p.jobsOf(someStaying)) == 0 {
		return false
	}
	stay, all, some := 0, 0, false
	for j := range p.allJobs() {
		gives := p.policy.Preempt.GivesWay(j)
		if some = some || gives; j.Type == "service" {
			continue
		}
		gpus := 0
		for i := range j.Groups {
			gpus += j.Groups[i].Count * askedGPUs(&j.Groups[i])
		}
		all += gpus
		if !gives {
			stay += gpus
		}
	}
	return !some || 2*stay > all
}

// mayStay reports whether there is a policy under which a job does not give way.
func mayStay(j *model.Job) bool { return j.Preempt == model.PreemptNever || !j.SavesWork() }
