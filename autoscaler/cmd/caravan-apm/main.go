// Command caravan-apm is an APM plugin for the Nomad Autoscaler, which starts
// it: it answers queries with what the planner knows (see docs/autoscaler.md).
package main

import (
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/nomad-autoscaler/plugins"

	"github.com/caravan-sched/caravan/autoscaler/apm"
	"github.com/caravan-sched/caravan/autoscaler/orphan"
)

func main() {
	orphan.Watch(time.Second, orphan.End)
	plugins.Serve(func(log hclog.Logger) any { return apm.New(log) })
}
