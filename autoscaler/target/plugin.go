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
	"net/http"
	"slices"
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
	MetaWhy     = "caravan.why"
)

// Plugin is the target.
type Plugin struct {
	log hclog.Logger
	now func() time.Time

	mu       sync.Mutex
	settings *settings
	nomad    Nomad
	planner  Planner
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
}

var _ autoscaler.Target = (*Plugin)(nil)

// New returns a plugin that is not configured.
func New(log hclog.Logger) *Plugin {
	return &Plugin{log: log, now: time.Now, pools: map[string]*worker{}}
}

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
	p.settings, p.nomad, p.planner = &s, cluster{client}, nil
	if s.planner != "" {
		p.planner = plannerAPI{s.planner, s.token, &http.Client{}}
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
	dir      *terraform.Directory
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
		w = &worker{lost: map[string]bool{}}
		p.pools[r.pool.Name] = w
	}
	log := p.log.With("pool", r.pool.Name)
	cfg, err := p.settings.directory(r)
	if err != nil {
		return nil, err
	}
	dir, err := terraform.Open(cfg, log)
	if err != nil {
		return nil, err
	}
	return &job{request: r, settings: *p.settings, nomad: p.nomad, planner: p.planner, worker: w, dir: dir, log: log}, nil
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
	out, err := j.pass(context.Background(), p.now, count, floor, dry)
	switch {
	case errors.Is(err, errUnderWay) || errors.Is(err, terraform.ErrBusy):
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

// Status implements the autoscaler's target interface.
func (p *Plugin) Status(config map[string]string) (*sdk.TargetStatus, error) {
	j, err := p.begin(config)
	if err != nil {
		return nil, fmt.Errorf("status: %w", err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), j.dir.Config().PlanLimit)
	defer cancel()
	if err := j.leader(ctx); err != nil {
		return nil, fmt.Errorf("status of pool %s: %w", j.pool.Name, err)
	}
	see, err := j.look(ctx, j.dir.Nodes)
	if errors.Is(err, terraform.ErrBusy) {
		j.log.Debug("the directory is being applied", "by", err)
		return &sdk.TargetStatus{Ready: false, Meta: map[string]string{MetaWhy: err.Error()}}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("status of pool %s: %w", j.pool.Name, err)
	}
	status := &sdk.TargetStatus{Ready: true, Meta: see.meta()}
	status.Count = int64(see.ready())
	j.worker.mu.Lock()
	if j.worker.why != "" {
		status.Meta[MetaWhy] = j.worker.why
	}
	j.worker.mu.Unlock()
	if !j.worker.pass.TryLock() {
		status.Ready = false
		return status, nil
	}
	j.worker.pass.Unlock()
	interrupted, err := j.dir.Interrupted()
	if err != nil {
		j.log.Warn("whether an apply was interrupted is not known", "error", err)
	}
	if !j.dryRun && (interrupted != nil || see.unsettled(j.planner != nil)) {
		p.tidy(j)
	}
	return status, nil
}

// tidy starts a pass that finishes what is under way.
func (p *Plugin) tidy(j *job) {
	j.worker.mu.Lock()
	defer j.worker.mu.Unlock()
	now := p.now()
	if now.Sub(j.worker.tidied) < j.settings.settle {
		return
	}
	j.worker.tidied = now
	p.tidying.Go(func() {
		_, err := j.pass(context.Background(), p.now, noCount, 0, false)
		if err != nil && !errors.Is(err, errUnderWay) && !errors.Is(err, terraform.ErrBusy) {
			j.log.Error("what is under way could not be finished", "error", err)
		}
	})
}

// Wait returns when no pass is under way that Status has started.
func (p *Plugin) Wait() { p.tidying.Wait() }

// sight is what there is of a pool.
type sight struct {
	pool  string
	state terraform.State
	nodes map[string]machine
	notes map[string]note
}

// look reads the state, Nomad, and our notes.
func (j *job) look(ctx context.Context, state func(context.Context) (terraform.State, error)) (sight, error) {
	s := sight{pool: j.pool.Name, notes: map[string]note{}}
	var err error
	if s.state, err = state(ctx); err != nil {
		return s, err
	}
	bounded, cancel := context.WithTimeout(ctx, nomadLimit)
	defer cancel()
	if s.nodes, err = machines(bounded, j.nomad, j.pool); err != nil {
		return s, err
	}
	if _, err := j.dir.ReadNote(notesName, &s.notes); err != nil {
		j.log.Warn("what was noted of the nodes is lost; they have their time anew", "error", err)
		s.notes = map[string]note{}
	}
	return s, nil
}

func (s sight) ready() int {
	n := 0
	for name, node := range s.state {
		if !node.Tainted && s.nodes[name].Ready {
			n++
		}
	}
	return n
}

// unknown are nodes that say they belong to the pool, and Terraform does not know.
func (s sight) unknown() []string {
	var out []string
	for key, m := range s.nodes {
		if _, known := s.state[key]; !known && m.Lives {
			out = append(out, fmt.Sprintf("%s (%s)", key, m.ID))
		}
	}
	slices.Sort(out)
	return out
}

// unsettled says whether a pass would find something to finish.
func (s sight) unsettled(planned bool) bool {
	for name, node := range s.state {
		n, noted := s.notes[name]
		if node.Tainted || !noted || !s.nodes[name].Ready || !n.Joined || planned && n.Purchase != "" && !n.Told {
			return true
		}
	}
	return false
}

func (s sight) meta() map[string]string {
	m := map[string]string{MetaReady: strconv.Itoa(s.ready()), MetaComing: strconv.Itoa(len(s.state) - s.ready())}
	if u := s.unknown(); len(u) > 0 {
		m[MetaUnknown] = strings.Join(u, ", ")
	}
	var last time.Time
	for _, n := range s.notes {
		if n.Ordered.After(last) {
			last = n.Ordered
		}
	}
	if !last.IsZero() {
		m[sdk.TargetStatusMetaKeyLastEvent] = strconv.FormatInt(last.UnixNano(), 10)
	}
	return m
}
