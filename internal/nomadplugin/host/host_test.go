package host_test

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/caravan-sched/caravan/internal/nomadplugin/attr"
	"github.com/caravan-sched/caravan/internal/nomadplugin/base"
	"github.com/caravan-sched/caravan/internal/nomadplugin/device"
	"github.com/caravan-sched/caravan/internal/nomadplugin/host"
	"github.com/caravan-sched/caravan/internal/nomadplugin/plugintest"
)

// TestMain lets this binary be the plugin that the tests launch.
func TestMain(m *testing.M) {
	plugintest.ServeIfStarted()
	os.Exit(m.Run())
}

func launch(t *testing.T, config string) (*host.Plugin, error) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	p, err := host.Launch(t.Context(), host.Options{Path: self, Config: config})
	if err == nil {
		t.Cleanup(p.Close)
	}
	return p, err
}

func TestLaunch(t *testing.T) {
	p, err := launch(t, "count = 3")
	if err != nil {
		t.Fatal(err)
	}
	if want := (base.Info{Name: plugintest.DeviceName, Version: "0.1.0"}); p.Info != want || p.Type != base.TypeDevice {
		t.Errorf("launched %v %v, want %v %v", p.Type, p.Info, base.TypeDevice, want)
	}
	if _, err := p.Driver(); !errors.Is(err, host.ErrNotDriver) {
		t.Errorf("Driver() = %v, want %v", err, host.ErrNotDriver)
	}
	d, err := p.Device()
	if err != nil {
		t.Fatal(err)
	}
	enough := errors.New("enough")
	err = d.Fingerprint(t.Context(), func(got []device.Group) error {
		want := plugintest.DeviceGroups(plugintest.Config{Count: 3, Prefix: "GPU-"})
		if diff := cmp.Diff(want, got, cmp.AllowUnexported(attr.Value{})); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		return enough
	})
	if !errors.Is(err, enough) {
		t.Error(err)
	}
	p.Close()
	if !p.Exited() {
		t.Error("the process is there after Close")
	}
	if err := d.Fingerprint(context.Background(), func([]device.Group) error { return nil }); err == nil {
		t.Error("Fingerprint() after Close = nil, want an error")
	}
}

func TestLaunchFails(t *testing.T) {
	tests := map[string]struct {
		config, want string
	}{
		"unknown key":       {"size = 3", "size"},
		"refused by plugin": {"count = -1", "must not be negative"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if _, err := launch(t, tt.config); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("Launch() = %v, want it to say %q", err, tt.want)
			}
		})
	}
	t.Run("no binary", func(t *testing.T) {
		if _, err := host.Launch(t.Context(), host.Options{Path: "/nonexistent/plugin"}); err == nil || !strings.Contains(err.Error(), "/nonexistent/plugin") {
			t.Errorf("Launch() = %v, want it to name the binary", err)
		}
	})
	t.Run("not a plugin", func(t *testing.T) {
		if _, err := host.Launch(t.Context(), host.Options{Path: "/bin/true"}); err == nil {
			t.Error("Launch(/bin/true) = nil, want an error")
		}
	})
}
