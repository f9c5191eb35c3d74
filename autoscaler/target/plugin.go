// Package target is a target plugin of the Nomad Autoscaler: it makes the nodes of a
// pool those that the planner names, by Terraform. A node counts when it is ready in
// Nomad with the devices that the pool promises; a purchase is had whole or rolled
// back; nodes are drained before they go.
//
// Scale does one pass: it drains, applies and reports, and does not wait for
// machines to boot or to empty. Status answers from Terraform's state and Nomad. It
// applies nothing, but where something is under way that no policy asks for again (a
// node that is late, one that is drained, an apply that was killed), it starts the
// pass that finishes it.
package target

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/nomad-autoscaler/plugins/base"
	autoscaler "github.com/hashicorp/nomad-autoscaler/plugins/target"
	"github.com/hashicorp/nomad-autoscaler/sdk"
	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/autoscaler/terraform"
)

// Name is the plugin's.
const Name = "caravan-terraform"

const (
	// nomadLimit bounds a request to Nomad.
	nomadLimit = 30 * time.Second
	// firstPause and maxPause bound how long nothing is bought after a failure, where
	// no planner decides that: it doubles.
	firstPause = time.Minute
	maxPause   = 30 * time.Minute
)

// The keys of Status' meta, besides the autoscaler's own.
const (
	MetaReady   = "caravan.ready"
	MetaComing  = "caravan.coming"
	MetaUnknown = "caravan.unknown_nodes"
	MetaDoubt   = "caravan.nodes_in_doubt"
	MetaWhy     = "caravan.why"
)

// Plugin is the target.
type Plugin struct {
	log hclog.Logger
	now func() time.Time
	// fixed is the Nomad that counts whatever the configuration says; nil: there is
	// none.
	fixed Nomad
	open  func(terraform.Config, hclog.Logger) (Directory, error)

	mu       sync.Mutex
	settings *settings
	nomad    Nomad
	pools    map[string]*worker
	tidying  sync.WaitGroup
}

// worker does the passes of one pool, one at a time.
type worker struct {
	pass sync.Mutex
	mu   sync.Mutex
	// tidied is when the last pass began that nobody had asked for, why is what the
	// last pass has left undone.
	tidied time.Time
	why    string
	// lost are the purchases that have failed, and whether the planner was told.
	// blocked is until when nothing is bought where no planner decides that, and
	// pause how long it was the last time.
	lost    map[string]bool
	blocked time.Time
	pause   time.Duration
	// doubted are the nodes in doubt that the planner was told of, by purchase, as one
	// text.
	doubted map[string]string
	// reading is the look at the pool that is under way for Status.
	reading *reading
}

var _ autoscaler.Target = (*Plugin)(nil)

// PluginInfo implements the autoscaler's plugin interface.
func (p *Plugin) PluginInfo() (*base.PluginInfo, error) {
	return &base.PluginInfo{Name: Name, PluginType: sdk.PluginTypeTarget}, nil
}

// SetConfig implements the autoscaler's plugin interface.
func (p *Plugin) SetConfig(config map[string]string) error {
	s, err := readSettings(config)
	if err != nil {
		return fmt.Errorf("configure %s: %w", Name, err)
	}
	client, err := nomadClient(config)
	if err != nil {
		return fmt.Errorf("configure %s: %w", Name, err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.settings, p.nomad = &s, cluster{client}
	if p.fixed != nil {
		p.nomad = p.fixed
	}
	return nil
}

// nomadClient is a client by the keys that the autoscaler gives to all plugins.
func nomadClient(config map[string]string) (*api.Client, error) {
	c := api.DefaultConfig()
	for key, to := range map[string]*string{
		"nomad_address": &c.Address, "nomad_region": &c.Region, "nomad_namespace": &c.Namespace, "nomad_token": &c.SecretID,
		"nomad_ca-cert": &c.TLSConfig.CACert, "nomad_ca-path": &c.TLSConfig.CAPath, "nomad_client-cert": &c.TLSConfig.ClientCert,
		"nomad_client-key": &c.TLSConfig.ClientKey, "nomad_tls-server-name": &c.TLSConfig.TLSServerName,
	} {
		if v := config[key]; v != "" {
			*to = v
		}
	}
	if v := config["nomad_skip-verify"]; v != "" {
		skip, err := strconv.ParseBool(v)
		if err != nil {
			return nil, fmt.Errorf("nomad_skip-verify is %q: want true or false", v)
		}
		c.TLSConfig.Insecure = skip
	}
	if v := config["nomad_http-auth"]; v != "" {
		user, password, _ := strings.Cut(v, ":")
		c.HttpAuth = &api.HttpBasicAuth{Username: user, Password: password}
	}
	client, err := api.NewClient(c)
	if err != nil {
		return nil, fmt.Errorf("connect to Nomad: %w", err)
	}
	return client, nil
}

// job is one call of the autoscaler.
type job struct {
	request
	settings settings
	nomad    Nomad
	planner  Planner
	worker   *worker
	dir      Directory
	log      hclog.Logger
}

// begin reads a policy's target block.
func (p *Plugin) begin(config map[string]string) (*job, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.settings == nil {
		return nil, errors.New("the plugin is not configured: SetConfig comes first")
	}
	r, err := p.settings.readRequest(config)
	if err != nil {
		return nil, err
	}
	w := p.pools[r.pool.Name]
	if w == nil {
		w = &worker{lost: map[string]bool{}, doubted: map[string]string{}}
		p.pools[r.pool.Name] = w
	}
	log := p.log.With("pool", r.pool.Name)
	cfg, err := p.settings.directory(r)
	if err != nil {
		return nil, err
	}
	dir, err := p.open(cfg, log)
	if err != nil {
		return nil, err
	}
	return &job{request: r, settings: *p.settings, nomad: p.nomad, planner: p.settings.planner, worker: w, dir: dir, log: log}, nil
}

// Scale implements the autoscaler's target interface.
func (p *Plugin) Scale(action sdk.ScalingAction, config map[string]string) error {
	j, err := p.begin(config)
	if err != nil {
		return fmt.Errorf("scale: %w", err)
	}
	dry := j.dryRun || action.Count == sdk.StrategyActionMetaValueDryRunCount
	count, floor := bounds(action)
	if count < 0 {
		return fmt.Errorf("scale: count is %d: want 0 or more", action.Count)
	}
	if action.Error {
		return sdk.NewTargetScalingNoOpError("the strategy says %q: everything stays as it is", action.Reason)
	}
	out, err := j.pass(context.Background(), p.now, order{count: count, floor: floor, dry: dry, allowed: allowed(action)})
	switch {
	case errors.Is(err, terraform.ErrBusy):
		return sdk.NewTargetScalingNoOpError("%v", err)
	case err != nil:
		return fmt.Errorf("scale pool %s: %w", j.pool.Name, err)
	case dry:
		j.log.Info("dry run: nothing was done", "would", out.did())
		return nil
	case !out.changed:
		return sdk.NewTargetScalingNoOpError("%s", out.did())
	}
	return nil
}

// bounds are the count that an action asks for, also a dry one, and what must stay
// because of the policy's min.
func bounds(action sdk.ScalingAction) (count, floor int) {
	count = int(action.Count)
	if action.Count == sdk.StrategyActionMetaValueDryRunCount {
		count = 0
		if n, ok := number(action.Meta["nomad_autoscaler.dry_run.count"]); ok {
			count = n
		}
	}
	if original, ok := number(action.Meta["nomad_autoscaler.count.original"]); ok && original < count {
		floor = count
	}
	return count, floor
}

// The keys of an action's meta by which caravan-strategy says which purchases it lets
// be made. An action without the first is another strategy's.
const (
	metaPool      = "caravan.pool"
	metaPurchases = "caravan.purchases"
)

// allowed are the purchases that the strategy lets be made; nil is all.
func allowed(action sdk.ScalingAction) map[string]bool {
	if _, ours := action.Meta[metaPool]; !ours {
		return nil
	}
	out := map[string]bool{}
	list, _ := action.Meta[metaPurchases].(string)
	for id := range strings.SplitSeq(list, ", ") {
		out[id] = true
	}
	return out
}

// number reads what was a number before it came as JSON.
func number(v any) (int, bool) {
	switch n := v.(type) {
	case float64:
		return int(n), true
	case int64:
		return int(n), true
	case int:
		return n, true
	}
	return 0, false
}
