package cli

import (
	"context"
	"fmt"
	"io"
	"net/url"

	"github.com/hashicorp/nomad/api"
	"github.com/spf13/cobra"

	"github.com/caravan-sched/caravan/planner/cmd/caravan/internal/render"
)

// deployed is what a command has done to an update.
type deployed struct {
	Namespace  string `json:"namespace"`
	Job        string `json:"job"`
	Deployment string `json:"deployment"`
	Done       string `json:"done"`
}

func (a *app) promoteCommand() *cobra.Command {
	return &cobra.Command{
		Use: "promote JOB", Short: "Make the canaries of a job's update members of it", Args: args(1, 1, "one job"),
		Long: `Promote lets the update of a service go on: its canaries take the places of the
members that they run beside, and the rest is updated as the job's update block
says. nomad job promote does the same. It needs the right to submit the job.`,
		RunE: func(cmd *cobra.Command, argv []string) error {
			return a.deploy(cmd.Context(), argv[0], "is promoted", func(c *api.Client, d *api.Deployment, w *api.WriteOptions) error {
				_, _, err := c.Deployments().PromoteAll(d.ID, w)
				return err
			})
		},
	}
}

func (a *app) rollbackCommand() *cobra.Command {
	return &cobra.Command{
		Use: "rollback JOB", Short: "Take a job's update back", Args: args(1, 1, "one job"),
		Long: `Rollback gives the update of a service up that is under way or has failed: its
canaries are stopped, and what has changed already goes back to the version
before, as many gangs at a time as the job's update block says. nomad deployment
fail does so only where the block says auto_revert. It needs the right to submit
the job.`,
		RunE: func(cmd *cobra.Command, argv []string) error {
			return a.deploy(cmd.Context(), argv[0], "is taken back", func(c *api.Client, d *api.Deployment, w *api.WriteOptions) error {
				_, err := c.Raw().Write("/v1/deployment/fail/"+url.PathEscape(d.ID)+"?caravan=rollback", api.DeploymentFailRequest{DeploymentID: d.ID}, nil, w)
				return err
			})
		},
	}
}

// deploy does something to the latest update of a job.
func (a *app) deploy(ctx context.Context, job, done string, do func(*api.Client, *api.Deployment, *api.WriteOptions) error) error {
	c, err := a.nomad()
	if err != nil {
		return err
	}
	namespace := a.jobNamespace()
	d, _, err := c.Jobs().LatestDeployment(job, (&api.QueryOptions{Namespace: namespace}).WithContext(ctx))
	switch {
	case err != nil:
		return fmt.Errorf("look up the update of job %q: %w", job, err)
	case d == nil:
		return fmt.Errorf("job %q in namespace %q has no update: it is not a service that was updated, or Caravan does not manage it", job, namespace)
	}
	if err := do(c, d, (&api.WriteOptions{Namespace: namespace}).WithContext(ctx)); err != nil {
		return fmt.Errorf("change the update of job %q: %w", job, err)
	}
	out := deployed{Namespace: namespace, Job: job, Deployment: d.ID, Done: done}
	return a.print(out, func(w io.Writer, _ render.Style) error {
		_, err := fmt.Fprintf(w, "The update of %s %s; see nomad deployment status %s, or caravan explain %s.\n", render.Name(namespace, job), done, d.ID[:min(len(d.ID), 8)], job)
		return err
	})
}
