package sim

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/caravan-sched/caravan/planner/core"
	"github.com/caravan-sched/caravan/planner/core/burst"
	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/core/queue"
	"github.com/caravan-sched/caravan/planner/sim/trace"
)

// The baselines that are no order of the planner.
const (
	// PolicyKube is Kubernetes with its default scheduler; see kube. PolicyKubeQuota
	// has a quota for each queue besides.
	PolicyKube      = "k8s-default"
	PolicyKubeQuota = "k8s-quota"
	// PolicyGang is strictly first come, first served, all or nothing, on the place
	// that suits best: what gang scheduling alone gives.
	PolicyGang = "gang"
)

// Policies are the names of all that can be compared.
func Policies() []string {
	return append([]string{PolicyKube, PolicyKubeQuota, PolicyGang}, queue.Orders()...)
}

// PolicyOf is the planner's policy of a name, as an operator would turn it on:
// orders that are something else without it may stop who runs and saves his work, as in the
// planner's configuration. What is written behind the name turns
// more on or off: "sjf+easy", "fifo+conservative+preempt", "caravan+no-backfill".
func PolicyOf(name string) (core.Policy, error) {
	name, more, words := strings.Cut(name, "+")
	p := core.Policy{Order: name}
	switch {
	case words && (name == PolicyKube || name == PolicyKubeQuota):
		return p, fmt.Errorf("%w: policy %s+%s: want %s alone: the words behind a + are for the planner's own policies", ErrSetup, name, more, name)
	case words && strings.HasSuffix(name, ".hcl"):
		return p, fmt.Errorf("%w: policy %s+%s: want %s alone: what the words behind a + turn on stands in the file", ErrSetup, name, more, name)
	case name == PolicyGang:
		p = core.Policy{Order: queue.OrderFIFO, Strict: true}
	case !slices.Contains(queue.Orders(), name):
		return p, fmt.Errorf("%w: policy %q: want one of %s", ErrSetup, name, strings.Join(Policies(), ", "))
	}
	p.Preempt.Enabled, p.Preempt.SavedOnly, p.Preempt.MinRunTime = p.Preemptive(), true, minRun
	if !words {
		return p, nil
	}
	list := strings.Split(more, "+")
	for _, word := range list {
		switch word {
		case queue.BackfillEasy, queue.BackfillConservative:
			p.Backfill.Mode = word
		case "preempt":
			p.Preempt.Enabled = true
		case "defrag":
			p.Defrag.Enabled = true
		case "reserve":
			p.Interactive.Classes, p.Interactive.ReserveShare = []string{interactiveClass}, interactiveShare
		case "lend":
			p.Interactive.Classes, p.Interactive.ReserveShare, p.Interactive.Lend = []string{interactiveClass}, interactiveShare, true
		case "no-backfill":
			p.Backfill.Mode = queue.BackfillOff
		case "unsaved":
			p.Preempt.SavedOnly = false
		case "no-preempt":
			p.Preempt.Enabled = false
		case "no-elastic":
			p.Elastic.Disabled = true
		case "no-passing":
			p.Strict = true
		case "no-size-delay":
			p.Caravan.SizeDelay = 1 // nanosecond: 0 is the default
		default:
			if p.Interactive.ReserveShare = reserved(word); p.Interactive.ReserveShare > 0 {
				p.Interactive.Classes = []string{interactiveClass}
				continue
			}
			return p, fmt.Errorf("%w: policy %s+%s: want easy, conservative, preempt, unsaved, defrag, reserve, reserve=PERCENT, lend, no-backfill, no-preempt, no-elastic, no-passing or no-size-delay behind a +", ErrSetup, name, word)
		}
	}
	return p, atOdds(name, list, p.Preempt.Enabled)
}

// atOdds is what is wrong with words behind a + that each are right: one changes nothing
// beside the others, or in an order that stops nobody.
func atOdds(name string, words []string, preempt bool) error {
	said := strings.Join(words, "+")
	for i, word := range words {
		if slices.Contains(words[:i], word) {
			return fmt.Errorf("%w: policy %s+%s: %s is there twice: want each word once", ErrSetup, name, said, word)
		}
	}
	for _, pair := range [][2]string{{"preempt", "no-preempt"}, {"easy", "no-backfill"}, {"conservative", "no-backfill"}, {"easy", "conservative"}} {
		if slices.Contains(words, pair[0]) && slices.Contains(words, pair[1]) {
			return fmt.Errorf("%w: policy %s+%s: want %s or %s, not both", ErrSetup, name, said, pair[0], pair[1])
		}
	}
	for _, word := range []string{"unsaved", "lend"} {
		if !preempt && slices.Contains(words, word) {
			return fmt.Errorf("%w: policy %s+%s: %s is about who gives way, and nobody does: want preemption on beside it", ErrSetup, name, said, word)
		}
	}
	return nil
}

// What +reserve and +lend mean: so large a part of the GPUs is kept for jobs of this
// class.
const (
	interactiveClass = "interactive"
	interactiveShare = 0.02
)

// reserved is the part that a word like "reserve=30" keeps, above 0 and at most 1; 0 if it
// says none.
func reserved(word string) float64 {
	number, is := strings.CutPrefix(word, "reserve=")
	percent, err := strconv.ParseFloat(number, 64)
	if !is || err != nil || !(percent > 0 && percent <= 100) {
		return 0
	}
	return percent / 100
}

// minRun is for how long a gang runs at least before it gives way, as in the
// planner's configuration unless it says otherwise.
const minRun = 5 * time.Minute

// Comparison is several policies on the same jobs, several times.
type Comparison struct {
	Cluster Cluster
	Jobs    []trace.Job
	// Policies are the rows: names of Policies, words behind a + (see PolicyOf) and
	// variants behind an @ (see Variants).
	Policies []string
	// Load is what the jobs ask for by what the cluster has until the last one is
	// submitted; submissions are moved to reach it. Unscaled: they stay where they are,
	// and the load is what comes of it.
	Load     float64
	Unscaled bool
	// Seeds is how often, each time with other days, estimates and failures.
	Seeds int
	// Replay takes the trace as it is each time, rather than days drawn from it.
	Replay bool
	// Days is how many days are drawn; 0 is as many as the trace has.
	Days int
	// Sigma is the error of estimates (see Estimates); negative: there are none.
	Sigma float64
	// Elastic is the part of the whole-node jobs that are elastic; see Elastic.
	Elastic float64
	// ElasticModel: elastic jobs are faster with more nodes as the model of speed by place
	// has it; otherwise they are as many times faster as they have nodes.
	ElasticModel bool
	Interval     float64
	Restart      Restart
	Failures     Failures
	// Divide and Interference are those of Setup.
	Divide, Interference float64
	// Even leaves out that places differ in speed. Oversubscription is of the network that
	// they differ by.
	Even             bool
	Oversubscription Oversubscription
	// Own are policies of an operator's own, by the names that Policies has for
	// them.
	Own map[string]core.Policy
	// HalfLives are after how long what a queue has used counts half under these; under
	// all others it is as the planner's configuration has it unless it says otherwise.
	HalfLives map[string]time.Duration
	// Queues are the cluster's; the jobs name them.
	Queues []model.Queue
	// Pools are where the planner's own policies buy nodes, and Burst is when; the
	// baselines have the cluster alone.
	Pools model.Burst
	Burst burst.Policy
	// Spans is for how many GPUs each run keeps who had them when.
	Spans int
	// Workers is how many runs are played at once; 0 is as many as there are
	// processors.
	Workers int
	// Brief says of which seeds the outcomes are no more than what keeps jobs waiting for
	// ever: all else of a run takes memory until the last has ended. nil: of none.
	Brief func(seed int) bool
	// Log is asked for a run's log of events; nil: none is kept.
	Log func(policy string, seed int) func(Event)
	// Progress is told of every so many jobs that are done, in all runs together.
	Progress func(done int)
}

// NoEstimates is the Sigma of a cluster where nobody says how long jobs run.
const NoEstimates = -1

// Result is one run of a Comparison.
type Result struct {
	Policy  string   `json:"policy"`
	Seed    int      `json:"seed"`
	Metrics Metrics  `json:"metrics"`
	Outcome *Outcome `json:"-"`
}

// Prepared are the jobs of one seed.
type Prepared struct {
	Jobs      []trace.Job
	Estimates []float64
	// Unsaved are those that save nothing; nil: all do.
	Unsaved []bool
	// Factor is by what the submissions were moved, Load what the jobs ask for then.
	Factor, Load float64
	// TooLarge counts the jobs that the cluster can never run; First is the one of them
	// that is submitted first, Largest the largest.
	TooLarge       int
	First, Largest trace.Job
	// Models is what was made of the GPU models that jobs name.
	Models Fitting
}

// Prepare makes the jobs of a seed, the same for every policy.
func (c *Comparison) Prepare(seed int) (Prepared, error) {
	return c.prepare(seed, variant{sigma: c.Sigma, elastic: c.Elastic})
}

func (c *Comparison) prepare(seed int, v variant) (Prepared, error) {
	jobs := trace.Shift(c.Jobs)
	if !c.Replay {
		jobs = trace.Draw(jobs, c.Days, uint64(seed))
	}
	var p Prepared
	all := c.most()
	jobs, p.Models = all.FitModels(jobs)
	if len(jobs) == 0 {
		return p, fmt.Errorf("%w: all %d jobs name GPU models, and the cluster has none of them: %s", ErrSetup, p.Models.Without, strings.Join(p.Models.Models, ", "))
	}
	jobs, tooLarge := trace.FitJobs(jobs, c.holds())
	p.TooLarge = len(tooLarge)
	if len(tooLarge) > 0 {
		p.First = tooLarge[0]
		p.Largest = slices.MaxFunc(tooLarge, func(a, b trace.Job) int { return cmp.Compare(a.GPUs, b.GPUs) })
	}
	if len(jobs) == 0 {
		return p, fmt.Errorf("%w: all %d jobs are larger than the cluster of %d GPUs, at most %d on a node, can hold", ErrSetup, p.TooLarge, c.Cluster.GPUs, c.Cluster.PerNode)
	}
	if first, _ := trace.Span(jobs); first != 0 { // with a million jobs a copy is much
		jobs = trace.Shift(jobs)
	}
	if err := c.scale(&p, c.Cluster.InTheirParts(jobs)); err != nil {
		if p.TooLarge > 0 {
			err = fmt.Errorf("%w; jobs left out because the cluster can never hold them: %d, the largest is %s, of %d GPUs", err, p.TooLarge, p.Largest.ID, p.Largest.GPUs)
		}
		return p, err
	}
	if end := soonest(p.Jobs, all.most()); end > maxTime {
		return p, tooLong(end)
	}
	if v.sigma != NoEstimates {
		p.Estimates = Estimates(p.Jobs, v.sigma, uint64(seed))
	}
	p.Jobs = Elastic(p.Jobs, v.elastic, c.Cluster.PerNode, c.Cluster.GPUs, uint64(seed))
	p.Unsaved = Unsaved(p.Jobs, v.unsaved, uint64(seed))
	return p, nil
}

// scale moves the submissions to the load, or finds out which it is.
func (c *Comparison) scale(p *Prepared, jobs []trace.Job) (err error) {
	if !c.Unscaled {
		p.Load = c.Load
		p.Jobs, p.Factor, err = trace.ScaleTo(jobs, c.Cluster.GPUs, c.Load)
		return err
	}
	p.Jobs, p.Factor, p.Load = slices.Clone(jobs), 1, trace.Load(jobs, c.Cluster.GPUs)
	if math.IsInf(p.Load, 0) {
		return fmt.Errorf("%w: all %d jobs are submitted at one time: want different times: what is measured ends with the last submission", ErrSetup, len(jobs))
	}
	return nil
}

// Total is how many jobs are played in all runs.
func (c *Comparison) Total() int { return len(c.Jobs) * len(c.Policies) * c.Seeds }

// MaxSeeds bounds Seeds.
const MaxSeeds = 1000

// Validate reports every fault of what is to be played, whatever the jobs are.
func (c *Comparison) Validate() error {
	var faults []string
	if len(c.Policies) == 0 {
		faults = append(faults, "no policy: want one of "+strings.Join(Policies(), ", "))
	}
	for i, row := range c.Policies {
		if slices.Contains(c.Policies[:i], row) {
			faults = append(faults, fmt.Sprintf("policy %s is there twice: want each once", row))
		}
		name, _, err := c.variantOf(row)
		if err == nil && name != PolicyKube && name != PolicyKubeQuota {
			_, err = c.policyOf(name)
		}
		if err != nil {
			faults = append(faults, strings.TrimPrefix(err.Error(), ErrSetup.Error()+": "))
		}
	}
	if c.Seeds < 1 || c.Seeds > MaxSeeds {
		faults = append(faults, fmt.Sprintf("seeds %d: want 1 to %d", c.Seeds, MaxSeeds))
	}
	if !c.Unscaled && !(c.Load >= trace.MinLoad && c.Load <= trace.MaxLoad) {
		faults = append(faults, fmt.Sprintf("load %g: want %g to %g", c.Load, trace.MinLoad, trace.MaxLoad))
	}
	if !(c.Interval >= 0 && c.Interval <= 86400) {
		faults = append(faults, fmt.Sprintf("interval %g: want 0 to 86400 seconds", c.Interval))
	}
	if !(c.Failures.PerNodeDay >= 0 && c.Failures.PerNodeDay <= 1e4) {
		faults = append(faults, fmt.Sprintf("failures %g of each node in a day: want 0 to 10000", c.Failures.PerNodeDay))
	}
	if !(c.Failures.Repair >= 0 && c.Failures.Repair <= 1e8) || c.Failures.Repair == 0 && c.Failures.PerNodeDay > 0 {
		faults = append(faults, fmt.Sprintf("repair %g: want more than 0, at most 1e+08 seconds", c.Failures.Repair))
	}
	if !(c.Divide >= 0 && c.Divide <= 86400) {
		faults = append(faults, fmt.Sprintf("divide %g: want 0 to 86400 seconds", c.Divide))
	}
	if !(c.Interference >= 0 && c.Interference <= 100) {
		faults = append(faults, fmt.Sprintf("interference %g: want 0 to 100", c.Interference))
	}
	if !(c.Sigma >= 0 && c.Sigma <= 10 || c.Sigma == NoEstimates) {
		faults = append(faults, fmt.Sprintf("estimate sigma %g: want 0 to 10, or -1 for no estimates", c.Sigma))
	}
	if !(c.Elastic >= 0 && c.Elastic <= 1) {
		faults = append(faults, fmt.Sprintf("elastic part %g: want 0 to 1", c.Elastic))
	}
	if fault := c.Oversubscription.fault(); fault != "" {
		faults = append(faults, fault)
	}
	if c.Workers < 0 {
		faults = append(faults, fmt.Sprintf("workers %d: want 1 or more, or 0 for one for each processor", c.Workers))
	}
	if len(faults) > 0 {
		return fmt.Errorf("%w: %s", ErrSetup, strings.Join(faults, "; "))
	}
	return nil
}

// prepareRows makes the jobs of all rows in a seed, those of variants only once.
func (c *Comparison) prepareRows(ctx context.Context, seed int) ([]*Prepared, error) {
	var out []*Prepared
	made := map[variant]*Prepared{}
	for _, row := range c.Policies {
		_, v, err := c.variantOf(row)
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			return nil, err
		}
		if made[v] == nil {
			p, err := c.prepare(seed, v)
			if err != nil {
				return nil, err
			}
			made[v] = &p
		}
		out = append(out, made[v])
	}
	return out, nil
}
