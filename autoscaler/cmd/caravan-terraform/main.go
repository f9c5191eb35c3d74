// Command caravan-terraform is a target plugin for the Nomad Autoscaler, which starts
// it: it buys and gives back nodes by Terraform (see docs/autoscaler.md). As
// caravan-terraform check it looks at the pools' working directories before that.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/nomad-autoscaler/plugins"

	"github.com/caravan-sched/caravan/autoscaler/orphan"
	"github.com/caravan-sched/caravan/autoscaler/target"
)

func main() {
	if len(os.Args) > 1 && os.Args[1] == "check" {
		ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
		code := target.RunCheck(ctx, os.Args[2:], os.Stdout, os.Stderr)
		stop()
		os.Exit(code)
	}
	orphan.Watch(time.Second, orphan.End)
	plugins.Serve(func(log hclog.Logger) any { return target.New(log) })
}
