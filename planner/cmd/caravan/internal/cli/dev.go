package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/caravan-sched/caravan/internal/devcluster"
	"github.com/caravan-sched/caravan/internal/devrun"
)

// Dev plays a scenario on a development cluster.
type Dev func(ctx context.Context, opts devrun.Options) (devrun.Report, error)

func (a *app) devCommand() *cobra.Command {
	var opts devrun.Options
	var verbose bool
	scenarios := strings.Join(devrun.Scenarios(), ", ")
	backends := []string{devcluster.BackendNomad, devcluster.BackendDevNomad}
	cmd := &cobra.Command{
		Use:   "dev",
		Short: "Run a whole small cluster and play a scenario on it",
		Long: `Dev starts three simulated eight-GPU nodes in two racks, the planner and its
gateway, submits jobs, shows each step, and stays up with the addresses to try.
It uses a real Nomad where NOMAD_BIN is set or nomad is on the PATH, and
otherwise a stand-in. Everything listens on the loopback interface only and is
gone afterwards.

Scenarios: ` + scenarios + `

Exit codes: 0 every check held; 1 one did not, or the run failed.`,
		Example: "  caravan dev\n  caravan dev --once --json --scenario race",
		Args:    args(0, 0, "no argument"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !slices.Contains(devrun.Scenarios(), opts.Scenario) {
				return usage("--scenario %q: it is one of %s", opts.Scenario, scenarios)
			}
			if opts.Backend != "" && !slices.Contains(backends, opts.Backend) {
				return usage("--backend %q: it is one of %s", opts.Backend, strings.Join(backends, ", "))
			}
			opts.JSON, opts.Out = a.json, a.env.Stdout
			if verbose {
				opts.Log = func(line string) { fmt.Fprintln(a.env.Stderr, line) }
			}
			_, err := a.env.Dev(cmd.Context(), opts)
			// The report has named the checks that did not hold.
			if errors.Is(err, devrun.ErrChecks) {
				return &exit{code: CodeFailure}
			}
			if err != nil {
				return fmt.Errorf("run the development cluster: %w", err)
			}
			return nil
		},
	}
	f := cmd.Flags()
	f.StringVar(&opts.Scenario, "scenario", devrun.ScenarioGang, "`scenario` to play")
	f.BoolVar(&opts.Once, "once", false, "end after the scenario")
	f.StringVar(&opts.Backend, "backend", "", "nomad or devnomad; by default nomad where it is installed")
	f.StringVar(&opts.Plugin, "plugin", "", "the device plugin's `binary`; by default the one beside this program")
	f.StringVar(&opts.Driver, "driver", "", "the task driver's `binary`; by default the one beside this program")
	f.BoolVar(&verbose, "verbose", false, "show the log of the cluster and the planner")
	return cmd
}
