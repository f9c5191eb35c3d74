// Command caravan-strategy is a strategy plugin for the Nomad Autoscaler, which starts
// it: it follows the planner in what is bought and given back (see docs/autoscaler.md).
package main

import (
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/nomad-autoscaler/plugins"

	"github.com/caravan-sched/caravan/autoscaler/orphan"
	"github.com/caravan-sched/caravan/autoscaler/strategy"
)

func main() {
	orphan.Watch(time.Second, orphan.End)
	plugins.Serve(func(log hclog.Logger) any { return strategy.New(log) })
}
