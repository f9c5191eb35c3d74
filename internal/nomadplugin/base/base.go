// Package base is the part of Nomad's plugin contract that every plugin
// shares: who it is, the schema of its configuration, and the configuration.
package base

import (
	"bytes"
	"context"
	"fmt"
	"reflect"

	"github.com/hashicorp/go-msgpack/v2/codec"
	goplugin "github.com/hashicorp/go-plugin"

	"github.com/caravan-sched/caravan/internal/nomadplugin/hclspec"
)

// APIVersion is the version of the plugin API that this package speaks, for
// devices and for drivers.
const APIVersion = "v0.1.0"

// Handshake is how Nomad and a plugin binary recognise each other.
var Handshake = goplugin.HandshakeConfig{
	ProtocolVersion:  2,
	MagicCookieKey:   "NOMAD_PLUGIN_MAGIC_COOKIE",
	MagicCookieValue: "e4327c2e01eabfd75a8a67adb114fb34a757d57eee7728d857a8cec6e91a7255",
}

// The names under which go-plugin dispenses a binary's services.
const (
	DispenseBase   = "base"
	DispenseDevice = "device"
	DispenseDriver = "driver"
)

// Type says what a plugin is.
type Type string

// The types of plugins.
const (
	TypeDevice Type = "device"
	TypeDriver Type = "driver"
)

// Info says who a plugin is.
type Info struct {
	// Name is what the agent's configuration and the tasks call it.
	Name string
	// Version is the plugin's own, a semantic version without "v". Of two
	// binaries of one name, Nomad loads the newer.
	Version string
}

// Plugin is what every plugin provides. Nomad calls Info and ConfigSchema in
// one process of the binary, SetConfig in another one to check the agent's
// configuration, and SetConfig and the rest in a third, the one that stays: so
// SetConfig must do nothing that outlives the process.
type Plugin interface {
	Info() Info
	ConfigSchema() *hclspec.Spec
	// SetConfig is called before anything else is. Its error stops the agent
	// and is shown to the operator, so it names every fault.
	SetConfig(ctx context.Context, cfg Config) error
}

// Config is a plugin's configuration.
type Config struct {
	// APIVersion is the version that Nomad chose.
	APIVersion string
	// Raw is the configuration in msgpack, already checked against the schema
	// by Nomad. See Decode.
	Raw []byte
	// Driver is the client's configuration for drivers. Nomad sends it when it
	// starts a plugin, not when it checks a configuration; nil for devices.
	Driver *DriverConfig
}

// DriverConfig is what a client tells its drivers.
type DriverConfig struct {
	// MinPort and MaxPort bound the loopback ports for plugins' own processes.
	MinPort, MaxPort uint32
	// Topology is the node's hardware, nil if not reported.
	Topology *CPUTopology
}

// CPUTopology is a node's processors as the client found them.
type CPUTopology struct {
	NUMANodes []uint32
	// Distances[i][j] is the distance of memory between NUMA nodes; empty if
	// not reported.
	Distances [][]uint32
	Cores     []Core
	// OverrideComputeMHz and ReservedComputeMHz are the operator's, 0 for none.
	OverrideComputeMHz, ReservedComputeMHz uint64
}

// Core is one logical processor.
type Core struct {
	ID, NUMANode, Socket uint32
	Efficiency, Disabled bool
	// Speeds are in MHz; 0 is unknown. Guessed is used when the others are 0.
	BaseMHz, MaxMHz, GuessedMHz uint64
}

// Decode reads the configuration into a struct with `codec` tags. A value that
// the schema leaves null keeps what the struct holds.
func (c Config) Decode(into any) error {
	if len(c.Raw) == 0 {
		return nil
	}
	if err := Unmarshal(c.Raw, into); err != nil {
		return fmt.Errorf("decode plugin configuration: %w", err)
	}
	return nil
}

var mapType = reflect.TypeFor[map[string]any]()

// msgpack is the dialect that Nomad uses for configurations.
func msgpack() *codec.MsgpackHandle {
	h := &codec.MsgpackHandle{}
	h.RawToString = true
	h.TimeNotBuiltin = true
	h.MapType = mapType
	h.TypeInfos = codec.NewTypeInfos([]string{"codec"})
	return h
}

// Unmarshal reads msgpack in the dialect that Nomad uses for configurations
// and driver states; structs carry `codec` tags.
func Unmarshal(data []byte, into any) error {
	return codec.NewDecoder(bytes.NewReader(data), msgpack()).Decode(into)
}

// Marshal is the inverse of Unmarshal.
func Marshal(v any) ([]byte, error) {
	var data []byte
	if err := codec.NewEncoderBytes(&data, msgpack()).Encode(v); err != nil {
		return nil, err
	}
	return data, nil
}
