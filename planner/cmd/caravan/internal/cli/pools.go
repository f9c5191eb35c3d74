package cli

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/caravan-sched/caravan/planner/burstapi"
	"github.com/caravan-sched/caravan/planner/cmd/caravan/internal/render"
)

func (a *app) poolsCommand() *cobra.Command {
	cmd := &cobra.Command{
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
	cmd.AddCommand(a.forgetCommand())
	return cmd
}

func (a *app) forgetCommand() *cobra.Command {
	var force bool
	cmd := &cobra.Command{
		Use:   "forget PURCHASE",
		Short: "Let go of a purchase of which nothing is there any more",
		Long: `Forget lets the planner know nothing more of a purchase: its quota is free, what
it has cost until now is spent, and its gang is decided on again. Look into the
cloud first: it ends no machine. Nodes of it that join Nomad, or are there, are
given back as nodes of no purchase. While a gang runs on one it is refused, unless
forced. It needs a management token.`,
		Example: "  caravan pools forget eu-h100-3f2a",
		Args:    args(1, 1, "the purchase's ID, as caravan pools shows it"),
		RunE: func(cmd *cobra.Command, argv []string) error {
			planner, err := a.planner()
			if err != nil {
				return err
			}
			done, err := planner.BurstForget(cmd.Context(), burstapi.Forget{Purchase: argv[0], Force: force})
			if err != nil {
				return fmt.Errorf("forget purchase %s: %w", argv[0], err)
			}
			return a.print(done, func(w io.Writer, _ render.Style) error { return render.Forgotten(w, done) })
		},
	}
	cmd.Flags().BoolVar(&force, "force", false, "also when a gang runs on a node of it, as far as Nomad knows")
	return cmd
}
