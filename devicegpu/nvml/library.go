//go:build cgo

package nvml

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/caravan-sched/caravan/devicegpu/topology"
)

// errNoLibrary says that the machine has no NVIDIA driver, which is no fault
// of the machine's.
var errNoLibrary = errors.New("no GPUs: the NVML library libnvidia-ml.so.1 is not on this machine (is the NVIDIA driver installed?)")

// library is a source that asks NVML.
type library struct {
	lib nvml.Interface
	// host reads the PCIe side of the GPUs.
	host func(busIDs []string) host
	// simulated is set over a mock.
	simulated bool

	mu          sync.Mutex
	initialised bool
}

func openNVML() Source { return newLibrary(nvml.New(), os.DirFS("/sys")) }

func newLibrary(lib nvml.Interface, sys fs.FS) *library {
	return &library{lib: lib, host: func(busIDs []string) host { return readHost(sys, busIDs) }}
}

func (l *library) Simulated() bool { return l.simulated }

// start loads the library. It is called at every use, so that a driver which
// is installed later is found.
func (l *library) start() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.initialised {
		return nil
	}
	switch ret := l.lib.Init(); ret {
	case nvml.SUCCESS:
		l.initialised = true
		return nil
	case nvml.ERROR_LIBRARY_NOT_FOUND:
		return errNoLibrary
	default:
		return fmt.Errorf("no GPUs: initialise NVML: %s", errorText(ret))
	}
}

func (l *library) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.initialised {
		return nil
	}
	l.initialised = false
	if ret := l.lib.Shutdown(); ret != nvml.SUCCESS {
		return fmt.Errorf("shut down NVML: %s", errorText(ret))
	}
	return nil
}

// Inventory of a machine without driver is empty, with the reason among its
// problems.
func (l *library) Inventory() (Inventory, error) {
	if err := l.start(); err != nil {
		return Inventory{Problems: []string{err.Error()}}, nil
	}
	inv := Inventory{}
	count, ret := l.lib.DeviceGetCount()
	if ret != nvml.SUCCESS {
		return inv, fmt.Errorf("count GPUs: %s", errorText(ret))
	}
	if count > topology.MaxGPUs {
		inv.problem("%d GPUs; only the first %d are taken", count, topology.MaxGPUs)
		count = topology.MaxGPUs
	}
	if v, ret := l.lib.SystemGetDriverVersion(); ret == nvml.SUCCESS {
		inv.DriverVersion = v
	}
	if v, ret := l.lib.SystemGetCudaDriverVersion(); ret == nvml.SUCCESS {
		inv.CUDAVersion = fmt.Sprintf("%d.%d", v/1000, v%1000/10)
	}
	var all []found
	var busIDs []string
	for i := range count {
		f, err := l.find(i)
		if err != nil {
			// Its siblings are found all the same.
			inv.problem("GPU %d: %s", i, err)
			continue
		}
		all = append(all, f)
		busIDs = append(busIDs, f.busID)
	}
	inv.assemble(all, l.host(busIDs))
	return inv, nil
}

// has reports whether the driver knows a function of newer versions; calling
// one that it lacks would end the process.
func (l *library) has(symbol string) bool {
	return l.lib.Extensions().LookupSymbol(symbol) == nil
}

// errorText names an NVML error without asking NVML, which may not be loaded.
func errorText(ret nvml.Return) string {
	switch ret {
	case nvml.ERROR_DRIVER_NOT_LOADED:
		return "the NVIDIA driver is not loaded"
	case nvml.ERROR_NO_PERMISSION:
		return "no permission to talk to the NVIDIA driver"
	case nvml.ERROR_LIB_RM_VERSION_MISMATCH:
		return "the NVIDIA driver and its library have different versions: reboot, or reload the driver"
	case nvml.ERROR_GPU_IS_LOST:
		return "the GPU has fallen off the bus"
	case nvml.ERROR_NOT_SUPPORTED:
		return "not supported"
	case nvml.ERROR_TIMEOUT:
		return "timed out"
	}
	return fmt.Sprintf("NVML error %d", int(ret))
}
