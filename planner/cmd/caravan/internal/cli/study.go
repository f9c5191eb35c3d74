package cli

import (
	"context"
	"io"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/vbauerster/mpb/v8"
	"github.com/vbauerster/mpb/v8/decor"

	"github.com/caravan-sched/caravan/planner/cmd/caravan/internal/render"
	"github.com/caravan-sched/caravan/planner/sim/study"
)

// studyFlags are those of `simulate --compare`.
type studyFlags struct {
	compare, quick          bool
	traces, out, evaluation string
	only                    []string
}

func (f *studyFlags) add(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&f.compare, "compare", false, "compare five policies on the ITP traces and synthetic gangs, on 64 to 4,096 GPUs; takes up to an hour on two cores and goes on where it was stopped")
	cmd.Flags().BoolVar(&f.quick, "quick", false, "with --compare: fewer days and jobs, and two seeds: some minutes")
	cmd.Flags().StringVar(&f.traces, "trace-dir", "itp-2021", "with --compare: `directory` with the ITP traces, cluster02.csv.gz to cluster10.csv.gz")
	cmd.Flags().StringVar(&f.out, "out", "compare", "with --compare: `directory` for the results of each comparison")
	cmd.Flags().StringVar(&f.evaluation, "evaluation", "", "with --compare: `file` for the document, in Markdown; its plots go into the directory of the same name")
	cmd.Flags().StringSliceVar(&f.only, "only", nil, "with --compare: only `kinds` of comparisons: "+strings.Join(study.Kinds(), ", "))
}

// studied is what `simulate --compare` prints as JSON.
type studied struct {
	Comparisons []study.Played `json:"comparisons"`
}

func (a *app) study(ctx context.Context, f *studyFlags, workers int) error {
	o := study.Options{Traces: f.traces, Out: f.out, Version: revision(), Workers: workers, Cells: study.Cells(f.quick)}
	if len(f.only) > 0 {
		for _, kind := range f.only {
			if !slices.Contains(study.Kinds(), kind) {
				return usage("--only %q: want some of %s", kind, strings.Join(study.Kinds(), ", "))
			}
		}
		o.Cells = slices.DeleteFunc(o.Cells, func(c study.Cell) bool { return !slices.Contains(f.only, c.Kind) })
	}
	played, err := a.playStudy(ctx, o)
	if err != nil {
		return simulationFailed(err)
	}
	if f.evaluation != "" {
		if err := study.Write(f.evaluation, played, f.quick); err != nil {
			return err
		}
	}
	return a.print(studied{played}, func(w io.Writer, s render.Style) error { return render.Studied(w, s, played) })
}

// playStudy shows a bar on a terminal while it takes long.
func (a *app) playStudy(ctx context.Context, o study.Options) ([]study.Played, error) {
	if !a.env.Terminal || a.json {
		return study.Run(ctx, o)
	}
	p := mpb.New(mpb.WithOutput(a.env.Stderr), mpb.WithWidth(48))
	bar := p.AddBar(1, mpb.BarRemoveOnComplete(),
		mpb.PrependDecorators(decor.CountersNoUnit("%d of %d jobs")), mpb.AppendDecorators(decor.AverageETA(decor.ET_STYLE_GO)))
	o.Progress = func(done, total int) {
		bar.SetTotal(int64(total), false)
		bar.SetCurrent(int64(done))
	}
	played, err := study.Run(ctx, o)
	bar.Abort(true)
	p.Wait()
	return played, err
}

// revision is the source that the program is built from: results of another one
// are played again.
func revision() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return ""
	}
	out := ""
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" || s.Key == "vcs.modified" {
			out += s.Value + " "
		}
	}
	return out
}
