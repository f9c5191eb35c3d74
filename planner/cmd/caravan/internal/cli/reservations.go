package cli

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/caravan-sched/caravan/planner/cmd/caravan/internal/render"
	"github.com/caravan-sched/caravan/planner/httpapi"
)

func (a *app) reservationsCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "reservations",
		Short: "Show maintenances, capacity kept for queues, and starts that are guaranteed",
		Long: `Reservations shows what is set apart, how it stands, and who is in the way. What is
set here counts beside the reservations of the planner's file.`,
		Args: args(0, 0, "no argument"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			planner, err := a.planner()
			if err != nil {
				return err
			}
			uses, err := planner.Reservations(cmd.Context())
			if err != nil {
				return fmt.Errorf("read reservations: %w", err)
			}
			return a.print(uses, func(w io.Writer, _ render.Style) error { return render.Reservations(w, uses) })
		},
	}
	cmd.AddCommand(a.setCommand(httpapi.SettingReservations, "maintenance.hcl"), a.resetCommand(httpapi.SettingReservations))
	return cmd
}
