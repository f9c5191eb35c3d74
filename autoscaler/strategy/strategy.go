// Package strategy is a strategy plugin of the Nomad Autoscaler: it has a pool's
// nodes bought and given back as the planner decides. The planner weighs deadlines
// and prices, since it sees the queue and the cluster; the plugin keeps to what a
// policy allows, does nothing on the word of a planner that is not sure, and says
// the arithmetic in the autoscaler's log.
package strategy

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"sync"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/nomad-autoscaler/plugins/base"
	autoscaler "github.com/hashicorp/nomad-autoscaler/plugins/strategy"
	"github.com/hashicorp/nomad-autoscaler/sdk"

	"github.com/caravan-sched/caravan/autoscaler/link"
	"github.com/caravan-sched/caravan/planner/burstapi"
)

// Name is the plugin's.
const Name = "caravan-strategy"

// The keys of the strategy block in a policy.
const (
	// KeyPool is the pool's name in the planner's pools file; it must be set.
	KeyPool = "pool"
	// KeyMaxScaleUp is how many nodes are bought in one evaluation at most. A purchase
	// is made whole or not at all.
	KeyMaxScaleUp = "max_scale_up"
	// KeyMaxPrice is what the pool's nodes may cost in an hour, all together.
	KeyMaxPrice = "max_price_per_hour"
)

// The keys of an action's meta, besides the autoscaler's own.
const (
	MetaPool      = "caravan.pool"
	MetaIndex     = "caravan.index"
	MetaPurchases = "caravan.purchases"
	MetaGiveBack  = "caravan.give_back"
	MetaHeld      = "caravan.held"
)

// Planner is who decides.
type Planner interface {
	Burst(ctx context.Context) (burstapi.Answer, error)
}

// Plugin is the strategy.
type Plugin struct {
	log hclog.Logger

	mu      sync.Mutex
	planner Planner
	// said is the reason that was logged last, by pool, and asked the purchases that
	// were to be made at the last evaluation while others go.
	said, asked map[string]string
}

var _ autoscaler.Strategy = (*Plugin)(nil)

// New returns a plugin that is not configured.
func New(log hclog.Logger) *Plugin {
	return &Plugin{log: log, said: map[string]string{}, asked: map[string]string{}}
}

// PluginInfo implements the autoscaler's plugin interface.
func (p *Plugin) PluginInfo() (*base.PluginInfo, error) {
	return &base.PluginInfo{Name: Name, PluginType: sdk.PluginTypeStrategy}, nil
}

// SetConfig implements the autoscaler's plugin interface.
func (p *Plugin) SetConfig(config map[string]string) error {
	c, err := link.Open(config)
	if err != nil {
		return fmt.Errorf("configure %s: %w", Name, err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.planner = c
	return nil
}

// Run implements the autoscaler's strategy interface. An error leaves everything as
// it is: with a planner that is away or not sure nothing is bought or given back.
func (p *Plugin) Run(eval *sdk.ScalingCheckEvaluation, count int64) (*sdk.ScalingCheckEvaluation, error) {
	if eval == nil || eval.Check == nil || eval.Check.Strategy == nil || eval.Action == nil {
		return nil, errors.New("run strategy: the evaluation has no check or no action")
	}
	name, l, err := readCheck(eval.Check.Strategy.Config)
	if err != nil {
		return nil, fmt.Errorf("run strategy: %w", err)
	}
	if count < 0 {
		return nil, fmt.Errorf("run strategy: count is %d: want 0 or more", count)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.planner == nil {
		return nil, errors.New("run strategy: the plugin is not configured: SetConfig comes first")
	}
	answer, err := p.planner.Burst(context.Background())
	if err != nil {
		return nil, fmt.Errorf("hold pool %s at %d nodes: ask planner: %w", name, count, err)
	}
	if !answer.Leader {
		return nil, fmt.Errorf("hold pool %s at %d nodes: the planner is not sure of the cluster: %s", name, count, answer.Why)
	}
	wants, err := find(answer.Pools, name)
	if err != nil {
		return nil, fmt.Errorf("hold at %d nodes: %w", count, err)
	}
	v := follow(wants, int(count), l, p.stuck(wants))
	p.tell(wants, answer.Index, v, count)
	fill(eval.Action, wants.Name, answer.Index, v)
	return eval, nil
}

// stuck says that the purchases wanted now were asked for at the last evaluation
// too, and nodes are to go: the policy's max may leave no room for both, so those
// that go are asked for first.
func (p *Plugin) stuck(wants burstapi.Pool) bool {
	var ids []string
	for _, b := range wants.Purchases {
		if b.State == burstapi.Wanted {
			ids = append(ids, b.ID)
		}
	}
	key := strings.Join(ids, " ")
	before := p.asked[wants.Name]
	p.asked[wants.Name] = key
	if key == "" || len(wants.GiveBack) == 0 || key != before {
		return false
	}
	delete(p.asked, wants.Name) // and the next time again the other way round
	return true
}

// tell logs what is decided once, until it changes.
func (p *Plugin) tell(wants burstapi.Pool, index uint64, v verdict, count int64) {
	if p.said[wants.Name] == v.reason {
		return
	}
	p.said[wants.Name] = v.reason
	p.log.Info(v.reason, "pool", wants.Name, "ready", count, "wanted", wants.Wanted, "count", v.count, "direction", v.direction.String(), "index", index)
}

// fill writes a verdict into the autoscaler's action.
func fill(a *sdk.ScalingAction, pool string, index uint64, v verdict) {
	a.Canonicalize()
	a.Direction, a.Reason = v.direction, v.reason
	if v.direction != sdk.ScaleDirectionNone {
		a.Count = int64(v.count)
	}
	a.Meta[MetaPool], a.Meta[MetaIndex] = pool, strconv.FormatUint(index, 10)
	set := func(key string, words []string) {
		if len(words) > 0 {
			a.Meta[key] = strings.Join(words, ", ")
		}
	}
	var buy, give []string
	for _, b := range v.buy {
		buy = append(buy, b.ID)
	}
	for _, g := range v.giving {
		give = append(give, g.Name)
	}
	set(MetaPurchases, buy)
	set(MetaGiveBack, give)
	set(MetaHeld, v.held)
}

func find(pools []burstapi.Pool, name string) (burstapi.Pool, error) {
	var names []string
	for _, p := range pools {
		if p.Name == name {
			return p, nil
		}
		names = append(names, p.Name)
	}
	return burstapi.Pool{}, fmt.Errorf("%s is %q: want one of the planner's pools: %s", KeyPool, name, strings.Join(names, ", "))
}

// readCheck reads a policy's strategy block and says everything that is wrong.
func readCheck(config map[string]string) (string, limits, error) {
	var l limits
	var faults []error
	bad := func(key, want string) {
		faults = append(faults, fmt.Errorf("%s is %q: want %s", key, config[key], want))
	}
	if config[KeyPool] == "" {
		bad(KeyPool, "a pool's name in the pools file")
	}
	if v := config[KeyMaxScaleUp]; v != "" {
		n, err := strconv.Atoi(v)
		if err != nil || n < 1 {
			bad(KeyMaxScaleUp, "a whole number of nodes above 0")
		}
		l.step = n
	}
	if v := config[KeyMaxPrice]; v != "" {
		f, err := strconv.ParseFloat(v, 64)
		if err != nil || !(f > 0) || math.IsInf(f, 0) {
			bad(KeyMaxPrice, "an amount above 0")
		}
		l.price = f
	}
	for key := range config {
		switch key {
		case KeyPool, KeyMaxScaleUp, KeyMaxPrice:
		default:
			bad(key, "one of "+strings.Join([]string{KeyPool, KeyMaxScaleUp, KeyMaxPrice}, ", "))
		}
	}
	return config[KeyPool], l, errors.Join(faults...)
}
