package daemon

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/planner/apply"
	"github.com/caravan-sched/caravan/planner/config"
	"github.com/caravan-sched/caravan/planner/core/preempt"
	"github.com/caravan-sched/caravan/planner/gateway"
	"github.com/caravan-sched/caravan/planner/httpapi"
	"github.com/caravan-sched/caravan/planner/observe"
	"github.com/caravan-sched/caravan/planner/record"
	"github.com/caravan-sched/caravan/planner/rewrite"
)

// New makes a planner. It does not talk to Nomad yet.
func New(cfg config.Config, log hclog.Logger) (*Daemon, error) {
	if log == nil {
		log = hclog.NewNullLogger()
	}
	clock := new(nomadClock)
	client, nobody, err := clients(cfg.Nomad, clock)
	if err != nil {
		return nil, err
	}
	d := &Daemon{
		cfg: cfg, log: log, now: time.Now, client: client, clock: clock,
		auth:      authorizer{nobody},
		peers:     &http.Client{Timeout: cfg.Gateway.Wait + peerTimeout},
		decisions: newDecisions(),
		metrics:   newMetrics(),
		wake:      make(chan struct{}, 1),
	}
	d.leader.ask = d.askPeer
	d.bursts.carbon.now, d.bursts.carbon.anew = d.now, make(chan struct{}, 1)
	records := record.NewStore(client, cfg.State.Namespace)
	d.stores = map[string]*record.Store{cfg.Nomad.Region: records}
	parts := []regional{{name: cfg.Nomad.Region, client: client, nobody: nobody, records: records}}
	if len(cfg.Federation) > 0 {
		if parts, err = d.regionals(parts[0]); err != nil {
			return nil, err
		}
	}
	d.parts = parts
	d.setUpState(parts[0].client)
	d.setUpBarrier(parts)
	d.queues.configure(&cfg)
	d.bursts.configure(&cfg)
	d.settings.file = cfg
	if len(cfg.Federation) > 0 {
		d.federate(parts)
	} else {
		d.observe = d.observerOf(parts[0], "")
		d.carry = nomadCarrier{executor: apply.NewExecutor(client, records, d.applyOptions()), records: records, client: nobody}
	}
	d.decide = d.decideAndRecord
	if d.gateway, err = newGateway(d, parts); err != nil {
		return nil, err
	}
	return d, nil
}

// setUpState has what the planner itself remembers kept in one region.
func (d *Daemon) setUpState(client *api.Client) {
	ns := d.cfg.State.Namespace
	d.lock = &variableLock{client: client, namespace: ns}
	d.queues.kept = keepUsage(record.NewDocuments(client, ns, "usage"))
	d.speeds.store = record.NewDocuments(client, ns, "speeds")
	d.sharing.kept, d.sharing.stats = keepSharing(record.NewDocuments(client, ns, "sharing")), allocStats(client)
	d.learner.kept = keepHistory(record.NewDocuments(client, ns, "history"))
	d.settings.store = record.NewDocuments(client, ns, "settings")
	d.bursts.store = record.NewDocuments(client, ns, "purchases")
}

// observerOf reads one region; level is its name where it is a level of the tree.
func (d *Daemon) observerOf(r regional, level string) *observe.Observer {
	return observe.New(observe.Options{Client: r.client, Records: r.records, Config: &d.cfg, Region: level, Now: d.now,
		Queues: d.queues.at, Reservations: d.queues.reserved, Estimate: d.learner.predict, History: d.learner.past, Burst: d.bursts.at})
}

func (d *Daemon) applyOptions() apply.Options {
	cfg := &d.cfg
	return apply.Options{
		Deadline: cfg.Admission.Deadline, RetryInitial: cfg.Admission.RetryInitial, RetryMax: cfg.Admission.RetryMax,
		Sick: cfg.Trouble.SickGPU, Vanished: cfg.Trouble.MissingGPU, Link: d.link, Ended: d.learner.ended,
		Stops: func() preempt.Policy { return d.queues.order().Preempt },
	}
}

// peerTimeout is how much longer than the wait that it was asked for another
// planner may take.
const peerTimeout = 10 * time.Second

// newGateway is Nomad's API with managed jobs held at the door, in each region of a
// federation.
func newGateway(d *Daemon, parts []regional) (http.Handler, error) {
	byName := map[string]*gateway.Gateway{}
	for _, r := range parts {
		g, err := gatewayOf(d, r)
		if err != nil {
			return nil, err
		}
		byName[r.name] = g
	}
	if len(parts) == 1 {
		return byName[parts[0].name], nil
	}
	return gateway.NewRegions(d.cfg.Nomad.Region, byName, locator{d}), nil
}

func gatewayOf(d *Daemon, r regional) (*gateway.Gateway, error) {
	address, err := url.Parse(d.cfg.Nomad.Address)
	if err != nil {
		return nil, fmt.Errorf("parse nomad.address: %w", err)
	}
	wait := d.cfg.Gateway.Wait
	if wait == 0 {
		wait = -1 // the gateway's 0 is its default
	}
	return gateway.New(gateway.Config{
		Nomad: address, TLS: d.cfg.Nomad.ClientConfig().TLSConfig, Client: r.client,
		// Who only observes must not gate what nobody would ever admit.
		Managed: func(job *api.Job) bool { return !d.cfg.ObserveOnly && d.leaves(job) == "" },
		Levels:  d.cfg.LevelNames(), Region: r.name, Anywhere: len(d.cfg.Federation) > 0,
		Records: r.records, Cluster: d.cluster, Waiter: waiterIn{d, r.name}, Preview: d.preview, Link: d.link,
		Wait: wait, Now: d.now, Log: d.log.Named("gateway"),
	})
}

var errNoView = errors.New("the planner has not seen the cluster yet")

// cluster is what a pin depends on, as last seen.
func (d *Daemon) cluster(context.Context) (*rewrite.Cluster, error) {
	v := d.view.Load()
	if v == nil {
		return nil, errNoView
	}
	return apply.Cluster(v), nil
}

// link is where a person reads about a job.
func (d *Daemon) link(namespace, job string) string {
	return d.Address() + httpapi.Prefix + "/explain/" + url.PathEscape(namespace) + "/" + url.PathEscape(job)
}
