package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/caravan-sched/caravan/planner/cmd/caravan/internal/render"
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

// explain asks about a job. A name with a slash is tried as it stands too.
func (a *app) explain(ctx context.Context, planner *httpapi.Client, arg string) (httpapi.Explain, error) {
	namespace, job := a.jobRef(arg)
	e, err := planner.Explain(ctx, namespace, job)
	if errors.Is(err, httpapi.ErrNotFound) && job != arg {
		namespace, job = a.jobNamespace(), arg
		e, err = planner.Explain(ctx, namespace, job)
	}
	if errors.Is(err, httpapi.ErrNotFound) {
		if err := isPlanner(ctx, planner); err != nil {
			return e, err
		}
		return e, fmt.Errorf("there is no managed job %q in namespace %q; `caravan status` lists them", job, namespace)
	}
	if err != nil {
		return e, fmt.Errorf("explain %s: %w", arg, err)
	}
	return e, nil
}

// isPlanner tells "not found" by a planner from an address where none is, for
// instance Nomad's own.
func isPlanner(ctx context.Context, planner *httpapi.Client) error {
	if _, err := planner.Status(ctx); errors.Is(err, httpapi.ErrNotFound) {
		return fmt.Errorf("what answers at %s is no Caravan planner; say with --address or CARAVAN_ADDR where it runs", planner.Address())
	} else if err != nil {
		return fmt.Errorf("read status: %w", err)
	}
	return nil
}

func (a *app) explainCommand() *cobra.Command {
	var long bool
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
			return a.print(e, func(w io.Writer, s render.Style) error {
				s.Long = long
				return render.Explain(w, s, e)
			})
		},
	}
	cmd.Flags().BoolVar(&long, "long", false, "show whole GPU UUIDs")
	return cmd
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
	jobs, err := planner.Jobs(ctx)
	if err != nil {
		return fmt.Errorf("read jobs: %w", err)
	}
	return a.print(overview{st, jobs}, func(w io.Writer, s render.Style) error {
		if err := render.Status(w, s, st); err != nil {
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
			if errors.Is(err, httpapi.ErrNotFound) {
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
				e, err := a.explain(cmd.Context(), planner, argv[0])
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
