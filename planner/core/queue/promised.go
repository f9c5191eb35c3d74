package queue

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/caravan-sched/caravan/planner/core/preempt"
	"github.com/caravan-sched/caravan/planner/core/share"
)

// What was promised is remembered with the job (model.Promised), and tested before
// anything that was not: one more deadline is promised only if all that were are met
// still (Gu et al., ElasticFlow, ASPLOS'23, section 4.1). The plan itself is made anew
// each time, and sees a job otherwise once it runs: where it left odd GPUs of its nodes
// they were counted as taken while it waited. Without memory one that was refused might
// then be promised its deadline before one that has its promise already.

// kept reports whether a job's deadline has been promised.
func (e *Entry) kept() bool { return e.Job.Promised.Holds(e.Job.Deadline) }

// InOrderOfPromise are the numbers of the Situation's jobs: those whose deadlines are
// promised as they were promised, then the others by age.
func (s *Situation) InOrderOfPromise() []int {
	out := make([]int, len(s.Jobs))
	for i := range out {
		out[i] = i
	}
	slices.SortStableFunc(out, func(a, b int) int {
		x, y := &s.Jobs[a], &s.Jobs[b]
		if x.kept() && y.kept() {
			return x.Job.Promised.At.Compare(y.Job.Promised.At)
		}
		return Before(x.kept(), y.kept())
	})
	return out
}

// keep looks once more at those whose promises the plan does not keep. It reckons with
// what members leave of nodes as taken, so that no more is promised than can be placed;
// but where somebody has come by just that, there is more room than it knows of. A
// promise stands as long as the GPUs are enough, and nothing more is promised then.
func (d Deadline) keep(s *Situation, p preempt.Policy, out []Promise) {
	lost := func(list []Promise) (n int) {
		for i := range list {
			if s.Jobs[i].kept() && !list[i].Met {
				n++
			}
		}
		return n
	}
	before := lost(out)
	if before == 0 {
		return
	}
	loose := *s
	loose.Jobs = slices.Clone(s.Jobs)
	for i := range loose.Jobs {
		loose.Jobs[i].Footprint, loose.Jobs[i].Rooms = 0, nil
	}
	again := d.plan(&loose, p, true)
	if lost(again) >= before {
		return
	}
	for i := range out {
		switch e := &s.Jobs[i]; {
		case e.kept():
			room := out[i].Room
			out[i] = again[i]
			out[i].Room = room
		case out[i].Met:
			out[i] = Promise{Why: fmt.Sprintf("its deadline of %s is not promised for now: there are GPUs enough, but one that was promised its deadline before has no whole nodes for certain; it is looked at again in each decision", clock(e.Job.Deadline))}
		}
	}
}

// ofItsOwn is the verdict on a task that keeps what it has.
func ofItsOwn(t *share.Task) share.Verdict {
	return share.Verdict{Admitted: t.Work <= t.Deadline, Members: t.Members, First: t.Members, End: t.Work}
}

// namesToTell bounds how many jobs a reason names.
const namesToTell = 3

// broken says why a promise cannot be kept: what is otherwise than when it was made.
func (d Deadline) broken(e *Entry, s *Situation) string {
	was := e.Job.Promised
	text := fmt.Sprintf("its deadline of %s was promised at %s and cannot be met any more", clock(was.Deadline), clock(was.At))
	var causes []string
	if s.GPUs < was.GPUs {
		causes = append(causes, fmt.Sprintf("%d GPUs can be used, and were %d then", s.GPUs, was.GPUs))
	}
	if names := d.overdue(e, s); len(names) > 0 {
		more := ""
		if len(names) > namesToTell {
			names, more = names[:namesToTell], fmt.Sprintf(" and %d others", len(names)-namesToTell)
		}
		causes = append(causes, strings.Join(names, ", ")+more+" ran for longer than expected")
	}
	held := 0
	for i := range s.Jobs {
		if o := &s.Jobs[i]; o.Running && o.Priority > e.Priority {
			held += o.Held
		}
	}
	if held > 0 {
		causes = append(causes, fmt.Sprintf("jobs of a higher priority have %d GPUs", held))
	}
	if len(causes) == 0 {
		causes = []string{"the nodes, limits or run times that it was planned with have changed"}
	}
	return text + " (" + strings.Join(causes, "; ") + ")"
}

// overdue names those that run, or the job itself, for longer than they were to.
func (d Deadline) overdue(e *Entry, s *Situation) (names []string) {
	for i := range s.Jobs {
		o := &s.Jobs[i]
		if (o.Running || o.Job == e.Job) && o.Left.Known && o.Ran > o.Left.Total && o.done() > o.Left.Total.Seconds() {
			names = append(names, nameOf(o))
		}
	}
	return names
}

// highestDue is the highest priority of those that wait for a deadline.
func (s *Situation) highestDue() int {
	highest := math.MinInt
	for i := range s.Jobs {
		if e := &s.Jobs[i]; e.Waiting && !e.Job.Deadline.IsZero() {
			highest = max(highest, e.Priority)
		}
	}
	return highest
}

func nameOf(e *Entry) string {
	if e.Job.Namespace == "" || e.Job.Namespace == "default" {
		return e.Job.ID
	}
	return e.Job.Namespace + "/" + e.Job.ID
}
