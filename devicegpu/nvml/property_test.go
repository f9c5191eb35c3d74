//go:build cgo

package nvml_test

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	gonvml "github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock/server"
	"github.com/hashicorp/go-hclog"
	"pgregory.net/rapid"

	"github.com/caravan-sched/caravan/devicegpu"
	"github.com/caravan-sched/caravan/devicegpu/nvml"
	"github.com/caravan-sched/caravan/internal/nomadplugin/attr"
	"github.com/caravan-sched/caravan/internal/nomadplugin/base"
	"github.com/caravan-sched/caravan/internal/nomadplugin/device"
	"github.com/caravan-sched/caravan/internal/nomadplugin/hclspec"
)

const gpus = 4

// everyError is what an NVML call may return.
var everyError = []gonvml.Return{
	gonvml.ERROR_UNINITIALIZED, gonvml.ERROR_INVALID_ARGUMENT, gonvml.ERROR_NOT_SUPPORTED, gonvml.ERROR_NO_PERMISSION, gonvml.ERROR_NOT_FOUND,
	gonvml.ERROR_INSUFFICIENT_SIZE, gonvml.ERROR_DRIVER_NOT_LOADED, gonvml.ERROR_TIMEOUT, gonvml.ERROR_IRQ_ISSUE, gonvml.ERROR_CORRUPTED_INFOROM,
	gonvml.ERROR_GPU_IS_LOST, gonvml.ERROR_RESET_REQUIRED, gonvml.ERROR_OPERATING_SYSTEM, gonvml.ERROR_LIB_RM_VERSION_MISMATCH, gonvml.ERROR_MEMORY, gonvml.ERROR_UNKNOWN,
}

type gpu = *server.Device

// calls are the calls of NVML about one GPU, each made to return an error.
var calls = []func(dev gpu, ret gonvml.Return){
	func(d gpu, r gonvml.Return) { d.GetUUIDFunc = func() (string, gonvml.Return) { return "", r } },
	func(d gpu, r gonvml.Return) { d.GetNameFunc = func() (string, gonvml.Return) { return "\xff", r } },
	func(d gpu, r gonvml.Return) {
		d.GetPciInfoFunc = func() (gonvml.PciInfo, gonvml.Return) { return gonvml.PciInfo{}, r }
	},
	func(d gpu, r gonvml.Return) {
		d.GetMemoryInfoFunc = func() (gonvml.Memory, gonvml.Return) { return gonvml.Memory{}, r }
	},
	func(d gpu, r gonvml.Return) { d.GetMinorNumberFunc = func() (int, gonvml.Return) { return 0, r } },
	func(d gpu, r gonvml.Return) {
		d.GetBAR1MemoryInfoFunc = func() (gonvml.BAR1Memory, gonvml.Return) { return gonvml.BAR1Memory{}, r }
	},
	func(d gpu, r gonvml.Return) {
		d.GetPowerManagementLimitFunc = func() (uint32, gonvml.Return) { return 0, r }
	},
	func(d gpu, r gonvml.Return) {
		d.GetMaxClockInfoFunc = func(gonvml.ClockType) (uint32, gonvml.Return) { return 0, r }
	},
	func(d gpu, r gonvml.Return) {
		d.GetMaxPcieLinkGenerationFunc = func() (int, gonvml.Return) { return 0, r }
	},
	func(d gpu, r gonvml.Return) { d.GetMaxPcieLinkWidthFunc = func() (int, gonvml.Return) { return 0, r } },
	func(d gpu, r gonvml.Return) {
		d.GetCudaComputeCapabilityFunc = func() (int, int, gonvml.Return) { return 0, 0, r }
	},
	func(d gpu, r gonvml.Return) {
		d.GetNvLinkStateFunc = func(int) (gonvml.EnableState, gonvml.Return) { return 0, r }
	},
	func(d gpu, r gonvml.Return) {
		d.GetNvLinkRemoteDeviceTypeFunc = func(int) (gonvml.IntNvLinkDeviceType, gonvml.Return) { return 0, r }
		d.GetNvLinkRemotePciInfoFunc = func(int) (gonvml.PciInfo, gonvml.Return) { return gonvml.PciInfo{}, r }
	},
	func(d gpu, r gonvml.Return) {
		d.GetGpuFabricInfoFunc = func() (gonvml.GpuFabricInfo, gonvml.Return) { return gonvml.GpuFabricInfo{}, r }
	},
	func(d gpu, r gonvml.Return) { d.GetMigModeFunc = func() (int, int, gonvml.Return) { return 0, 0, r } },
	func(d gpu, r gonvml.Return) {
		d.GetTotalEccErrorsFunc = func(gonvml.MemoryErrorType, gonvml.EccCounterType) (uint64, gonvml.Return) { return 0, r }
	},
	func(d gpu, r gonvml.Return) {
		d.GetRemappedRowsFunc = func() (int, int, bool, bool, gonvml.Return) { return 0, 0, false, false, r }
	},
	func(d gpu, r gonvml.Return) {
		d.GetSramEccErrorStatusFunc = func() (gonvml.EccSramErrorStatus, gonvml.Return) { return gonvml.EccSramErrorStatus{}, r }
	},
	func(d gpu, r gonvml.Return) {
		d.GetRetiredPagesPendingStatusFunc = func() (gonvml.EnableState, gonvml.Return) { return 0, r }
	},
	// And answers that are faults.
	func(d gpu, _ gonvml.Return) {
		d.GetTotalEccErrorsFunc = func(gonvml.MemoryErrorType, gonvml.EccCounterType) (uint64, gonvml.Return) {
			return 1 << 63, gonvml.SUCCESS
		}
	},
	func(d gpu, _ gonvml.Return) {
		d.GetRemappedRowsFunc = func() (int, int, bool, bool, gonvml.Return) { return 1, 1, true, true, gonvml.SUCCESS }
	},
	func(d gpu, _ gonvml.Return) {
		d.GetNvLinkStateFunc = func(link int) (gonvml.EnableState, gonvml.Return) {
			return gonvml.EnableState(link % 2), gonvml.SUCCESS
		}
	},
	func(d gpu, _ gonvml.Return) {
		d.GetGpuFabricInfoFunc = func() (gonvml.GpuFabricInfo, gonvml.Return) {
			return gonvml.GpuFabricInfo{State: gonvml.GPU_FABRIC_STATE_IN_PROGRESS}, gonvml.SUCCESS
		}
	},
}

// step is one thing that happens between two looks.
type step struct {
	what  string // break, heal, driver fails, driver hangs, driver works, xid
	gpu   int
	call  int
	ret   gonvml.Return
	looks int // that follow
}

func drawSteps(t *rapid.T) []step {
	return rapid.SliceOfN(rapid.Custom(func(t *rapid.T) step {
		return step{
			what:  rapid.SampledFrom([]string{"break", "break", "break", "heal", "driver fails", "driver hangs", "driver works", "xid"}).Draw(t, "what"),
			gpu:   rapid.IntRange(0, gpus-2).Draw(t, "gpu"), // the last one stays well
			call:  rapid.IntRange(0, len(calls)-1).Draw(t, "call"),
			ret:   rapid.SampledFrom(everyError).Draw(t, "error"),
			looks: rapid.IntRange(1, 4).Draw(t, "looks"),
		}
	}), 1, 12).Draw(t, "steps")
}

// withEvents adds events to a source.
type withEvents struct {
	nvml.Source
	events chan nvml.Event
}

func (w withEvents) Events(ctx context.Context, got func(nvml.Event)) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case e := <-w.events:
			got(e)
		}
	}
}

const period = 10 * time.Second

// TestNoFaultDoesHarm is the promise of the plugin: whatever a driver does, the
// stream of fingerprints goes on and stays valid, no GPU ever leaves it, and
// what one GPU suffers changes nothing for the others.
func TestNoFaultDoesHarm(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		steps := drawSteps(rt)
		var faults []string
		synctest.Test(t, func(t *testing.T) { faults = play(t, steps) })
		if len(faults) > 0 {
			rt.Fatalf("%+v:\n%s", steps, strings.Join(faults, "\n"))
		}
	})
}

// sent are the fingerprints that a plugin sent.
type sent struct {
	mu   sync.Mutex
	last []device.Group
	err  error
}

func (s *sent) send(groups []device.Group) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := device.Validate(groups); err != nil {
		s.err = errors.Join(s.err, err)
		return err
	}
	s.last = groups
	return nil
}

func play(t *testing.T, steps []step) (faults []string) {
	fail := func(format string, args ...any) { faults = append(faults, fmt.Sprintf(format, args...)) }
	driver := nvml.NewFakeDriver(t, gpus)
	driver.Server().ShutdownFunc = func() gonvml.Return { return gonvml.SUCCESS }
	events := make(chan nvml.Event, 100)
	source := withEvents{driver.Source(), events}
	p := devicegpu.New(hclog.NewNullLogger(), devicegpu.WithSource(func(nvml.Spec) (nvml.Source, error) { return source, nil }))
	raw, err := hclspec.Encode(p.ConfigSchema(), []byte(`fingerprint_period = "10s"`), "test")
	if err == nil {
		err = p.SetConfig(t.Context(), base.Config{Raw: raw})
	}
	if err != nil {
		return []string{err.Error()}
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	out := &sent{}
	done := make(chan error, 1)
	go func() { done <- p.Fingerprint(ctx, out.send) }()
	synctest.Wait()
	first := out.last
	if len(first) != 1 || len(first[0].Devices) != gpus {
		return []string{fmt.Sprintf("first fingerprint %+v", first)}
	}
	count := driver.Server().DeviceGetCountFunc
	shared, marked := false, map[int]bool{}
	look := func(n int) {
		for range n {
			time.Sleep(period)
			synctest.Wait()
			checkSent(fail, first, out.last)
			if d := out.last[0].Devices[gpus-1]; !shared && !d.Healthy {
				fail("a GPU that is well is unhealthy: %s", d.HealthDescription)
			}
		}
	}
	heal := func(i int) { driver.Server().Devices[i] = nvml.NewFakeDriver(t, gpus).Device(i) }
	for _, s := range steps {
		switch s.what {
		case "break":
			calls[s.call](driver.Device(s.gpu), s.ret)
			calls[s.call](driver.Server().Devices[s.gpu].(gpu), s.ret)
		case "heal":
			heal(s.gpu)
		case "driver fails":
			shared = true
			driver.Server().DeviceGetCountFunc = func() (int, gonvml.Return) { return 0, s.ret }
		case "driver hangs":
			shared = true
			driver.Server().DeviceGetCountFunc = func() (int, gonvml.Return) {
				time.Sleep(90 * time.Second)
				return gpus, gonvml.SUCCESS
			}
		case "driver works":
			driver.Server().DeviceGetCountFunc = count
		case "xid":
			marked[s.gpu] = true
			events <- nvml.Event{UUID: first[0].Devices[s.gpu].ID, XID: 79}
		}
		look(s.looks)
	}
	driver.Server().DeviceGetCountFunc = count
	for i := range gpus {
		heal(i)
	}
	time.Sleep(2 * time.Minute) // whatever hangs has come back
	look(4)
	for i, d := range out.last[0].Devices {
		if !marked[i] && !d.Healthy {
			fail("GPU %d is unhealthy after all faults are over: %s", i, d.HealthDescription)
		}
	}
	if out.err != nil {
		fail("invalid fingerprint: %v", out.err)
	}
	select {
	case err := <-done:
		fail("the stream ended: %v", err)
	default:
		cancel()
		<-done
	}
	return faults
}

// checkSent compares a fingerprint with the first one.
func checkSent(fail func(string, ...any), first, now []device.Group) {
	if len(now) != 1 || now[0].Name != first[0].Name || len(now[0].Devices) != len(first[0].Devices) {
		fail("the groups changed to %+v", now)
		return
	}
	for i, d := range now[0].Devices {
		if d.ID != first[0].Devices[i].ID || d.Healthy != (d.HealthDescription == "") {
			fail("GPU %d is %+v", i, d)
		}
	}
	if want, got := plain(first[0].Attributes), plain(now[0].Attributes); !reflect.DeepEqual(want, got) {
		fail("the attributes changed from %v to %v", want, got)
	}
}

// plain are the attributes that are part of a node's computed class.
func plain(attributes map[string]attr.Value) map[string]string {
	out := map[string]string{}
	for k, v := range attributes {
		if !strings.HasPrefix(k, "unique.") {
			out[k] = v.Text()
		}
	}
	return out
}
