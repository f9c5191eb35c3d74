//go:build cgo

package nvml

import (
	"context"
	"fmt"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// eventWaitMS is how long one wait for an event may last, in milliseconds:
// between waits the library can be closed, and the end of ctx is noticed.
const eventWaitMS = 500

// wholeGPU is NVML's instance ID of an event that concerns no MIG instance.
const wholeGPU = 0xFFFFFFFF

// Events registers for critical errors of every GPU, and waits for them.
func (l *library) Events(ctx context.Context, got func(Event)) error {
	if l.simulated {
		return eventless{}.Events(ctx, got)
	}
	if err := l.start(); err != nil {
		return err
	}
	set, generation, err := l.listen()
	if err != nil {
		return err
	}
	for ctx.Err() == nil {
		e, ret, current := l.wait(set, generation)
		switch {
		case !current:
			return nil // the set went with the library
		case ret == nvml.ERROR_TIMEOUT:
		case ret == nvml.ERROR_GPU_IS_LOST:
			// Which one, a look will tell. The set does not survive it.
			got(Event{})
			l.free(set, generation)
			return fmt.Errorf("wait for GPU events: %s", errorText(ret))
		case ret != nvml.SUCCESS:
			l.free(set, generation)
			return fmt.Errorf("wait for GPU events: %s", errorText(ret))
		default:
			got(e)
		}
	}
	l.free(set, generation)
	return nil
}

// listen makes an event set of all GPUs. A GPU that cannot be registered has
// no events; its readings are judged all the same.
func (l *library) listen() (nvml.EventSet, int, error) {
	l.use.RLock()
	defer l.use.RUnlock()
	set, ret := l.lib.EventSetCreate()
	if ret != nvml.SUCCESS {
		return nil, 0, fmt.Errorf("listen to GPU events: %s", errorText(ret))
	}
	count, ret := l.lib.DeviceGetCount()
	if ret != nvml.SUCCESS {
		set.Free()
		return nil, 0, fmt.Errorf("listen to GPU events: count GPUs: %s", errorText(ret))
	}
	registered := 0
	for i := range count {
		dev, ret := l.lib.DeviceGetHandleByIndex(i)
		if ret != nvml.SUCCESS {
			continue
		}
		supported, ret := dev.GetSupportedEventTypes()
		if ret != nvml.SUCCESS {
			continue
		}
		const wanted = nvml.EventTypeXidCriticalError | nvml.EventTypeDoubleBitEccError | nvml.EventMigConfigChange
		if dev.RegisterEvents(wanted&supported, set) == nvml.SUCCESS {
			registered++
		}
	}
	if registered == 0 {
		set.Free()
		return nil, 0, fmt.Errorf("listen to GPU events: none of %d GPUs reports any", count)
	}
	return set, l.generation, nil
}

// wait waits for one event; false if the library was closed meanwhile.
func (l *library) wait(set nvml.EventSet, generation int) (Event, nvml.Return, bool) {
	l.use.RLock()
	defer l.use.RUnlock()
	if l.generation != generation {
		return Event{}, nvml.SUCCESS, false
	}
	data, ret := set.Wait(eventWaitMS)
	if ret != nvml.SUCCESS {
		return Event{}, ret, true
	}
	var e Event
	if data.Device != nil {
		if uuid, ret := data.Device.GetUUID(); ret == nvml.SUCCESS {
			e.UUID = uuid
		}
	}
	if data.EventType != nvml.EventTypeXidCriticalError {
		return Event{UUID: e.UUID}, nvml.SUCCESS, true
	}
	e.XID = data.EventData
	if data.GpuInstanceId != wholeGPU && data.ComputeInstanceId != wholeGPU {
		e.GPUInstance, e.ComputeInstance = ptr(int(data.GpuInstanceId)), ptr(int(data.ComputeInstanceId))
	}
	return e, nvml.SUCCESS, true
}

func (l *library) free(set nvml.EventSet, generation int) {
	l.use.RLock()
	defer l.use.RUnlock()
	if l.generation == generation {
		set.Free()
	}
}
