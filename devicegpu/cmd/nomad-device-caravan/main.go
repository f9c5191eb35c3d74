// Command nomad-device-caravan is a Nomad device plugin, and tells people what
// it would show to Nomad.
package main

import (
	"os"

	"github.com/caravan-sched/caravan/devicegpu"
	"github.com/caravan-sched/caravan/devicegpu/check"
	"github.com/caravan-sched/caravan/internal/nomadplugin/base"
	"github.com/caravan-sched/caravan/internal/nomadplugin/device"
)

func main() {
	if os.Getenv(base.Handshake.MagicCookieKey) == base.Handshake.MagicCookieValue && len(os.Args) == 1 {
		log := base.Logger()
		device.Serve(devicegpu.New(log), log)
		return
	}
	os.Exit(check.Main(os.Args[1:], os.Stdout, os.Stderr))
}
