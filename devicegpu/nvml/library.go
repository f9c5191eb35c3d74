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

	// proc is the file system that is mounted at /proc.
	proc fs.FS

	// use is held for reading by whoever calls the library, and for writing
	// while it is loaded or closed: a call into a library that is gone would
	// end the process.
	use         sync.RWMutex
	initialised bool
	// generation counts how often the library was loaded.
	generation int

	mu sync.Mutex
	// names are the UUIDs by index, as found last; they name a GPU that does
	// not answer any more.
	names []string
}

func openNVML() Source { return newLibrary(nvml.New(), os.DirFS("/sys"), os.DirFS("/proc")) }

func newLibrary(lib nvml.Interface, sys, proc fs.FS) *library {
	return &library{lib: lib, host: func(busIDs []string) host { return readHost(sys, busIDs) }, proc: proc}
}

func (l *library) Simulated() bool { return l.simulated }

// start loads the library. It is called at every use, so that a driver which
// is installed later is found.
func (l *library) start() error {
	l.use.RLock()
	running := l.initialised
	l.use.RUnlock()
	if running {
		return nil
	}
	l.use.Lock()
	defer l.use.Unlock()
	if l.initialised {
		return nil
	}
	switch ret := l.lib.Init(); ret {
	case nvml.SUCCESS:
		l.initialised = true
		l.generation++
		return nil
	case nvml.ERROR_LIBRARY_NOT_FOUND:
		return errNoLibrary
	default:
		return fmt.Errorf("no GPUs: initialise NVML: %s", errorText(ret))
	}
}

// Close closes the library; the next use loads it again.
func (l *library) Close() error {
	l.use.Lock()
	defer l.use.Unlock()
	if !l.initialised {
		return nil
	}
	l.initialised = false
	l.generation++
	if ret := l.lib.Shutdown(); ret != nvml.SUCCESS {
		return fmt.Errorf("shut down NVML: %s", errorText(ret))
	}
	return nil
}

// Inventory of a machine that never had a driver is empty, with the reason
// among its problems. Once there were GPUs, a driver that is gone is an error.
func (l *library) Inventory() (Inventory, error) {
	if err := l.start(); err != nil {
		if l.known() > 0 {
			return Inventory{}, err
		}
		return Inventory{Problems: []string{err.Error()}}, nil
	}
	inv, err := l.look()
	if err != nil {
		// A driver that was replaced meanwhile answers only to a library that
		// was loaded after it. What Close says is of no more use.
		_ = l.Close()
	}
	return inv, err
}

func (l *library) look() (Inventory, error) {
	l.use.RLock()
	defer l.use.RUnlock()
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
	all := l.findAll(&inv, count)
	busIDs := make([]string, 0, len(all))
	for _, f := range all {
		busIDs = append(busIDs, f.busID)
	}
	inv.assemble(all, l.host(busIDs))
	return inv, nil
}

// findAll finds every GPU that can be named. One that does not answer is
// named by what had its index before, and its siblings are found all the same.
func (l *library) findAll(inv *Inventory, count int) []found {
	l.mu.Lock()
	defer l.mu.Unlock()
	names := make([]string, count)
	if count == len(l.names) {
		copy(names, l.names)
	}
	var all []found
	taken := map[string]bool{}
	for i := range count {
		f, ret := l.find(i)
		switch {
		case ret == nvml.SUCCESS:
			names[i] = f.uuid
		case names[i] != "":
			f = found{uuid: names[i], GPU: GPU{Vendor: "nvidia"}}
			f.Health.set(ret)
			inv.problem("GPU %d: %s", i, errorText(ret))
		default:
			inv.problem("GPU %d: %s", i, errorText(ret))
			continue
		}
		if taken[f.uuid] {
			inv.problem("GPU %d has the UUID %s of another one", i, f.uuid)
			continue
		}
		taken[f.uuid] = true
		all = append(all, f)
	}
	l.names = names
	return all
}

// known counts the GPUs found last.
func (l *library) known() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.names)
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
	case nvml.ERROR_RESET_REQUIRED:
		return "the GPU needs a reset"
	case nvml.ERROR_TIMEOUT:
		return "timed out"
	}
	return fmt.Sprintf("NVML error %d", int(ret))
}
