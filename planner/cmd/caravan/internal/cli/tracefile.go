package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/caravan-sched/caravan/planner/sim/trace"
)

// traceFlags say which trace is read, and how.
type traceFlags struct {
	file, format, unit, throughputs string
	strict                          bool
	shards                          int
}

func (f *traceFlags) add(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.file, "trace", "", "`file` with the jobs, plain or gzipped; - is standard input")
	f.addFormat(cmd)
}

func (f *traceFlags) addFormat(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.format, "format", trace.FormatCSV, "the trace's `form`: "+strings.Join(trace.Formats(), ", "))
	cmd.Flags().StringVar(&f.unit, "time-unit", "s", "`unit` of the trace's times: s, ms, min")
	cmd.Flags().StringVar(&f.throughputs, "throughputs", "", "`file` of throughputs for the gavel form (default simulation_throughputs.json.gz beside the trace)")
	cmd.Flags().IntVar(&f.shards, "shards-per-gpu", 0, "in the sacct form, `number` of shards (gres/shard) that a GPU has; 0: jobs with shards are left out")
	cmd.Flags().BoolVar(&f.strict, "strict", false, "stop at the first broken row; otherwise such rows are counted and left out")
}

// units are how many seconds each is.
var units = map[string]float64{"s": 1, "ms": 1e-3, "min": 60}

// options are how it is read, and opens what else the format needs. Every fault is in the
// error; the trace itself is not opened.
func (f *traceFlags) options() (trace.Options, error) {
	var faults []error
	unit, known := units[f.unit]
	if !known {
		faults = append(faults, fmt.Errorf("--time-unit %q: want s, ms or min", f.unit))
	}
	if !slices.Contains(trace.Formats(), f.format) {
		faults = append(faults, fmt.Errorf("--format %q: want one of %s", f.format, strings.Join(trace.Formats(), ", ")))
	}
	if f.shards < 0 || f.shards > trace.MaxShards {
		faults = append(faults, fmt.Errorf("--shards-per-gpu %d: want 0 (jobs with shards are left out) to %d", f.shards, trace.MaxShards))
	}
	o := trace.Options{Format: f.format, Unit: unit, Strict: f.strict, Shards: f.shards}
	if err := usageOf(errors.Join(append(faults, f.clashes())...)); err != nil || f.format != trace.FormatGavel {
		return o, err
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

// errNoTrace is that of a command that needs one.
var errNoTrace = usage("no trace: name a file with --trace")

// open opens the trace's file. What it reads ends as soon as the context does.
func (f *traceFlags) open(ctx context.Context, env Env) (io.ReadCloser, error) {
	switch f.file {
	case "":
		return nil, errNoTrace
	case "-":
		return unblocked(ctx, env.Stdin), nil
	}
	file, err := os.Open(f.file)
	if err != nil {
		return nil, fmt.Errorf("read trace: %w", err)
	}
	if info, err := file.Stat(); err == nil && !info.Mode().IsRegular() && !info.IsDir() {
		return unblocked(ctx, file), nil
	}
	return &interruptible{file, ctx}, nil
}

// failed is a trace that could not be read, or that somebody did not let be read.
func (f *traceFlags) failed(ctx context.Context, err error) error {
	if err != nil && ctx.Err() != nil {
		err = errors.New("it was interrupted before the trace was read to its end")
	}
	return fmt.Errorf("%s: %w", f.file, err)
}

// readAtMost reads whole days of it, with so many jobs at most, and says what was
// left out.
func (f *traceFlags) readAtMost(ctx context.Context, env Env, o trace.Options, most int) ([]trace.Job, trace.Kept, error) {
	in, err := f.open(ctx, env)
	if err != nil {
		return nil, trace.Kept{}, err
	}
	defer in.Close()
	jobs, kept, err := trace.Bounded(in, o, most, 1)
	if err != nil {
		return nil, kept, f.failed(ctx, err)
	}
	return jobs, kept, f.tell(env, keptSaid(&kept))
}

// keptSaid is what is to be said of rows that are not played.
func keptSaid(kept *trace.Kept) []string {
	lines := kept.Said()
	if kept.Whole < kept.Days {
		lines = append(lines, fmt.Sprintf("%d jobs are more than are kept (--max-jobs): %d of its %d days are used, drawn at random, with %d jobs", kept.Jobs, kept.Whole, kept.Days, kept.KeptJobs))
	}
	return lines
}

// doubts are what of the trace's times makes one think that they are in another unit, and
// which flag says it.
func (f *traceFlags) doubts(s *trace.Summary) (lines []string) {
	for _, line := range s.Doubts() {
		if ownTimes(f.format) {
			line += ": are the trace's times what they are to be?"
		} else {
			line += fmt.Sprintf(": are the trace's times in another unit? --time-unit is %s, and may be s, ms or min", f.unit)
		}
		lines = append(lines, line)
	}
	return lines
}

// tell says something of the trace's file.
func (f *traceFlags) tell(env Env, lines []string) error {
	for _, line := range lines {
		if _, err := fmt.Fprintf(env.Stderr, "%s: %s\n", f.file, line); err != nil {
			return fmt.Errorf("%s: %w", f.file, err)
		}
	}
	return nil
}

// scan reads the trace once, and warns of what was left out.
func (f *traceFlags) scan(ctx context.Context, env Env, each func(trace.Job) error) (trace.Report, error) {
	o, err := f.options()
	if err != nil {
		return trace.Report{}, err
	}
	in, err := f.open(ctx, env)
	if err != nil {
		return trace.Report{}, err
	}
	defer in.Close()
	rep, err := trace.Scan(in, o, each)
	if err != nil {
		return rep, f.failed(ctx, err)
	}
	return rep, f.tell(env, rep.Said())
}

// passes lets the trace be read several times, and warns of what was left out. What is
// no file on a disk, such as a pipe, is written to a temporary one first.
func (f *traceFlags) passes(ctx context.Context, env Env, run func(*trace.Passes) (trace.Report, error)) error {
	o, err := f.options()
	if err != nil {
		return err
	}
	in, err := f.open(ctx, env)
	if err != nil {
		return err
	}
	defer in.Close()
	file, size, done, err := rereadable(in)
	if err != nil {
		return f.failed(ctx, err)
	}
	rep, err := run(trace.NewPasses(&interruptible{file, ctx}, size, o))
	if err := errors.Join(err, done()); err != nil {
		return f.failed(ctx, err)
	}
	return f.tell(env, rep.Said())
}

// rereadable is a file that has what in has, and what is to be done with it at the end.
func rereadable(in io.Reader) (file *os.File, size int64, done func() error, err error) {
	if own, ok := in.(*interruptible); ok {
		if info, err := own.Stat(); err == nil {
			return own.File, info.Size(), func() error { return nil }, nil
		}
	}
	file, err = os.CreateTemp("", "caravan-trace-*")
	if err != nil {
		return nil, 0, nil, fmt.Errorf("keep what comes from a pipe: %w", err)
	}
	// Without a name it goes with the program, however that ends.
	gone := os.Remove(file.Name()) == nil
	done = func() error {
		err := file.Close()
		if !gone {
			err = errors.Join(err, os.Remove(file.Name()))
		}
		return err
	}
	size, err = io.Copy(file, in)
	if err != nil {
		return nil, 0, nil, errors.Join(fmt.Errorf("keep what comes from a pipe in %s: %w", os.TempDir(), err), done())
	}
	return file, size, done, nil
}
