package config

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/caravan-sched/caravan/autoscaler/pool"
	"github.com/caravan-sched/caravan/planner/core/model"
)

// The block's form in the file; the doc of each key is in docs/burst.md.
type fileBurst struct {
	Pools           *string    `hcl:"pools,optional"`
	Default         *string    `hcl:"default,optional"`
	Wait            *fileWaits `hcl:"wait,block"`
	Margin          *string    `hcl:"margin,optional"`
	Safety          *float64   `hcl:"safety,optional"`
	Hope            *float64   `hcl:"hope,optional"`
	Ahead           *string    `hcl:"ahead,optional"`
	Restart         *string    `hcl:"restart,optional"`
	Idle            *string    `hcl:"idle,optional"`
	Lead            *string    `hcl:"lead,optional"`
	CoolDown        *string    `hcl:"cool_down,optional"`
	MaxNodes        *int       `hcl:"max_nodes,optional"`
	MaxPricePerHour *float64   `hcl:"max_price_per_hour,optional"`
	CarbonPrice     *float64   `hcl:"carbon_price,optional"`
	ComeHome        *bool      `hcl:"come_home,optional"`

	Carbon *fileCarbon `hcl:"carbon,block"`
}

type fileWaits struct {
	Over  *string  `hcl:"over,optional"`
	GPUs  *int     `hcl:"gpus,optional"`
	Price *float64 `hcl:"price,optional"`
}

func (l *loader) mergeBurst(c *Config, f *fileBurst) {
	p := c.Policy.Burst
	if f != nil {
		set(&l.poolsFile, f.Pools)
		if f.Pools == nil || *f.Pools == "" {
			l.fault("burst.pools", "", "want the path of the pools file; without one leave the block out")
		}
		set(&p.Default, f.Default)
		if w := f.Wait; w != nil {
			l.duration(&p.WaitOver, w.Over, "burst.wait.over")
			set(&p.WaitGPUs, w.GPUs)
			set(&p.WaitPrice, w.Price)
			if w.Over == nil {
				l.fault("burst.wait.over", "", "want for how long a gang may wait; without a rule leave the block out")
			}
		}
		l.duration(&p.Margin, f.Margin, "burst.margin")
		set(&p.Safety, f.Safety)
		set(&p.Hope, f.Hope)
		l.duration(&p.Ahead, f.Ahead, "burst.ahead")
		l.duration(&p.Restart, f.Restart, "burst.restart")
		l.duration(&p.Idle, f.Idle, "burst.idle")
		l.duration(&p.Lead, f.Lead, "burst.lead")
		l.duration(&p.CoolDown, f.CoolDown, "burst.cool_down")
		set(&p.MaxNodes, f.MaxNodes)
		set(&p.MaxPricePerHour, f.MaxPricePerHour)
		set(&p.CarbonPrice, f.CarbonPrice)
		if f.ComeHome != nil {
			p.StayAway = !*f.ComeHome
		}
		l.mergeCarbon(c, f.Carbon)
	}
	c.Policy.Burst = p
}

// checkBurst reports what the policy itself finds wrong, at its line.
func (l *loader) checkBurst(c *Config) {
	err := c.Policy.Burst.Validate()
	if err == nil {
		return
	}
	for text := range strings.SplitSeq(err.Error(), "\n") {
		_, text, _ = strings.Cut(text, "burst.")
		key, _, _ := strings.Cut(text, " ")
		at := "burst." + strings.Replace(key, "wait_", "wait.", 1)
		l.faultText(at, at+strings.TrimPrefix(text, key))
	}
}

// loadPools reads the pools file that the block names.
func (l *loader) loadPools(c *Config, read func(string) ([]byte, error)) {
	if l.poolsFile == "" {
		return
	}
	file := l.beside("burst.pools", l.poolsFile)
	src, err := read(file)
	if err != nil {
		l.fault("burst.pools", l.poolsFile, "it cannot be read: "+err.Error())
		return
	}
	levels := c.LevelNames()
	pools, err := pool.ParseFor(src, file, func(level string) string {
		if slices.Contains(levels, level) || l.unread["levels"] {
			return ""
		}
		return suggest(level, levels)
	})
	if err != nil {
		l.join(err)
		return
	}
	c.Burst.Pools = pools
	l.checkZones(c)
}

// BuyPools are the pools as decisions see them, for a cluster with such levels.
func (b *Burst) BuyPools(levels []string) (out model.Burst) {
	if b.Pools == nil {
		return out
	}
	out.Currency = b.Pools.Currency
	for _, d := range b.Pools.DataSets {
		out.DataSets = append(out.DataSets, model.DataSet{Name: d.Name, GB: d.GB, Egress: d.EgressPrice})
	}
	for i := range b.Pools.Pools {
		out.Pools = append(out.Pools, buyPool(&b.Pools.Pools[i], levels))
	}
	return out
}

func buyPool(p *pool.Pool, levels []string) model.BuyPool {
	n := model.Node{
		ID: p.Name, Datacenter: p.Datacenter, Pool: p.NodePool, Class: p.Class,
		Attributes: map[string]string{"node.datacenter": p.Datacenter, "node.class": p.Class, "node.pool": p.NodePool},
		Levels:     maps.Clone(p.Levels),
		Capacity:   model.Resources{CPUMHz: p.CPUMHz, Cores: p.Cores, MemoryMiB: p.MemoryMiB, DiskMiB: p.DiskMiB},
	}
	for key, value := range p.Attributes {
		n.Attributes["attr."+key] = value
	}
	for key, value := range p.Meta {
		n.Attributes["meta."+key] = value
	}
	n.Attributes["meta."+MetaPrefix+"pool"] = p.Name
	if n.Levels == nil {
		n.Levels = map[string]string{}
	}
	if slices.Contains(levels, model.LevelRegion) && n.Levels[model.LevelRegion] == "" && p.Near != model.LevelRegion {
		n.Levels[model.LevelRegion] = p.Region
	}
	for i := range p.GPUs {
		n.GPUs = append(n.GPUs, model.GPU{
			UUID: fmt.Sprint(i), Vendor: p.Vendor, Type: p.Type, Model: p.Model, Attributes: p.GPUAttributes,
			Island: i / p.IslandSize, NUMA: i / (p.GPUs / p.NUMANodes),
		})
	}
	return model.BuyPool{
		Name: p.Name, Node: n, Near: p.Near, Quota: p.Quota, OnDemand: p.OnDemand, Spot: p.Spot, SpotLifetime: p.SpotLifetime,
		Boot: p.BootTime, Join: p.JoinTimeout, MinBilling: p.MinBilling, Period: p.BillingPeriod, Egress: p.EgressPrice, Gbps: p.TransferGbps,
		Carbon: p.Carbon, PowerKW: p.PowerKW, Data: slices.Clone(p.Data),
	}
}
