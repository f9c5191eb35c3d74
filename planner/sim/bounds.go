package sim

import (
	"cmp"
	"container/heap"
	"slices"
)

// bounds are what no schedule on a cluster can do better than, in seconds.
type bounds struct{ mean, p50, p99, p999, max, weighted float64 }

// task is a job as the bounds see it: GPU-seconds of work that come at a time, and
// the shortest time in which they can be done.
type task struct{ release, work, shortest float64 }

// widest is the most GPUs that a job can use.
func (j *job) widest() int { return max(j.GPUs, j.Max) }

// width is widest, or the part of a GPU that it needs.
func (j *job) width() float64 {
	if j.inParts() {
		return j.Share
	}
	return float64(j.widest())
}

// shortest is how long a job takes at least.
func (j *job) shortest() float64 { return j.Duration * float64(j.GPUs) / float64(j.widest()) }

// boundsOf relaxes: every job is done in its shortest time at least, and if jobs
// could be divided at will over all GPUs, the cluster were one machine that does
// gpus GPU-seconds in a second. Other jobs than these are left out altogether.
func boundsOf(list []*job, gpus int) bounds {
	if len(list) == 0 || gpus <= 0 {
		return bounds{}
	}
	tasks := make([]task, len(list))
	var durations []float64
	b := bounds{}
	work, weighted := 0.0, 0.0
	for i, j := range list {
		tasks[i] = task{j.Submit, j.Work(), j.shortest()}
		durations = append(durations, tasks[i].shortest)
		work += tasks[i].work
		weighted += tasks[i].work * tasks[i].shortest
	}
	slices.SortStableFunc(tasks, func(a, b task) int { return cmp.Compare(a.release, b.release) })
	speed := float64(gpus)
	b.mean = max(mean(durations), srpt(tasks, speed)/float64(len(tasks)))
	b.weighted = max(weighted/work, inOrder(tasks, speed)/work)
	b.p50 = Quantile(durations, 0.5)
	for part, of := range map[float64]*float64{0.99: &b.p99, 0.999: &b.p999, 1: &b.max} {
		*of = max(Quantile(durations, part), late(tasks, speed, len(tasks)-1-place(part, len(tasks))))
	}
	return b
}

// inOrder is the sum of the times in the system, weighted by work, when one
// machine does one after the other. With weights that are the work this is the
// optimum of the linear relaxation in mean busy times (Goemans, Queyranne,
// Schulz, Skutella and Wang, Single Machine Scheduling with Release Dates, SIAM J.
// Discrete Math. 15, 2002), in whichever order the machine takes them.
func inOrder(tasks []task, speed float64) float64 {
	at, sum := 0.0, 0.0
	for i := range tasks {
		at = max(at, tasks[i].release) + tasks[i].work/speed
		sum += tasks[i].work * (at - tasks[i].release)
	}
	return sum
}

// srpt is the sum of the times in the system when one machine always does what
// has least left: no schedule has a smaller one (Schrage, A Proof of the
// Optimality of the Shortest Remaining Processing Time Discipline, Operations
// Research 16, 1968).
func srpt(tasks []task, speed float64) float64 {
	var left floats
	at, sum := 0.0, 0.0
	for i := 0; i < len(tasks) || len(left) > 0; {
		if len(left) == 0 {
			at = max(at, tasks[i].release)
		}
		for i < len(tasks) && tasks[i].release <= at {
			heap.Push(&left, tasks[i].work/speed)
			i++
		}
		// Each step is somebody who comes or somebody who is done: a remainder that
		// is too little to show in the time is done as well.
		if i < len(tasks) && tasks[i].release-at < left[0] {
			step := tasks[i].release - at
			sum += float64(len(left)) * step
			left[0] -= step
			at = tasks[i].release
			continue
		}
		sum += float64(len(left)) * left[0]
		at += heap.Pop(&left).(float64)
	}
	return sum
}

// starts is from how many times late looks.
const starts = 24

// late is a time that more than some of the tasks take, however they are
// scheduled: of what comes between two times, all but the largest `some` tasks
// have to be done within a time after the second, and until then the machine does
// only so much.
func late(tasks []task, speed float64, some int) float64 {
	bound := 0.0
	for k := range starts {
		from := k * len(tasks) / starts
		var large floats // the largest `some` since from, the smallest on top
		work := 0.0
		for i := from; i < len(tasks); i++ {
			heap.Push(&large, tasks[i].work)
			if len(large) > some {
				work += heap.Pop(&large).(float64)
			}
			bound = max(bound, work/speed-(tasks[i].release-tasks[from].release))
		}
	}
	return bound
}

// floats is a heap of numbers, the smallest on top.
type floats []float64

// Len implements heap.Interface.
func (f floats) Len() int { return len(f) }

// Less implements heap.Interface.
func (f floats) Less(i, j int) bool { return f[i] < f[j] }

// Swap implements heap.Interface.
func (f floats) Swap(i, j int) { f[i], f[j] = f[j], f[i] }

// Push implements heap.Interface.
func (f *floats) Push(x any) { *f = append(*f, x.(float64)) }

// Pop implements heap.Interface.
func (f *floats) Pop() any {
	old := *f
	last := old[len(old)-1]
	*f = old[:len(old)-1]
	return last
}
