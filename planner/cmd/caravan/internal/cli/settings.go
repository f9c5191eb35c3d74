package cli

import (
	"context"
	"fmt"
	"io"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/caravan-sched/caravan/planner/cmd/caravan/internal/render"
	"github.com/caravan-sched/caravan/planner/httpapi"
)

// maxSettings bounds a file that is set, in bytes.
const maxSettings = 1 << 20

func (a *app) policyCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "policy",
		Short: "Show the policy in force, or set another one while the planner runs",
		Long: `Policy shows by which policy the planner decides, and whether it is the one of its
file or one that was set.`,
		Args: args(0, 0, "no argument"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			planner, err := a.planner()
			if err != nil {
				return err
			}
			s, err := planner.Settings(cmd.Context())
			if err != nil {
				return fmt.Errorf("read policy: %w", err)
			}
			return a.print(s.Policy, func(w io.Writer, style render.Style) error { return render.Policy(w, style, s) })
		},
	}
	cmd.AddCommand(a.setCommand(httpapi.SettingPolicy, "policy.hcl"), a.resetCommand(httpapi.SettingPolicy))
	return cmd
}

// setCommand replaces a part of the planner's file.
func (a *app) setCommand(name httpapi.Setting, example string) *cobra.Command {
	return &cobra.Command{
		Use:   "set FILE",
		Short: fmt.Sprintf("Use the %s of a file in the place of the planner's own", name),
		Long: fmt.Sprintf(`Set sends a file that holds the %s as it would be in the planner's own file, and
nothing else. It is checked whole, counts from the next decision on, whoever
leads, and until caravan %s reset. Nothing that runs is touched. FILE may be -
for standard input. It needs a management token.`, blocks[name], name),
		Example: fmt.Sprintf("  caravan %s set %s", name, example),
		Args:    args(1, 1, "one file"),
		RunE: func(cmd *cobra.Command, argv []string) error {
			text, err := readAtMost(a.env, argv[0], maxSettings)
			if err != nil {
				return fmt.Errorf("read %s: %w", name, err)
			}
			return a.change(cmd.Context(), name, func(ctx context.Context, c *httpapi.Client) (httpapi.Settings, error) {
				return c.Set(ctx, name, text, fileName(argv[0]))
			})
		},
	}
}

// fileName is what faults in a file begin with: the last of its path, so that no
// planner keeps where it lies.
func fileName(path string) string {
	if path == "-" {
		return "standard input"
	}
	return filepath.Base(path)
}

// blocks are what a setting's file holds.
var blocks = map[httpapi.Setting]string{httpapi.SettingPolicy: "policy block", httpapi.SettingQueues: "queue blocks", httpapi.SettingReservations: "reservation blocks"}

func (a *app) resetCommand(name httpapi.Setting) *cobra.Command {
	return &cobra.Command{
		Use:   "reset",
		Short: fmt.Sprintf("Use the %s of the planner's file again", name),
		Args:  args(0, 0, "no argument"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.change(cmd.Context(), name, func(ctx context.Context, c *httpapi.Client) (httpapi.Settings, error) {
				return c.Unset(ctx, name)
			})
		},
	}
}

func (a *app) change(ctx context.Context, name httpapi.Setting, do func(context.Context, *httpapi.Client) (httpapi.Settings, error)) error {
	planner, err := a.planner()
	if err != nil {
		return err
	}
	s, err := do(ctx, planner)
	if err != nil {
		return fmt.Errorf("set %s: %w", name, err)
	}
	return a.print(s, func(w io.Writer, style render.Style) error {
		var err error
		switch name {
		case httpapi.SettingPolicy:
			err = render.Policy(w, style, s)
		case httpapi.SettingReservations:
			err = render.ReservationsSet(w, style, s.Reservations)
		default:
			err = render.QueuesSet(w, style, s.Queues)
		}
		if err != nil || len(s.Warnings) == 0 {
			return err
		}
		return render.Warnings(w, style, s.Warnings)
	})
}
