package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"github.com/vbauerster/mpb/v8"
	"github.com/vbauerster/mpb/v8/decor"

	"github.com/caravan-sched/caravan/autoscaler/pool"
	"github.com/caravan-sched/caravan/planner/cmd/caravan/internal/render"
	"github.com/caravan-sched/caravan/planner/config"
	"github.com/caravan-sched/caravan/planner/core"
	"github.com/caravan-sched/caravan/planner/core/burst"
	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/sim"
	"github.com/caravan-sched/caravan/planner/sim/report"
	"github.com/caravan-sched/caravan/planner/sim/trace"
)

// simulated is what `simulate` prints as JSON.
type simulated struct {
	Setup   simSetup     `json:"setup"`
	Results []sim.Result `json:"results"`
	// Differences are of all policies from the first one.
	Differences []sim.Difference `json:"differences"`
}

// simFlags are the flags of simulate.
type simFlags struct {
	trace               traceFlags
	gpus, perNode       int
	maxJobs             int
	cluster, queues     string
	policies            []string
	load                float64
	seeds, workers      int
	replay, even        bool
	oversubscribed      []float64
	elasticSpeed        string
	sigma, interval     float64
	elastic             float64
	perNodeDay, repairs float64
	divide, interfere   float64
	events, report      string
	pools               string
	burstWait           time.Duration
	study               studyFlags
}

func (a *app) simulateCommand() *cobra.Command {
	var f simFlags
	cmd := &cobra.Command{
		Use:   "simulate",
		Short: "Play a trace of jobs on a modelled cluster, by several policies",
		Long: `Simulate plays the jobs of a trace on a modelled cluster in virtual time, by each of
the policies named, and compares what came of it. The planner's own code decides;
docs/simulator.md describes the models and the metrics.

For each seed, days are drawn from the trace and submissions are moved by one
factor so that the load is the one asked for: what the jobs need, by what the
cluster has until the last is submitted. With --no-bootstrap the trace is taken
as it is, but for that factor. At a load of 1 or more nothing ever becomes
steady: the queue grows for as long as jobs come.

A policy is one of the names below, or a file ending in .hcl with a policy block as
the planner's configuration has it. Words behind a + turn parts of it on or off:
easy, conservative, preempt, defrag, no-backfill, no-preempt, no-elastic,
no-passing. Words behind an @ change the jobs of that row: oracle (run times are
known), no-estimates, elastic30 and elastic100 (so many percent of the whole-node
jobs are elastic).

The same seed gives the same bytes, but for decide_mean_us and decide_event_us, which are measured.`,
		Example: "  caravan simulate --trace cluster04.csv.gz --format itp --gpus 512 --policies k8s-default,gang,backfill,caravan",
		Args:    args(0, 0, "no argument"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := f.clashes(cmd); err != nil {
				return err
			}
			if f.study.compare {
				return a.study(cmd.Context(), &f.study, f.workers)
			}
			return a.simulate(cmd, &f)
		},
	}
	f.trace.add(cmd)
	f.study.add(cmd)
	f.addCluster(cmd)
	f.addModels(cmd)
	cmd.Flags().StringSliceVar(&f.policies, "policies", []string{sim.PolicyKube, sim.PolicyGang, "backfill"}, "`names`, of: "+strings.Join(sim.Policies(), ", ")+", or a file.hcl; behind it, +WORD and @WORD as above")
	cmd.Flags().Float64Var(&f.load, "load", 1, "what the jobs need, by what the cluster has, as a `part`")
	cmd.Flags().IntVar(&f.seeds, "seeds", 5, "`number` of repetitions with other days, estimates and failures")
	cmd.Flags().BoolVar(&f.replay, "no-bootstrap", false, "take the trace as it is")
	cmd.Flags().IntVar(&f.maxJobs, "max-jobs", trace.DefaultMost, "the most `jobs` of the trace that are kept in memory; of a longer one whole days are drawn")
	cmd.Flags().IntVar(&f.workers, "workers", 0, "`number` of runs at once; 0 is one for each processor")
	cmd.Flags().Float64Var(&f.sigma, "estimate-sigma", 1, "`error` of estimated run times, as the sigma of a lognormal factor; 0 is exact, -1 is none at all")
	cmd.Flags().Float64Var(&f.elastic, "elastic", 0, "`part` of the whole-node jobs that can have half to twice the nodes they ask for, 0 to 1")
	cmd.Flags().StringVar(&f.elasticSpeed, "elastic-speed", elasticLinear, "how much faster elastic jobs are with more nodes: "+elasticLinear+", or by the `"+elasticModel+"` of speed by place")
	cmd.Flags().StringVar(&f.queues, "queues", "", "`file` with queue blocks, as the planner's configuration has them; otherwise the queues of the trace are equals")
	cmd.Flags().Float64Var(&f.interval, "interval", 30, "`seconds` between two decisions at least")
	cmd.Flags().StringVar(&f.events, "events", "", "`file` for every event as a line of JSON; with several runs POLICY.SEED is put before its ending")
	cmd.Flags().StringVar(&f.report, "report", "", "`directory` for a report: one HTML file with plots, and the data as CSV")
	return cmd
}

// addCluster adds the flags that say on what is simulated.
func (f *simFlags) addCluster(cmd *cobra.Command) {
	cmd.Flags().IntVar(&f.gpus, "gpus", 256, "`number` of GPUs of a cluster of equal nodes")
	cmd.Flags().IntVar(&f.perNode, "gpus-per-node", 8, "`number` of GPUs in each node")
	cmd.Flags().StringVar(&f.pools, "pools", "", "`file` of pools in which the planner's own policies buy nodes")
	cmd.Flags().DurationVar(&f.burstWait, "burst-wait", 0, "`duration` after which nodes are bought for who waits without a deadline; 0 is never")
	cmd.Flags().StringVar(&f.cluster, "cluster", "", "`file` that describes the cluster, in place of --gpus")
}

// addModels adds the flags that say what is modelled besides.
func (f *simFlags) addModels(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&f.even, "even-speed", false, "leave out that jobs are slower where their GPUs are far apart")
	cmd.Flags().Float64SliceVar(&f.oversubscribed, "oversubscription", []float64{sim.DefaultOversubscription.Rack, sim.DefaultOversubscription.Block}, "`times` by which the network above racks, and above blocks, has less than the adapters below could send")
	cmd.Flags().Float64Var(&f.perNodeDay, "failures", 0, "`number` of failures of each node in a day")
	cmd.Flags().Float64Var(&f.repairs, "repair", 3600, "`seconds` that a node is away then, on average")
	cmd.Flags().Float64Var(&f.divide, "divide", sim.DefaultDivide, "`seconds` that it takes to divide an idle GPU into MIG instances, or to make it whole")
	cmd.Flags().Float64Var(&f.interfere, "interference", 0, "by which `part` of its time a task takes longer for each other one on a GPU that is shared in time slices; 0.47 is what Gavel measured")
}

// The values of --elastic-speed.
const (
	elasticLinear = "linear"
	elasticModel  = "model"
)

// pictured is of how many GPUs a report shows who had them when.
const pictured = 512

func (a *app) simulate(cmd *cobra.Command, f *simFlags) error {
	defer a.collectSeldom()()
	jobs, kept, err := f.trace.readAtMost(a.env, f.maxJobs)
	if err != nil {
		return err
	}
	c := sim.Comparison{
		Jobs: jobs, Policies: f.policies, Load: f.load, Seeds: f.seeds, Replay: f.replay, Sigma: f.sigma, Elastic: f.elastic, Interval: f.interval,
		Restart: sim.DefaultRestart, Failures: sim.Failures{PerNodeDay: f.perNodeDay, Repair: f.repairs}, Even: f.even, Workers: f.workers,
		Divide: f.divide, Interference: f.interfere,
	}
	if len(f.oversubscribed) != 2 {
		return usage("--oversubscription: %d numbers: want two, above racks and above blocks", len(f.oversubscribed))
	}
	if f.elasticSpeed != elasticLinear && f.elasticSpeed != elasticModel {
		return usage("--elastic-speed %q: want %s or %s", f.elasticSpeed, elasticLinear, elasticModel)
	}
	c.ElasticModel = f.elasticSpeed == elasticModel
	c.Oversubscription = sim.Oversubscription{Rack: f.oversubscribed[0], Block: f.oversubscribed[1]}
	if c.Cluster, err = a.simCluster(f); err != nil {
		return err
	}
	if err := f.partsClashes(cmd, &c.Cluster); err != nil {
		return err
	}
	if err := a.ownPolicies(f, &c); err != nil {
		return err
	}
	if err := a.simPools(f, &c); err != nil {
		return err
	}
	if f.report != "" {
		// What a run of an hour found is not to be lost to a directory that nobody can write.
		if err := report.Make(f.report); err != nil {
			return err
		}
		c.Spans = min(c.Cluster.GPUs, pictured)
	}
	logs := eventLogs{name: f.events, several: f.seeds*len(f.policies) > 1}
	if f.events != "" {
		c.Log = logs.open
	}
	results, err := a.withProgress(c, func(c *sim.Comparison) ([]sim.Result, error) { return c.Run(cmd.Context()) })
	if err := errors.Join(err, logs.close()); err != nil {
		return simulationFailed(err)
	}
	out := simulated{Results: results, Differences: sim.Differences(f.policies, results), Setup: f.setup(&c, kept)}
	if err := a.prepared(&c, &out.Setup); err != nil {
		return fmt.Errorf("simulate: %w", err)
	}
	if err := a.unfinished(results); err != nil {
		return err
	}
	if f.report != "" {
		if err := report.Write(f.report, f.reportInput(&out)); err != nil {
			return err
		}
	}
	return a.print(out, func(w io.Writer, s render.Style) error {
		if f.load >= 1 {
			if _, err := fmt.Fprintf(w, "At a load of %g the queue grows for as long as jobs come: there is no steady state.\n\n", f.load); err != nil {
				return err
			}
		}
		if !slices.ContainsFunc(results, func(r sim.Result) bool { return r.Metrics.Cohort > 0 }) {
			if _, err := fmt.Fprint(w, "No job is submitted in the middle half of the time, so nothing is known of completion times and waits; those below are 0.\n\n"); err != nil {
				return err
			}
		}
		if err := render.Simulated(w, s, f.policies, results); err != nil {
			return err
		}
		return render.Omitted(w, s, out.Setup.omitted())
	})
}

// unfinished says which jobs would wait for ever, and why.
func (a *app) unfinished(results []sim.Result) error {
	for i := range results {
		r := &results[i]
		if r.Outcome == nil || len(r.Outcome.Unfinished()) == 0 {
			continue
		}
		left := r.Outcome.Unfinished()
		if _, err := fmt.Fprintf(a.env.Stderr, "%s, seed %d: jobs that would wait for ever: %d; the first is %s: %s\n", r.Policy, r.Seed, len(left), left[0].Job, left[0].Why); err != nil {
			return err
		}
	}
	return nil
}

// simulationFailed tells a simulation that failed from one that was stopped.
func simulationFailed(err error) error {
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return errors.New("simulate: it was interrupted before all runs had ended")
	}
	return fmt.Errorf("simulate: %w", err)
}

// prepared says what was made of the trace, and of which jobs nothing was.
func (a *app) prepared(c *sim.Comparison, s *simSetup) error {
	var first, largest trace.Job
	for seed := range c.Seeds {
		p, err := c.Prepare(seed + 1)
		if err != nil {
			return err
		}
		s.Factors, s.TooLarge = append(s.Factors, p.Factor), append(s.TooLarge, p.TooLarge)
		if first.ID == "" {
			first = p.First
		}
		if p.Largest.GPUs > largest.GPUs {
			largest = p.Largest
		}
	}
	least, most := slices.Min(s.TooLarge), slices.Max(s.TooLarge)
	if most == 0 {
		return nil
	}
	many := fmt.Sprint(most)
	if least < most {
		many = fmt.Sprintf("%d to %d, by seed", least, most)
	}
	s.FirstTooLarge = first.ID
	s.tooLarge = fmt.Sprintf("jobs left out because the cluster of %d GPUs, at most %d on a node, can never hold them: %s; the first is %s, of %d GPUs; the largest is %s, of %d GPUs", s.GPUs, s.GPUsPerNode, many, first.ID, first.GPUs, largest.ID, largest.GPUs)
	_, err := fmt.Fprintln(a.env.Stderr, s.tooLarge)
	return err
}

// simPools reads the pools file, if there is one: all jobs may have nodes bought.
func (a *app) simPools(f *simFlags, c *sim.Comparison) error {
	c.Burst = burst.Policy{Default: model.BurstAllow, WaitOver: f.burstWait}
	if err := c.Burst.Validate(); err != nil {
		return usage("%w", err)
	}
	if f.pools == "" {
		if f.burstWait > 0 {
			return usage("--burst-wait %s without --pools: there is nowhere to buy nodes", f.burstWait)
		}
		return nil
	}
	src, err := readFile(a.env, f.pools)
	if err != nil {
		return fmt.Errorf("read pools: %w", err)
	}
	pools, err := pool.Parse(src, f.pools)
	if err != nil {
		return err
	}
	if len(pools.Pools) == 0 {
		return fmt.Errorf("%s has no pool: want a block pool \"NAME\" { … } for each, or leave --pools out", f.pools)
	}
	c.Pools = (&config.Burst{Pools: pools}).BuyPools(c.Cluster.Levels)
	for i := range c.Pools.Pools {
		// What a job asks for besides GPUs is not simulated.
		c.Pools.Pools[i].Node.Levels, c.Pools.Pools[i].Near = nil, ""
	}
	return nil
}

// ownPolicies reads the files that the flags name.
func (a *app) ownPolicies(f *simFlags, c *sim.Comparison) error {
	if f.queues != "" {
		src, err := readFile(a.env, f.queues)
		if err != nil {
			return fmt.Errorf("read queues: %w", err)
		}
		if c.Queues, err = config.ParseQueues(src, f.queues); err != nil {
			return err
		}
	}
	c.Own, c.HalfLives = map[string]core.Policy{}, map[string]time.Duration{}
	for _, row := range f.policies {
		name, _, _ := strings.Cut(row, "@")
		if !strings.HasSuffix(name, ".hcl") {
			continue
		}
		src, err := readFile(a.env, name)
		if err != nil {
			return fmt.Errorf("read policy: %w", err)
		}
		p, err := config.ParsePolicy(src, name, config.Default().Levels)
		if err != nil {
			return err
		}
		c.Own[name], c.HalfLives[name] = p.Policy, p.HalfLife
	}
	return nil
}

func (a *app) simCluster(f *simFlags) (sim.Cluster, error) {
	if f.cluster == "" {
		c, err := sim.Regular(f.gpus, f.perNode)
		if err != nil {
			return c, usage("%w", err)
		}
		return c, nil
	}
	src, err := readFile(a.env, f.cluster)
	if err != nil {
		return sim.Cluster{}, fmt.Errorf("read cluster: %w", err)
	}
	return sim.ParseCluster(src, f.cluster)
}

// withProgress shows a bar on a terminal while it takes long.
func (a *app) withProgress(c sim.Comparison, run func(*sim.Comparison) ([]sim.Result, error)) ([]sim.Result, error) {
	if !a.env.Terminal || a.json {
		return run(&c)
	}
	p := mpb.New(mpb.WithOutput(a.env.Stderr), mpb.WithWidth(48))
	bar := p.AddBar(int64(c.Total()), mpb.BarRemoveOnComplete(),
		mpb.PrependDecorators(decor.CountersNoUnit("%d of %d jobs")), mpb.AppendDecorators(decor.AverageETA(decor.ET_STYLE_GO)))
	c.Progress = func(done int) { bar.SetCurrent(int64(done)) }
	results, err := run(&c)
	bar.Abort(true)
	p.Wait()
	return results, err
}

// eventLogs are the files of events, one for each run. Runs are begun at once.
type eventLogs struct {
	name    string
	several bool

	mu    sync.Mutex
	files []*os.File
	logs  []*sim.Logger
	err   error
}

func (l *eventLogs) open(policy string, seed int) func(sim.Event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	name := l.name
	policy = strings.ReplaceAll(policy, string(filepath.Separator), "_")
	if l.several {
		ending := filepath.Ext(name)
		name = fmt.Sprintf("%s.%s.%d%s", strings.TrimSuffix(name, ending), policy, seed, ending)
	}
	file, err := os.Create(name)
	if err != nil {
		l.err = errors.Join(l.err, fmt.Errorf("write events: %w", err))
		return nil
	}
	log := sim.NewLogger(file)
	l.files, l.logs = append(l.files, file), append(l.logs, log)
	return log.Log
}

func (l *eventLogs) close() error {
	err := l.err
	for i := range l.files {
		err = errors.Join(err, l.logs[i].Close(), l.files[i].Close())
	}
	return err
}
