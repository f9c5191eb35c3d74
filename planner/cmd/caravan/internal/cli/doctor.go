package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"

	"github.com/spf13/cobra"

	"github.com/caravan-sched/caravan/planner/cmd/caravan/internal/render"
	"github.com/caravan-sched/caravan/planner/config"
	"github.com/caravan-sched/caravan/planner/httpapi"
)

// Doctor examines a cluster without a planner.
type Doctor func(ctx context.Context, cfg config.Config) (httpapi.Doctor, error)

func (a *app) doctorCommand() *cobra.Command {
	var file string
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Examine the cluster and the planner",
		Long: `Doctor looks for what keeps Caravan from working, or will: device plugins that
are missing or loaded twice, rights that the planner's token lacks, Nomad's own
preemption, leftovers, clocks. It changes nothing.

The planner does it, with its own token; yours needs operator:read, node:read
and read-job. Where no planner answers, or with -config, it is done from here,
with the address and the token of the configuration or of NOMAD_ADDR and
NOMAD_TOKEN.

Exit codes: 0 nothing failed; 1 something did.`,
		Args: args(0, 0, "no argument"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			result, err := a.examine(cmd.Context(), file)
			if err != nil {
				return err
			}
			if err := a.print(result, func(w io.Writer, s render.Style) error { return render.Doctor(w, s, result) }); err != nil {
				return err
			}
			if !result.OK {
				return &exit{code: CodeFailure}
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&file, "config", "", "the planner's configuration `file`: examine from here")
	return cmd
}

// examine asks the planner, and looks from here where none is.
func (a *app) examine(ctx context.Context, file string) (httpapi.Doctor, error) {
	planner, err := a.planner()
	if err != nil {
		return httpapi.Doctor{}, err
	}
	if file != "" {
		return a.examineHere(ctx, file, httpapi.Check{
			Name: "planner", Status: httpapi.CheckOK, Detail: "not asked: examined from here, as " + file + " says",
		})
	}
	result, err := planner.Doctor(ctx)
	var dial *net.OpError
	switch {
	case unknown(err):
		if err := isPlanner(ctx, planner); err != nil {
			return result, err
		}
		return result, fmt.Errorf("the planner at %s is older than this command and cannot be asked; use -config FILE", planner.Address())
	case errors.As(err, &dial):
		return a.examineHere(ctx, "", httpapi.Check{
			Name: "planner", Status: httpapi.CheckFail,
			Detail: fmt.Sprintf("no planner answers at %s (%v); examined from here, with the token of NOMAD_TOKEN", planner.Address(), dial.Err),
			Do:     "start it: caravan agent -config FILE; or say with --address or CARAVAN_ADDR where it runs",
		})
	case err != nil:
		return result, fmt.Errorf("ask the planner: %w", err)
	}
	first := httpapi.Check{Name: "planner", Status: httpapi.CheckOK, Detail: fmt.Sprintf("the planner at %s answers; version %s", planner.Address(), result.Version)}
	if result.Version != a.env.Version {
		first.Status, first.Do = httpapi.CheckWarn, "use one version everywhere"
		first.Detail += ", and this command's is " + a.env.Version
	}
	return withFirst(result, first), nil
}

func (a *app) examineHere(ctx context.Context, file string, first httpapi.Check) (httpapi.Doctor, error) {
	cfg, err := config.Load(file, a.env.LookupEnv)
	if err != nil {
		return httpapi.Doctor{}, fmt.Errorf("the configuration cannot be used:\n%w", err)
	}
	if file == "" {
		cfg.Nomad.Token = firstOf(a.token, cfg.Nomad.Token)
	}
	result, err := a.env.Doctor(ctx, cfg)
	if err != nil {
		return result, err
	}
	return withFirst(result, first), nil
}

// withFirst puts a check before the others.
func withFirst(d httpapi.Doctor, first httpapi.Check) httpapi.Doctor {
	return httpapi.NewDoctor(d.At, d.Version, append([]httpapi.Check{first}, d.Checks...))
}
