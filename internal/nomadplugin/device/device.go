// Package device is Nomad's contract for device plugins: the interface that a
// plugin provides, Serve, and the host's side.
package device

import (
	"context"
	"errors"
	"time"

	"github.com/caravan-sched/caravan/internal/nomadplugin/attr"
	"github.com/caravan-sched/caravan/internal/nomadplugin/base"
)

// ErrDisabled from Fingerprint ends the fingerprint stream: Nomad then has no
// devices of the plugin until the agent restarts. Every other error is only
// logged, and Fingerprint is called again.
var ErrDisabled = errors.New("device is not enabled")

// Plugin is a device plugin.
type Plugin interface {
	base.Plugin

	// Fingerprint calls send with all devices, at once and then whenever they
	// change, until ctx ends. Devices that were sent before and are gone now
	// must stay in the list as unhealthy, or Nomad forgets who holds them. An
	// error from send says that the groups are not valid and were not sent, or
	// that the stream is broken and ctx is about to end.
	Fingerprint(ctx context.Context, send func(groups []Group) error) error

	// Reserve is called before a task starts that was given the devices. Its
	// error fails the task and is shown to its owner.
	Reserve(ctx context.Context, ids []string) (Reservation, error)

	// Stats calls send with the devices' statistics, at once and then every
	// interval, until ctx ends. After an error Nomad asks again by and by.
	Stats(ctx context.Context, interval time.Duration, send func(groups []GroupStats) error) error
}

// Group is a set of alike devices: "vendor/type/name" is what jobs ask for.
type Group struct {
	Vendor, Type, Name string
	Devices            []Device
	// Attributes are the group's: Nomad has none per device. Those whose key
	// starts with "unique." are left out of the node's computed class.
	Attributes map[string]attr.Value
}

// Device is one instance.
type Device struct {
	// ID is unique on the node and survives restarts.
	ID      string
	Healthy bool
	// HealthDescription says why the device is not healthy.
	HealthDescription string
	// PCIBusID lets Nomad match the device with the cores of its NUMA node; ""
	// is unknown.
	PCIBusID string
}

// Reservation says how a task gets at its devices.
type Reservation struct {
	Env     map[string]string
	Mounts  []Mount
	Devices []Node
}

// Mount is a file or folder of the host that a container needs.
type Mount struct {
	TaskPath, HostPath string
	ReadOnly           bool
}

// Node is a device node of the host that a container needs.
type Node struct {
	TaskPath, HostPath string
	// Permissions are the cgroup's: some of "rwm".
	Permissions string
}

// GroupStats are the statistics of one group's devices, by device ID.
type GroupStats struct {
	Vendor, Type, Name string
	Instances          map[string]Stats
}

// Stats are one device's statistics.
type Stats struct {
	// Summary is the one number to show.
	Summary attr.Stat
	// Values are all of them, by name.
	Values map[string]attr.Stat
	// Time is when they were taken.
	Time time.Time
}
