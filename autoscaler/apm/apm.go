// Package apm is an APM plugin of the Nomad Autoscaler: it answers queries with what
// the planner knows and Nomad does not — nodes wanted, gangs that wait and for how
// long, GPUs in use and stranded — so that policies can scale from nothing, and
// ordinary strategies can follow GPUs.
//
// The planner keeps no history of these, so the plugin does: it asks every few
// seconds, from when it is configured, and answers ranges from what it has kept.
package apm

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
	autoscaler "github.com/hashicorp/nomad-autoscaler/plugins/apm"
	"github.com/hashicorp/nomad-autoscaler/plugins/base"
	"github.com/hashicorp/nomad-autoscaler/sdk"

	"github.com/caravan-sched/caravan/autoscaler/link"
)

// Name is the plugin's.
const Name = "caravan-apm"

// The keys of the plugin's configuration, besides those of link.
const (
	// KeyInterval is how often the planner is asked, KeyRetention how long what it
	// said is kept.
	KeyInterval  = "sample_interval"
	KeyRetention = "sample_retention"
)

const (
	defaultInterval  = 10 * time.Second
	defaultRetention = time.Hour
	// maxSamples bounds what is kept.
	maxSamples = 10_000
)

// Plugin is the APM.
type Plugin struct {
	log hclog.Logger
	now func() time.Time

	mu      sync.Mutex
	planner Planner
	// every is how often it is asked, keep how long what it said is kept.
	every, keep time.Duration
	kept        []sample
	stop        context.CancelFunc
}

var _ autoscaler.APM = (*Plugin)(nil)

// New returns a plugin that is not configured.
func New(log hclog.Logger) *Plugin { return &Plugin{log: log, now: time.Now} }

// PluginInfo implements the autoscaler's plugin interface.
func (p *Plugin) PluginInfo() (*base.PluginInfo, error) {
	return &base.PluginInfo{Name: Name, PluginType: sdk.PluginTypeAPM}, nil
}

// SetConfig implements the autoscaler's plugin interface. What was kept of another
// planner is forgotten.
func (p *Plugin) SetConfig(config map[string]string) error {
	client, err := link.Open(config)
	faults := []error{err}
	duration := func(key string, def time.Duration) time.Duration {
		v := config[key]
		if v == "" {
			return def
		}
		d, err := time.ParseDuration(v)
		if err != nil || d <= 0 {
			faults = append(faults, fmt.Errorf("%s is %q: want a duration above 0 such as %q", key, v, def))
		}
		return d
	}
	interval, retention := duration(KeyInterval, defaultInterval), duration(KeyRetention, defaultRetention)
	if interval > 0 && retention/interval > maxSamples {
		faults = append(faults, fmt.Errorf("%s is %s with a %s of %s: want at most %d samples", KeyRetention, retention, KeyInterval, interval, maxSamples))
	}
	if err := errors.Join(faults...); err != nil {
		return fmt.Errorf("configure %s: %w", Name, err)
	}
	p.start(client, interval, retention)
	return nil
}

// start begins to ask a planner, and ends to ask the one before.
func (p *Plugin) start(planner Planner, interval, retention time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stop != nil {
		p.stop()
	}
	ctx, stop := context.WithCancel(context.Background())
	p.planner, p.every, p.keep, p.kept, p.stop = planner, interval, retention, nil, stop
	go p.sample(ctx, interval)
}

// Close ends the asking.
func (p *Plugin) Close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stop != nil {
		p.stop()
	}
}

// sample asks over and over. One that fails leaves a gap.
func (p *Plugin) sample(ctx context.Context, interval time.Duration) {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		if _, err := p.fresh(ctx); err != nil && ctx.Err() == nil {
			p.log.Debug("no sample was taken", "error", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// fresh takes a sample and keeps it.
func (p *Plugin) fresh(ctx context.Context) (sample, error) {
	p.mu.Lock()
	planner := p.planner
	p.mu.Unlock()
	if planner == nil {
		return sample{}, errors.New("the plugin is not configured: SetConfig comes first")
	}
	s, err := take(ctx, planner, p.now())
	if err != nil {
		return s, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.planner != planner {
		return s, nil
	}
	p.kept = slices.DeleteFunc(p.kept, func(k sample) bool { return k.at.Equal(s.at) })
	p.kept = append(p.kept, s)
	slices.SortStableFunc(p.kept, func(a, b sample) int { return a.at.Compare(b.at) })
	old := s.at.Add(-p.keep)
	p.kept = slices.DeleteFunc(p.kept, func(k sample) bool { return k.at.Before(old) })
	p.kept = p.kept[max(0, len(p.kept)-maxSamples):]
	return s, nil
}

// Query implements the autoscaler's APM interface. A range that ends now, give or
// take an interval, has the present value in it.
func (p *Plugin) Query(text string, r sdk.TimeRange) (sdk.TimestampedMetrics, error) {
	series, err := p.query(text, r)
	if err != nil {
		return nil, err
	}
	if len(series) > 1 {
		return nil, fmt.Errorf("query is %q: want one name: %q is for QueryMultiple", text, every)
	}
	if len(series) == 0 {
		return nil, nil
	}
	return series[0], nil
}

// QueryMultiple implements the autoscaler's APM interface. The name * is all names,
// in their order.
func (p *Plugin) QueryMultiple(text string, r sdk.TimeRange) ([]sdk.TimestampedMetrics, error) {
	return p.query(text, r)
}

func (p *Plugin) query(text string, r sdk.TimeRange) ([]sdk.TimestampedMetrics, error) {
	q, err := parse(text)
	if err != nil {
		return nil, err
	}
	if r.To.Before(r.From) {
		return nil, fmt.Errorf("query %q: the range ends %s before it begins", text, r.From.Sub(r.To))
	}
	present, err := p.fresh(context.Background())
	if err != nil {
		return nil, fmt.Errorf("query %q: %w", text, err)
	}
	names, err := q.names(present)
	if err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	endsNow := present.at.Sub(r.To) < p.every
	var out []sdk.TimestampedMetrics
	for _, name := range names {
		var series sdk.TimestampedMetrics
		for _, s := range p.kept {
			within := !s.at.Before(r.From) && (!s.at.After(r.To) || endsNow && s.at.Equal(present.at))
			if v, there := s.values[key(q.metric, name)]; there && within {
				series = append(series, sdk.TimestampedMetric{Timestamp: s.at, Value: v})
			}
		}
		if len(series) > 0 {
			out = append(out, q.apply(series))
		}
	}
	return out, nil
}

// names are whom a query is about.
func (q query) names(s sample) ([]string, error) {
	of := metrics[q.metric]
	if q.name == "" {
		return []string{""}, nil
	}
	kind, metric := "queue", "queue_gangs" // every queue has it
	if of == ofPool {
		kind, metric = "pool", "nodes_wanted" // and this every pool
	}
	var names []string
	for k := range s.values {
		if rest, found := strings.CutPrefix(k, metric+"/"); found {
			names = append(names, rest)
		}
	}
	slices.Sort(names)
	switch {
	case q.name == every:
		return names, nil
	case slices.Contains(names, q.name):
		return []string{q.name}, nil
	}
	return nil, fmt.Errorf("query is of %s %q: want one of the planner's: %s", kind, q.name, strings.Join(names, ", "))
}
