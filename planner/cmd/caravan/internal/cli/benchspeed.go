package cli

import (
	"fmt"
	"io"
	"regexp"
	"time"

	"github.com/spf13/cobra"

	"github.com/caravan-sched/caravan/internal/budget"
	"github.com/caravan-sched/caravan/planner/cmd/caravan/internal/render"
)

// maxReps bounds a measurement to some hours.
const maxReps = 1000

func (a *app) benchSpeedCommand() *cobra.Command {
	var reps int
	var least time.Duration
	var match string
	cmd := &cobra.Command{
		Use:   "speed",
		Short: "Measure how fast decisions are, on drawn clusters",
		Long: `Speed draws clusters of up to 131,072 GPUs, fragmented and half full, with racks
and blocks, and measures what decisions on them cost: gangs, whole cycles of every
order, single events in a long run, and memory. Beside each stands the budget,
which is for the reference machine of docs/performance.md: compare the ratios.
Nothing else should run meanwhile. All of it takes some minutes.`,
		Example: "  caravan bench speed --json\n  caravan bench speed --match 'cycle/nodes=100/'",
		Args:    args(0, 0, "no argument"),
		RunE: func(*cobra.Command, []string) error {
			if reps < 1 || reps > maxReps {
				return usage("--reps %d: want 1 to %d", reps, maxReps)
			}
			o := budget.Options{Reps: reps, Least: least, Progress: func(what string) { fmt.Fprintf(a.env.Stderr, "measuring %s\n", what) }}
			if match != "" {
				pattern, err := regexp.Compile(match)
				if err != nil {
					return usage("--match %q: %v", match, err)
				}
				o.Match = pattern.MatchString
			}
			r, err := budget.Measure(o)
			if err != nil {
				return fmt.Errorf("measure speed: %w", err)
			}
			return a.print(r, func(w io.Writer, s render.Style) error { return s.Speed(w, r) })
		},
	}
	cmd.Flags().IntVar(&reps, "reps", 5, "how `often` each is measured; the median counts")
	cmd.Flags().DurationVar(&least, "least", 200*time.Millisecond, "for how `long` one measurement lasts at least")
	cmd.Flags().StringVar(&match, "match", "", "only the cases whose names match this `regexp`; without growth and memory")
	return cmd
}
