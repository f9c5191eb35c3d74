package cli

import (
	"context"
	"fmt"
	"io"

	"github.com/hashicorp/go-hclog"
	"github.com/spf13/cobra"

	"github.com/caravan-sched/caravan/planner/cmd/caravan/internal/render"
	"github.com/caravan-sched/caravan/planner/config"
)

// Agent runs a planner until the context ends. load reads the configuration
// anew.
type Agent func(ctx context.Context, cfg config.Config, load func() (config.Config, error), log hclog.Logger) error

// logNames are the log levels that the configuration knows.
var logNames = map[string]hclog.Level{"trace": hclog.Trace, "debug": hclog.Debug, "info": hclog.Info, "warn": hclog.Warn, "error": hclog.Error}

func (a *app) agentCommand() *cobra.Command {
	var file, level string
	var check, logJSON bool
	cmd := &cobra.Command{
		Use:   "agent",
		Short: "Run the planner",
		Long: `Agent runs the planner with its gateway until it is told to stop. Stopping it
stops no job. Without -config it uses the environment (NOMAD_ADDR, NOMAD_TOKEN, …)
and defaults. On SIGHUP it reads policy and queues anew. Of several planners on one Nomad one leads, the others stand by.`,
		Example: "  caravan agent -config /etc/caravan.hcl\n  caravan agent -config /etc/caravan.hcl -check",
		Args:    args(0, 0, "no argument"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			load := func() (config.Config, error) { return config.Load(file, a.env.LookupEnv) }
			cfg, err := load()
			if err != nil {
				return fmt.Errorf("the configuration cannot be used:\n%w", err)
			}
			if level != "" {
				cfg.LogLevel = level
			}
			threshold, ok := logNames[cfg.LogLevel]
			if !ok {
				return usage("--log-level %q: it is one of trace, debug, info, warn, error", cfg.LogLevel)
			}
			if check {
				return a.print(map[string]bool{"ok": true}, func(w io.Writer, _ render.Style) error {
					_, err := fmt.Fprintln(w, "The configuration is valid. Once a planner runs with it, caravan doctor examines cluster, nodes and rights.")
					return err
				})
			}
			log := hclog.New(&hclog.LoggerOptions{Name: "caravan", Level: threshold, Output: a.env.Stderr, JSONFormat: logJSON})
			if err := a.env.Agent(cmd.Context(), cfg, load, log); err != nil {
				return fmt.Errorf("run planner: %w", err)
			}
			return nil
		},
	}
	f := cmd.Flags()
	f.StringVar(&file, "config", "", "configuration `file`")
	f.BoolVar(&check, "check", false, "check the configuration and return")
	f.StringVar(&level, "log-level", "", "trace, debug, info, warn or error; above the configuration's")
	f.BoolVar(&logJSON, "log-json", false, "log JSON lines")
	return cmd
}
