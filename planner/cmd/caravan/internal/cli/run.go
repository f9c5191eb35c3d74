package cli

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/hashicorp/nomad/api"
	"github.com/spf13/cobra"

	"github.com/caravan-sched/caravan/planner/cmd/caravan/internal/render"
	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/gangspec"
	"github.com/caravan-sched/caravan/planner/httpapi"
)

// lookEvery is the time between two looks at a job that is waited for.
const lookEvery = time.Second

// unseenLooks is after how many looks a planner that takes a job for its own, and
// has not seen it yet, is waited for no longer. The pauses between them grow.
const unseenLooks = 10

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
	// nodes are names by ID.
	nodes map[string]string
}

func (a *app) runCommand() *cobra.Command {
	var flags jobFlags
	var detach, wait bool
	cmd := &cobra.Command{
		Use:   "run FILE",
		Short: "Submit a job and show what was decided",
		Long: `Run submits a job file through the planner's gateway and shows the first
decision. Nomad parses the file; FILE may be - for standard input. The job goes
into the namespace that the file names, else that of --namespace or
NOMAD_NAMESPACE. A job that runs is not replaced by a version that can never
start.

With --wait it returns once every member is placed, or the job is found to be
one that waiting does not help: too large, invalid, held.

Exit codes: 0 admitted, ended, or left to Nomad; 1 refused; 2 the job waits in
the queue. With --detach it is 0 as soon as the job is registered.`,
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
	planner, err := a.planner()
	if err != nil {
		return err
	}
	// Nomad itself would take the job as it is, past every queue.
	if err := isPlanner(ctx, planner); err != nil {
		return fmt.Errorf("nothing was registered: %w", err)
	}
	sub, err := a.parse(jf)
	if err != nil {
		return err
	}
	job := sub.job
	if err := mayReplace(ctx, planner, job); err != nil {
		return err
	}
	resp, _, err := sub.nomad.Jobs().RegisterOpts(job, &api.RegisterOptions{Submission: sub.source}, new(api.WriteOptions).WithContext(ctx))
	if err != nil {
		return fmt.Errorf("register %s: %w", deref(job.ID), err)
	}
	out := registered{
		Namespace: deref(job.Namespace), Job: deref(job.ID), EvalID: resp.EvalID,
		Warnings: append(idle(job), lines(resp.Warnings)...), detached: detach,
	}
	if !detach {
		if err := a.follow(ctx, planner, sub, &out, wait); err != nil {
			return err
		}
		if out.Explain != nil && !a.json {
			out.nodes = nodeNames(ctx, planner, out.Explain.Detail)
		}
	}
	if err := a.print(out, out.text); err != nil {
		return err
	}
	// What was admitted a moment ago may not be seen as such yet.
	if e := out.Explain; e != nil && e.State == model.StateQueued && e.Action != model.ActionAdmit {
		return &exit{code: CodeQueued}
	}
	return nil
}

// hopeless says whether a decision will not change by waiting.
func hopeless(d model.Detail) bool {
	switch d.Code {
	case "too_large", "no_node", "invalid", "hold":
		return true
	}
	return false
}

// mayReplace refuses a new version of a running job that can never start: it
// would end what runs, for nothing.
func mayReplace(ctx context.Context, planner *httpapi.Client, job *api.Job) error {
	e, err := planner.Explain(ctx, deref(job.Namespace), deref(job.ID))
	if err != nil || e.Released || e.State != model.StateRunning && e.State != model.StateAdmitted || e.SpecHash == gangspec.Hash(job) {
		return nil // nothing runs, or the registration will say what is wrong
	}
	p, err := planner.Plan(ctx, job)
	if err != nil || !p.Managed || !hopeless(p.Decision.Detail) {
		return nil
	}
	return fmt.Errorf("job %s runs, and this version of it cannot start: %s; nothing was registered. If the running one is to end, stop it first: nomad job stop -namespace %s %s",
		render.Name(e.Namespace, e.ID), p.Decision.Reason, e.Namespace, e.ID)
}

// follow asks what was decided; with wait it looks until every member is
// placed, or waiting is of no use.
func (a *app) follow(ctx context.Context, planner *httpapi.Client, sub *submission, out *registered, wait bool) error {
	last := ""
	for looks := 1; ; looks++ {
		e, err := planner.Explain(ctx, out.Namespace, out.Job)
		if unknown(err) {
			if a.gone(ctx, planner, sub, out) {
				return nil
			}
			if looks == unseenLooks {
				return fmt.Errorf("the job is registered, but the planner has not seen it in Nomad yet; see what became of it with: caravan explain %s", render.Name(out.Namespace, out.Job))
			}
			if err := a.env.Sleep(ctx, time.Duration(looks)*lookEvery); err != nil {
				return fmt.Errorf("stopped waiting; the job stays registered: %w", err)
			}
			continue
		}
		if err != nil {
			return fmt.Errorf("the job is registered, but what was decided is not known: %w", err)
		}
		out.Managed, out.Explain = new(true), &e
		placed := e.State == model.StateRunning && e.Placed >= e.Members
		stuck := e.State == model.StateQueued && (hopeless(e.Detail) || len(e.Faults) > 0)
		if !wait || e.Released || placed || stuck {
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

// gone settles what became of a job that the planner does not know: it has
// ended, or is Nomad's. It returns false where the planner would manage it, and so
// has only not seen it yet.
func (a *app) gone(ctx context.Context, planner *httpapi.Client, sub *submission, out *registered) bool {
	if e, ok := ended(ctx, sub.nomad, out.Namespace, out.Job); ok {
		out.Explain = &e
		return true
	}
	if out.Explain != nil {
		return true // what was seen last stays the answer
	}
	if p, err := planner.Plan(ctx, sub.job); err == nil && p.Managed {
		return false
	}
	out.Managed = new(false)
	return true
}

func (r registered) text(w io.Writer, s render.Style) error {
	if _, err := fmt.Fprintf(w, "Job %q is registered.\n", render.Name(r.Namespace, r.Job)); err != nil {
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
		_, err := fmt.Fprintln(w, "Caravan leaves this job to Nomad; `caravan plan` says why.")
		return err
	}
	if _, err := fmt.Fprintln(w); err != nil {
		return err
	}
	s.Nodes = r.nodes
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
