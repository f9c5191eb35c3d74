package sim

import (
	"slices"
	"time"

	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/history"
)

// learner knows of the jobs that have ended what the daemon knows of them: how
// long others like them ran, and how much service jobs need.
type learner struct {
	book history.Book
	// names are the jobs' own, by which those alike are found: their models, or
	// else their IDs.
	names map[int]string
	// told is how many ended jobs the core knows of, ended how many there are.
	told, ended int
	at          float64
	// latest is what the core was told last, as it came, and sorted the same in order.
	latest, sorted []float64
}

// tellEvery is how seldom the core is told of the past, in seconds: the service of
// so many jobs is no other one a moment later. The first ones it is told of at
// once.
const (
	tellEvery = 600
	tellFirst = 100
)

func newLearner() *learner { return &learner{names: map[int]string{}} }

// like is a job by the name by which others like it are found.
func (l *learner) like(i int, j model.Job) *model.Job {
	j.ID = l.names[i]
	return &j
}

// estimate is how long others like a new job ran, for one of which nobody says
// how long it runs.
func (l *learner) estimate(ask *Ask, j *model.Job) {
	l.names[ask.Job] = ask.Model
	if ask.Model == "" {
		l.names[ask.Job] = ask.ID
	}
	if j.Duration > 0 {
		return
	}
	if p, known := l.book.Predict(l.like(ask.Job, *j)); known {
		j.Estimate, j.EstimateSpread, j.EstimateRuns = p.Median, p.Spread, p.Runs
	}
}

// add learns from a job that has come to its own end.
func (l *learner) add(now float64, i int, j *model.Job) {
	last := max(0, clock(now).Sub(j.Started))
	ran := j.Ran + last
	l.book.Add(history.Ended{
		Job: l.like(i, *j), Ran: ran.Round(time.Millisecond), GPUSeconds: j.AttainedGPUs + last.Seconds()*float64(gpusOf(j.Members)), Completed: true, At: clock(now),
	})
	delete(l.names, i)
	l.ended++
}

// past is what the core is to be told now; false if it knows enough.
func (l *learner) past(now float64) (model.History, bool) {
	if l.ended == l.told || l.told >= tellFirst && now < l.at+tellEvery {
		return model.History{}, false
	}
	l.told, l.at = l.ended, now
	return model.History{Demands: slices.Clone(l.sort())}, true
}

// sort is what is known of the service of jobs, in order: then the core has nothing
// to do to put it in order. Only what is new since the last time is put in its
// place, and what is forgotten taken out.
func (l *learner) sort() []float64 {
	now := l.book.Demands
	kept := sharedEnd(l.latest, now)
	for _, gone := range l.latest[:len(l.latest)-kept] {
		at, _ := slices.BinarySearch(l.sorted, gone)
		l.sorted = slices.Delete(l.sorted, at, at+1)
	}
	for _, come := range now[kept:] {
		at, _ := slices.BinarySearch(l.sorted, come)
		l.sorted = slices.Insert(l.sorted, at, come)
	}
	l.latest = append(l.latest[:0], now...)
	return l.sorted
}

// sharedEnd is how long the longest end of one list is that is another one's
// beginning.
func sharedEnd(list, other []float64) int {
	for n := min(len(list), len(other)); n > 0; n-- {
		if slices.Equal(list[len(list)-n:], other[:n]) {
			return n
		}
	}
	return 0
}
