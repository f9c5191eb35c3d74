package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/hashicorp/nomad/api"
	"github.com/spf13/cobra"

	"github.com/caravan-sched/caravan/planner/cmd/caravan/internal/render"
	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/gangspec"
)

func (a *app) planCommand() *cobra.Command {
	var flags jobFlags
	cmd := &cobra.Command{
		Use:   "plan FILE",
		Short: "Show what would be decided on a job, and change nothing",
		Long: `Plan lets Nomad check a job file and asks the planner what it would decide on the
job now, as the last in its queue. Of a job that is there already it says whether
the file changes anything, and whether what runs would stay, be resized or end; a
forecast of Nomad's is part of that only in nomad job plan. Nothing is registered.

Exit codes: 0 it would be admitted, or left to Nomad; 1 it would be refused;
2 it would wait in the queue.`,
		Args: args(1, 1, "one job file"),
		RunE: func(cmd *cobra.Command, argv []string) error {
			jf, err := flags.read(a.env, argv[0])
			if err != nil {
				return err
			}
			return a.plan(cmd.Context(), jf)
		},
	}
	flags.add(cmd)
	return cmd
}

func (a *app) plan(ctx context.Context, jf *jobFile) error {
	planner, err := a.planner()
	if err != nil {
		return err
	}
	if err := isPlanner(ctx, planner); err != nil {
		return err
	}
	sub, err := a.parse(jf)
	if err != nil {
		return err
	}
	out := render.Planned{Warnings: idle(sub.job)}
	if err := validateInto(ctx, &out, sub); err != nil {
		return fmt.Errorf("validate %s: %w", deref(sub.job.ID), err)
	}
	out.PlanResult, err = planner.Plan(ctx, sub.job)
	switch {
	case err != nil && len(out.Refused) == 0:
		return fmt.Errorf("plan %s: %w", deref(sub.job.ID), err)
	case len(out.Refused) > 0:
		out.Decision, out.Placement = model.Decision{}, nil
	}
	err = a.print(out, func(w io.Writer, s render.Style) error {
		s.Nodes = nodeNames(ctx, planner, out.Decision.Detail)
		return render.Plan(w, s, render.Name(deref(sub.job.Namespace), deref(sub.job.ID)), out)
	})
	if err != nil {
		return err
	}
	switch {
	case len(out.Refused)+len(out.Faults) > 0:
		return &exit{code: CodeFailure}
	case out.Managed && out.Decision.Action != model.ActionAdmit:
		return &exit{code: CodeQueued}
	}
	return nil
}

// validateInto lets Nomad check the job. Who may not ask for that, and may
// register all the same, is told so.
func validateInto(ctx context.Context, p *render.Planned, sub *submission) error {
	resp, _, err := sub.nomad.Jobs().Validate(sub.job, (&api.WriteOptions{Namespace: deref(sub.job.Namespace)}).WithContext(ctx))
	var answer api.UnexpectedResponseError
	if errors.As(err, &answer) && answer.StatusCode() == http.StatusForbidden {
		p.Warnings = append(p.Warnings, "Nomad's own checks were not made: the token lacks read-job in namespace "+deref(sub.job.Namespace))
		return nil
	}
	if err != nil {
		return err
	}
	p.Warnings = append(p.Warnings, lines(resp.Warnings)...)
	for _, text := range resp.ValidationErrors {
		p.Refused = append(p.Refused, strings.Join(strings.Fields(text), " "))
	}
	if resp.Error != "" && len(p.Refused) == 0 {
		p.Refused = lines(resp.Error)
	}
	return nil
}

// idle warns of settings that do nothing, because Caravan leaves the job to
// Nomad whatever it asks for.
func idle(job *api.Job) []string {
	why, keys := gangspec.Unmanageable(job), gangspec.Written(job)
	if why == "" || len(keys) == 0 {
		return nil
	}
	return []string{fmt.Sprintf("%s: no effect, the job is left to Nomad: %s", strings.Join(keys, ", "), why)}
}
