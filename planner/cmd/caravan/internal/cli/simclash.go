package cli

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/caravan-sched/caravan/planner/sim"
	"github.com/caravan-sched/caravan/planner/sim/trace"
)

// ofStudy are the flags of `simulate --compare`; workers is of both.
var ofStudy = []string{"compare", "quick", "trace-dir", "out", "evaluation", "only"}

// ofTrace are those that say how a trace is read.
var ofTrace = []string{"format", "time-unit", "throughputs", "shards-per-gpu", "strict", "max-jobs", "no-bootstrap", "unscaled"}

// unused refuses flags that would change nothing: whoever gives one thinks that it
// counts.
func unused(cmd *cobra.Command, why string, names ...string) error {
	var faults []error
	for _, name := range names {
		if cmd.Flags().Changed(name) {
			faults = append(faults, fmt.Errorf("--%s %s", name, why))
		}
	}
	return errors.Join(faults...)
}

// clashes refuses flags of simulate that the others make void.
func (f *simFlags) clashes(cmd *cobra.Command) error {
	if f.study.compare {
		var void []string
		cmd.LocalNonPersistentFlags().VisitAll(func(flag *pflag.Flag) {
			if flag.Name != "workers" && !slices.Contains(ofStudy, flag.Name) {
				void = append(void, flag.Name)
			}
		})
		return usageOf(unused(cmd, "beside --compare, which plays traces, clusters and policies of its own: leave one of them out", void...))
	}
	err := errors.Join(unused(cmd, "without --compare", ofStudy[1:]...), f.clusterClashes(cmd))
	if f.unscaled {
		err = errors.Join(err, unused(cmd, "beside --unscaled, which leaves submissions where they are", "load"))
	}
	if f.perNodeDay == 0 {
		err = errors.Join(err, unused(cmd, "without --failures: no node fails", "repair"))
	}
	if f.even {
		err = errors.Join(err, unused(cmd, "beside --even-speed, which leaves the network out", "oversubscription"))
		if f.elasticSpeed == elasticModel {
			err = errors.Join(err, fmt.Errorf("--elastic-speed %s beside --even-speed, which leaves the model out", elasticModel))
		}
	}
	if f.cluster == "" {
		err = errors.Join(err, unused(cmd, "without --cluster: no GPU has parts in a cluster of equal nodes", "divide", "interference"))
	}
	if f.pools != "" && !slices.ContainsFunc(f.policies, buys) {
		err = errors.Join(err, fmt.Errorf("--pools beside --policies %s, none of which buys nodes", strings.Join(f.policies, ",")))
	}
	return usageOf(err)
}

// buys reports whether a row's policy can buy nodes.
func buys(row string) bool {
	policy, _, _ := strings.Cut(row, "@")
	return policy != sim.PolicyKube && policy != sim.PolicyKubeQuota
}

// clusterClashes refuses what a cluster file says, or what nobody asked.
func (f *simFlags) clusterClashes(cmd *cobra.Command) error {
	if f.cluster == "" {
		return nil
	}
	return unused(cmd, fmt.Sprintf("beside --cluster %s, which says what the cluster has: leave one of them out", f.cluster), "gpus", "gpus-per-node")
}

// partsClashes refuses to say how parts of GPUs behave where there are none.
func (f *simFlags) partsClashes(cmd *cobra.Command, c *sim.Cluster) error {
	if f.cluster == "" {
		return nil // said already
	}
	shared, divides := false, false
	for i := range c.Nodes {
		by, _, auto := c.PartsOf(i)
		shared, divides = shared || slices.ContainsFunc(by, func(n int) bool { return n > 0 }), divides || auto
	}
	var err error
	if !divides {
		err = unused(cmd, fmt.Sprintf("beside --cluster %s, none of whose nodes divides its GPUs (mig = \"auto\")", f.cluster), "divide")
	}
	if !shared {
		err = errors.Join(err, unused(cmd, fmt.Sprintf("beside --cluster %s, none of whose GPUs is shared (a sharing block)", f.cluster), "interference"))
	}
	return usageOf(err)
}

// clashes refuses flags of check-events that the others make void.
func (f *auditFlags) clashes(cmd *cobra.Command) error {
	err := f.sim.clusterClashes(cmd)
	if f.sim.trace.file == "" {
		err = errors.Join(err, unused(cmd, "without --trace", ofTrace...))
	}
	switch {
	case f.results != "":
		err = errors.Join(err, unused(cmd, "beside --results, which says it", "estimate-sigma"))
	case !cmd.Flags().Changed("estimate-sigma") && !strings.Contains(f.policy, "@unsaved"):
		err = errors.Join(err, unused(cmd, "without --results, --estimate-sigma, or an @unsaved row as --policy", "seed"))
	}
	return usageOf(err)
}

// ownTimes reports whether the times of a form of traces say their unit themselves.
func ownTimes(format string) bool { return format == trace.FormatSacct || format == trace.FormatGavel }

// clashes refuses what a form of traces has no use for.
func (f *traceFlags) clashes() error {
	var err error
	if f.throughputs != "" && f.format != trace.FormatGavel {
		err = errors.Join(err, fmt.Errorf("--throughputs beside --format %s: only the %s form needs them", f.format, trace.FormatGavel))
	}
	if f.shards != 0 && f.format != trace.FormatSacct {
		err = errors.Join(err, fmt.Errorf("--shards-per-gpu beside --format %s: only the %s form has shards", f.format, trace.FormatSacct))
	}
	if f.unit != "s" && ownTimes(f.format) {
		err = errors.Join(err, fmt.Errorf("--time-unit %s beside --format %s, whose times say their unit themselves", f.unit, f.format))
	}
	return usageOf(err)
}

// usageOf is an error in how the command was called, if there is any.
func usageOf(err error) error {
	if err == nil {
		return nil
	}
	return usage("%w", err)
}
