package cli

import (
	"cmp"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/caravan-sched/caravan/planner/cmd/caravan/internal/render"
	"github.com/caravan-sched/caravan/planner/core"
	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/core/preempt"
	"github.com/caravan-sched/caravan/planner/core/recording"
)

// surveyed is what `defrag` prints.
type surveyed struct {
	// Enabled: the planner does what is shown as done.
	Enabled bool           `json:"enabled"`
	Policy  preempt.Defrag `json:"policy"`
	// Waiting are the gangs that wait for room, in their order.
	Waiting []model.Compaction `json:"waiting"`
}

func (a *app) defragCommand() *cobra.Command {
	var plan bool
	cmd := &cobra.Command{
		Use:   "defrag [FILE]",
		Short: "Show which gangs would be moved so that others fit, and move none",
		Long: `Defrag says for each gang that waits for room what moves of others would do for
it: who would be moved where, how many GPU-seconds that saves and loses, and why
nothing would be done. It changes nothing, with and without --plan; the planner
moves gangs by itself where policy.defrag is enabled (docs/defrag.md). It looks
at what the planner last decided on, which needs a management token, or at FILE,
which caravan snapshot wrote; - is standard input.`,
		Example: "  caravan defrag --plan\n  caravan defrag --plan --json report.json",
		Args:    args(0, 1, "at most one file"),
		RunE: func(cmd *cobra.Command, argv []string) error {
			r, err := a.recorded(cmd, argv)
			if err != nil {
				return err
			}
			return a.defrag(r, plan)
		},
	}
	cmd.Flags().BoolVar(&plan, "plan", false, "only show what would be done")
	return cmd
}

// recorded is what a planner decided on, from a file if one is named.
func (a *app) recorded(cmd *cobra.Command, argv []string) (*recording.Recording, error) {
	if len(argv) == 0 {
		planner, err := a.planner()
		if err != nil {
			return nil, err
		}
		r, err := planner.Recording(cmd.Context())
		if err != nil {
			return nil, fmt.Errorf("read what was decided on: %w", err)
		}
		return r, nil
	}
	src, err := readAtMost(a.env, argv[0], maxSnapshot)
	if err != nil {
		return nil, fmt.Errorf("read recording: %w", err)
	}
	r, _, err := recording.Decode(src)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", argv[0], err)
	}
	return r, nil
}

func (a *app) defrag(r *recording.Recording, plan bool) error {
	waiting, err := core.Survey(r.Snapshot, r.Policy)
	if err != nil {
		return fmt.Errorf("look for moves: %w", err)
	}
	out := surveyed{Enabled: r.Policy.Defrag.Enabled, Policy: r.Policy.Defrag.WithDefaults(), Waiting: append([]model.Compaction{}, waiting...)}
	return a.print(out, func(w io.Writer, s render.Style) error {
		s.Nodes = map[string]string{}
		for _, n := range r.Snapshot.Nodes {
			s.Nodes[n.ID] = cmp.Or(n.Name, n.ID)
		}
		if err := render.Compactions(w, s, out.Waiting); err != nil {
			return err
		}
		return a.hintDefrag(w, out, plan)
	})
}

// hintDefrag says what becomes of what was shown.
func (a *app) hintDefrag(w io.Writer, out surveyed, plan bool) error {
	moves := 0
	for i := range out.Waiting {
		if out.Waiting[i].Done {
			moves += len(out.Waiting[i].Moves)
		}
	}
	text := ""
	switch {
	case out.Enabled && moves > 0:
		text = "Moving is enabled: the planner does this by itself."
	case out.Enabled && !plan:
		text = "Moving is enabled: the planner moves gangs by itself when that is worth it."
	case !out.Enabled && (moves > 0 || !plan):
		text = "Moving is not enabled, so the planner moves nobody. To have it done, put\n\n  policy {\n    defrag { enabled = true }\n  }\n\ninto the planner's file and send it a SIGHUP."
	}
	if text == "" {
		return nil
	}
	_, err := fmt.Fprintln(w, "\n"+text)
	return err
}
