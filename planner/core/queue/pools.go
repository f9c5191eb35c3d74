package queue

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/caravan-sched/caravan/planner/core/share"
)

// Pool is a bound on how many GPUs some jobs have together: those of the models that
// a job accepts, what a queue or one of its users may use at most, or what those of a
// queue can come by while nobody of another queue gives way to them.
type Pool struct {
	// Name says what they are: "of H100", "that queue a may use".
	Name string
	GPUs int
}

// Draw is what a job takes of a Pool.
type Draw struct {
	Pool int
	// GPUs counts those of all its members: those that it has, or asks for.
	GPUs int
	// Stays: whoever counts on the pool cannot displace the job.
	Stays bool
}

// LeastSpeed is how fast a job has to be, beside its estimate, to meet its deadline if
// it began when it was submitted. It does not change as time passes: else one that is
// refused might be admitted later, before others who were promised theirs meanwhile.
func (d Deadline) LeastSpeed(e *Entry, now time.Time) float64 {
	from := e.Job.Submitted
	if from.IsZero() {
		from = now
	}
	return d.WithDefaults().total(e) / max(1, e.Job.Deadline.Sub(from).Seconds())
}

// total is how long a job is taken to run, in seconds at a speed of 1.
func (d Deadline) total(e *Entry) float64 {
	return max(e.Left.Total.Seconds()*d.Safety, (e.Left.Total + e.Left.Spread).Seconds())
}

// speedOn is how fast a job runs on GPUs of a model.
func (e *Entry) speedOn(model string) float64 {
	for _, m := range e.Job.Models {
		if m.Name == model && m.Speed > 0 {
			return m.Speed
		}
	}
	return 1
}

// pace is how fast a job is taken to run: as on the GPUs that it has; one that waits
// as on the slowest model on which it meets its deadline, on which it may be placed.
func (d Deadline) pace(e *Entry, now time.Time) float64 {
	if e.Running {
		return e.speedOn(e.Model)
	}
	slow, fast, least := math.Inf(1), 0.0, d.LeastSpeed(e, now)
	for _, m := range e.Job.Models {
		if fast = max(fast, m.Speed); m.Speed >= least {
			slow = min(slow, m.Speed)
		}
	}
	switch {
	case len(e.Job.Models) == 0:
		return 1
	case math.IsInf(slow, 1):
		return fast
	}
	return slow
}

// done is what a job has done so far, in seconds at a speed of 1.
func (e *Entry) done() float64 {
	done, rest := 0.0, e.Ran
	if len(e.Job.Models) > 0 {
		for name, ran := range e.Job.RanByModel {
			done += ran.Seconds() * e.speedOn(name)
			rest -= ran
		}
	}
	return done + max(0, rest).Seconds()*e.speedOn(e.Model)
}

// takePools says what the tasks take of the Situation's pools, which follow the rooms,
// and adds those who stay though they are no task. It returns how large each pool is.
func (s *Situation) takePools(tasks []share.Task, of []int, left func(*Entry) float64) (all []share.Task, sizes []int) {
	if len(s.Pools) == 0 {
		return tasks, nil
	}
	for _, p := range s.Pools {
		sizes = append(sizes, p.GPUs)
	}
	firm := map[int]bool{}
	for k := range tasks {
		t, e := &tasks[k], &s.Jobs[of[k]]
		firm[of[k]] = t.Firm
		for _, draw := range e.Draws {
			if t.Running && !t.Firm && draw.Stays {
				continue // below, since it stays even if its own deadline is not promised
			}
			members := max(1, t.Members)
			if !t.Running && !t.Firm && e.elastic() {
				members = max(1, e.Count)
			}
			t.Needs = append(t.Needs, share.Need{Room: len(s.Rooms) + draw.Pool, Places: (draw.GPUs + members - 1) / members})
		}
	}
	for i := range s.Jobs {
		e := &s.Jobs[i]
		if firm[i] || !e.Running {
			continue
		}
		t := share.Task{Firm: true, Members: 1, Work: left(e)}
		for _, draw := range e.Draws {
			if draw.Stays {
				t.Needs = append(t.Needs, share.Need{Room: len(s.Rooms) + draw.Pool, Places: draw.GPUs})
			}
		}
		if len(t.Needs) > 0 {
			tasks = append(tasks, t)
		}
	}
	return tasks, sizes
}

// poolsWords says in what pools a job that waits is counted.
func (s *Situation) poolsWords(e *Entry) string {
	var names []string
	for _, draw := range e.Draws {
		if p := &s.Pools[draw.Pool]; !slices.Contains(names, p.Name) && p.Name != "" {
			names = append(names, fmt.Sprintf("the %d GPUs %s", p.GPUs, p.Name))
		}
	}
	if e.Running || len(names) == 0 {
		return ""
	}
	return "; counted among " + strings.Join(names, " and ")
}
