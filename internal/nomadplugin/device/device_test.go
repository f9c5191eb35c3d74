package device_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	goplugin "github.com/hashicorp/go-plugin"

	"github.com/caravan-sched/caravan/internal/nomadplugin/attr"
	"github.com/caravan-sched/caravan/internal/nomadplugin/base"
	"github.com/caravan-sched/caravan/internal/nomadplugin/device"
	"github.com/caravan-sched/caravan/internal/nomadplugin/hclspec"
	"github.com/caravan-sched/caravan/internal/nomadplugin/plugintest"
)

var values = cmp.AllowUnexported(attr.Value{})

var errEnough = errors.New("enough")

// connect serves a plugin over gRPC within the process.
func connect(t *testing.T, p *plugintest.Device, config string) (*base.Client, *device.Client) {
	t.Helper()
	client, _ := goplugin.TestPluginGRPCConn(t, false, device.Plugins(p, nil))
	t.Cleanup(func() { _ = client.Close() }) // it stops the server too
	rawBase, err := client.Dispense(base.DispenseBase)
	if err != nil {
		t.Fatal(err)
	}
	rawDevice, err := client.Dispense(base.DispenseDevice)
	if err != nil {
		t.Fatal(err)
	}
	baseClient := rawBase.(*base.Client)
	schema, err := baseClient.ConfigSchema(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	raw, err := hclspec.Encode(schema, []byte(config), "test")
	if err != nil {
		t.Fatal(err)
	}
	if err := baseClient.SetConfig(t.Context(), base.Config{Raw: raw}); err != nil {
		t.Fatal(err)
	}
	return baseClient, rawDevice.(*device.Client)
}

func TestInfo(t *testing.T) {
	b, _ := connect(t, &plugintest.Device{}, "")
	info, typ, err := b.Info(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if want := (base.Info{Name: plugintest.DeviceName, Version: "0.1.0"}); info != want || typ != base.TypeDevice {
		t.Errorf("Info() = %v, %v, want %v, %v", info, typ, want, base.TypeDevice)
	}
	err = b.SetConfig(t.Context(), base.Config{Raw: []byte{0xff}})
	if err == nil || !strings.Contains(err.Error(), "decode plugin configuration") {
		t.Errorf("SetConfig(garbage) = %v, want a decoding error", err)
	}
}

func TestFingerprint(t *testing.T) {
	lost := plugintest.DeviceGroups(plugintest.Config{Count: 2, Prefix: "A"})
	lost[0].Devices[1] = device.Device{ID: "A1", HealthDescription: "fell off the bus"}
	invalid := plugintest.DeviceGroups(plugintest.Config{Count: 1})
	invalid[0].Attributes["bad"] = attr.IntUnit(1, "parsec")
	first := plugintest.DeviceGroups(plugintest.Config{Count: 2, Prefix: "A"})
	tests := map[string]struct {
		groups [][]device.Group
		config string
		want   [][]device.Group
		err    string
	}{
		"configured": {
			config: `count = 2
			         prefix = "A"`,
			want: [][]device.Group{first},
		},
		"changes follow":        {groups: [][]device.Group{first, lost}, want: [][]device.Group{first, lost}},
		"none":                  {config: "count = 0", want: [][]device.Group{plugintest.DeviceGroups(plugintest.Config{Prefix: "GPU-"})}},
		"invalid ones are kept": {groups: [][]device.Group{first, invalid, lost}, want: [][]device.Group{first, lost}},
		"disabled":              {config: "enabled = false", err: "device is not enabled"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			_, d := connect(t, &plugintest.Device{Groups: tt.groups}, tt.config)
			var got [][]device.Group
			err := d.Fingerprint(t.Context(), func(g []device.Group) error {
				if got = append(got, g); len(got) == len(tt.want) {
					return errEnough
				}
				return nil
			})
			if tt.err != "" {
				if err == nil || !strings.Contains(err.Error(), tt.err) {
					t.Fatalf("Fingerprint() = %v, want %q", err, tt.err)
				}
				return
			}
			if !errors.Is(err, errEnough) {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, got, values); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// TestFingerprintNeverEnds: an error inside the plugin must not reach Nomad,
// which would forget every device; the plugin is asked again instead.
func TestFingerprintNeverEnds(t *testing.T) {
	_, d := connect(t, &plugintest.Device{FingerprintErr: errors.New("driver gone")}, "count = 1")
	err := d.Fingerprint(t.Context(), func(got []device.Group) error {
		if diff := cmp.Diff(plugintest.DeviceGroups(plugintest.Config{Count: 1, Prefix: "GPU-"}), got, values); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		return errEnough
	})
	if !errors.Is(err, errEnough) {
		t.Errorf("Fingerprint() = %v, want what the plugin found when it was asked again", err)
	}
}

func TestReserve(t *testing.T) {
	_, d := connect(t, &plugintest.Device{}, "")
	got, err := d.Reserve(t.Context(), []string{"GPU-3", "GPU-0"})
	if err != nil {
		t.Fatal(err)
	}
	want := device.Reservation{Env: map[string]string{"TEST_DEVICE_0": "GPU-3", "TEST_DEVICE_1": "GPU-0"}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if _, err := d.Reserve(t.Context(), []string{"nope"}); err == nil || !strings.Contains(err.Error(), `unknown device "nope"`) {
		t.Errorf("Reserve(nope) = %v, want it to name the device", err)
	}
}

func TestStats(t *testing.T) {
	_, d := connect(t, &plugintest.Device{}, "count = 1")
	n := int64(0)
	err := d.Stats(t.Context(), time.Millisecond, func(got []device.GroupStats) error {
		stat := attr.Stat{Int: &n, Unit: "ticks", Description: "how often statistics were taken"}
		want := []device.GroupStats{{Vendor: "nvidia", Type: "gpu", Name: "Test GPU", Instances: map[string]device.Stats{
			"GPU-0": {Summary: stat, Values: map[string]attr.Stat{"ticks": stat}, Time: time.Unix(n, 0).UTC()},
		}}}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		if n++; n == 3 {
			return errEnough
		}
		return nil
	})
	if !errors.Is(err, errEnough) {
		t.Errorf("Stats() = %v, want %v", err, errEnough)
	}
	_, d = connect(t, &plugintest.Device{StatsErr: errors.New("no counters")}, "")
	if err := d.Stats(t.Context(), time.Millisecond, func([]device.GroupStats) error { return nil }); err == nil || !strings.Contains(err.Error(), "no counters") {
		t.Errorf("Stats() = %v, want the plugin's error", err)
	}
}

func TestValidateTellsEveryFault(t *testing.T) {
	err := device.Validate([]device.Group{
		{Vendor: "nvidia", Type: "gpu", Name: "A", Devices: []device.Device{{ID: "1"}, {ID: ""}, {ID: "1"}}},
		{Vendor: "nvidia", Type: "gpu", Name: "A", Attributes: map[string]attr.Value{"x": {}, "y": attr.IntUnit(1, "?")}},
		{Vendor: "nvidia", Type: "gpu"},
	})
	if err == nil {
		t.Fatal("Validate() = nil")
	}
	for _, want := range []string{"device 1: the ID", `device "1" is also`, "listed twice", `attribute "x"`, `attribute "y"`, "must all be set"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("Validate() = %v\nwant it to say %q", err, want)
		}
	}
}
