package cli

import (
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/caravan-sched/caravan/planner/cmd/caravan/internal/render"
	"github.com/caravan-sched/caravan/planner/sim/trace"
)

func (a *app) traceCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "trace",
		Short: "Look at traces of jobs, and make others of them",
		Args: func(cmd *cobra.Command, got []string) error {
			if len(got) > 0 {
				return usage("unknown command %q for %q", got[0], cmd.CommandPath())
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(a.traceDescribe(), a.traceConvert(), a.traceSample(), a.traceScale(), a.traceSynth(), a.traceImport(), a.traceCheckEvents())
	return cmd
}

// described is what `trace describe` prints as JSON.
type described struct {
	trace.Summary
	Read trace.Report `json:"read"`
	// Warnings are what makes one doubt its times.
	Warnings []string `json:"warnings,omitempty"`
}

func (a *app) traceDescribe() *cobra.Command {
	var f traceFlags
	cmd := &cobra.Command{
		Use: "describe FILE", Short: "Sum a trace up", Args: args(1, 1, "one file"),
		RunE: func(cmd *cobra.Command, argv []string) error {
			f.file = argv[0]
			d := trace.NewDescriber()
			rep, err := f.scan(cmd.Context(), a.env, func(j trace.Job) error {
				d.Add(&j)
				return nil
			})
			if err != nil {
				return err
			}
			s := d.Summary()
			doubts := f.doubts(&s)
			if err := f.tell(a.env, doubts); err != nil {
				return err
			}
			return a.print(described{s, rep, doubts}, func(w io.Writer, style render.Style) error { return render.Trace(w, style, s, rep) })
		},
	}
	f.addFormat(cmd)
	return cmd
}

// writeTrace writes the jobs that are handed to it in the project's own form; nothing if
// it fails before the first.
func (a *app) writeTrace(from func(write func(trace.Job) error) error) error {
	var w *trace.Writer
	err := from(func(j trace.Job) (err error) {
		if w == nil {
			w, err = trace.NewWriter(a.env.Stdout)
		}
		if err != nil {
			return err
		}
		return w.Write(j)
	})
	if w != nil {
		err = errors.Join(err, w.Flush())
	}
	return err
}

func (a *app) writeJobs(jobs []trace.Job) error {
	return a.writeTrace(func(write func(trace.Job) error) error {
		for i := range jobs {
			if err := write(jobs[i]); err != nil {
				return err
			}
		}
		return nil
	})
}

func (a *app) traceConvert() *cobra.Command {
	var f traceFlags
	cmd := &cobra.Command{
		Use: "convert FILE", Short: "Write a trace in the project's own form, row by row", Args: args(1, 1, "one file"),
		RunE: func(cmd *cobra.Command, argv []string) error {
			f.file = argv[0]
			return a.writeTrace(func(write func(trace.Job) error) error {
				_, err := f.scan(cmd.Context(), a.env, write)
				return err
			})
		},
	}
	f.addFormat(cmd)
	return cmd
}

func (a *app) traceSample() *cobra.Command {
	var f traceFlags
	var from, days float64
	var seed uint64
	cmd := &cobra.Command{
		Use: "sample FILE", Short: "Take some days out of a trace, in a row or drawn at random", Args: args(1, 1, "one file"),
		RunE: func(cmd *cobra.Command, argv []string) error {
			f.file = argv[0]
			if err := sampled(from, days); err != nil {
				return err
			}
			return a.writeTrace(func(write func(trace.Job) error) error {
				return f.passes(cmd.Context(), a.env, func(p *trace.Passes) (trace.Report, error) {
					take := p.Window
					if cmd.Flags().Changed("seed") {
						take = func(from, length float64, write func(trace.Job) error) (trace.Report, int, error) {
							return p.Drawn(seed, from, length, write)
						}
					}
					rep, n, err := take(from*86400, days*86400, write)
					if err == nil && n == 0 {
						err = fmt.Errorf("no job is submitted in the %g days from day %g", days, from)
					}
					return rep, err
				})
			})
		},
	}
	f.addFormat(cmd)
	cmd.Flags().Float64Var(&from, "from", 0, "the first `day`")
	cmd.Flags().Float64Var(&days, "days", 7, "`number` of days")
	cmd.Flags().Uint64Var(&seed, "seed", 0, "draw the days at random, with this `seed`")
	return cmd
}

// sampled checks which days are asked for.
func sampled(from, days float64) error {
	var err error
	if !(from >= 0 && from <= trace.MaxDays) {
		err = errors.Join(err, fmt.Errorf("--from %g: want 0 to %d", from, trace.MaxDays))
	}
	if !(days > 0 && days <= trace.MaxDays) {
		err = errors.Join(err, fmt.Errorf("--days %g: want more than 0, at most %d", days, trace.MaxDays))
	}
	if err != nil {
		return usage("%w", err)
	}
	return nil
}

func (a *app) traceScale() *cobra.Command {
	var f traceFlags
	var gpus int
	var load float64
	cmd := &cobra.Command{
		Use: "scale FILE", Short: "Move submissions so that a trace is some load for some cluster", Args: args(1, 1, "one file"),
		Long: `Scale leaves out the jobs that the cluster can never run, and moves all submissions
by one factor, so that what is left is the load asked for (as in SWIM: Chen et
al., The Case for Evaluating MapReduce Performance Using Workload Suites,
MASCOTS'11, which samples windows of a trace and scales them to a cluster). Rows
keep their order.`,
		RunE: func(cmd *cobra.Command, argv []string) error {
			f.file = argv[0]
			if err := trace.CheckScale(gpus, load); err != nil {
				return usage("%w", err)
			}
			return a.writeTrace(func(write func(trace.Job) error) error {
				return f.passes(cmd.Context(), a.env, func(p *trace.Passes) (trace.Report, error) {
					out, err := p.Scale(gpus, load, write)
					if err != nil {
						return out.Report, err
					}
					_, err = fmt.Fprintf(a.env.Stderr, "submissions are moved by a factor of %.6g; %d jobs are larger than %d GPUs and left out\n", out.Factor, out.TooLarge, gpus)
					return out.Report, err
				})
			})
		},
	}
	f.addFormat(cmd)
	cmd.Flags().IntVar(&gpus, "gpus", 256, "`number` of GPUs of the cluster")
	cmd.Flags().Float64Var(&load, "load", 1, "what the jobs need, by what the cluster has, as a `part`")
	return cmd
}

func (a *app) traceSynth() *cobra.Command {
	s := trace.Synthetic{}
	cmd := &cobra.Command{
		Use: "synth", Short: "Make up a trace of foundation-model training", Args: args(0, 0, "no argument"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := s.Check(); err != nil {
				return usage("%w", err)
			}
			return a.writeTrace(func(write func(trace.Job) error) error {
				return s.Each(func(j trace.Job) error {
					if cmd.Context().Err() != nil {
						return errors.New("it was interrupted before all jobs were made")
					}
					return write(j)
				})
			})
		},
	}
	cmd.Flags().IntVar(&s.Jobs, "jobs", 10000, "`number` of jobs")
	cmd.Flags().Float64Var(&s.Days, "days", 30, "`number` of days over which they are submitted")
	cmd.Flags().IntVar(&s.GPUsPerNode, "gpus-per-node", 8, "`number` of GPUs in each node")
	cmd.Flags().IntVar(&s.MaxNodes, "max-nodes", 512, "`number` of nodes of the largest gangs")
	cmd.Flags().Float64Var(&s.Small, "small", 0.5, "`part` of jobs smaller than a node")
	cmd.Flags().Uint64Var(&s.Seed, "seed", 1, "`seed`")
	return cmd
}
