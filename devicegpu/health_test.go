package devicegpu

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/caravan-sched/caravan/devicegpu/nvml"
	"github.com/caravan-sched/caravan/internal/nomadplugin/device"
)

// TestDriverStaysAway: a driver that fails now and then changes nothing; one
// that stays away makes all GPUs unhealthy, until it answers.
func TestDriverStaysAway(t *testing.T) {
	p := newPlugin(t, &fake{}, "")
	source := &fake{inventory: pairs()}
	p.source = source
	p.scan()
	reason := func() string {
		p.scan()
		g, err := p.groups()
		if err != nil || len(g) != 1 || len(g[0].Devices) != 4 {
			t.Fatalf("groups %+v, %v", g, err)
		}
		return g[0].Devices[2].HealthDescription
	}
	var got []string
	source.set(nvml.Inventory{}, errors.New("away"))
	for range 4 {
		got = append(got, reason())
	}
	source.set(pairs(), nil)
	got = append(got, reason())
	if d := cmp.Diff([]string{"", "", driverUnhealthy, driverUnhealthy, ""}, got); d != "" {
		t.Errorf("reasons (-want +got):\n%s", d)
	}
}

// TestEventIsSentAtOnce: Nomad hears of an XID before the period is over.
func TestEventIsSentAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		source := &fake{inventory: pairs(), events: make(chan nvml.Event)}
		p := newPlugin(t, source, `fingerprint_period = "1h"`)
		var sent fingerprints
		done := make(chan error, 1)
		go func() { done <- p.Fingerprint(ctx, sent.send) }()
		synctest.Wait()
		start := time.Now()
		source.events <- nvml.Event{UUID: "GPU-2", XID: 13}
		source.events <- nvml.Event{UUID: "GPU-2", XID: 79}
		synctest.Wait()
		n, g := sent.last()
		want := map[string]string{"GPU-0": "", "GPU-1": "", "GPU-2": "XID 79: reset the GPU and restart the agent", "GPU-3": ""}
		if d := cmp.Diff(want, healthOf(g[0])); n != 2 || d != "" || time.Since(start) > 0 {
			t.Errorf("%d fingerprints after %s; health (-want +got):\n%s", n, time.Since(start), d)
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// TestAttributesOfTheFirstLook: a GPU that is sick from the start takes nothing
// from its siblings.
func TestAttributesOfTheFirstLook(t *testing.T) {
	inv := pairs()
	inv.GPUs[0] = nvml.GPU{Vendor: "nvidia", Health: nvml.Health{Lost: "gone"}}
	p := newPlugin(t, &fake{inventory: inv}, "")
	p.scan()
	g, err := p.groups()
	if err != nil {
		t.Fatal(err)
	}
	if err := device.Validate(g); err != nil {
		t.Fatal(err)
	}
	a := texts(g[0].Attributes)
	if a["memory"] != "40960MiB" || a["compute_capability"] != "8" || g[0].Devices[0].Healthy || !g[0].Devices[1].Healthy {
		t.Errorf("attributes %v, devices %+v", a, g[0].Devices)
	}
}
