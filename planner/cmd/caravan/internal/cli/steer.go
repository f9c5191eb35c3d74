package cli

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/caravan-sched/caravan/planner/cmd/caravan/internal/render"
	"github.com/caravan-sched/caravan/planner/httpapi"
)

func (a *app) suspendCommand() *cobra.Command {
	return a.steerCommand(httpapi.VerbSuspend, "Stop every process of a running gang, and keep its GPUs",
		`Suspend stops every process of a job's gangs where they are, as SIGSTOP does. The
members keep their GPUs and their memory, until caravan resume.`)
}

func (a *app) resumeCommand() *cobra.Command {
	return a.steerCommand(httpapi.VerbResume, "Continue a suspended gang",
		`Resume continues every process of a job's suspended gangs.`)
}

func (a *app) requeueCommand() *cobra.Command {
	return a.steerCommand(httpapi.VerbRequeue, "Checkpoint and stop a job, and queue it again",
		`Requeue stops a job that is placed, with a checkpoint where its members take one,
and queues it again. It counts as no failure.`)
}

// steerCommand is one that tells the planner what to do to a job's gangs.
func (a *app) steerCommand(verb httpapi.Verb, short, long string) *cobra.Command {
	var reason string
	cmd := &cobra.Command{
		Use: string(verb) + " JOB", Short: short, Args: args(1, 1, "one job"),
		Long: long + " It needs the right\nto submit jobs in the job's namespace.",
		RunE: func(cmd *cobra.Command, argv []string) error {
			planner, err := a.planner()
			if err != nil {
				return err
			}
			e, err := a.find(cmd.Context(), planner, argv[0])
			if err != nil {
				return err
			}
			return a.steer(cmd.Context(), planner, verb, httpapi.SteerRequest{Namespace: e.Namespace, Job: e.ID, Reason: reason})
		},
	}
	cmd.Flags().StringVar(&reason, "reason", "", "`text` that is shown to who asks why")
	return cmd
}

func (a *app) steer(ctx context.Context, planner *httpapi.Client, verb httpapi.Verb, req httpapi.SteerRequest) error {
	result, err := planner.Steer(ctx, verb, req)
	if err != nil {
		return fmt.Errorf("%s: %w", verb, err)
	}
	return a.print(result, func(w io.Writer, _ render.Style) error {
		_, err := fmt.Fprintf(w, "%s: %s.\n", render.Name(result.Namespace, result.Job), result.Note)
		return err
	})
}
