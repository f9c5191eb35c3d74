// Package daemon is the planner as it runs: it observes Nomad, lets the core
// decide, has the decisions carried out, and serves the gateway and Caravan's
// own API. Of several planners one leads and decides; the others answer and
// wait.
package daemon

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/planner/barrier"
	"github.com/caravan-sched/caravan/planner/barrier/identity"
	"github.com/caravan-sched/caravan/planner/config"
	"github.com/caravan-sched/caravan/planner/core/model"
	"github.com/caravan-sched/caravan/planner/core/recording"
	"github.com/caravan-sched/caravan/planner/httpapi"
	"github.com/caravan-sched/caravan/planner/observe"
	"github.com/caravan-sched/caravan/planner/record"
)

// Version is the planner's; the build sets it.
var Version = "0.1.0-dev"

// observer is what the loop reads Nomad with.
type observer interface {
	Refresh(ctx context.Context) (*observe.View, error)
	Watch(ctx context.Context, wake func())
}

// Daemon is one planner.
type Daemon struct {
	cfg     config.Config
	log     hclog.Logger
	now     func() time.Time
	client  *api.Client
	clock   *nomadClock
	observe observer
	carry   carrier
	decide  func(*model.Snapshot) (*model.Plan, error)
	// keeper makes the cluster's own plans.
	keeper keeper
	// divisions are the GPUs that are being divided.
	divisions divisions

	lock    locker
	auth    authorizer
	gateway http.Handler
	// stores are the records of the regions that are planned for, by name.
	stores map[string]*record.Store
	// parts are the regions, in the configuration's order.
	parts []regional
	// held are the locks of a federation's other regions.
	held   []heldRegion
	queues queues
	// speeds is what is learned of how fast jobs work.
	speeds speeds
	// sharing is what is learned of how much jobs use of GPUs that they share.
	sharing sharing
	// learner is what is learned from jobs that have ended.
	learner learner
	// bursts are the nodes that are bought.
	bursts bursts
	// settings is what was set by API in the place of the file's.
	settings settings
	// barrier is where gangs start together, identity who their members are.
	barrier  *barrier.Service
	identity *identity.Verifier
	// keys reads the keys that members' identities are checked with.
	keys func(context.Context) (url string, keys int, err error)
	// peers reaches the other planners.
	peers *http.Client

	leader    leadership
	decisions *decisions
	metrics   *metrics
	view      atomic.Pointer[observe.View]
	// recorded is what was last decided on, and the result.
	recorded atomic.Pointer[recording.Recording]
	// lacking are the rights that the token was found to lack.
	lacking atomic.Pointer[[]httpapi.Warning]
	nomad   nomadStatus
	trouble nomadStatus
	// acting lets one at a time change things in Nomad.
	acting   sync.Mutex
	wake     chan struct{}
	urgent   atomic.Bool
	listener net.Listener
}

// nomadStatus is how the connection to Nomad is.
type nomadStatus struct {
	mu sync.Mutex
	httpapi.Nomad
}

func (s *nomadStatus) get() httpapi.Nomad {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.Nomad
}

// set notes a success (nil) or a failure and says whether that is news.
func (s *nomadStatus) set(err error, now, retryAt time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	text := ""
	if err != nil {
		text = err.Error()
	}
	news := s.OK != (err == nil) || s.Error != text || s.Since.IsZero()
	if s.OK != (err == nil) || s.Since.IsZero() {
		s.Since = now
	}
	s.OK, s.Error, s.RetryAt = err == nil, text, retryAt
	return news
}

// Run listens, observes, and decides while it leads, until ctx ends. Running
// work is left as it is.
func (d *Daemon) Run(ctx context.Context) error {
	if err := d.Listen(); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var wg sync.WaitGroup
	wg.Go(func() { d.observe.Watch(ctx, func() { d.poke(false) }) })
	wg.Go(func() { d.loop(ctx) })
	wg.Go(func() { d.watchRights(ctx) })
	wg.Go(func() { d.watchSharing(ctx) })
	wg.Go(func() { d.watchCarbon(ctx) })
	if !d.cfg.ObserveOnly {
		wg.Go(func() {
			d.leader.elect(ctx, d.lock, d.cfg.Listen.Advertise, d.log.Named("leader"), func() { d.poke(true) })
		})
		for i := range d.held {
			wg.Go(func() { d.hold(ctx, &d.held[i]) })
		}
	}
	err := d.serve(ctx)
	cancel()
	wg.Wait()
	return err
}

// Listen opens the listener, so that its address is known before Run; Run does
// it otherwise.
func (d *Daemon) Listen() error {
	if d.listener != nil {
		return nil
	}
	l, err := net.Listen("tcp", d.cfg.Listen.Address)
	if err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	d.listener = l
	if _, port, err := net.SplitHostPort(d.cfg.Listen.Address); err == nil && port == "0" {
		scheme := "http"
		if d.cfg.Listen.CertFile != "" {
			scheme = "https"
		}
		d.cfg.Listen.Advertise = scheme + "://" + l.Addr().String()
	}
	return nil
}

// Address is the base URL under which this planner is reached. With port 0 it
// is known once Listen was called.
func (d *Daemon) Address() string { return d.cfg.Listen.Advertise }

// poke wakes the loop. An urgent wake does not wait for others to join it.
func (d *Daemon) poke(urgent bool) {
	if urgent {
		d.urgent.Store(true)
	}
	select {
	case d.wake <- struct{}{}:
	default:
	}
}

// leads says whether this planner decides, and returns the context that its
// writes must live in.
func (d *Daemon) leads(ctx context.Context) (context.Context, bool) {
	if d.cfg.ObserveOnly {
		return ctx, true
	}
	term, _ := d.leader.get()
	return term, term != nil
}

// shutdown is how long open requests may take to end.
const shutdown = 5 * time.Second

func (d *Daemon) serve(ctx context.Context) error {
	// No read or write timeouts: streams and blocking queries pass through.
	srv := &http.Server{
		Handler:           d.Handler(),
		ReadHeaderTimeout: 30 * time.Second,
		IdleTimeout:       2 * time.Minute,
		BaseContext:       func(net.Listener) context.Context { return ctx },
		ErrorLog:          d.log.Named("http").StandardLogger(&hclog.StandardLoggerOptions{InferLevels: true}),
	}
	tls, err := listenTLS(d.cfg.Listen)
	if err != nil {
		return errors.Join(err, d.listener.Close())
	}
	srv.TLSConfig = tls
	failed := make(chan error, 1)
	go func() {
		if tls != nil {
			failed <- srv.ServeTLS(d.listener, "", "")
		} else {
			failed <- srv.Serve(d.listener)
		}
	}()
	d.log.Info("serving", "address", d.Address(), "nomad", d.cfg.Nomad.Address)
	select {
	case err := <-failed:
		return fmt.Errorf("serve: %w", err)
	case <-ctx.Done():
	}
	end, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdown)
	defer cancel()
	// Streams that do not end by themselves are cut.
	if srv.Shutdown(end) != nil {
		_ = srv.Close()
	}
	return nil
}
