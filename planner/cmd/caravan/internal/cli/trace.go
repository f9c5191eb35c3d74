package cli

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/caravan-sched/caravan/planner/cmd/caravan/internal/render"
	"github.com/caravan-sched/caravan/planner/sim/trace"
)

// traceFlags say which trace is read, and how.
type traceFlags struct {
	file, format, unit, throughputs string
	strict                          bool
}

func (f *traceFlags) add(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.file, "trace", "", "`file` with the jobs, plain or gzipped; - is standard input")
	f.addFormat(cmd)
}

func (f *traceFlags) addFormat(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.format, "format", trace.FormatCSV, "the trace's `form`: "+strings.Join(trace.Formats(), ", "))
	cmd.Flags().StringVar(&f.unit, "time-unit", "s", "`unit` of the trace's times: s, ms, min")
	cmd.Flags().StringVar(&f.throughputs, "throughputs", "", "`file` of throughputs for the gavel form (default simulation_throughputs.json.gz beside the trace)")
	cmd.Flags().BoolVar(&f.strict, "strict", false, "stop at the first broken row; otherwise such rows are counted and left out")
}

// units are how many seconds each is.
var units = map[string]float64{"s": 1, "ms": 1e-3, "min": 60}

// options opens what else the format needs.
func (f *traceFlags) options() (trace.Options, error) {
	unit, known := units[f.unit]
	if !known {
		return trace.Options{}, usage("--time-unit %q: want s, ms or min", f.unit)
	}
	o := trace.Options{Format: f.format, Unit: unit, Strict: f.strict}
	if f.format != trace.FormatGavel {
		return o, nil
	}
	name := f.throughputs
	if name == "" {
		name = filepath.Join(filepath.Dir(f.file), "simulation_throughputs.json.gz")
	}
	file, err := os.Open(name)
	if errors.Is(err, fs.ErrNotExist) && f.throughputs == "" {
		return o, usage("there is no %s beside the trace: name the file with --throughputs", filepath.Base(name))
	}
	if err != nil {
		return o, fmt.Errorf("read throughputs: %w", err)
	}
	defer file.Close()
	o.Throughputs, err = trace.Throughputs(file, "v100")
	if err != nil {
		return o, fmt.Errorf("%s: %w", name, err)
	}
	return o, nil
}

// open opens the trace's file.
func (f *traceFlags) open(env Env) (io.ReadCloser, error) {
	switch f.file {
	case "":
		return nil, usage("no trace: name a file with --trace")
	case "-":
		return io.NopCloser(env.Stdin), nil
	}
	file, err := os.Open(f.file)
	if err != nil {
		return nil, fmt.Errorf("read trace: %w", err)
	}
	return file, nil
}

// read reads it whole, and warns of what was left out.
func (f *traceFlags) read(env Env) ([]trace.Job, trace.Report, error) {
	in, err := f.open(env)
	if err != nil {
		return nil, trace.Report{}, err
	}
	defer in.Close()
	o, err := f.options()
	if err != nil {
		return nil, trace.Report{}, err
	}
	jobs, rep, err := trace.Read(in, o)
	if err != nil {
		return nil, rep, fmt.Errorf("%s: %w", f.file, err)
	}
	return jobs, rep, f.warn(env, rep)
}

// readAtMost reads whole days of it, with so many jobs at most, and says what was
// left out.
func (f *traceFlags) readAtMost(env Env, most int) ([]trace.Job, trace.Report, error) {
	in, err := f.open(env)
	if err != nil {
		return nil, trace.Report{}, err
	}
	defer in.Close()
	o, err := f.options()
	if err != nil {
		return nil, trace.Report{}, err
	}
	jobs, kept, err := trace.Bounded(in, o, most, 1)
	if err != nil {
		return nil, kept.Report, fmt.Errorf("%s: %w", f.file, err)
	}
	if kept.Whole < kept.Days {
		if _, err := fmt.Fprintf(env.Stderr, "%s: %d jobs are more than %d (--max-jobs): %d of its %d days are used, drawn at random, with %d jobs\n", f.file, kept.Jobs, most, kept.Whole, kept.Days, kept.KeptJobs); err != nil {
			return nil, kept.Report, fmt.Errorf("%s: %w", f.file, err)
		}
	}
	return jobs, kept.Report, f.warn(env, kept.Report)
}

func (f *traceFlags) warn(env Env, rep trace.Report) error {
	if rep.Broken == 0 {
		return nil
	}
	_, err := fmt.Fprintf(env.Stderr, "%s: %d of %d rows are broken and left out; the first is %s\n", f.file, rep.Broken, rep.Rows, rep.First)
	return err
}

func (a *app) traceCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "trace",
		Short: "Look at traces of jobs, and make others of them",
		Args:  args(0, 0, "a command"),
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(a.traceDescribe(), a.traceConvert(), a.traceSample(), a.traceScale(), a.traceSynth(), a.traceImport(), a.traceCheckEvents())
	return cmd
}

// described is what `trace describe` prints as JSON.
type described struct {
	trace.Summary
	Read trace.Report `json:"read"`
}

func (a *app) traceDescribe() *cobra.Command {
	var f traceFlags
	cmd := &cobra.Command{
		Use: "describe FILE", Short: "Sum a trace up", Args: args(1, 1, "one file"),
		RunE: func(_ *cobra.Command, argv []string) error {
			f.file = argv[0]
			jobs, rep, err := f.read(a.env)
			if err != nil {
				return err
			}
			s := trace.Describe(jobs)
			return a.print(described{s, rep}, func(w io.Writer, style render.Style) error { return render.Trace(w, style, s, rep) })
		},
	}
	f.addFormat(cmd)
	return cmd
}

// writeTrace writes jobs in the project's own form.
func (a *app) writeTrace(jobs []trace.Job) error {
	w, err := trace.NewWriter(a.env.Stdout)
	if err != nil {
		return err
	}
	for i := range jobs {
		if err := w.Write(jobs[i]); err != nil {
			return err
		}
	}
	return w.Flush()
}

func (a *app) traceConvert() *cobra.Command {
	var f traceFlags
	cmd := &cobra.Command{
		Use: "convert FILE", Short: "Write a trace in the project's own form, row by row", Args: args(1, 1, "one file"),
		RunE: func(_ *cobra.Command, argv []string) error {
			f.file = argv[0]
			in, err := f.open(a.env)
			if err != nil {
				return err
			}
			defer in.Close()
			o, err := f.options()
			if err != nil {
				return err
			}
			w, err := trace.NewWriter(a.env.Stdout)
			if err != nil {
				return err
			}
			rep, err := trace.Scan(in, o, w.Write)
			if err := errors.Join(err, w.Flush()); err != nil {
				return fmt.Errorf("%s: %w", f.file, err)
			}
			return f.warn(a.env, rep)
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
			jobs, _, err := f.read(a.env)
			if err != nil {
				return err
			}
			jobs = trace.Shift(jobs)
			if cmd.Flags().Changed("seed") {
				jobs = trace.Bootstrap(jobs, seed)
			}
			out := trace.Window(jobs, from*86400, days*86400)
			if len(out) == 0 {
				return fmt.Errorf("%s: no job is submitted in the %g days from day %g", f.file, days, from)
			}
			return a.writeTrace(trace.Shift(out))
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
MASCOTS'11, which samples windows of a trace and scales them to a cluster).`,
		RunE: func(_ *cobra.Command, argv []string) error {
			f.file = argv[0]
			if err := trace.CheckScale(gpus, load); err != nil {
				return usage("%w", err)
			}
			jobs, _, err := f.read(a.env)
			if err != nil {
				return err
			}
			fit, tooLarge := trace.Fit(trace.Shift(jobs), func(n int) bool { return n <= gpus })
			scaled, factor, err := trace.ScaleTo(trace.Shift(fit), gpus, load)
			if err != nil {
				return err
			}
			if _, err := fmt.Fprintf(a.env.Stderr, "submissions are moved by a factor of %.6g; %d jobs are larger than %d GPUs and left out\n", factor, len(tooLarge), gpus); err != nil {
				return err
			}
			return a.writeTrace(scaled)
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
		RunE: func(*cobra.Command, []string) error {
			jobs, err := s.Make()
			if err != nil {
				return usage("%w", err)
			}
			return a.writeTrace(jobs)
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
