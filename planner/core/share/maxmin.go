package share

// Max-min fairness where GPUs differ (Narayanan et al., Heterogeneity-Aware
// Cluster Scheduling Policies for Deep Learning Workloads, OSDI'20, sections
// 4.1 and 4.3). A job's level is the speed that it gets on average, by the speed
// that it would have with an equal part of every model, by its weight, and times
// its GPUs: one that takes more of them has less time. The least level is made
// as high as can be, then the least of those that can still rise, and so on
// (water filling); which ones cannot, the prices of the linear program say.

// Runner is a number of jobs that are alike.
type Runner struct {
	// Jobs is how many they are, GPUs what each of them takes, Weight its part
	// beside others; 0 means 1.
	Jobs, GPUs int
	Weight     float64
	// Speed is how fast they run on each model of GPUs, by any measure; 0 is
	// not at all.
	Speed []float64
}

// Part is what each of a Runner's jobs gets.
type Part struct {
	// Time is the part of the time, 0 to 1, on each model.
	Time []float64
	// Level is what is made even: 1 is as good as an equal part of every model.
	// Of one that can run nowhere it is 0.
	Level float64
	// Speed is what it comes to, by the measure of Runner.Speed.
	Speed float64
}

// settled is from what price on a runner's level cannot rise.
const settled = 1e-7

// MaxMin shares capacity, the GPUs of each model, among jobs. Each Runner names
// a speed for each model.
func MaxMin(capacity []int, runners []Runner) ([]Part, error) {
	out := make([]Part, len(runners))
	for i := range out {
		out[i].Time = make([]float64, len(capacity))
	}
	p := newFairProgram(capacity, runners)
	if len(p.runners) == 0 {
		return out, nil
	}
	if err := p.fill(); err != nil {
		return nil, err
	}
	for variable, to := range p.times {
		if to.runner >= 0 {
			out[to.runner].Time[to.model] = min(1, p.solution.X[variable])
		}
	}
	for i := range out {
		r := &runners[i]
		for m, time := range out[i].Time {
			out[i].Speed += time * r.Speed[m]
		}
		if equal := equalSpeed(capacity, r); equal > 0 {
			out[i].Level = out[i].Speed / equal * float64(r.GPUs) / r.weight() * p.unit
		}
	}
	return out, nil
}

func (r *Runner) weight() float64 {
	if r.Weight > 0 {
		return r.Weight
	}
	return 1
}

// equalSpeed is how fast a job runs that has an equal part of every model.
func equalSpeed(capacity []int, r *Runner) float64 {
	sum, all := 0.0, 0
	for m, n := range capacity {
		sum += r.Speed[m] * float64(n)
		all += n
	}
	if all == 0 {
		return 0
	}
	return sum / float64(all)
}

// fairProgram is the linear program. Its rows are the runners' levels, their
// time, and the models' GPUs; its variables the least level, and the time of
// each runner on each model where it can run.
type fairProgram struct {
	capacity []int
	list     []Runner
	// runners are the numbers of those that can run somewhere.
	runners []int
	// times are what the variables mean.
	times []runnerTime
	// unit is a level of 1, in all GPUs by all weights.
	unit     float64
	solution Solution
}

type runnerTime struct{ runner, model int }

func newFairProgram(capacity []int, runners []Runner) *fairProgram {
	p := &fairProgram{capacity: capacity, list: runners, times: []runnerTime{{-1, -1}}}
	all, weights := 0, 0.0
	for _, n := range capacity {
		all += n
	}
	for i := range runners {
		r := &runners[i]
		before := len(p.times)
		for m, n := range capacity {
			if r.Jobs > 0 && r.GPUs > 0 && r.Speed[m] > 0 && n >= r.GPUs {
				p.times = append(p.times, runnerTime{i, m})
			}
		}
		if len(p.times) > before {
			p.runners = append(p.runners, i)
			weights += float64(r.Jobs) * r.weight()
		}
	}
	if all > 0 {
		p.unit = weights / float64(all)
	}
	return p
}

// fill raises all levels together, settles those that can rise no more, and
// raises the others further, on top of what all have.
func (p *fairProgram) fill() error {
	d, err := p.dictionary()
	if err != nil {
		return err
	}
	open := make([]int, len(p.runners))
	for k := range open {
		open[k] = k
	}
	for level := 0; ; level = d.extend(open) {
		if err := d.maximize(); err != nil {
			return err
		}
		p.solution = d.solution(len(p.times))
		var rest []int
		for _, k := range open {
			if p.solution.Dual[k] < settled {
				rest = append(rest, k)
			}
		}
		if len(rest) == 0 || len(rest) == len(open) {
			return nil
		}
		open = rest
		d.fix(level)
	}
}

func (p *fairProgram) dictionary() (*dictionary, error) {
	n := len(p.runners)
	row := make(map[int]int, n) // of a runner
	rows, bounds := make([][]float64, 2*n+len(p.capacity)), make([]float64, 2*n+len(p.capacity))
	for k := range rows {
		rows[k] = make([]float64, len(p.times))
	}
	for k, i := range p.runners {
		row[i] = k
		rows[k][0], bounds[n+k] = 1, 1
	}
	for m, gpus := range p.capacity {
		bounds[2*n+m] = float64(gpus)
	}
	for variable, to := range p.times[1:] {
		r, k := &p.list[to.runner], row[to.runner]
		equal := equalSpeed(p.capacity, r)
		rows[k][variable+1] = -r.Speed[to.model] / equal * float64(r.GPUs) / r.weight() * p.unit
		rows[n+k][variable+1] = 1
		rows[2*n+to.model][variable+1] = float64(r.Jobs * r.GPUs)
	}
	objective := make([]float64, len(p.times))
	objective[0] = 1
	return newDictionary(objective, rows, bounds)
}
