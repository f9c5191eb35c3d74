package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/hashicorp/nomad/api"
	"github.com/spf13/cobra"

	"github.com/caravan-sched/caravan/planner/cmd/caravan/internal/render"
	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/httpapi"
)

// jobRef takes a job's name apart: JOB, or NAMESPACE/JOB unless a namespace
// was given by flag, since a job's ID may hold slashes.
func (a *app) jobRef(arg string) (namespace, job string) {
	if ns, id, ok := strings.Cut(arg, "/"); ok && a.namespace == "" && ns != "" && id != "" {
		return ns, id
	}
	return a.jobNamespace(), arg
}

// find asks about a managed job. A name with a slash is tried as it stands too.
// The error is errUnmanaged for a job that the planner does not know.
func (a *app) find(ctx context.Context, planner *httpapi.Client, arg string) (httpapi.Explain, error) {
	namespace, job := a.jobRef(arg)
	e, err := planner.Explain(ctx, namespace, job)
	if unknown(err) && job != arg {
		namespace, job = a.jobNamespace(), arg
		e, err = planner.Explain(ctx, namespace, job)
	}
	if unknown(err) {
		if err := isPlanner(ctx, planner); err != nil {
			return e, err
		}
		return e, &unmanagedError{job: job, namespace: namespace, elsewhere: namesakes(ctx, planner, job)}
	}
	if err != nil {
		return e, fmt.Errorf("explain %s: %w", arg, err)
	}
	return e, nil
}

// unmanagedError says that the planner does not know a job.
type unmanagedError struct {
	job, namespace string
	// elsewhere are the namespaces that have a managed job of that name.
	elsewhere []string
}

// Error implements error.
func (e *unmanagedError) Error() string {
	text := fmt.Sprintf("there is no managed job %q in namespace %q; ", e.job, e.namespace)
	if len(e.elsewhere) > 0 {
		return text + fmt.Sprintf("there is one in %s: name it %s/%s", strings.Join(e.elsewhere, ", "), e.elsewhere[0], e.job)
	}
	return text + "`caravan status` lists them"
}

// namesakes are the namespaces that have a managed job of that name, as far as
// the caller may see them.
func namesakes(ctx context.Context, planner *httpapi.Client, job string) []string {
	jobs, err := planner.Jobs(ctx)
	if err != nil {
		return nil
	}
	var out []string
	for _, j := range jobs {
		if j.ID == job {
			out = append(out, j.Namespace)
		}
	}
	return out
}

// explain asks about a managed job, or about one that has ended and that Nomad
// still remembers.
func (a *app) explain(ctx context.Context, planner *httpapi.Client, arg string) (httpapi.Explain, error) {
	e, err := a.find(ctx, planner, arg)
	var unmanaged *unmanagedError
	if !errors.As(err, &unmanaged) {
		return e, err
	}
	nomad, clientErr := a.nomad()
	if clientErr != nil {
		return e, clientErr
	}
	namespace, job := a.jobRef(arg)
	if e, ok := ended(ctx, nomad, namespace, job); ok {
		return e, nil
	}
	if e, ok := ended(ctx, nomad, a.jobNamespace(), arg); ok && job != arg {
		return e, nil
	}
	return e, err
}

// The states of a job that has ended, beside the planner's own.
const (
	stateEnded   model.State = "ended"
	stateFailed  model.State = "failed"
	stateStopped model.State = "stopped"
)

// ended asks Nomad, through the gateway, about a job that is no longer managed
// because it is over.
func ended(ctx context.Context, nomad *api.Client, namespace, id string) (httpapi.Explain, bool) {
	q := (&api.QueryOptions{Namespace: namespace}).WithContext(ctx)
	job, _, err := nomad.Jobs().Info(id, q)
	if err != nil || deref(job.Status) != "dead" || job.IsPeriodic() || job.IsParameterized() {
		return httpapi.Explain{}, false
	}
	e := httpapi.Explain{Job: httpapi.Job{Namespace: namespace, ID: id, Type: deref(job.Type), Priority: deref(job.Priority), State: stateEnded}}
	if at := deref(job.SubmitTime); at > 0 {
		e.Submitted = time.Unix(0, at).UTC()
	}
	summary, _, err := nomad.Jobs().Summary(id, q)
	if err != nil {
		summary = &api.JobSummary{} // how it ended is not known
	}
	var all api.TaskGroupSummary
	for _, g := range summary.Summary {
		all.Complete, all.Failed, all.Lost = all.Complete+g.Complete, all.Failed+g.Failed, all.Lost+g.Lost
	}
	switch {
	case deref(job.Stop):
		e.State, e.Reason = stateStopped, "it was stopped"
	case all.Failed+all.Lost > 0 && all.Complete == 0:
		e.State, e.Reason = stateFailed, "it has failed"
	default:
		e.Reason = "it has ended"
	}
	if err == nil {
		e.Reason += fmt.Sprintf(": allocations complete %d, failed %d, lost %d", all.Complete, all.Failed, all.Lost)
	}
	e.Reason += "; Nomad shows more, until it forgets the job: nomad job status -namespace " + namespace + " " + id
	return e, true
}

// nodeNames are the names of the nodes held for a job, by ID. Without the right
// to see nodes it is empty, and IDs are shown.
func nodeNames(ctx context.Context, planner *httpapi.Client, d model.Detail) map[string]string {
	if len(d.Held) == 0 {
		return nil
	}
	tree, err := planner.Topology(ctx)
	if err != nil {
		return nil
	}
	names := map[string]string{}
	var walk func(httpapi.Domain)
	walk = func(d httpapi.Domain) {
		if d.ID != "" {
			names[d.ID] = d.Name
		}
		for _, child := range d.Children {
			walk(child)
		}
	}
	walk(tree.Root)
	return names
}

// unknown says whether there is no such thing where the planner should be, or
// no planner.
func unknown(err error) bool {
	return errors.Is(err, httpapi.ErrNotFound) || errors.Is(err, httpapi.ErrNotPlanner)
}

// isPlanner tells a planner from an address where none is, for instance
// Nomad's own. One that knows the caller too little to answer is one.
func isPlanner(ctx context.Context, planner *httpapi.Client) error {
	_, err := planner.Status(ctx)
	var answer *httpapi.Error
	switch {
	case err == nil:
		return nil
	case errors.Is(err, httpapi.ErrNotPlanner):
		return &httpapi.Error{
			Message: fmt.Sprintf("what answers at %s is no Caravan planner", planner.Address()),
			Do:      "say with --address or CARAVAN_ADDR where it runs",
		}
	case errors.As(err, &answer) && (answer.Status == http.StatusForbidden || answer.Status == http.StatusUnauthorized):
		return nil
	}
	return fmt.Errorf("read status: %w", err)
}

func (a *app) explainCommand() *cobra.Command {
	var long, unblock bool
	cmd := &cobra.Command{
		Use:   "explain JOB",
		Short: "Show what was decided on a job, and why",
		Args:  args(1, 1, "one job, as ID or NAMESPACE/ID"),
		RunE: func(cmd *cobra.Command, argv []string) error {
			planner, err := a.planner()
			if err != nil {
				return err
			}
			e, err := a.explain(cmd.Context(), planner, argv[0])
			if err != nil {
				return err
			}
			if unblock {
				return a.unblock(cmd.Context(), planner, e)
			}
			return a.print(e, func(w io.Writer, s render.Style) error {
				s.Long, s.Nodes = long, nodeNames(cmd.Context(), planner, e.Detail)
				return render.Explain(w, s, e)
			})
		},
	}
	cmd.Flags().BoolVar(&long, "long", false, "show whole GPU UUIDs")
	cmd.Flags().BoolVar(&unblock, "unblock", false, "show what could be stopped at the least cost so that the job starts at once")
	return cmd
}

// unblock shows the cheapest way to make room for a job.
func (a *app) unblock(ctx context.Context, planner *httpapi.Client, e httpapi.Explain) error {
	result, err := planner.Unblock(ctx, e.Namespace, e.ID)
	if err != nil {
		return fmt.Errorf("look for what would unblock %s: %w", e.ID, err)
	}
	return a.print(result, func(w io.Writer, _ render.Style) error {
		text := "Nothing that could be stopped would let it start: " + e.Reason
		switch {
		case result.Unblock != nil:
			text = result.Unblock.Reason
		case e.State == model.StateRunning || e.State == model.StateAdmitted:
			text = fmt.Sprintf("%s does not wait, it is %s already: nothing has to be stopped for it.", render.Name(e.Namespace, e.ID), e.State)
		}
		_, err := fmt.Fprintln(w, text)
		return err
	})
}

func (a *app) statusCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "status [JOB]",
		Short: "Show the planner and its jobs, or one job",
		Args:  args(0, 1, "no argument or one job"),
		RunE: func(cmd *cobra.Command, argv []string) error {
			planner, err := a.planner()
			if err != nil {
				return err
			}
			if len(argv) == 1 {
				e, err := a.explain(cmd.Context(), planner, argv[0])
				if err != nil {
					return err
				}
				return a.print(e.Job, func(w io.Writer, s render.Style) error {
					return render.Jobs(w, s, []httpapi.Job{e.Job})
				})
			}
			return a.status(cmd.Context(), planner)
		},
	}
}

// overview is what `status` prints as JSON.
type overview struct {
	httpapi.Status
	Jobs []httpapi.Job `json:"jobs"`
}

func (a *app) status(ctx context.Context, planner *httpapi.Client) error {
	st, err := planner.Status(ctx)
	if err != nil {
		return fmt.Errorf("read status: %w", err)
	}
	jobs, jobsErr := planner.Jobs(ctx)
	if jobsErr != nil {
		// How the planner is can be told even while Nomad is away.
		st.Warnings = append(st.Warnings, httpapi.Warning{Subject: "jobs", Text: "they cannot be listed: " + jobsErr.Error()})
	}
	return a.print(overview{st, jobs}, func(w io.Writer, s render.Style) error {
		if err := render.Status(w, s, st); err != nil || jobsErr != nil {
			return err
		}
		if _, err := fmt.Fprintln(w); err != nil {
			return err
		}
		return render.Jobs(w, s, jobs)
	})
}

func (a *app) queueCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "queue",
		Short: "Show the jobs that wait, in their order, and why",
		Args:  args(0, 0, "no argument"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			planner, err := a.planner()
			if err != nil {
				return err
			}
			jobs, err := planner.Queue(cmd.Context())
			if err != nil {
				return fmt.Errorf("read queue: %w", err)
			}
			return a.print(jobs, func(w io.Writer, s render.Style) error { return render.Queue(w, s, jobs) })
		},
	}
}

func (a *app) queuesCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "queues",
		Short: "Show the queues: what they are guaranteed, use, borrow and wait for",
		Args:  args(0, 0, "no argument"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			planner, err := a.planner()
			if err != nil {
				return err
			}
			queues, err := planner.Queues(cmd.Context())
			if err != nil {
				return fmt.Errorf("read queues: %w", err)
			}
			return a.print(queues, func(w io.Writer, _ render.Style) error { return render.Queues(w, queues) })
		},
	}
	cmd.AddCommand(a.setCommand(httpapi.SettingQueues, "queues.hcl"), a.resetCommand(httpapi.SettingQueues))
	return cmd
}

func (a *app) topologyCommand() *cobra.Command {
	var long bool
	cmd := &cobra.Command{
		Use:   "topology [NODE]",
		Short: "Show the tree with its free GPUs, or the inside of a node",
		Args:  args(0, 1, "no argument or one node, by ID, ID prefix or name"),
		RunE: func(cmd *cobra.Command, argv []string) error {
			planner, err := a.planner()
			if err != nil {
				return err
			}
			if len(argv) == 0 {
				tree, err := planner.Topology(cmd.Context())
				if err != nil {
					return fmt.Errorf("read topology: %w", err)
				}
				return a.print(tree, func(w io.Writer, s render.Style) error { return render.Topology(w, s, tree) })
			}
			node, err := planner.NodeTopology(cmd.Context(), argv[0])
			if unknown(err) {
				if err := isPlanner(cmd.Context(), planner); err != nil {
					return err
				}
				return fmt.Errorf("there is no node %q; `caravan topology` lists them", argv[0])
			}
			if err != nil {
				return fmt.Errorf("read node %s: %w", argv[0], err)
			}
			return a.print(node, func(w io.Writer, s render.Style) error {
				s.Long = long
				return render.Node(w, s, node)
			})
		},
	}
	cmd.Flags().BoolVar(&long, "long", false, "show whole GPU UUIDs")
	return cmd
}
