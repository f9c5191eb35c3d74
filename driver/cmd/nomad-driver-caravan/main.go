// Command nomad-driver-caravan is Nomad's task driver "caravan", and the
// supervisor of each of its tasks.
package main

import (
	"fmt"
	"os"

	caravan "github.com/caravan-sched/caravan/driver"
	"github.com/caravan-sched/caravan/driver/exec"
	"github.com/caravan-sched/caravan/driver/supervisor"
	"github.com/caravan-sched/caravan/internal/nomadplugin/base"
	"github.com/caravan-sched/caravan/internal/nomadplugin/driver"
)

func main() {
	exec.Main()
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) == 2 && args[0] == supervisor.Command {
		return supervisor.Run(args[1])
	}
	if os.Getenv(base.Handshake.MagicCookieKey) != base.Handshake.MagicCookieValue || len(args) > 0 {
		return fmt.Errorf("nomad-driver-caravan %s is a plugin of Nomad's: put it into the plugin_dir of the clients; its settings are in docs/driver.md", caravan.Version)
	}
	binary, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find the plugin's own binary: %w", err)
	}
	log := base.Logger()
	driver.Serve(caravan.New(log, binary), log)
	return nil
}
