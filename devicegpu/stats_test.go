package devicegpu

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/caravan-sched/caravan/devicegpu/nvml"
	"github.com/caravan-sched/caravan/internal/nomadplugin/device"
)

func TestStats(t *testing.T) {
	n := func(v uint64) *uint64 { return &v }
	source := &fake{inventory: pairs(), samples: []nvml.Sample{
		{UUID: "GPU-0", MemoryUsedMiB: n(1024), GPUUtilization: n(95), TemperatureC: n(61)},
		{UUID: "GPU-1"},
		{UUID: "GPU-elsewhere", TemperatureC: n(50)},
	}}
	p := newPlugin(t, source, "")
	p.scan()
	ctx, cancel := context.WithCancel(t.Context())
	var got []device.GroupStats
	if err := p.Stats(ctx, time.Hour, func(g []device.GroupStats) error { got = g; cancel(); return nil }); err != nil {
		t.Fatal(err)
	}
	if len(got) != 1 || got[0].Name != "NVIDIA A100" || len(got[0].Instances) != 2 {
		t.Fatalf("statistics %+v", got)
	}
	first := got[0].Instances["GPU-0"]
	if d := cmp.Diff([]string{"GPU utilization", "Memory state", "Temperature"}, slices.Sorted(maps.Keys(first.Values))); d != "" {
		t.Errorf("figures (-want +got):\n%s", d)
	}
	if s := first.Summary; s.Int == nil || *s.Int != 1024 || s.IntOf == nil || *s.IntOf != 40960 || s.Unit != "MiB" {
		t.Errorf("summary %+v", s)
	}
	if second := got[0].Instances["GPU-1"]; len(second.Values) > 0 {
		t.Errorf("figures that are not reported are there: %+v", second)
	}
}

func TestStatsOfCounters(t *testing.T) {
	n := func(v uint64) *uint64 { return &v }
	start := time.Unix(0, 0)
	before := figures{start, []nvml.Sample{{UUID: "GPU-0", NVLinkSentKiB: n(1024), NVLinkReceivedKiB: n(1 << 30)}}}
	now := figures{start.Add(2 * time.Second), []nvml.Sample{
		{UUID: "GPU-0", NVLinkSentKiB: n(1024 + 10*1024), NVLinkReceivedKiB: n(5), Throttled: &[]string{}},
		{UUID: "GPU-1", NVLinkSentKiB: n(7), Throttled: &[]string{"thermal", "power cap"}},
	}}
	got := groupStats(pairs(), before, now, nil)[0].Instances
	a, b := got["GPU-0"].Values, got["GPU-1"].Values
	if s := a["NVLink sent"]; s.Int == nil || *s.Int != 5 || s.Unit != "MiB/s" {
		t.Errorf("NVLink sent: %+v", s)
	}
	if _, ok := a["NVLink received"]; ok {
		t.Error("a counter that was reset has a rate")
	}
	if _, ok := b["NVLink sent"]; ok {
		t.Error("a counter without a past has a rate")
	}
	if *a["Throttled"].Text != "no" || *b["Throttled"].Text != "thermal, power cap" {
		t.Errorf("throttled: %q, %q", *a["Throttled"].Text, *b["Throttled"].Text)
	}
}

func TestStatsSurviveFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		source := &fake{inventory: pairs(), err: errors.New("broken")}
		p := newPlugin(t, source, "")
		var mu sync.Mutex
		sent := 0
		done := make(chan error, 1)
		go func() {
			done <- p.Stats(ctx, time.Second, func([]device.GroupStats) error {
				mu.Lock()
				defer mu.Unlock()
				sent++
				return nil
			})
		}()
		time.Sleep(3500 * time.Millisecond)
		synctest.Wait()
		source.set(pairs(), nil)
		time.Sleep(time.Second)
		synctest.Wait()
		mu.Lock()
		if sent != 1 {
			t.Errorf("%d sent, want 1", sent)
		}
		mu.Unlock()
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}
