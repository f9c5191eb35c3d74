package devrun

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/planner/config"
	"github.com/caravan-sched/caravan/planner/daemon"
	"github.com/caravan-sched/caravan/planner/httpapi"
)

// otherTeam is a namespace that Caravan leaves alone.
const otherTeam = "other-team"

// What the planner is set to. A lost race waits for its deadline to be over, so
// that it is short there; elsewhere a busy machine may take its time.
const (
	admissionDeadline = time.Minute
	raceDeadline      = 6 * time.Second
	retryInitial      = time.Second
	// partialWindow is how long a gang may be partial: until the race's deadline,
	// and then until what was placed has stopped.
	partialWindow = raceDeadline + 25*time.Second
)

// racesSoon makes the admission's deadline short.
func racesSoon(cfg *config.Config) { cfg.Admission.Deadline = raceDeadline }

// planner is the planner with its gateway, running in this process.
type planner struct {
	address string
	// api is Caravan's own API; nomad is Nomad's through the gateway.
	api   *httpapi.Client
	nomad *api.Client

	cancel context.CancelFunc
	ended  chan error
}

// startPlanner starts the planner on a cluster that is reached under nomadURL,
// and waits until it leads and has seen the cluster.
func startPlanner(ctx context.Context, tokens tokens, nomadURL, listen string, configure func(*config.Config), log hclog.Logger) (*planner, error) {
	cfg := config.Default()
	cfg.Nomad.Address, cfg.Nomad.Token = nomadURL, tokens.planner
	cfg.Listen.Address, cfg.Listen.Advertise = listen, "http://"+listen
	cfg.Managed.ExemptNamespaces = []string{otherTeam}
	cfg.Admission.Deadline, cfg.Admission.RetryInitial = admissionDeadline, retryInitial
	if configure != nil {
		configure(&cfg)
	}
	d, err := daemon.New(cfg, log)
	if err != nil {
		return nil, fmt.Errorf("start planner: %w", err)
	}
	if err := d.Listen(); err != nil {
		return nil, fmt.Errorf("start planner: %w", err)
	}
	// The planner ends when we say so, and not when the run is interrupted:
	// it has to be there while the cluster is taken down in order.
	running, cancel := context.WithCancel(context.WithoutCancel(ctx))
	p := &planner{address: d.Address(), cancel: cancel, ended: make(chan error, 1)}
	waiting, giveUp := context.WithCancelCause(ctx)
	defer giveUp(nil)
	go func() {
		err := d.Run(running)
		giveUp(fmt.Errorf("the planner ended: %w", err))
		p.ended <- err
	}()
	if err := p.connect(waiting, tokens); err != nil {
		return nil, errors.Join(err, p.stop())
	}
	return p, nil
}

func (p *planner) connect(ctx context.Context, tokens tokens) error {
	var err error
	if p.api, err = httpapi.NewClient(p.address, tokens.operator, nil); err != nil {
		return err
	}
	if p.nomad, err = api.NewClient(&api.Config{Address: p.address, SecretID: tokens.user}); err != nil {
		return fmt.Errorf("connect to the gateway: %w", err)
	}
	return poll(ctx, "the planner leads", func() (bool, error) {
		s, err := p.api.Status(ctx)
		switch {
		case err != nil:
			return false, err
		case !s.Leader:
			return false, errors.New("it does not lead yet")
		case s.ViewTaken.IsZero():
			return false, fmt.Errorf("it has not seen the cluster yet: %s", s.Nomad.Error)
		}
		return true, nil
	})
}

func (p *planner) stop() error {
	p.cancel()
	if err := <-p.ended; err != nil && !errors.Is(err, context.Canceled) {
		return fmt.Errorf("stop planner: %w", err)
	}
	return nil
}

// pollInterval is how often a condition is looked at that nothing announces.
const pollInterval = 50 * time.Millisecond

// poll looks until the condition holds. Its error says what is missing, and is
// part of the error when the context ends.
func poll(ctx context.Context, what string, condition func() (bool, error)) error {
	ticks := time.NewTicker(pollInterval)
	defer ticks.Stop()
	for {
		ok, missing := condition()
		if ok {
			return nil
		}
		select {
		case <-ctx.Done():
			return errors.Join(fmt.Errorf("wait until %s: %w", what, context.Cause(ctx)), missing)
		case <-ticks.C:
		}
	}
}
