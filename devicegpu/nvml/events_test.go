//go:build cgo

package nvml

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"testing/fstest"
	"testing/synctest"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock"
	"github.com/google/go-cmp/cmp"
)

type answer struct {
	data nvml.EventData
	ret  nvml.Return
}

// listening makes the fake driver report events.
func (d driver) listening(answers <-chan answer) *atomic.Int32 {
	var open atomic.Int32
	for _, dev := range d.devices {
		dev.GetSupportedEventTypesFunc = func() (uint64, nvml.Return) { return nvml.EventTypeXidCriticalError, nvml.SUCCESS }
		dev.RegisterEventsFunc = func(types uint64, _ nvml.EventSet) nvml.Return {
			if types != nvml.EventTypeXidCriticalError {
				return nvml.ERROR_NOT_SUPPORTED
			}
			return nvml.SUCCESS
		}
	}
	d.EventSetCreateFunc = func() (nvml.EventSet, nvml.Return) {
		open.Add(1)
		return &mock.EventSet{
			WaitFunc: func(ms uint32) (nvml.EventData, nvml.Return) {
				select {
				case a := <-answers:
					return a.data, a.ret
				case <-time.After(time.Duration(ms) * time.Millisecond):
					return nvml.EventData{}, nvml.ERROR_TIMEOUT
				}
			},
			FreeFunc: func() nvml.Return { open.Add(-1); return nvml.SUCCESS },
		}, nvml.SUCCESS
	}
	return &open
}

func TestEvents(t *testing.T) {
	xid := func(dev nvml.Device, n uint64, gi, ci uint32) answer {
		return answer{nvml.EventData{Device: dev, EventType: nvml.EventTypeXidCriticalError, EventData: n, GpuInstanceId: gi, ComputeInstanceId: ci}, nvml.SUCCESS}
	}
	nameless := &mock.Device{GetUUIDFunc: func() (string, nvml.Return) { return "", nvml.ERROR_GPU_IS_LOST }}
	synctest.Test(t, func(t *testing.T) {
		d := newDriver(t, 2)
		answers := make(chan answer, 10)
		open := d.listening(answers)
		ctx, cancel := context.WithCancel(t.Context())
		var got []Event
		done := make(chan error, 1)
		go func() {
			done <- newLibrary(d, fstest.MapFS{}, fstest.MapFS{}).Events(ctx, func(e Event) { got = append(got, e) })
		}()
		answers <- xid(d.devices[1], 79, wholeGPU, wholeGPU)
		answers <- xid(d.devices[0], 94, 3, 0)
		answers <- xid(nameless, 48, wholeGPU, wholeGPU)
		answers <- xid(nil, 48, wholeGPU, wholeGPU)
		answers <- answer{nvml.EventData{Device: d.devices[0], EventType: nvml.EventTypeDoubleBitEccError, EventData: 5}, nvml.SUCCESS}
		time.Sleep(time.Minute)
		synctest.Wait()
		want := []Event{
			{UUID: d.devices[1].UUID, XID: 79},
			{UUID: d.devices[0].UUID, XID: 94, GPUInstance: ptr(3), ComputeInstance: ptr(0)},
			{XID: 48}, {XID: 48},
			{UUID: d.devices[0].UUID},
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("events (-want +got):\n%s", diff)
		}
		cancel()
		if err := <-done; err != nil || open.Load() != 0 {
			t.Errorf("ended with %v, %d sets open", err, open.Load())
		}
	})
}

func TestEventsEnd(t *testing.T) {
	tests := map[string]struct {
		breakIt func(driver, chan answer)
		events  int
		want    string
	}{
		"no sets": {func(d driver, _ chan answer) {
			d.EventSetCreateFunc = func() (nvml.EventSet, nvml.Return) { return nil, nvml.ERROR_NOT_SUPPORTED }
		}, 0, "not supported"},
		"no count": {func(d driver, _ chan answer) {
			d.DeviceGetCountFunc = func() (int, nvml.Return) { return 0, nvml.ERROR_UNKNOWN }
		}, 0, "count GPUs"},
		"no GPU reports any": {func(d driver, _ chan answer) {
			for _, dev := range d.devices {
				dev.GetSupportedEventTypesFunc = func() (uint64, nvml.Return) { return 0, nvml.ERROR_NOT_SUPPORTED }
			}
		}, 0, "none of 2 GPUs"},
		"a GPU is lost": {func(_ driver, a chan answer) { a <- answer{ret: nvml.ERROR_GPU_IS_LOST} }, 1, "fallen off the bus"},
		"waiting fails": {func(_ driver, a chan answer) { a <- answer{ret: nvml.ERROR_UNKNOWN} }, 0, "NVML error 999"},
		"no driver":     {func(d driver, _ chan answer) { d.InitFunc = func() nvml.Return { return nvml.ERROR_DRIVER_NOT_LOADED } }, 0, "not loaded"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			d := newDriver(t, 2)
			answers := make(chan answer, 1)
			open := d.listening(answers)
			tt.breakIt(d, answers)
			events := 0
			err := newLibrary(d, fstest.MapFS{}, fstest.MapFS{}).Events(t.Context(), func(Event) { events++ })
			if err == nil || !strings.Contains(err.Error(), tt.want) || events != tt.events || open.Load() != 0 {
				t.Errorf("error %v, want %q; %d events, %d sets open", err, tt.want, events, open.Load())
			}
		})
	}
}

// TestEventsEndWithTheLibrary: nobody waits on a set of a library that is gone.
func TestEventsEndWithTheLibrary(t *testing.T) {
	d := newDriver(t, 1)
	d.ShutdownFunc = func() nvml.Return { return nvml.SUCCESS }
	answers := make(chan answer)
	d.listening(answers)
	lib := newLibrary(d, fstest.MapFS{}, fstest.MapFS{})
	done := make(chan error, 1)
	go func() { done <- lib.Events(t.Context(), func(Event) {}) }()
	answers <- answer{ret: nvml.ERROR_TIMEOUT} // it listens
	if err := lib.Close(); err != nil {
		t.Error(err)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
}
