package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/vbauerster/mpb/v8"
	"github.com/vbauerster/mpb/v8/decor"

	"github.com/caravan-sched/caravan/planner/cmd/caravan/internal/render"
	"github.com/caravan-sched/caravan/planner/sim"
	"github.com/caravan-sched/caravan/planner/sim/report"
	"github.com/caravan-sched/caravan/planner/sim/trace"
)

// simulated is what `simulate` prints as JSON.
type simulated struct {
	Setup   simSetup     `json:"setup"`
	Results []sim.Result `json:"results"`
	// Failed are the runs that came to no end: their policies have no results.
	Failed []simFailed `json:"failed,omitempty"`
	// failed says it, row by row.
	failed []string
	// uncounted says in which seeds the cohort is empty.
	uncounted string
	// Differences are of all policies from the first one that has results.
	Differences []sim.Difference `json:"differences"`
}

// simFailed is a run that came to no end.
type simFailed struct {
	Policy string `json:"policy"`
	Seed   int    `json:"seed"`
	Error  string `json:"error"`
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
	unscaled            bool
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
as it is, but for that factor; with --unscaled there is none, so both together play
what was. At a load of 1 or more nothing ever becomes steady: the queue grows for as
long as jobs come.

A policy is one of the names below, or a file ending in .hcl with a policy block as
the planner's configuration has it. Words behind a + turn parts of it on or off:
easy, conservative, preempt, unsaved (who saves nothing is stopped too), defrag, reserve (2 percent of the GPUs are kept for
interactive jobs), reserve=PERCENT, lend, no-backfill, no-preempt, no-elastic, no-passing,
no-size-delay. Words behind an @ change the jobs of that row: oracle (run times are
known), no-estimates, elastic30 and elastic100 (so many percent of the whole-node jobs
are elastic), unsaved25, unsaved50, unsaved75 and unsaved100 (so many percent of the jobs
save nothing: when they are stopped they lose all that they have done).

The same seed gives the same bytes, but for decide_mean_us and decide_event_us, which are measured.`,
		Example: "  caravan simulate --trace cluster04.csv.gz --format itp --gpus 512 --policies k8s-default,gang,backfill,caravan",
		Args:    args(0, 0, "no argument"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if f.study.compare {
				if err := f.clashes(cmd); err != nil {
					return err
				}
				return a.study(cmd.Context(), &f.study, f.workers)
			}
			return a.simulate(cmd, &f)
		},
	}
	f.trace.add(cmd)
	f.study.add(cmd)
	f.addCluster(cmd)
	f.addModels(cmd)
	cmd.Flags().StringSliceVar(&f.policies, "policies", []string{sim.PolicyKube, sim.PolicyGang, "backfill", "caravan"}, "`names`, of: "+strings.Join(sim.Policies(), ", ")+", or a file.hcl; behind it, +WORD and @WORD as above")
	cmd.Flags().Float64Var(&f.load, "load", 1, "what the jobs need, by what the cluster has, as a `part`")
	cmd.Flags().IntVar(&f.seeds, "seeds", 5, "`number` of repetitions with other days, estimates and failures")
	cmd.Flags().BoolVar(&f.replay, "no-bootstrap", false, "take the trace as it is, but for the load")
	cmd.Flags().BoolVar(&f.unscaled, "unscaled", false, "leave submissions where they are, whatever the load then is")
	cmd.Flags().IntVar(&f.maxJobs, "max-jobs", trace.DefaultMost, "the most `jobs` of the trace that are kept in memory; of a longer one whole days are drawn")
	cmd.Flags().IntVar(&f.workers, "workers", 0, "`number` of runs at once; 0 is one for each processor")
	cmd.Flags().Float64Var(&f.sigma, "estimate-sigma", 1, "`error` of estimated run times, as the sigma of a lognormal factor; 0 is exact, -1 is none at all")
	cmd.Flags().Float64Var(&f.elastic, "elastic", 0, "`part` of the whole-node jobs that can have half to twice the nodes they ask for, 0 to 1")
	cmd.Flags().StringVar(&f.elasticSpeed, "elastic-speed", elasticLinear, "how much faster elastic jobs are with more nodes: "+elasticLinear+", or by the `"+elasticModel+"` of speed by place")
	cmd.Flags().StringVar(&f.queues, "queues", "", "`file` with queue blocks, as the planner's configuration has them; otherwise the queues of the trace are equals")
	cmd.Flags().Float64Var(&f.interval, "interval", sim.DefaultInterval, "`seconds` between two decisions at least, whatever the policy; the evaluation decides as often")
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
	c, read, err := a.comparison(cmd, f)
	if err != nil {
		return err
	}
	logs := newEventLogs(cmd.Context(), f)
	defer logs.stop()
	if err := logs.try(); err != nil {
		return err
	}
	if f.report != "" {
		// What a run of an hour found is not to be lost to a directory that nobody can write.
		undo, err := report.Make(f.report)
		if err != nil {
			return err
		}
		defer undo()
		c.Spans = min(c.Cluster.GPUs, pictured)
	}
	var kept trace.Kept
	if c.Jobs, kept, err = f.trace.readAtMost(cmd.Context(), a.env, read, f.maxJobs); err != nil {
		return err
	}
	if err := f.elasticClash(c.Jobs); err != nil {
		return err
	}
	if err := a.large(&c); err != nil {
		return err
	}
	defer a.collectSeldom(&c)()
	out := simulated{Setup: f.setup(&c, kept)}
	if out.Setup.Warnings, err = a.doubted(f, c.Jobs); err != nil {
		return err
	}
	if err := a.prepared(cmd.Context(), &c, &out.Setup); err != nil {
		return simulationFailed(err)
	}
	// A report draws the first seed.
	c.Brief = func(seed int) bool { return f.report == "" || seed > 1 }
	if f.events != "" {
		c.Log = logs.open
	}
	out.Results, err = a.withProgress(c, func(c *sim.Comparison) ([]sim.Result, error) { return c.Run(logs.ctx) })
	var rows *sim.RowsError
	if err = logs.close(err); err != nil && (!errors.As(err, &rows) || len(out.Results) == 0) {
		return simulationFailed(err)
	}
	if rows != nil {
		out.fail(f, rows)
	}
	if out.uncounted = uncounted(out.Results); out.uncounted != "" {
		out.Setup.Warnings = append(out.Setup.Warnings, out.uncounted)
	}
	out.Differences = sim.Differences(f.policies, out.Results)
	if err := a.unfinished(out.Results); err != nil {
		return err
	}
	if f.report != "" {
		if err := report.Write(f.report, f.reportInput(&out)); err != nil {
			return err
		}
	}
	if err := a.printSimulated(f, &out); err != nil || rows == nil {
		return err
	}
	return simulationFailed(rows)
}

// fail notes which rows came to no end; all that follows is of the others.
func (s *simulated) fail(f *simFlags, rows *sim.RowsError) {
	for i := range rows.Runs {
		r := &rows.Runs[i]
		s.Failed = append(s.Failed, simFailed{r.Policy, r.Seed, r.Err.Error()})
	}
	s.failed = rows.Rows()
	f.policies = slices.DeleteFunc(slices.Clone(f.policies), rows.Has)
}

// doubted says what makes one doubt the times of the trace.
func (a *app) doubted(f *simFlags, jobs []trace.Job) ([]string, error) {
	d := trace.NewDescriber()
	for i := range jobs {
		d.Add(&jobs[i])
	}
	s := d.Summary()
	doubts := f.trace.doubts(&s)
	return doubts, f.trace.tell(a.env, doubts)
}

// uncounted says in which seeds nothing is known of completion times and waits.
func uncounted(results []sim.Result) string {
	seeds := map[int]bool{}
	for i := range results {
		seeds[results[i].Seed] = results[i].Metrics.Cohort == 0
	}
	all := len(seeds)
	maps.DeleteFunc(seeds, func(_ int, empty bool) bool { return !empty })
	switch list := slices.Sorted(maps.Keys(seeds)); {
	case len(list) == 0:
		return ""
	case len(list) == all:
		return "No job is submitted in the middle half of the time, so nothing is known of completion times and waits."
	default:
		return fmt.Sprintf("No job is submitted in the middle half of the time in %d of %d seeds, the first is %d: completion times and waits are means over the others.", len(list), all, list[0])
	}
}

// printSimulated prints what came of it.
func (a *app) printSimulated(f *simFlags, out *simulated) error {
	return a.print(out, func(w io.Writer, s render.Style) error {
		if _, err := fmt.Fprintf(w, "Load %s.\n\n", out.Setup.loadSaid()); err != nil {
			return err
		}
		if load := out.Setup.Load; load >= 1 {
			if _, err := fmt.Fprintf(w, "At a load of %.3g the queue grows for as long as jobs come: there is no steady state.\n\n", load); err != nil {
				return err
			}
		}
		if out.uncounted != "" {
			if _, err := fmt.Fprintf(w, "%s\n\n", out.uncounted); err != nil {
				return err
			}
		}
		if err := render.Simulated(w, s, f.policies, out.Results); err != nil {
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
func (a *app) prepared(ctx context.Context, c *sim.Comparison, s *simSetup) error {
	var first, largest trace.Job
	var loads []float64
	for seed := range c.Seeds {
		if err := ctx.Err(); err != nil {
			return err
		}
		p, err := c.Prepare(seed + 1)
		if err != nil {
			return err
		}
		s.Factors, s.TooLarge = append(s.Factors, p.Factor), append(s.TooLarge, p.TooLarge)
		loads = append(loads, p.Load)
		if first.ID == "" {
			first = p.First
		}
		if p.Largest.GPUs > largest.GPUs {
			largest = p.Largest
		}
	}
	if s.Unscaled {
		s.Load = sim.Of(loads).Mean
	}
	if f := c.FitModels(); f.Named > 0 {
		s.GPUModels = &f
		if text := modelsSaid(&f); text != "" {
			if _, err := fmt.Fprintln(a.env.Stderr, text); err != nil {
				return err
			}
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
	s.tooLarge = fmt.Sprintf("jobs left out because the cluster of %d GPUs, at most %d on a node, can never hold them: %s; the first is %s; the largest is %s", s.GPUs, s.GPUsPerNode, many, sized(&first), sized(&largest))
	_, err := fmt.Fprintln(a.env.Stderr, s.tooLarge)
	return err
}

// sized is a job with what it asks for.
func sized(j *trace.Job) string {
	text := fmt.Sprintf("%s, of %d GPUs", j.ID, j.GPUs)
	if j.GPUModels != "" {
		text += " of " + strings.ReplaceAll(j.GPUModels, "|", " or ")
	}
	return text
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
