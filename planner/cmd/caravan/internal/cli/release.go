package cli

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/caravan-sched/caravan/planner/cmd/caravan/internal/render"
	"github.com/caravan-sched/caravan/planner/httpapi"
)

func (a *app) releaseCommand() *cobra.Command {
	var all bool
	cmd := &cobra.Command{
		Use:   "release [JOB]",
		Short: "Take Caravan's hands off a job, or all",
		Long: `Release removes the gate and the pins of a job, or of all jobs with --all, and
leaves running work untouched. From then on Nomad alone schedules it.`,
		Args: args(0, 1, "one job, or --all"),
		RunE: func(cmd *cobra.Command, argv []string) error {
			if all == (len(argv) == 1) {
				return usage("name one job, or give --all")
			}
			planner, err := a.planner()
			if err != nil {
				return err
			}
			req := httpapi.ReleaseRequest{All: all}
			if !all {
				e, err := a.find(cmd.Context(), planner, argv[0])
				if err != nil {
					return err
				}
				req.Namespace, req.Job = e.Namespace, e.ID
			}
			return a.release(cmd.Context(), planner, req)
		},
	}
	cmd.Flags().BoolVar(&all, "all", false, "release every managed job")
	return cmd
}

func (a *app) release(ctx context.Context, planner *httpapi.Client, req httpapi.ReleaseRequest) error {
	result, err := planner.Release(ctx, req)
	if err != nil {
		return fmt.Errorf("release: %w", err)
	}
	if err := a.print(result, func(w io.Writer, s render.Style) error { return render.Released(w, s, result) }); err != nil {
		return err
	}
	for _, j := range result.Jobs {
		if !j.Done {
			return &exit{code: CodeFailure}
		}
	}
	return nil
}
