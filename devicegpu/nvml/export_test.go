//go:build cgo

package nvml

import (
	"testing"
	"testing/fstest"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock/server"
)

// FakeDriver is a driver of n H100s that answers as told.
type FakeDriver struct{ d driver }

// NewFakeDriver makes a healthy one.
func NewFakeDriver(t *testing.T, n int) FakeDriver {
	f := FakeDriver{newDriver(t, n)}
	for _, dev := range f.d.devices {
		dev.GetGpuFabricInfoFunc = func() (nvml.GpuFabricInfo, nvml.Return) {
			return nvml.GpuFabricInfo{State: nvml.GPU_FABRIC_STATE_COMPLETED, ClusterUuid: [16]uint8{7}}, nvml.SUCCESS
		}
	}
	return f
}

// Source asks the driver.
func (f FakeDriver) Source() Source { return newLibrary(f.d, fstest.MapFS{}, fstest.MapFS{}) }

// Device is one of its GPUs.
func (f FakeDriver) Device(i int) *server.Device { return f.d.devices[i] }

// Server is the rest of it.
func (f FakeDriver) Server() *server.Server { return f.d.Server }
