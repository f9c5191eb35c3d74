package cli

import (
	"fmt"
	"io"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/caravan-sched/caravan/planner/cmd/caravan/internal/render"
)

// version is what `version` prints as JSON.
type version struct {
	Version string `json:"version"`
	Commit  string `json:"commit,omitempty"`
	Go      string `json:"go"`
}

// buildVersion adds to the version what the Go toolchain wrote into the binary.
func buildVersion(number string) version {
	v := version{Version: number, Go: runtime.Version()}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return v
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			v.Commit = s.Value
		}
	}
	return v
}

func (a *app) versionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Show the version",
		Args:  args(0, 0, "no argument"),
		RunE: func(*cobra.Command, []string) error {
			v := buildVersion(a.env.Version)
			return a.print(v, func(w io.Writer, _ render.Style) error {
				_, err := fmt.Fprintf(w, "caravan %s (%s)\n", v.Version, v.Go)
				return err
			})
		},
	}
}
