package client

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/nomad/api"
	"golang.org/x/sys/unix"

	"github.com/caravan-sched/caravan/internal/nomadplugin/attr"
	"github.com/caravan-sched/caravan/internal/nomadplugin/device"
)

// statsWait is how long a device plugin may take to send its first statistics.
// It is real time: the plugin is a process.
const statsWait = 2 * time.Second

// errEnough ends a stream of statistics.
var errEnough = errors.New("enough")

// HostStats are the node's measurements. Processor and memory are as large as
// the node says it is, and at rest: the nodes of a stand-in share one machine,
// so that its load is none of theirs. Disk and devices are measured.
func (c *Client) HostStats(ctx context.Context) (*api.HostStats, error) {
	memory := uint64(c.cfg.Capacity.MemoryMiB) << 20
	out := &api.HostStats{
		Memory:      &api.HostMemoryStats{Total: memory, Available: memory, Free: memory},
		CPU:         []*api.HostCPUStats{},
		DiskStats:   []*api.HostDiskStats{},
		DeviceStats: []*api.DeviceGroupStats{},
		Uptime:      uint64(max(0, c.cfg.Clock.Now().Sub(c.started).Seconds())),
	}
	for i := range c.cfg.Capacity.Cores {
		out.CPU = append(out.CPU, &api.HostCPUStats{CPU: fmt.Sprintf("cpu%d", i), Idle: 100})
	}
	disk, err := diskStats(c.cfg.Dir)
	if err != nil {
		return nil, err
	}
	out.AllocDirStats = disk
	out.DiskStats = append(out.DiskStats, disk)
	out.DeviceStats = append(out.DeviceStats, c.deviceStats(ctx)...)
	return out, nil
}

// deviceStats are the statistics of all of the node's devices.
func (c *Client) deviceStats(ctx context.Context) []*api.DeviceGroupStats {
	c.mu.Lock()
	plugins := c.plugins
	c.mu.Unlock()
	groups := make([][]*api.DeviceGroupStats, len(plugins))
	var all sync.WaitGroup
	for i, p := range plugins {
		all.Go(func() { groups[i] = p.stats(ctx) })
	}
	all.Wait()
	return slices.Concat(groups...)
}

// statsOf picks those of a task's devices out of them.
func statsOf(devices []*api.AllocatedDeviceResource, all []*api.DeviceGroupStats) []*api.DeviceGroupStats {
	out := []*api.DeviceGroupStats{}
	for _, g := range all {
		mine := &api.DeviceGroupStats{Vendor: g.Vendor, Type: g.Type, Name: g.Name, InstanceStats: map[string]*api.DeviceStats{}}
		for _, d := range devices {
			if d.Vendor != g.Vendor || d.Type != g.Type || d.Name != g.Name {
				continue
			}
			for _, id := range d.DeviceIDs {
				if s := g.InstanceStats[id]; s != nil {
					mine.InstanceStats[id] = s
				}
			}
			out = append(out, mine)
		}
	}
	return out
}

func diskStats(dir string) (*api.HostDiskStats, error) {
	var fs unix.Statfs_t
	if err := unix.Statfs(dir, &fs); err != nil {
		return nil, fmt.Errorf("measure the disk of %s: %w", dir, err)
	}
	size := uint64(fs.Bsize)
	out := &api.HostDiskStats{Device: "dev", Mountpoint: dir, Size: fs.Blocks * size, Available: fs.Bavail * size, Used: (fs.Blocks - fs.Bfree) * size}
	if out.Size > 0 {
		out.UsedPercent = 100 * float64(out.Used) / float64(out.Size)
	}
	if fs.Files > 0 {
		out.InodesUsedPercent = 100 * float64(fs.Files-fs.Ffree) / float64(fs.Files)
	}
	return out, nil
}

// stats are the plugin's latest, none where it has none in time.
func (p *plugin) stats(ctx context.Context) []*api.DeviceGroupStats {
	p.mu.Lock()
	client := p.client
	p.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, statsWait)
	defer cancel()
	var out []*api.DeviceGroupStats
	// The stream ends with the first message; an error shows as none.
	_ = client.Stats(ctx, statsWait, func(groups []device.GroupStats) error {
		for _, g := range groups {
			shown := &api.DeviceGroupStats{Vendor: g.Vendor, Type: g.Type, Name: g.Name, InstanceStats: map[string]*api.DeviceStats{}}
			for id, s := range g.Instances {
				values := &api.StatObject{Attributes: map[string]*api.StatValue{}}
				for name, v := range s.Values {
					values.Attributes[name] = statValue(v)
				}
				shown.InstanceStats[id] = &api.DeviceStats{Summary: statValue(s.Summary), Stats: values, Timestamp: s.Time}
			}
			out = append(out, shown)
		}
		return errEnough
	})
	return out
}

func statValue(s attr.Stat) *api.StatValue {
	return &api.StatValue{
		IntNumeratorVal: s.Int, IntDenominatorVal: s.IntOf, FloatNumeratorVal: s.Float, FloatDenominatorVal: s.FloatOf,
		StringVal: s.Text, BoolVal: s.Bool, Unit: s.Unit, Desc: s.Description,
	}
}
