package daemon

import (
	"context"
	"maps"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/caravan-sched/caravan/planner/carbon"
	"github.com/caravan-sched/caravan/planner/config"
	"github.com/caravan-sched/caravan/planner/core/model"
)

// carbons are the figures for CO2 that a source gives, in the place of those in the
// pools file. The core sees a number either way.
type carbons struct {
	mu     sync.Mutex
	config *config.CarbonSource
	source *carbon.Source
	// zones are the source's names of the pools' regions, by pool.
	zones map[string]string
	// anew tells the one who asks that there is another configuration.
	anew chan struct{}
	now  func() time.Time
}

// configure takes a source, if it is another one; what the same one said stays.
func (c *carbons) configure(b *config.Burst) {
	c.mu.Lock()
	defer c.mu.Unlock()
	zones := b.CarbonZones()
	if reflect.DeepEqual(c.config, b.Carbon) && maps.Equal(c.zones, zones) {
		return
	}
	if !reflect.DeepEqual(c.config, b.Carbon) {
		c.source = nil
		if s := b.Carbon; s != nil {
			c.source = carbon.New(carbon.Options{URL: s.URL, Value: s.Value, Header: s.Header, Token: s.ReadToken, Keep: s.Keep, Now: c.now})
		}
	}
	c.config, c.zones = b.Carbon, zones
	select {
	case c.anew <- struct{}{}:
	default:
	}
}

// update is the pools with the newest figures there are.
func (c *carbons) update(b model.Burst, now time.Time) model.Burst {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.source == nil {
		return b
	}
	b.Pools = slices.Clone(b.Pools)
	for i := range b.Pools {
		if grams, known := c.source.At(c.zones[b.Pools[i].Name], now); known {
			b.Pools[i].Carbon = grams
		}
	}
	return b
}

// askCarbon asks for all zones once, and says after how long to ask again; 0 is
// when there is a source.
func (d *Daemon) askCarbon(ctx context.Context) time.Duration {
	c := &d.bursts.carbon
	c.mu.Lock()
	source, conf := c.source, c.config
	zones := slices.Compact(slices.Sorted(maps.Values(c.zones)))
	c.mu.Unlock()
	if source == nil {
		return 0
	}
	news, changed := source.Ask(ctx, zones)
	for _, n := range news {
		if n.Err == nil {
			d.log.Info("the carbon source answers again", "region", n.Region)
			continue
		}
		d.log.Warn("the carbon source gives no figure; the last good one counts while it is not too old, then the one in the pools file", "region", n.Region, "error", n.Err, "keep", conf.Keep, "what_to_do", "see burst.carbon in the configuration")
	}
	if changed {
		d.poke(false)
	}
	return conf.Every
}

// watchCarbon asks now and then, and at once when the configuration is another one.
func (d *Daemon) watchCarbon(ctx context.Context) {
	for ctx.Err() == nil {
		var again <-chan time.Time
		if wait := d.askCarbon(ctx); wait > 0 {
			again = time.After(wait)
		}
		select {
		case <-ctx.Done():
		case <-again:
		case <-d.bursts.carbon.anew:
		}
	}
}
