// Command caravan runs the planner and talks to it.
package main

import (
	"context"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/mattn/go-isatty"

	"github.com/caravan-sched/caravan/internal/devrun"
	"github.com/caravan-sched/caravan/planner/cmd/caravan/internal/cli"
	"github.com/caravan-sched/caravan/planner/config"
	"github.com/caravan-sched/caravan/planner/daemon"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := cli.Run(ctx, os.Args[1:], cli.Env{
		Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr,
		LookupEnv: os.LookupEnv, Environ: os.Environ,
		Terminal: isatty.IsTerminal(os.Stdout.Fd()),
		Now:      time.Now,
		Sleep:    sleep,
		Version:  daemon.Version,
		Agent:    agent,
		Dev:      devrun.Run,
		Doctor:   daemon.Doctor,
	})
	stop()
	os.Exit(code)
}

// gcPercent trades a little of the processor for memory: a planner's heap is
// one large cluster, which hardly changes, so collecting it more often costs
// little, and a third of it is saved at 16,384 nodes.
const gcPercent = 30

func agent(ctx context.Context, cfg config.Config, load func() (config.Config, error), log hclog.Logger) error {
	if _, set := os.LookupEnv("GOGC"); !set {
		debug.SetGCPercent(gcPercent)
	}
	d, err := daemon.New(cfg, log)
	if err != nil {
		return err
	}
	hup := make(chan os.Signal, 1)
	signal.Notify(hup, syscall.SIGHUP)
	defer signal.Stop(hup)
	go reload(ctx, d, hup, load, log)
	return d.Run(ctx)
}

// reload gives the planner policy and queues anew at each signal. A
// configuration with faults changes nothing.
func reload(ctx context.Context, d *daemon.Daemon, hup <-chan os.Signal, load func() (config.Config, error), log hclog.Logger) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-hup:
		}
		cfg, err := load()
		if err != nil {
			log.Error("the configuration cannot be used; the one before stays in force", "error", err)
			continue
		}
		d.Reload(cfg)
	}
}

func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
