// Command caravan-terraform is a target plugin for the Nomad Autoscaler, which starts
// it: it buys and gives back nodes by Terraform (see docs/autoscaler.md).
package main

import (
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/nomad-autoscaler/plugins"

	"github.com/caravan-sched/caravan/autoscaler/orphan"
	"github.com/caravan-sched/caravan/autoscaler/target"
)

func main() {
	orphan.Watch(time.Second, orphan.End)
	plugins.Serve(func(log hclog.Logger) any { return target.New(log) })
}
