package history

import (
	"maps"
	"math"
	"time"

	"github.com/caravan-sched/caravan/planner/core/model"
)

// Queues are what queues have used on average, the past counting less by
// half-lives, up to a time. The zero Queues have used nothing.
type Queues struct {
	At      time.Time                     `json:"at"`
	Average map[string]map[string]float64 `json:"average"`
	// Using is what they have used since, by path and resource.
	Using map[string]map[string]int `json:"using"`
}

// negligible is what is forgotten, of any resource.
const negligible = 1e-3

// UpTo is the average up to a time; nil where a half-life of 0 says that the past does
// not count.
func (q *Queues) UpTo(now time.Time, halfLife time.Duration) map[string]map[string]float64 {
	if halfLife <= 0 {
		return nil
	}
	weight := math.Exp2(-max(now.Sub(q.At), 0).Seconds() / halfLife.Seconds())
	if q.At.IsZero() {
		weight = 0
	}
	out := map[string]map[string]float64{}
	add := func(path, name string, n float64) {
		if n < negligible {
			return
		}
		if out[path] == nil {
			out[path] = map[string]float64{}
		}
		out[path][name] = n
	}
	for path, average := range q.Average {
		for name, n := range average {
			add(path, name, n*weight+float64(q.Using[path][name])*(1-weight))
		}
	}
	if q.At.IsZero() {
		return out
	}
	for path, using := range q.Using {
		for name, n := range using {
			if _, both := q.Average[path][name]; !both {
				add(path, name, float64(n)*(1-weight))
			}
		}
	}
	return out
}

// With are the queues as they were configured, with what they have used up to a time.
func (q *Queues) With(list []model.Queue, now time.Time, halfLife time.Duration) []model.Queue {
	past := q.UpTo(now, halfLife)
	out := make([]model.Queue, len(list))
	for i, one := range list {
		one.History = past[one.Path]
		out[i] = one
	}
	return out
}

// Note returns what they have used once they stand so from now on.
func (q *Queues) Note(now time.Time, halfLife time.Duration, stand []model.QueueUse) Queues {
	next := Queues{At: now, Average: q.UpTo(now, halfLife), Using: map[string]map[string]int{}}
	for i := range stand {
		next.Using[stand[i].Path] = maps.Clone(stand[i].Used)
	}
	return next
}
