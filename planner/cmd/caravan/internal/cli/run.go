package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/hashicorp/nomad/api"
	"github.com/spf13/cobra"

	"github.com/caravan-sched/caravan/planner/cmd/caravan/internal/render"
	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/httpapi"
)

// lookEvery is the time between two looks at a job that is waited for.
const lookEvery = time.Second

// registered is what `run` prints as JSON.
type registered struct {
	Namespace string   `json:"namespace"`
	Job       string   `json:"job"`
	EvalID    string   `json:"eval_id,omitempty"`
	Warnings  []string `json:"warnings,omitempty"`
	// Managed is false when Caravan leaves the job to Nomad, and absent when
	// that was not asked.
	Managed *bool            `json:"managed,omitempty"`
	Explain *httpapi.Explain `json:"explain,omitempty"`
	// detached: nobody asked what was decided.
	detached bool
}

func (a *app) runCommand() *cobra.Command {
	var flags jobFlags
	var detach, wait bool
	cmd := &cobra.Command{
		Use:   "run FILE",
		Short: "Submit a job and show what was decided",
		Long: `Run submits a job file through the planner's gateway and shows the first
decision. Nomad parses the file; FILE may be - for standard input.

Exit codes: 0 admitted, or left to Nomad; 1 refused; 2 the job waits in the queue.
With --detach it is 0 as soon as the job is registered.`,
		Example: "  caravan run train.hcl\n  caravan run -var members=4 --wait train.hcl",
		Args:    args(1, 1, "one job file"),
		RunE: func(cmd *cobra.Command, argv []string) error {
			if detach && wait {
				return usage("--detach and --wait exclude each other")
			}
			jf, err := flags.read(a.env, argv[0])
			if err != nil {
				return err
			}
			return a.run(cmd.Context(), jf, detach, wait)
		},
	}
	flags.add(cmd)
	cmd.Flags().BoolVar(&detach, "detach", false, "return once the job is registered")
	cmd.Flags().BoolVar(&wait, "wait", false, "return once every member is placed")
	return cmd
}

func (a *app) run(ctx context.Context, jf *jobFile, detach, wait bool) error {
	nomad, err := a.nomad()
	if err != nil {
		return err
	}
	job, submission, err := a.parse(nomad, jf)
	if err != nil {
		return err
	}
	resp, _, err := nomad.Jobs().RegisterOpts(job, &api.RegisterOptions{Submission: submission}, new(api.WriteOptions).WithContext(ctx))
	if err != nil {
		return fmt.Errorf("register %s: %w", deref(job.ID), err)
	}
	out := registered{Namespace: deref(job.Namespace), Job: deref(job.ID), EvalID: resp.EvalID, Warnings: lines(resp.Warnings), detached: detach}
	if !detach {
		if err := a.follow(ctx, &out, wait); err != nil {
			return err
		}
	}
	if err := a.print(out, out.text); err != nil {
		return err
	}
	if out.Explain != nil && out.Explain.State == model.StateQueued {
		return &exit{code: CodeQueued}
	}
	return nil
}

// follow asks what was decided; with wait it looks until every member is
// placed.
func (a *app) follow(ctx context.Context, out *registered, wait bool) error {
	planner, err := a.planner()
	if err != nil {
		return err
	}
	last := ""
	for {
		e, err := planner.Explain(ctx, out.Namespace, out.Job)
		gone := errors.Is(err, httpapi.ErrNotFound)
		if gone && out.Explain != nil {
			return nil // it ran, and has ended since the last look
		}
		out.Managed = new(!gone)
		if gone {
			if err := isPlanner(ctx, planner); err != nil {
				return fmt.Errorf("the job is registered, but %w", err)
			}
			return nil
		}
		if err != nil {
			return fmt.Errorf("the job is registered, but what was decided is not known: %w", err)
		}
		out.Explain = &e
		if !wait || e.Released || e.State == model.StateRunning && e.Placed >= e.Members {
			return nil
		}
		if e.Reason != last && !a.json {
			fmt.Fprintf(a.env.Stderr, "%s: %s\n", e.State, e.Reason)
		}
		last = e.Reason
		if err := a.env.Sleep(ctx, lookEvery); err != nil {
			return fmt.Errorf("stopped waiting; the job stays registered: %w", err)
		}
	}
}

func (r registered) text(w io.Writer, s render.Style) error {
	if _, err := fmt.Fprintf(w, "Job %q is registered.\n", r.Job); err != nil {
		return err
	}
	for _, line := range r.Warnings {
		// The reason is shown below.
		if r.Explain != nil && r.Explain.Reason != "" && strings.Contains(line, r.Explain.Reason) {
			continue
		}
		if _, err := fmt.Fprintln(w, "  "+line); err != nil {
			return err
		}
	}
	if r.Explain == nil {
		if r.detached {
			return nil
		}
		_, err := fmt.Fprintln(w, "Caravan leaves this job to Nomad (`caravan plan` says why), or it has ended already.")
		return err
	}
	if _, err := fmt.Fprintln(w); err != nil {
		return err
	}
	return render.Explain(w, s, *r.Explain)
}

// lines splits Nomad's warnings, which come as one text.
func lines(text string) []string {
	var out []string
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line != "" {
			out = append(out, line)
		}
	}
	return out
}

func (a *app) planCommand() *cobra.Command {
	var flags jobFlags
	cmd := &cobra.Command{
		Use:   "plan FILE",
		Short: "Show what would be decided on a job, and change nothing",
		Long: `Plan asks the planner what it would decide on a job file now, as the last in its
queue. Nothing is registered.

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
	nomad, err := a.nomad()
	if err != nil {
		return err
	}
	planner, err := a.planner()
	if err != nil {
		return err
	}
	job, _, err := a.parse(nomad, jf)
	if err != nil {
		return err
	}
	result, err := planner.Plan(ctx, job)
	if err != nil {
		return fmt.Errorf("plan %s: %w", deref(job.ID), err)
	}
	err = a.print(result, func(w io.Writer, s render.Style) error {
		return render.Plan(w, s, deref(job.ID), result)
	})
	switch {
	case err != nil:
		return err
	case len(result.Faults) > 0:
		return &exit{code: CodeFailure}
	case result.Managed && result.Decision.Action != model.ActionAdmit:
		return &exit{code: CodeQueued}
	}
	return nil
}
