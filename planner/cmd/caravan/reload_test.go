package main

import (
	"context"
	"errors"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/hashicorp/go-hclog"

	"github.com/caravan-sched/caravan/planner/config"
	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/daemon"
)

// lines are a log's lines, as they come.
type lines chan string

func (l lines) Write(p []byte) (int, error) {
	l <- string(p)
	return len(p), nil
}

// Each SIGHUP gives the planner policy and queues anew; a file with faults
// changes nothing, and the next one that has none counts again.
func TestReload(t *testing.T) {
	said := make(lines, 8)
	log := hclog.New(&hclog.LoggerOptions{Output: said})
	d, err := daemon.New(config.Default(), log)
	if err != nil {
		t.Fatal(err)
	}
	answers := []error{nil, errors.New("queue \"org\": weight: -1"), nil}
	load := func() (config.Config, error) {
		cfg := config.Default()
		cfg.Policy.Order, cfg.Queues = "fairshare", []model.Queue{{Path: "org"}}
		err := answers[0]
		answers = answers[1:]
		return cfg, err
	}
	ctx, cancel := context.WithCancel(t.Context())
	hup, ended := make(chan os.Signal), make(chan struct{})
	go func() { defer close(ended); reload(ctx, d, hup, load, log) }()
	for _, want := range []string{"policy=fairshare queues=1", "stays in force: error=\"queue \\\"org\\\": weight: -1\"", "policy=fairshare queues=1"} {
		hup <- syscall.SIGHUP
		if got := <-said; !strings.Contains(got, want) {
			t.Errorf("said %q, want %q", got, want)
		}
	}
	cancel()
	<-ended
}
