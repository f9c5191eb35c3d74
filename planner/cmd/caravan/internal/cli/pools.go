package cli

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/caravan-sched/caravan/planner/cmd/caravan/internal/render"
)

func (a *app) poolsCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "pools",
		Short: "Show where nodes are bought, how many, for whom, and why",
		Long: `Pools shows what is wanted of each pool in which nodes can be bought: how many nodes
there are to be, how many are ready or to come, each purchase with its price and the
gang that it is for, and the nodes that are given back.`,
		Args: args(0, 0, "no argument"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			planner, err := a.planner()
			if err != nil {
				return err
			}
			answer, err := planner.Burst(cmd.Context())
			if err != nil {
				return fmt.Errorf("read pools: %w", err)
			}
			return a.print(answer, func(w io.Writer, s render.Style) error { return render.Pools(w, s, answer) })
		},
	}
}
