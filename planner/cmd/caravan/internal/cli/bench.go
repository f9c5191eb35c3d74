package cli

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/caravan-sched/caravan/internal/optimality"
	"github.com/caravan-sched/caravan/planner/cmd/caravan/internal/render"
)

// maxClusters bounds a measurement to some minutes.
const maxClusters = 1_000_000

func (a *app) benchCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "bench",
		Short: "Measure the planner's decisions, offline",
		Args:  args(0, 0, "what is to be measured"),
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(a.benchOptimalityCommand(), a.benchSpeedCommand())
	return cmd
}

func (a *app) benchOptimalityCommand() *cobra.Command {
	var clusters int
	var seed uint64
	cmd := &cobra.Command{
		Use:   "optimality",
		Short: "Compare decisions with the best ones, on random small clusters",
		Long: `Optimality draws small clusters, with jobs that run and one gang that waits, and
compares what the planner decides with what trying everything finds: whether the
gang is placed when there is a place, how good its domain is, and whether the
cheapest jobs give way to it. The same seed draws the same clusters.`,
		Example: "  caravan bench optimality --clusters 2000 --json",
		Args:    args(0, 0, "no argument"),
		RunE: func(*cobra.Command, []string) error {
			if clusters < 1 || clusters > maxClusters {
				return usage("--clusters %d: want 1 to %d", clusters, maxClusters)
			}
			r, err := optimality.Measure(clusters, seed)
			if err != nil {
				return fmt.Errorf("measure decisions: %w", err)
			}
			return a.print(r, func(w io.Writer, _ render.Style) error { return writeOptimality(w, r) })
		},
	}
	cmd.Flags().IntVar(&clusters, "clusters", 2000, "how many `clusters` are drawn")
	cmd.Flags().Uint64Var(&seed, "seed", 1, "what they are drawn from")
	return cmd
}

func writeOptimality(w io.Writer, r *optimality.Report) error {
	p, v := r.Placement, r.Victims
	_, err := fmt.Fprintf(w, `%d clusters, seed %d

Where gangs go: %d could be placed
  left waiting                     %d
  placed where they must not be    %d
  in a domain as good as the best  %d (%.2f %%)
  in a wider level than need be    %d

Who gives way: room could be made for %d
  left waiting                     %d
  somebody stops for nothing       %d
  the cheapest give way            %d (%.2f %%)
  cost beyond the least            %.2f %%
`, r.Clusters, r.Seed, p.Possible, p.Missed, p.Phantom, p.Same, 100*p.SameShare, p.WorseLevel,
		v.Possible, v.Missed, v.Needless, v.Cheapest, 100*v.CheapestShare, 100*v.ExtraShare)
	for _, f := range r.Faults {
		if err == nil {
			_, err = fmt.Fprintf(w, "\ncluster %d: %s\n  %s\n", f.Cluster, f.What, f.Reason)
		}
	}
	return err
}
