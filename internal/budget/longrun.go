package budget

import (
	"container/heap"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/caravan-sched/caravan/internal/budget/drawn"
	"github.com/caravan-sched/caravan/planner/core"
	"github.com/caravan-sched/caravan/planner/core/model"
)

// longRun is a cluster in virtual time: jobs come and end, it is nearly full, and
// every arrival and every end is applied and decided on at once.
type longRun struct {
	rand *rand.Rand
	p    *core.Prepared
	now  time.Time
	// next is the next arrival.
	next time.Time
	// rate is how many GPU-hours come in an hour.
	rate float64
	came int
	jobs map[string]model.Job
	ends ends
}

// The part of the cluster that jobs ask for on average. With crowded the queue grows
// all the while, since gangs keep nodes idle while they wait.
const (
	busy    = 0.85
	crowded = 0.95
)

func newLongRun(nodes int, load float64, policy core.Policy) (*longRun, error) {
	s := drawn.Cluster(nodes)
	s.Allocs = nil
	p, err := core.Prepare(s, policy)
	if err != nil {
		return nil, fmt.Errorf("prepare %d nodes: %w", nodes, err)
	}
	r := &longRun{rand: rand.New(rand.NewPCG(1, 2)), p: p, now: s.Now, next: s.Now, rate: load * float64(nodes*8), jobs: map[string]model.Job{}}
	for range 4 * nodes { // until it is full
		if _, err := r.step(); err != nil {
			return nil, err
		}
	}
	return r, nil
}

// step is the next arrival or end, and how many jobs wait afterwards.
func (r *longRun) step() (waiting int, err error) {
	var ch core.Change
	if len(r.ends) > 0 && r.ends[0].at.Before(r.next) {
		e := heap.Pop(&r.ends).(end)
		r.now = e.at
		delete(r.jobs, e.job)
		ch.DropJobs = []core.JobRef{{Namespace: "default", ID: e.job}}
	} else {
		r.now = r.next
		j := r.arrival()
		r.jobs[j.ID] = j
		ch.PutJobs = []model.Job{j}
	}
	if err := r.p.Apply(ch); err != nil {
		return 0, fmt.Errorf("apply an event: %w", err)
	}
	plan := r.p.Decide(r.now)
	var done core.Change
	for i := range plan.Decisions {
		d := &plan.Decisions[i]
		if d.Action != model.ActionAdmit {
			waiting++
			continue
		}
		j := r.jobs[d.Job]
		j.State, j.Members, j.Started = model.StateRunning, d.Members, r.now
		r.jobs[d.Job] = j
		done.PutJobs = append(done.PutJobs, j)
		heap.Push(&r.ends, end{r.now.Add(j.Estimate), j.ID})
	}
	if err := r.p.Apply(done); err != nil {
		return 0, fmt.Errorf("apply placements: %w", err)
	}
	return waiting, nil
}

// arrival is a job as they come in shared clusters: most are small, most GPUs
// are in the few large ones.
func (r *longRun) arrival() model.Job {
	count, gpus := 1, 1
	switch n := r.rand.IntN(100); {
	case n < 55:
	case n < 75:
		gpus = 2 << r.rand.IntN(2)
	case n < 90:
		gpus = 8
	default:
		count, gpus = 1<<(1+r.rand.IntN(4)), 8
	}
	j := drawn.Job(r.came, count, gpus, model.Topology{})
	r.came++
	j.Submitted = r.now
	j.Estimate = time.Duration((0.1 + r.rand.ExpFloat64()) * float64(time.Hour))
	if r.rand.IntN(10) == 0 {
		j.Queue = "research"
	}
	const meanGPUHours = 1.1 * (0.55 + 0.2*3 + 0.15*8 + 0.1*7.5*8)
	r.next = r.now.Add(time.Duration(r.rand.ExpFloat64() * meanGPUHours / r.rate * float64(time.Hour)))
	return j
}

type end struct {
	at  time.Time
	job string
}

// ends is a heap, the next end first.
type ends []end

func (e ends) Len() int           { return len(e) }
func (e ends) Less(i, k int) bool { return e[i].at.Before(e[k].at) }
func (e ends) Swap(i, k int)      { e[i], e[k] = e[k], e[i] }
func (e *ends) Push(x any)        { *e = append(*e, x.(end)) }
func (e *ends) Pop() any {
	last := (*e)[len(*e)-1]
	*e = (*e)[:len(*e)-1]
	return last
}
