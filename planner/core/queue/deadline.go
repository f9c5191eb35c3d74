package queue

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/caravan-sched/caravan/planner/core/preempt"
	"github.com/caravan-sched/caravan/planner/core/share"
)

// Deadlines: all that can be met are met, and what cannot be is told at once (Gu
// et al., ElasticFlow, ASPLOS'23; the arithmetic is in package share). A job is
// admitted if a plan has it end by its deadline beside all that were admitted
// before it. It goes first, and displaces others only from the time on from which
// it, or another one, would be late otherwise. One that is not admitted waits with
// those that have no deadline. Elastic gangs get at least what they need to end in
// time, and of the rest whoever gains most by it.
//
// The plan counts GPUs, those of each Pool too, and for gangs whose members take whole nodes the nodes that
// are whole, of one domain where one is required. Members that take parts of nodes are
// counted in GPUs, so that the plan may be better than what a cluster in pieces can
// do: Margin and Safety make up for that, and how much is in pieces now is told.

// Deadline are the parameters of deadline.
type Deadline struct {
	// Margin is how long before a job would be late it displaces others; 0 means
	// DefaultMargin.
	Margin time.Duration `json:"margin_ns,omitempty"`
	// Safety is how many times as long as estimated a job is taken to run, unless
	// its estimate may be off by more; 0 means DefaultSafety.
	Safety float64 `json:"safety,omitempty"`
}

// The defaults of Deadline, and the most that it may say.
const (
	DefaultMargin = 5 * time.Minute
	DefaultSafety = 1.1
	MaxSafety     = 10
	MaxMargin     = 30 * 24 * time.Hour
)

// Validate reports every fault.
func (d Deadline) Validate() error {
	var faults []error
	if d.Margin < 0 || d.Margin > MaxMargin {
		faults = append(faults, fmt.Errorf("%w: deadline.margin %s: want 0 to %s", ErrPolicy, d.Margin, MaxMargin))
	}
	if d.Safety != 0 && !(d.Safety >= 1 && d.Safety <= MaxSafety) {
		faults = append(faults, fmt.Errorf("%w: deadline.safety %g: want 1 to %d", ErrPolicy, d.Safety, MaxSafety))
	}
	return errors.Join(faults...)
}

// WithDefaults is d with its zeros filled in.
func (d Deadline) WithDefaults() Deadline {
	if d.Margin == 0 {
		d.Margin = DefaultMargin
	}
	if d.Safety == 0 {
		d.Safety = DefaultSafety
	}
	return d
}

// Promise is what may be said of a job's deadline.
type Promise struct {
	// Met: a plan has the job end in time.
	Met bool
	// Urgent: it runs and is to go on, or waits and is to begin now, or it or
	// another one would be late.
	Urgent bool
	// Members is the minimum satisfactory share of an elastic gang that is
	// admitted: how many members it should have now at least.
	Members int
	// Latest is by when it has to begin if it waits and is admitted, zero else.
	Latest time.Time
	// LeastSpeed is how fast the GPUs have to be that it gets; 0 for jobs that name
	// no models.
	LeastSpeed float64
	// Room is where it is to be, if its members take whole nodes.
	Room Room
	// Turn is its place among those that are admitted, from 1: as they begin in the
	// plan, and of those that begin together the earliest deadline first.
	Turn int
	// Why says it, with numbers; "" for jobs without a deadline.
	Why string
}

// Promises says of each of a Situation's jobs whether its deadline can be met. What
// runs and may not be displaced keeps what it has until it ends.
func (d Deadline) Promises(s Situation, p preempt.Policy) []Promise {
	d, p = d.WithDefaults(), p.WithDefaults()
	out := d.plan(&s, p, false)
	d.keep(&s, p, out)
	if s.Told != nil {
		*s.Told = out
	}
	return out
}

// plan says so by one plan; with keptOnly it is one of those alone that were promised
// their deadlines before.
func (d Deadline) plan(s *Situation, p preempt.Policy, keptOnly bool) []Promise {
	out := make([]Promise, len(s.Jobs))
	var tasks []share.Task
	var of []int
	highest := s.highestDue()
	for _, i := range s.InOrderOfPromise() {
		e := &s.Jobs[i]
		task, why := d.task(e, s.Now)
		if out[i].Why = why; why != "" && e.kept() {
			out[i].Why = d.broken(e, s) + "; " + why
		}
		task.Kept = e.kept()
		timed := why == "" && !e.Job.Deadline.IsZero()
		switch {
		case e.Running && (e.stays(p) || e.Priority > highest) && !(timed && e.elastic()):
			// It keeps what it has, whether it meets its own deadline or not.
			by := task.Deadline
			if task = firm(e, task.Work/d.pace(e, s.Now)); timed {
				task.Deadline = by
			}
		case timed && (task.Kept || !keptOnly):
		default:
			continue
		}
		tasks, of = append(tasks, task), append(of, i)
	}
	rooms := s.takeRooms(tasks, of)
	all, pools := s.takePools(tasks, of, func(e *Entry) float64 {
		task, _ := d.task(e, s.Now)
		return task.Work / d.pace(e, s.Now)
	})
	verdicts := share.Fill(s.GPUs, slices.Concat(rooms, pools), all, d.Margin.Seconds())[:len(tasks)]
	for k := range verdicts {
		t, i := &tasks[k], of[k]
		if t.Firm {
			if t.Deadline == 0 {
				continue
			}
			verdicts[k] = ofItsOwn(t)
		}
		out[i] = d.promise(&s.Jobs[i], t, verdicts[k], s)
	}
	for turn, k := range inTurn(tasks, verdicts) {
		out[of[k]].Turn = turn + 1
	}
	return out
}

// inTurn are the tasks that are admitted, as they begin in the plan. By deadline
// alone a small one might go before a large one that the plan has begin first, and
// whoever the plan has wait for that one would be late.
func inTurn(tasks []share.Task, verdicts []share.Verdict) []int {
	var in []int
	for k := range tasks {
		if verdicts[k].Admitted {
			in = append(in, k)
		}
	}
	slices.SortStableFunc(in, func(a, b int) int {
		return cmp.Or(cmp.Compare(verdicts[a].Begin, verdicts[b].Begin), cmp.Compare(tasks[a].Deadline, tasks[b].Deadline))
	})
	return in
}

// task is a job as progressive filling sees it; why it cannot be planned for, if
// it has a deadline.
func (d Deadline) task(e *Entry, now time.Time) (t share.Task, why string) {
	t = share.Task{Min: 1, Max: 1, GPUs: max(1, e.Asked), Work: math.Inf(1), Running: e.Running, Members: 1}
	if e.Footprint > 0 && !e.elastic() {
		t.GPUs = max(t.GPUs, e.Count*e.Footprint)
	}
	if e.Running {
		t.GPUs = max(1, e.Held)
	}
	done, pace := e.done(), d.pace(e, now)
	if pace != 1 {
		t.Speed = func(int) float64 { return pace }
	}
	if e.elastic() {
		t.GPUs, t.Members = max(e.GPUsPerMember, e.Footprint), e.Members
		t.Min = max(e.Count, 1)
		t.Max = max(t.Min, e.Max)
		if e.Running {
			t.Min, t.Max = min(max(1, e.Min), e.Members), max(e.Max, e.Members)
		}
		relative := e.relativeSpeed(t.Max)
		t.Speed = func(members int) float64 { return pace * relative(members) }
		if e.Ran > 0 {
			done *= relative(int(math.Round(e.Attained / e.Ran.Seconds() / float64(t.GPUs))))
		}
	}
	total := d.total(e)
	deadline := e.Job.Deadline
	t.Deadline = deadline.Sub(now).Seconds()
	if e.Left.Known {
		t.Work = total - done
	}
	switch {
	case deadline.IsZero():
	case !e.Left.Known:
		why = fmt.Sprintf("its deadline of %s is not planned for, since nobody has said how long it runs; set caravan_duration", clock(deadline))
	case t.Work <= 0:
		why = fmt.Sprintf("its deadline of %s is not counted on any more, since it has run for %s and was to take %s; correct caravan_duration", clock(deadline), span(done), span(e.Left.Total.Seconds()))
	case t.Deadline <= 0:
		why = fmt.Sprintf("its deadline of %s was %s ago", clock(deadline), span(-t.Deadline))
	}
	if t.Work <= 0 {
		t.Work = math.Inf(1)
	}
	return t, why
}

// stays reports whether a job that runs can be displaced by nobody.
func (e *Entry) stays(p preempt.Policy) bool {
	return !p.GivesWay(e.Job) || len(e.Job.Preempted) >= p.MaxPerJob
}

// firm is a job that keeps what it has for so long.
func firm(e *Entry, work float64) share.Task {
	return share.Task{Firm: true, Members: 1, GPUs: e.Held, Work: work}
}

func (d Deadline) promise(e *Entry, t *share.Task, v share.Verdict, s *Situation) Promise {
	p := Promise{Met: v.Admitted, Urgent: v.Admitted && (e.Running || v.Urgent)}
	by := fmt.Sprintf("its deadline of %s, in %s", clock(e.Job.Deadline), span(t.Deadline))
	with := ""
	if v.Admitted && e.elastic() {
		p.Members = v.First
		with = fmt.Sprintf(" with %d of up to %d members", v.First, t.Max)
	}
	switch {
	case v.Admitted && e.Running:
		p.Why = fmt.Sprintf("it meets %s: it ends in %s%s", by, span(v.End), with)
	case v.Urgent:
		p.Why = fmt.Sprintf("it has to begin now to meet %s, or another would miss its own: it takes up to %s%s", by, span(v.End-v.Begin), with)
	case v.Admitted:
		p.Why = fmt.Sprintf("it can meet %s: it takes up to %s%s", by, span(v.End-v.Begin), with)
	case math.IsInf(v.End, 1):
		p.Why = fmt.Sprintf("it cannot meet %s: as far as is known its %d GPUs do not become free; fewer GPUs would help", by, t.Min*t.GPUs)
	case t.Alone() > t.Deadline:
		p.Why = fmt.Sprintf("it cannot meet %s: it takes up to %s even alone; a deadline of %s or later could be met, and more members (caravan_max) may help", by, span(t.Alone()), after(s.Now, v.End))
	default:
		p.Why = fmt.Sprintf("it cannot meet %s: beside those that were promised theirs before it ends in %s at the earliest; a deadline of %s or later could be met, and fewer GPUs may help", by, span(v.End), after(s.Now, v.End))
	}
	if e.kept() && !v.Admitted {
		p.Why = d.broken(e, s) + "; " + p.Why
	}
	p.Why += s.placesWords(e, v.Choice)
	if !v.Admitted {
		p.Why += s.poolsWords(e)
	}
	if v.Admitted && !e.Running {
		if len(e.Job.Models) > 0 {
			p.LeastSpeed = t.Work / t.Deadline
		}
		p.Latest = s.Now.Add(seconds(t.Deadline - t.Alone()))
		if len(e.Rooms) > 0 {
			p.Room = s.Rooms[e.Rooms[v.Choice]]
		}
	}
	return p
}

// The classes of deadline.
const (
	// classUrgent may not wait, or not stop.
	classUrgent = iota
	// classCalm is all others: first those that were promised their deadlines, as
	// they begin in the plan.
	classCalm
)

// promised is the key of jobs that are admitted, before all others'.
const promised = -1e12

type deadlines struct {
	Deadline
	preempt preempt.Policy
}

func newDeadline(p Policy) Discipline { return deadlines{p.Deadline, p.Preempt} }

// Stand implements Discipline.
func (d deadlines) Stand(s Situation) []Standing {
	out := make([]Standing, len(s.Jobs))
	promises := d.Promises(s, d.preempt)
	for i, p := range promises {
		st := Standing{Class: classCalm, Why: p.Why, Members: p.Members, Latest: p.Latest, LeastSpeed: p.LeastSpeed, Domain: p.Room.Domain}
		switch {
		case p.Why == "":
			st.Why = "no deadline"
		case p.Urgent:
			st.Class, st.Key = classUrgent, promised+float64(p.Turn)
		case p.Met:
			st.Key = promised + float64(p.Turn)
		}
		out[i] = st
	}
	spread(s, out)
	trim(s, out)
	return out
}

// trim takes back what running gangs would grow by beyond what is free, or is
// given back by others: the plan reckons with what ends in a moment, and they
// grow by that when it has.
func trim(s Situation, out []Standing) {
	free := s.GPUs
	for i := range s.Jobs {
		if e := &s.Jobs[i]; e.Running {
			if own := out[i].Members * e.GPUsPerMember; own > 0 {
				free -= min(own, e.Held)
			} else {
				free -= e.Held
			}
		}
	}
	for i := range s.Jobs {
		e := &s.Jobs[i]
		if !e.Running || out[i].Members*e.GPUsPerMember <= e.Held || e.GPUsPerMember == 0 {
			continue
		}
		grows := min(out[i].Members*e.GPUsPerMember-e.Held, max(free, 0)) / e.GPUsPerMember * e.GPUsPerMember
		free -= grows
		out[i].Members = (e.Held + grows) / e.GPUsPerMember
	}
}

// clock says a time, and span a number of seconds.
func clock(t time.Time) string { return t.UTC().Format(time.RFC3339) }

func span(s float64) string { return seconds(s).Round(time.Second).String() }

func after(now time.Time, s float64) string { return clock(now.Add(seconds(s + 1))) }

// maxSeconds is more than any time that is told.
const maxSeconds = 1e9

func seconds(s float64) time.Duration {
	return time.Duration(max(-maxSeconds, min(s, maxSeconds)) * float64(time.Second))
}
