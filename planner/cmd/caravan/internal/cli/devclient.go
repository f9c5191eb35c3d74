package cli

import (
	"github.com/spf13/cobra"

	"github.com/caravan-sched/caravan/internal/devjoin"
)

// devClientCommand is for Terraform's local module, not for people: the process of a
// client that joins a development cluster. Its flags are those of nomad agent, which
// stands in its place elsewhere.
func (a *app) devClientCommand() *cobra.Command {
	return &cobra.Command{
		Use:                "dev-client FILE -node=NAME -data-dir=DIR [-meta KEY=VALUE]…",
		Short:              "Be a client that joins a development cluster",
		Hidden:             true,
		DisableFlagParsing: true,
		RunE:               func(cmd *cobra.Command, args []string) error { return devjoin.Run(cmd.Context(), args, a.env.Stdout) },
	}
}
