package budget

import (
	"container/heap"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/caravan-sched/caravan/internal/budget/drawn"
	"github.com/caravan-sched/caravan/planner/core"
	"github.com/caravan-sched/caravan/planner/core/model"
)

// longRun is a cluster in virtual time: jobs come, give way and end, it is nearly
// full, and all of that is applied and decided on at once, one thing after the other.
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

// saving is how long who gives way needs to save its state.
const saving = 30 * time.Second

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

// step is the next thing that happens, and how many jobs wait afterwards.
func (r *longRun) step() (waiting int, err error) {
	if err := r.p.Apply(r.happens()); err != nil {
		return 0, fmt.Errorf("apply an event: %w", err)
	}
	plan := r.p.Decide(r.now)
	var done core.Change
	for i := range plan.Preemptions {
		r.stop(&plan.Preemptions[i], &done)
	}
	for i := range plan.Decisions {
		d := &plan.Decisions[i]
		if d.Action != model.ActionAdmit {
			waiting++
			continue
		}
		j := r.jobs[d.Job]
		j.State, j.Members, j.Started, j.Moving = model.StateRunning, d.Members, r.now, nil
		r.jobs[d.Job] = j
		done.PutJobs = append(done.PutJobs, j)
		heap.Push(&r.ends, end{at: r.now.Add(j.Estimate - j.Ran), job: j.ID, run: len(j.Preempted)})
	}
	if err := r.p.Apply(done); err != nil {
		return 0, fmt.Errorf("apply what was decided: %w", err)
	}
	return waiting, nil
}

// happens is the next arrival, or the next that has ended or given way.
func (r *longRun) happens() core.Change {
	for len(r.ends) > 0 && r.ends[0].at.Before(r.next) {
		e := heap.Pop(&r.ends).(end)
		j := r.jobs[e.job]
		if e.run != len(j.Preempted) {
			continue // that run was stopped before its end
		}
		r.now = e.at
		if j.State == model.StateRunning {
			delete(r.jobs, e.job)
			return core.Change{DropJobs: []core.JobRef{{Namespace: j.Namespace, ID: j.ID}}}
		}
		ch := core.Change{}
		for i := range j.Members {
			ch.DropAllocs = append(ch.DropAllocs, allocOf(&j, i))
		}
		j.State, j.Members = model.StateQueued, nil
		r.jobs[j.ID] = j
		ch.PutJobs = []model.Job{j}
		return ch
	}
	r.now = r.next
	j := r.arrival()
	r.jobs[j.ID] = j
	return core.Change{PutJobs: []model.Job{j}}
}

// stop has a job give way: it holds its GPUs until it has saved its state.
func (r *longRun) stop(v *model.Preemption, ch *core.Change) {
	j := r.jobs[v.Job]
	ran, gpus := r.now.Sub(j.Started), 0
	for i := range j.Members {
		m := &j.Members[i]
		gpus += len(m.GPUs)
		ch.PutAllocs = append(ch.PutAllocs, model.Alloc{ID: allocOf(&j, i), Namespace: j.Namespace, Job: j.ID, Group: m.Group, Index: m.Index, Node: m.Node, GPUs: m.GPUs, Stopping: true})
	}
	j.Ran, j.AttainedGPUs, j.Accounted = j.Ran+ran, j.AttainedGPUs+ran.Seconds()*float64(gpus), r.now
	moved := v.Action == model.ActionMove
	if moved {
		j.Moving = append(slices.Clone(j.Moving), model.Moving{At: r.now, Until: r.now.Add(time.Hour), Namespace: v.For.Namespace, For: v.For.ID, Members: v.To})
	}
	j.State, j.Preempted = model.StateStopping, append(slices.Clone(j.Preempted), model.Preempted{At: r.now, Namespace: v.For.Namespace, By: v.For.ID, Moved: moved})
	r.jobs[j.ID] = j
	ch.PutJobs = append(ch.PutJobs, j)
	heap.Push(&r.ends, end{at: r.now.Add(saving), job: j.ID, run: len(j.Preempted)})
}

func allocOf(j *model.Job, member int) string { return fmt.Sprintf("%s.%d", j.ID, member) }

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

// end is when a job is through, or has given way: run counts its runs.
type end struct {
	at  time.Time
	job string
	run int
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
