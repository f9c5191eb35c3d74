package report

import (
	"cmp"
	"slices"
	"strconv"

	"github.com/caravan-sched/caravan/planner/sim"
)

// mostQueues is of how many queues the page tells; all are in the data.
const mostQueues = 30

// tenant is what a policy does for a queue, as sums over the seeds.
type tenant struct {
	jobs, wait, worst, jct, rho, hours float64
	seeds                              int
}

func (t *tenant) add(p *sim.Part) {
	n := float64(p.Jobs)
	t.seeds++
	t.jobs += n
	t.wait += n * p.QueueMean
	t.jct += n * p.JCTMean
	t.rho += n * p.FairnessMean
	t.worst += p.QueueP95
	t.hours += p.GPUHours
}

// queues has a row for each queue and policy, those with most jobs first; none where
// the jobs have no queues.
func queues(in Input) (head []string, rows [][]string) {
	type key struct{ queue, policy string }
	sums, jobs := map[key]*tenant{}, map[string]float64{}
	for i := range in.Results {
		r := &in.Results[i]
		for k := range r.Metrics.Queues {
			p := &r.Metrics.Queues[k]
			at := key{p.Name, r.Policy}
			if sums[at] == nil {
				sums[at] = &tenant{}
			}
			sums[at].add(p)
			jobs[p.Name] += float64(p.Jobs)
		}
	}
	names := make([]string, 0, len(jobs))
	for name := range jobs {
		names = append(names, name)
	}
	slices.SortFunc(names, func(a, b string) int { return cmp.Or(cmp.Compare(jobs[b], jobs[a]), cmp.Compare(a, b)) })
	for _, name := range names[:min(len(names), mostQueues)] {
		for _, policy := range in.Policies {
			t := sums[key{name, policy}]
			if t == nil {
				continue
			}
			seeds := float64(t.seeds)
			rows = append(rows, []string{
				name, policy, whole(t.jobs / seeds), whole(t.hours / seeds), seconds(t.wait / t.jobs), seconds(t.worst / seeds), seconds(t.jct / t.jobs), strconv.FormatFloat(t.rho/t.jobs, 'f', 2, 64),
			})
		}
	}
	return []string{"queue", "policy", "jobs", "GPU-hours", "wait mean", "wait P95", "JCT mean", "fairness ρ"}, rows
}

// queueData is the same for each seed, as CSV.
func queueData(in Input) (header []string, rows [][]string) {
	for i := range in.Results {
		r := &in.Results[i]
		for _, p := range r.Metrics.Queues {
			rows = append(rows, []string{
				r.Policy, strconv.Itoa(r.Seed), p.Name, strconv.Itoa(p.Jobs), number(p.GPUHours), number(p.QueueMean), number(p.QueueP95), number(p.JCTMean), number(p.JCTP99), strconv.Itoa(p.Preemptions), number(p.FairnessMean),
			})
		}
	}
	return []string{"policy", "seed", "queue", "jobs", "gpu_hours", "queue_mean_s", "queue_p95_s", "jct_mean_s", "jct_p99_s", "preemptions", "finish_time_fairness_mean"}, rows
}
