package sim

import (
	"cmp"
	"math"
	"slices"
)

// kube is Kubernetes with its default scheduler and no gang scheduler, as most
// clusters start out. What is modelled:
//
//   - A job is as many pods as it has members; all are created when it is
//     submitted. Where queues have quotas (k8s-quota), a job whose queue's
//     ResourceQuota is used up has to wait until that has room for all its pods. A
//     queue's quota is its equal part of the cluster, or its largest job if that is
//     more, and nothing is borrowed.
//   - Pods are scheduled one at a time, the oldest first (no priorities differ
//     here), each on the node where most of the GPUs are free (the plugin
//     NodeResourcesFit with its default strategy LeastAllocated). One that fits
//     nowhere is passed by those behind it.
//   - A pod holds its GPUs from then on, whether or not its job's other pods have
//     theirs. A job that is not complete after Timeout is deleted and created
//     again after a while that doubles each time, as a training operator does:
//     otherwise two such jobs could wait for each other for ever. Many can all the same:
//     where jobs wait and none has had all of its GPUs for an hour, somebody looks after
//     it, deletes all that are not complete, and has the oldest scheduled first.
//   - No preemption, no estimate, no topology.
type kube struct {
	cluster Cluster
	ledger  *ledger
	jobs    map[int]*kubeJob
	// order are the jobs whose pods wait, by the time of their creation; outside
	// are those for whose pods the quota or the back-off leaves no room yet.
	order   []int
	outside []int
	// quota and used are GPUs by queue.
	quota, used map[string]int
	// complete counts the jobs that have all of their GPUs, and lately is when there was
	// one last, or nobody who waited.
	complete int
	lately   float64
}

type kubeJob struct {
	ask     Ask
	created float64
	// from is when its pods may be created, and backoff how long it waits next.
	from, backoff float64
	// lacking are the GPUs of each pod without a node, pieces what the others have.
	lacking []int
	pieces  []Piece
	// held is when its first pod got GPUs; 0 pods: never.
	held float64
}

// KubeTimeout is how long a job's pods hold GPUs at most while others of the job
// have none, in seconds. It is short in favour of the baseline: the default of
// Kubeflow's training operator is not to give up at all.
const KubeTimeout = 600

// kubeLocked is for how long jobs may keep all of their GPUs from each other, in seconds.
const kubeLocked = 3600.0

// The back-off of a job that was deleted, in seconds.
const kubeBackoff, kubeMaxBackoff = 60.0, 3600.0

// NewKube is the baseline k8s-default or, with queues and the GPUs of the largest
// job of each, k8s-quota.
func NewKube(c Cluster, queues []string, largest map[string]int) Scheduler {
	k := &kube{cluster: c, ledger: newLedger(&c), jobs: map[int]*kubeJob{}, quota: map[string]int{}, used: map[string]int{}}
	for _, q := range queues {
		k.quota[q] = max(int(math.Ceil(float64(c.GPUs)/float64(len(queues)))), largest[q])
	}
	return k
}

// Submit implements Scheduler.
func (k *kube) Submit(now float64, ask Ask) error {
	if len(k.jobs) == 0 {
		k.lately = now
	}
	k.jobs[ask.Job] = &kubeJob{ask: ask, created: now, from: now, backoff: kubeBackoff}
	k.outside = append(k.outside, ask.Job)
	return nil
}

// create makes a job's pods.
func (k *kube) create(now float64, i int) {
	j := k.jobs[i]
	j.created = now
	perNode := k.cluster.largest(j.ask.Models)
	whole, rest := members(j.ask.GPUs, perNode)
	j.lacking = nil
	for range whole {
		j.lacking = append(j.lacking, perNode)
	}
	if rest > 0 {
		j.lacking = append(j.lacking, rest)
	}
	k.used[j.ask.Queue] += j.ask.GPUs
	k.order = append(k.order, i)
}

// leave gives back what a job has.
func (k *kube) leave(now float64, i int) {
	j := k.jobs[i]
	if len(j.lacking) == 0 {
		k.complete--
		k.lately = now
	}
	k.ledger.give(j.pieces)
	k.used[j.ask.Queue] -= j.ask.GPUs
	j.pieces = nil
	k.order = slices.DeleteFunc(k.order, func(o int) bool { return o == i })
}

// Finish implements Scheduler.
func (k *kube) Finish(now float64, i int) error {
	k.leave(now, i)
	delete(k.jobs, i)
	return nil
}

// Left implements Scheduler. Nothing is stopped here.
func (k *kube) Left(float64, int) error { return nil }

// Fail implements Scheduler.
func (k *kube) Fail(now float64, node int, down bool, victims []int) error {
	for _, i := range victims {
		k.leave(now, i)
		k.jobs[i].from = now
		k.outside = append(k.outside, i)
	}
	k.ledger.set(node, 0)
	if !down {
		k.ledger.set(node, 1<<len(k.cluster.Nodes[node].GPUs)-1)
	}
	return nil
}

// Decide implements Scheduler.
func (k *kube) Decide(now float64) ([]Action, float64, error) {
	out := k.expire(now)
	k.admit(now)
	if k.complete == 0 && len(k.jobs) > 0 && now >= k.lately+kubeLocked {
		out = append(out, k.unlock(now)...)
	}
	least := math.MaxInt // pods of so many GPUs fit nowhere in this pass
	for _, i := range slices.Clone(k.order) {
		if a, ok := k.schedule(now, i, &least); ok {
			out = append(out, a)
		}
	}
	return out, k.next(now), nil
}

// expire deletes jobs whose pods have held GPUs in vain for too long.
func (k *kube) expire(now float64) []Action {
	var out []Action
	for _, i := range slices.Clone(k.order) {
		if j := k.jobs[i]; len(j.pieces) > 0 && now >= j.held+KubeTimeout {
			out = append(out, k.drop(now, i, "not all pods could be scheduled in time"))
		}
	}
	return out
}

// drop deletes a job that is not complete, to be created again.
func (k *kube) drop(now float64, i int, why string) Action {
	j := k.jobs[i]
	k.leave(now, i)
	j.from = now + j.backoff
	j.backoff = min(2*j.backoff, kubeMaxBackoff)
	k.outside = append(k.outside, i)
	return Action{Act: Drop, Job: i, Reason: why}
}

// unlock deletes all jobs that hold GPUs, while none is complete, but the oldest, whose
// pods are scheduled first.
func (k *kube) unlock(now float64) (out []Action) {
	k.lately = now
	list := k.order
	if len(list) == 0 {
		list = k.outside
	}
	first := slices.MinFunc(list, func(a, b int) int {
		return cmp.Or(cmp.Compare(k.jobs[a].ask.Submitted, k.jobs[b].ask.Submitted), cmp.Compare(a, b))
	})
	if len(k.order) == 0 {
		k.outside = slices.DeleteFunc(k.outside, func(i int) bool { return i == first })
		k.create(now, first)
	}
	for _, i := range slices.Clone(k.order) {
		if j := k.jobs[i]; len(j.pieces) > 0 && i != first {
			out = append(out, k.drop(now, i, "no job has had all of its GPUs for an hour"))
		}
	}
	k.jobs[first].held = now
	k.order = slices.Insert(slices.DeleteFunc(k.order, func(i int) bool { return i == first }), 0, first)
	return out
}

// admit creates the pods of jobs, the oldest first, as far as their quotas go.
func (k *kube) admit(now float64) {
	slices.SortStableFunc(k.outside, func(a, b int) int { return cmp.Compare(k.jobs[a].from, k.jobs[b].from) })
	full := map[string]bool{}
	k.outside = slices.DeleteFunc(k.outside, func(i int) bool {
		j := k.jobs[i]
		q := j.ask.Queue
		if j.from > now || full[q] {
			return false
		}
		if quota, limited := k.quota[q]; limited && k.used[q]+j.ask.GPUs > quota {
			full[q] = true // the quota is first come, first served
			return false
		}
		k.create(now, i)
		return true
	})
}

// schedule puts those of a job's pods on nodes that fit.
func (k *kube) schedule(now float64, i int, least *int) (Action, bool) {
	j := k.jobs[i]
	var got []Piece
	j.lacking = slices.DeleteFunc(j.lacking, func(gpus int) bool {
		if gpus >= *least {
			return false
		}
		node := k.emptiest(gpus, j.ask.Models)
		if node < 0 {
			if j.ask.Models == nil {
				*least = gpus
			}
			return false
		}
		p := Piece{Node: node, GPUs: indexes(k.ledger.free[node])[:gpus]}
		k.ledger.take([]Piece{p})
		got = append(got, p)
		return true
	})
	if len(got) == 0 {
		return Action{}, false
	}
	if len(j.pieces) == 0 {
		j.held = now
	}
	j.pieces = append(j.pieces, got...)
	if len(j.lacking) == 0 {
		k.order = slices.DeleteFunc(k.order, func(o int) bool { return o == i })
		k.complete++
	}
	return Action{Act: Hold, Job: i, Pieces: got}, true
}

// emptiest is the node with most free GPUs, the first of equals, of those with some
// models; -1 if none has so many.
func (k *kube) emptiest(gpus int, models []string) int {
	if models != nil {
		best, most := -1, gpus-1
		for i, free := range k.ledger.free {
			if n := ones(free); n > most && k.cluster.mayRunOn(i, models) {
				best, most = i, n
			}
		}
		return best
	}
	most := k.cluster.PerNode
	for most >= gpus && k.ledger.nodes[most] == 0 {
		most--
	}
	if most < gpus {
		return -1
	}
	return slices.IndexFunc(k.ledger.free, func(free uint64) bool { return ones(free) == most })
}

// next is when a job expires, or may be created again. Who waits for the quota
// alone is looked at again when something else happens.
func (k *kube) next(now float64) float64 {
	at := never
	if k.complete == 0 && len(k.jobs) > 0 {
		at = k.lately + kubeLocked
	}
	for _, i := range k.order {
		if j := k.jobs[i]; len(j.pieces) > 0 {
			at = min(at, j.held+KubeTimeout)
		}
	}
	for _, i := range k.outside {
		if j := k.jobs[i]; j.backoff > kubeBackoff && j.from > now {
			at = min(at, j.from)
		}
	}
	if math.IsInf(at, 1) {
		return 0
	}
	return at
}
