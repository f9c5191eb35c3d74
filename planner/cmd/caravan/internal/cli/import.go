package cli

import (
	"fmt"
	"maps"
	"slices"

	"github.com/spf13/cobra"

	"github.com/caravan-sched/caravan/planner/sim/live"
	"github.com/caravan-sched/caravan/planner/sim/trace"
)

func (a *app) traceImport() *cobra.Command {
	var nomad bool
	cmd := &cobra.Command{
		Use: "import", Short: "Make a trace of what ran on a cluster", Args: args(0, 0, "no argument"),
		Long: `Import reads the jobs that a Nomad cluster still knows, in all namespaces that the
token may read, and writes those that have ended as a trace. Its GPUs are the most
that a job had at once; its duration is how long it had any, restarts included. A
job that was registered again after it had ended well is another one. Nomad forgets ended
jobs after some hours (job_gc_threshold): raise that, or import regularly.

--address is the planner's or Nomad's own. The token needs list-jobs and read-job.`,
		Example: "  caravan trace import --nomad > ours.csv\n  caravan simulate --trace ours.csv --gpus 64 --no-bootstrap --unscaled",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !nomad {
				return usage("import from what? --nomad is the only source so far")
			}
			client, err := a.nomad()
			if err != nil {
				return err
			}
			jobs, rep, err := live.Import(cmd.Context(), live.Client{API: client})
			if err != nil {
				return fmt.Errorf("import: %w", err)
			}
			for _, why := range slices.Sorted(maps.Keys(rep.Left)) {
				if _, err := fmt.Fprintf(a.env.Stderr, "%d of %d jobs are left out: %s\n", rep.Left[why], rep.Rows, why); err != nil {
					return err
				}
			}
			if len(jobs) == 0 {
				return fmt.Errorf("import: %w: none of %d jobs that Nomad knows has ended and had a GPU", trace.ErrTrace, rep.Rows)
			}
			return a.writeJobs(jobs)
		},
	}
	cmd.Flags().BoolVar(&nomad, "nomad", false, "from a Nomad cluster")
	return cmd
}
