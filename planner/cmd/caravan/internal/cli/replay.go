package cli

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/caravan-sched/caravan/planner/cmd/caravan/internal/render"
	"github.com/caravan-sched/caravan/planner/config"
	"github.com/caravan-sched/caravan/planner/core"
	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/core/queue"
	"github.com/caravan-sched/caravan/planner/core/recording"
)

func (a *app) snapshotCommand() *cobra.Command {
	var out string
	var scrub bool
	cmd := &cobra.Command{
		Use:   "snapshot",
		Short: "Save what the planner last decided on, for caravan replay",
		Long: `Snapshot saves what the planner last decided on, by which policy, and the result.
With --scrub all names are taken out: of jobs, groups, queues, users, nodes,
domains, GPUs and attributes. The decisions stay the same, so that the file may
go into a bug report. It needs a management token.`,
		Example: "  caravan snapshot --scrub -o report.json\n  caravan replay report.json",
		Args:    args(0, 0, "no argument"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			planner, err := a.planner()
			if err != nil {
				return err
			}
			r, err := planner.Recording(cmd.Context())
			if err != nil {
				return fmt.Errorf("read what was decided on: %w", err)
			}
			return a.saveRecording(r, scrub, out)
		},
	}
	cmd.Flags().StringVarP(&out, "output", "o", "-", "`file` to write; - is standard output")
	cmd.Flags().BoolVar(&scrub, "scrub", false, "take all names out")
	return cmd
}

// saveRecording writes a recording, for its owner alone: it names everything.
func (a *app) saveRecording(r *recording.Recording, scrub bool, name string) error {
	if scrub {
		var err error
		if r, err = recording.Scrub(r); err != nil {
			return fmt.Errorf("take the names out: %w", err)
		}
	}
	b, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("write recording: %w", err)
	}
	b = append(b, '\n')
	if name == "-" {
		_, err = a.env.Stdout.Write(b)
		return err
	}
	if err := os.WriteFile(name, b, 0o600); err != nil {
		return fmt.Errorf("write recording: %w", err)
	}
	_, err = fmt.Fprintf(a.env.Stderr, "%s: %d nodes, %d jobs.\n", name, len(r.Snapshot.Nodes), len(r.Snapshot.Jobs))
	return err
}

// replayed is what `replay` prints.
type replayed struct {
	Planner string      `json:"planner,omitempty"`
	Policy  core.Policy `json:"policy"`
	Plan    *model.Plan `json:"plan"`
	// Compared says that there is a plan to compare with, made by the same policy.
	Compared    bool                   `json:"compared"`
	Differences []recording.Difference `json:"differences"`
	// Reproduced is what was found out before names were taken out.
	Reproduced *bool `json:"reproduced,omitempty"`
}

func (a *app) replayCommand() *cobra.Command {
	var order, out string
	var strict, scrub bool
	cmd := &cobra.Command{
		Use:   "replay FILE",
		Short: "Decide again on a saved snapshot, offline",
		Long: `Replay decides again on what caravan snapshot saved, or on a bare snapshot
(docs/snapshot.md), by the policy recorded, and says where the plan differs from
the one recorded. With --policy it shows what another order, or the policy of a file,
would have done.
With --output it writes the recording again, with --scrub without names, and
decides nothing. FILE may be - for standard input.

A bare snapshot has no policy and is decided on by that of caravan decide.

Exit codes: 0 decided, and nothing differs from what was recorded, or it was
decided by another policy than the recorded one; 1 something differs by the policy
recorded, or the file cannot be read.`,
		Example: "  caravan replay report.json\n  caravan replay --policy sjf report.json\n  caravan replay --scrub -o for-others.json report.json",
		Args:    args(1, 1, "one file"),
		RunE: func(cmd *cobra.Command, argv []string) error {
			src, err := readAtMost(a.env, argv[0], maxSnapshot)
			if err != nil {
				return fmt.Errorf("read recording: %w", err)
			}
			r, bare, err := recording.Decode(src)
			if err != nil {
				return fmt.Errorf("%s: %w", argv[0], err)
			}
			if scrub || cmd.Flags().Changed("output") {
				return a.saveRecording(r, scrub, out)
			}
			policy := r.Policy
			if bare {
				policy = config.Default().Policy.Policy
			}
			if cmd.Flags().Changed("policy") {
				if policy, err = a.policyNamed(policy, order); err != nil {
					return err
				}
			}
			if cmd.Flags().Changed("strict") {
				policy.Strict = strict
			}
			return a.replay(argv[0], r, policy)
		},
	}
	cmd.Flags().StringVar(&order, "policy", "", "another `order`: "+strings.Join(queue.Orders(), ", ")+"; or a file.hcl")
	cmd.Flags().BoolVar(&strict, "strict", false, "nobody passes a job that waits for room")
	cmd.Flags().BoolVar(&scrub, "scrub", false, "write the recording without names, and decide nothing")
	cmd.Flags().StringVarP(&out, "output", "o", "-", "`file` to write it to; - is standard output")
	return cmd
}

func (a *app) replay(name string, r *recording.Recording, policy core.Policy) error {
	if err := policy.Validate(); err != nil {
		return usage("%w", err)
	}
	same, err := samePolicy(r.Policy, policy)
	if err != nil {
		return err
	}
	plan, differences, err := recording.Replay(r, policy)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	out := replayed{
		Planner: r.Planner, Policy: policy, Plan: plan, Compared: r.Plan != nil && same, Reproduced: r.Reproduced,
		Differences: append([]recording.Difference{}, differences...),
	}
	err = a.print(out, func(w io.Writer, s render.Style) error {
		s.Nodes = map[string]string{}
		for _, n := range r.Snapshot.Nodes {
			s.Nodes[n.ID] = cmp.Or(n.Name, n.ID)
		}
		if err := render.Decisions(w, s, plan.Decisions); err != nil {
			return err
		}
		if err := render.Preemptions(w, s, plan.Preemptions); err != nil {
			return err
		}
		if err := render.Resizes(w, s, plan.Resizes); err != nil {
			return err
		}
		return render.Differences(w, s, differences, r.Plan != nil, r.Reproduced)
	})
	if err == nil && out.Compared && len(differences) > 0 {
		return &exit{code: CodeFailure}
	}
	return err
}

// samePolicy compares policies by what is written of them.
func samePolicy(a, b core.Policy) (bool, error) {
	x, err := json.Marshal(a)
	if err != nil {
		return false, fmt.Errorf("compare policies: %w", err)
	}
	y, err := json.Marshal(b)
	if err != nil {
		return false, fmt.Errorf("compare policies: %w", err)
	}
	return string(x) == string(y), nil
}
