package core

import (
	"container/heap"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/caravan-sched/caravan/planner/core/model"
)

// BenchmarkEvent is a long run: jobs come and end on a cluster that is nearly
// full, and every arrival and every end is applied and decided on at once. The
// result is what one of them costs.
func BenchmarkEvent(b *testing.B) {
	for _, nodes := range []int{256, 2048} {
		for _, policy := range []struct {
			name string
			Policy
		}{{"fifo", Policy{}}, {"fairshare", Policy{Order: "fairshare"}}} {
			b.Run(fmt.Sprintf("gpus=%d/%s", nodes*8, policy.name), func(b *testing.B) {
				r := newLongRun(b, nodes, policy.Policy)
				for range 4 * nodes { // until it is full
					r.step()
				}
				b.ReportAllocs()
				waiting := 0
				for b.Loop() {
					waiting += r.step()
				}
				b.ReportMetric(float64(waiting)/float64(b.N), "waiting/op")
			})
		}
	}
}

// longRun is a cluster in virtual time.
type longRun struct {
	b    *testing.B
	rand *rand.Rand
	p    *Prepared
	now  time.Time
	next time.Time // the next arrival
	// rate is how many GPU-hours come in an hour.
	rate float64
	jobs int
	ends ends
}

type end struct {
	at  time.Time
	job string
}

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

func newLongRun(b *testing.B, nodes int, policy Policy) *longRun {
	s := benchCluster(nodes)
	s.Allocs = nil
	p, err := Prepare(s, policy)
	if err != nil {
		b.Fatal(err)
	}
	return &longRun{b: b, rand: rand.New(rand.NewPCG(1, 2)), p: p, now: testNow, next: testNow, rate: 0.95 * float64(nodes*8)}
}

// step is the next arrival or end, and how many jobs wait afterwards.
func (r *longRun) step() int {
	var ch Change
	if len(r.ends) > 0 && r.ends[0].at.Before(r.next) {
		e := heap.Pop(&r.ends).(end)
		r.now = e.at
		ch.DropJobs = []JobRef{{"default", e.job}}
	} else {
		r.now = r.next
		ch.PutJobs = []model.Job{r.arrival()}
	}
	r.apply(ch)
	plan := r.p.Decide(r.now)
	waiting := 0
	var done Change
	for i := range plan.Decisions {
		d := &plan.Decisions[i]
		if d.Action != model.ActionAdmit {
			waiting++
			continue
		}
		j := *r.p.jobs[jobKey{d.Namespace, d.Job}]
		j.State, j.Members, j.Started = model.StateRunning, d.Members, r.now
		done.PutJobs = append(done.PutJobs, j)
		heap.Push(&r.ends, end{r.now.Add(j.Estimate), j.ID})
	}
	r.apply(done)
	return waiting
}

func (r *longRun) apply(ch Change) {
	if err := r.p.Apply(ch); err != nil {
		r.b.Fatal(err)
	}
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
	j := benchJob(r.jobs, count, gpus, model.Topology{})
	r.jobs++
	j.Submitted = r.now
	j.Estimate = time.Duration((0.1 + r.rand.ExpFloat64()) * float64(time.Hour))
	if r.rand.IntN(10) == 0 {
		j.Queue = "research"
	}
	const meanGPUHours = 1.1 * (0.55 + 0.2*3 + 0.15*8 + 0.1*7.5*8)
	r.next = r.now.Add(time.Duration(r.rand.ExpFloat64() * meanGPUHours / r.rate * float64(time.Hour)))
	return j
}

// BenchmarkKept is a planner's look at a cluster of which little has changed:
// what is different is found out, applied and decided on. prepare is what it
// costs to make everything ready anew.
func BenchmarkKept(b *testing.B) {
	s := benchContest(16384)
	for i := range 10000 {
		s.Jobs = append(s.Jobs, benchJob(i, 1, 8, model.Topology{}))
	}
	b.Run("prepare", func(b *testing.B) {
		for b.Loop() {
			if _, err := Prepare(s, Policy{}); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("diff", func(b *testing.B) {
		var kept Kept
		if _, err := kept.Decide(s, Policy{}); err != nil {
			b.Fatal(err)
		}
		for i := 0; b.Loop(); i++ {
			next := *s
			next.Allocs = append(s.Allocs[:i:i], s.Allocs[i+1:]...)
			if _, ok := kept.prepared.difference(s, &next); !ok {
				b.Fatal("a list has something twice")
			}
		}
	})
	b.Run("decide", func(b *testing.B) {
		var kept Kept
		if _, err := kept.Decide(s, Policy{}); err != nil {
			b.Fatal(err)
		}
		began := kept.prepared
		for i := 0; b.Loop(); i++ {
			next := *s
			next.Allocs = append(s.Allocs[:i:i], s.Allocs[i+1:]...)
			if _, err := kept.Decide(&next, Policy{}); err != nil {
				b.Fatal(err)
			}
		}
		if kept.prepared != began {
			b.Fatal("everything was made anew")
		}
	})
}
