package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/caravan-sched/caravan/planner/cmd/caravan/internal/render"
	"github.com/caravan-sched/caravan/planner/sim"
	"github.com/caravan-sched/caravan/planner/sim/audit"
	"github.com/caravan-sched/caravan/planner/sim/trace"
)

// auditFlags are the flags of `trace check-events`.
type auditFlags struct {
	sim     simFlags
	results string
	policy  string
	seed    int
	// sigmaSaid is the error of estimates; nil: nobody has said.
	sigmaSaid *float64
}

// saidRun is the run whose events they are, as far as it is known.
type saidRun struct {
	policy  string
	metrics []byte
	sigma   *float64
}

// audited is what it prints as JSON.
type audited struct {
	*audit.Report
	// Differences are metrics of the results that are others.
	Differences []audit.Difference `json:"differences"`
}

func (a *app) traceCheckEvents() *cobra.Command {
	var f auditFlags
	cmd := &cobra.Command{
		Use: "check-events FILE", Short: "Check a simulation's events, and compute its metrics again from them", Args: args(1, 1, "one file of events"),
		Long: `Check-events reads what ` + "`caravan simulate --events`" + ` has written, with a program that
shares no code with the simulator. No GPU may be used twice or while its node is
down, every job must have all of its GPUs when it starts, work done must be work
submitted and work lost, and every job must be accounted for. How long jobs were
thought to run must be what the error of estimates (--estimate-sigma) and the seed alone
make of it, whatever the policy, and so must which jobs save nothing (@unsaved50). Then it computes
every metric again from the events alone; with --results it compares them with
those that ` + "`caravan simulate --json`" + ` has printed. It exits with 1 if anything is wrong.`,
		RunE: func(cmd *cobra.Command, argv []string) error {
			if err := f.clashes(cmd); err != nil {
				return err
			}
			if cmd.Flags().Changed("estimate-sigma") {
				f.sigmaSaid = &f.sim.sigma
			}
			return a.checkEvents(cmd.Context(), argv[0], &f)
		},
	}
	f.sim.addCluster(cmd)
	cmd.Flags().StringVar(&f.results, "results", "", "`file` with the output of simulate --json, to compare with")
	cmd.Flags().StringVar(&f.policy, "policy", "", "`name` of the policy whose events and result they are, if there are several, or if the cluster has parts of GPUs: to "+sim.PolicyKube+" and "+sim.PolicyKubeQuota+" all are whole")
	cmd.Flags().IntVar(&f.seed, "seed", 1, "`number` of the seed whose result it is")
	cmd.Flags().Float64Var(&f.sim.sigma, "estimate-sigma", 1, "`error` of the estimates that were to be made, as for simulate; --results says it too")
	f.sim.trace.add(cmd)
	cmd.Flags().IntVar(&f.sim.maxJobs, "max-jobs", trace.DefaultMost, "the most `jobs` of the trace that are kept in memory, as for simulate")
	cmd.Flags().BoolVar(&f.sim.replay, "no-bootstrap", false, "exactly the jobs of the trace were played, rather than days drawn from it")
	return cmd
}

func (a *app) checkEvents(ctx context.Context, name string, f *auditFlags) error {
	run := saidRun{policy: f.policy, sigma: f.sigmaSaid}
	var err error
	if f.results != "" {
		if run, err = a.runOf(f); err != nil {
			return err
		}
	}
	in := audit.Input{Replay: f.sim.replay}
	if run.sigma != nil {
		in.Estimates = &audit.Estimates{Sigma: sigmaOf(run.policy, *run.sigma), Seed: uint64(f.seed)}
	}
	if run.policy != "" {
		in.Unsaved = &audit.Unsaved{Part: unsavedOf(run.policy), Seed: uint64(f.seed)}
	}
	if in.Nodes, err = a.auditNodes(&f.sim, run.policy); err != nil {
		return err
	}
	if f.sim.trace.file != "" {
		read, err := f.sim.trace.options()
		if err != nil {
			return err
		}
		jobs, _, err := f.sim.trace.readAtMost(ctx, a.env, read, f.sim.maxJobs)
		if err != nil {
			return err
		}
		for i := range jobs {
			in.Trace = append(in.Trace, audit.Job{ID: jobs[i].ID, GPUs: jobs[i].GPUs, Duration: jobs[i].Duration, Share: jobs[i].Share, Profile: jobs[i].Profile, GPUModels: jobs[i].GPUModels, Queue: jobs[i].Queue, Class: jobs[i].Class, Model: jobs[i].Model, Timed: jobs[i].Deadline != 0})
		}
	}
	file, err := os.Open(name)
	if err != nil {
		return fmt.Errorf("read events: %w", err)
	}
	defer file.Close()
	in.Events = &interruptible{file, ctx}
	out := audited{Differences: []audit.Difference{}}
	if out.Report, err = audit.Check(in); err != nil {
		if ctx.Err() != nil {
			err = errors.New("it was interrupted before the events were read to their end")
		}
		return fmt.Errorf("%s: %w", name, err)
	}
	if f.results != "" {
		differences, err := out.Compare(run.metrics)
		if err != nil {
			return fmt.Errorf("%s: %w", f.results, err)
		}
		out.Differences = append(out.Differences, differences...)
	}
	if err := a.print(out, func(w io.Writer, s render.Style) error {
		return render.Audited(w, s, out.Report, out.Differences, f.results != "")
	}); err != nil {
		return err
	}
	if wrong := out.FaultCount + len(out.Differences); wrong > 0 {
		if run.policy == "" && slices.ContainsFunc(in.Nodes, divided) {
			return fmt.Errorf("%s: faults: %d: if these are the events of %s or %s, to which all GPUs are whole, say so with --policy", name, out.FaultCount, sim.PolicyKube, sim.PolicyKubeQuota)
		}
		return fmt.Errorf("%s: faults: %d; metrics that are others: %d", name, out.FaultCount, len(out.Differences))
	}
	return nil
}

// divided reports whether some GPU of a node is offered in parts, or can be.
func divided(n audit.Node) bool {
	return n.Divides || slices.ContainsFunc(n.Slices, func(k int) bool { return k > 0 }) || slices.ContainsFunc(n.Profiles, func(list []string) bool { return len(list) > 0 })
}

// auditNodes are the nodes that a row was played on.
func (a *app) auditNodes(f *simFlags, row string) (out []audit.Node, err error) {
	cluster, err := a.simCluster(f)
	if err != nil {
		return nil, err
	}
	if policy, _, _ := strings.Cut(row, "@"); policy == sim.PolicyKube || policy == sim.PolicyKubeQuota {
		cluster = cluster.Plain()
	}
	own := len(cluster.Nodes)
	c := sim.Comparison{Cluster: cluster}
	if err := a.simPools(f, &c); err != nil {
		return nil, err
	}
	if len(c.Pools.Pools) > 0 {
		cluster = cluster.WithPools(c.Pools)
	}
	for i := range cluster.Nodes {
		n := audit.Node{Name: cluster.Nodes[i].ID, GPUs: len(cluster.Nodes[i].GPUs), Bought: i >= own, Models: cluster.ModelsOf(i)}
		n.Slices, n.Profiles, n.Divides = cluster.PartsOf(i)
		out = append(out, n)
	}
	return out, nil
}

// sigmaOf is the error of estimates in a row: what stands behind an @ may say another one.
func sigmaOf(row string, sigma float64) float64 {
	_, words, _ := strings.Cut(row, "@")
	for word := range strings.SplitSeq(words, "@") {
		switch word {
		case "oracle":
			sigma = 0
		case "no-estimates":
			sigma = sim.NoEstimates
		}
	}
	return sigma
}

// unsavedOf is the part of the jobs that save nothing in a row.
func unsavedOf(row string) (part float64) {
	_, words, _ := strings.Cut(row, "@")
	for word := range strings.SplitSeq(words, "@") {
		number, is := strings.CutPrefix(word, "unsaved")
		if percent, err := strconv.Atoi(number); is && err == nil {
			part = float64(percent) / 100
		}
	}
	return part
}

// runOf finds the run whose events are checked.
func (a *app) runOf(f *auditFlags) (run saidRun, err error) {
	data, err := readFile(a.env, f.results)
	if err != nil {
		return run, fmt.Errorf("read results: %w", err)
	}
	var all struct {
		Error string `json:"error"`
		Setup struct {
			Sigma *float64 `json:"estimate_sigma"`
		} `json:"setup"`
		Results []struct {
			Policy  string          `json:"policy"`
			Seed    int             `json:"seed"`
			Metrics json.RawMessage `json:"metrics"`
		} `json:"results"`
	}
	if err := json.Unmarshal(data, &all); err != nil {
		return run, fmt.Errorf("read results: %s: %w", f.results, err)
	}
	if len(all.Results) == 0 {
		why := ""
		if all.Error != "" {
			why = fmt.Sprintf(", it failed: %s", all.Error)
		}
		return run, usage("--results %s: there is no result in it: want the output of simulate --json%s", f.results, why)
	}
	policy, several := all.Results[0].Policy, false
	for i := range all.Results {
		several = several || all.Results[i].Policy != policy
	}
	if f.policy != "" || several {
		policy = f.policy
	}
	var found error
	for i := range all.Results {
		r := &all.Results[i]
		if r.Policy == policy && r.Seed == f.seed {
			return saidRun{r.Policy, r.Metrics, all.Setup.Sigma}, nil
		}
		found = errors.Join(found, fmt.Errorf("%s, seed %d", r.Policy, r.Seed))
	}
	return run, usage("--results has no result of policy %q with seed %d (--policy, --seed); it has:\n%w", policy, f.seed, found)
}
