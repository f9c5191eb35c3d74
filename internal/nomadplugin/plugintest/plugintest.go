// Package plugintest has a device plugin and a task driver for tests. The device
// plugin does what the test says and fails on demand.
package plugintest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/caravan-sched/caravan/internal/nomadplugin/attr"
	"github.com/caravan-sched/caravan/internal/nomadplugin/base"
	"github.com/caravan-sched/caravan/internal/nomadplugin/device"
	"github.com/caravan-sched/caravan/internal/nomadplugin/driver"
	"github.com/caravan-sched/caravan/internal/nomadplugin/hclspec"
)

// DeviceName is the device plugin's name.
const DeviceName = "caravan-test-device"

// ServeIfStarted serves a plugin and exits if Nomad, or the host package,
// started this binary as one. A test calls it first in TestMain, and then names
// its own binary as the plugin's. It is the task driver under the name
// DriverName, and the device plugin under any other.
func ServeIfStarted() {
	if os.Getenv(base.Handshake.MagicCookieKey) != base.Handshake.MagicCookieValue {
		return
	}
	if filepath.Base(os.Args[0]) == DriverName {
		driver.Serve(NewDriver(), base.Logger())
	} else {
		device.Serve(&Device{}, base.Logger())
	}
	os.Exit(0)
}

// Config is the device plugin's configuration.
type Config struct {
	Enabled bool   `codec:"enabled"`
	Count   int    `codec:"count"`
	Prefix  string `codec:"prefix"`
}

// Device is a device plugin with Count devices named Prefix0, Prefix1, ….
type Device struct {
	mu  sync.Mutex
	cfg Config
	// FingerprintErr, ReserveErr and StatsErr, when set, are returned instead
	// of a result; FingerprintErr only once. Set them before the plugin is
	// served.
	FingerprintErr, ReserveErr, StatsErr error
	failed                               bool
	// Groups, when set, are sent one after the other instead of the devices
	// that the configuration asks for.
	Groups [][]device.Group
}

// Info implements base.Plugin.
func (d *Device) Info() base.Info { return base.Info{Name: DeviceName, Version: "0.1.0"} }

// ConfigSchema implements base.Plugin.
func (d *Device) ConfigSchema() *hclspec.Spec {
	return hclspec.Object(map[string]*hclspec.Spec{
		"enabled": hclspec.Default(hclspec.Attr("enabled", "bool", false), hclspec.Literal("true")),
		"count":   hclspec.Default(hclspec.Attr("count", "number", false), hclspec.Literal("8")),
		"prefix":  hclspec.Default(hclspec.Attr("prefix", "string", false), hclspec.Literal(`"GPU-"`)),
	})
}

// SetConfig implements base.Plugin.
func (d *Device) SetConfig(_ context.Context, cfg base.Config) error {
	var c Config
	if err := cfg.Decode(&c); err != nil {
		return err
	}
	if c.Count < 0 {
		return fmt.Errorf("count = %d; must not be negative", c.Count)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.cfg = c
	return nil
}

func (d *Device) config() Config {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.cfg
}

// hasFailed says whether the fingerprint has failed before.
func (d *Device) hasFailed() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	failed := d.failed
	d.failed = true
	return failed
}

// DeviceGroups are what the device plugin finds under a configuration.
func DeviceGroups(c Config) []device.Group {
	g := device.Group{
		Vendor: "nvidia", Type: "gpu", Name: "Test GPU",
		Attributes: map[string]attr.Value{
			"memory":          attr.IntUnit(80, "GiB"),
			"clock":           attr.FloatUnit(1.98, "GHz"),
			"driver_version":  attr.String("570.0"),
			"persistent":      attr.Bool(true),
			"island_size":     attr.Int(8),
			"unique.prefix":   attr.String(c.Prefix),
			"unique.capacity": attr.Int(int64(c.Count)),
		},
	}
	for i := range c.Count {
		g.Devices = append(g.Devices, device.Device{
			ID: fmt.Sprintf("%s%d", c.Prefix, i), Healthy: true, PCIBusID: fmt.Sprintf("0000:%02X:00.0", i+1),
		})
	}
	return []device.Group{g}
}

// Fingerprint implements device.Plugin.
func (d *Device) Fingerprint(ctx context.Context, send func([]device.Group) error) error {
	c := d.config()
	switch {
	case d.FingerprintErr != nil && !d.hasFailed():
		return d.FingerprintErr
	case !c.Enabled:
		return device.ErrDisabled
	}
	list := d.Groups
	if list == nil {
		list = [][]device.Group{DeviceGroups(c)}
	}
	var errs []error
	for _, groups := range list {
		errs = append(errs, send(groups))
	}
	<-ctx.Done()
	return errors.Join(errs...)
}

// Reserve implements device.Plugin.
func (d *Device) Reserve(_ context.Context, ids []string) (device.Reservation, error) {
	if d.ReserveErr != nil {
		return device.Reservation{}, d.ReserveErr
	}
	known := DeviceGroups(d.config())[0].Devices
	r := device.Reservation{Env: map[string]string{}}
	for i, id := range ids {
		if !slices.ContainsFunc(known, func(k device.Device) bool { return k.ID == id }) {
			return device.Reservation{}, fmt.Errorf("unknown device %q", id)
		}
		r.Env[fmt.Sprintf("TEST_DEVICE_%d", i)] = id
	}
	return r, nil
}

// Stats implements device.Plugin.
func (d *Device) Stats(ctx context.Context, interval time.Duration, send func([]device.GroupStats) error) error {
	if d.StatsErr != nil {
		return d.StatsErr
	}
	ticks := time.NewTicker(interval)
	defer ticks.Stop()
	for n := int64(0); ; n++ {
		stat := attr.Stat{Int: &n, Unit: "ticks", Description: "how often statistics were taken"}
		g := device.GroupStats{Vendor: "nvidia", Type: "gpu", Name: "Test GPU", Instances: map[string]device.Stats{}}
		for _, dev := range DeviceGroups(d.config())[0].Devices {
			g.Instances[dev.ID] = device.Stats{Summary: stat, Values: map[string]attr.Stat{"ticks": stat}, Time: time.Unix(n, 0).UTC()}
		}
		if err := send([]device.GroupStats{g}); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticks.C:
		}
	}
}
