package queue

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/caravan-sched/caravan/planner/core/model"
)

// task is a job of a played example. Its author says how long it runs only
// where says is set.
type task struct {
	id       string
	at, long time.Duration
	gpus     int
	says     time.Duration
	priority int
	job      model.Job

	ran, attained, began, stopped time.Duration
	running                       bool
}

// start is when played examples begin.
var start = time.Date(2026, 1, 2, 0, 0, 0, 0, time.UTC)

// play works a queue on one pool of GPUs by a policy, step by step, and returns
// when each task ended and who ran in each step ("a b", "b", ...). What a
// discipline says is all that counts: there are no holds and no limits, and
// stopping takes no time.
func play(t *testing.T, p Policy, past []float64, gpus int, step time.Duration, tasks ...*task) (ends map[string]time.Duration, rows []string) {
	t.Helper()
	ends = map[string]time.Duration{}
	for now := time.Duration(0); len(ends) < len(tasks); now += step {
		if now > 10000*step {
			t.Fatalf("not through after %s: %v", now, ends)
		}
		var there []*task
		for _, k := range tasks {
			if k.running && k.ran >= k.long {
				k.running, ends[k.id] = false, now
			}
			if _, gone := ends[k.id]; k.at <= now && !gone {
				there = append(there, k)
			}
		}
		slices.SortStableFunc(there, func(a, b *task) int { return cmp.Compare(a.at, b.at) })
		turn(p, past, gpus, now, there)
		var row []string
		for _, k := range there {
			if k.running {
				row = append(row, k.id)
				k.ran += step
				k.attained += step * time.Duration(k.gpus)
			}
		}
		rows = append(rows, strings.Join(row, " "))
	}
	return ends, rows[:len(rows)-1]
}

// turn decides who runs next.
func turn(p Policy, past []float64, gpus int, now time.Duration, there []*task) {
	s := Situation{Now: start.Add(now), GPUs: gpus, Models: []ModelGPUs{{Name: "GPU", GPUs: gpus}}, Past: NewPast(past)}
	for _, k := range there {
		k.job.ID, k.job.Submitted, k.job.Duration = k.id, start.Add(k.at), k.says
		e := Entry{Job: &k.job, Priority: k.priority, Running: k.running, Waiting: !k.running, Asked: k.gpus, Count: 1, GPUsPerMember: k.gpus,
			Attained: k.attained.Seconds(), Ran: k.ran, Waited: now - k.at - k.ran, Left: Estimate{Known: k.says > 0, Total: k.says, Left: max(0, k.says-k.ran)}}
		if k.running {
			e.Held, e.Members, e.Turn, e.Model = k.gpus, 1, now-k.began, "GPU"
			gpus -= k.gpus
		} else {
			e.Rest = now - max(k.at, k.stopped)
		}
		s.Jobs = append(s.Jobs, e)
	}
	standings := make([]Standing, len(there))
	if d := p.Discipline(); d != nil {
		standings = d.Stand(s)
	}
	order := make([]int, len(there))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int {
		return cmp.Or(cmp.Compare(there[b].priority, there[a].priority), cmp.Compare(standings[a].Class, standings[b].Class), cmp.Compare(standings[a].Key, standings[b].Key))
	})
	for _, i := range order {
		k := there[i]
		if k.running {
			continue
		}
		free, victims := gpus, []int(nil)
		for _, v := range slices.Backward(order) {
			if o := there[v]; free < k.gpus && p.Preemptive() && o.running && standings[v].Class > standings[i].Class && o.priority <= k.priority {
				free += o.gpus
				victims = append(victims, v)
			}
		}
		if free < k.gpus {
			continue
		}
		for _, v := range victims {
			there[v].running, there[v].stopped = false, now
		}
		gpus = free - k.gpus
		k.running, k.began = true, now
		if standings[i].Forgets {
			k.job.ForgottenGPUs, k.job.ForgottenRan = k.attained.Seconds(), k.ran
		}
	}
}

// meanJCT is the average time from submission to end.
func meanJCT(tasks []*task, ends map[string]time.Duration) time.Duration {
	var sum time.Duration
	for _, k := range tasks {
		sum += ends[k.id] - k.at
	}
	return sum / time.Duration(len(tasks))
}

// hours are times in words, for comparison.
func hours(ends map[string]time.Duration) map[string]string {
	out := map[string]string{}
	for id, end := range ends {
		out[id] = fmt.Sprintf("%gh", end.Hours())
	}
	return out
}
