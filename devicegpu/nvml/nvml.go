// Package nvml finds out which GPUs a node has and how they are joined. It has
// one interface, Source, and three kinds of it: the NVIDIA driver's management
// library (NVML), simulated machines, and files (a topology file of another
// machine, or an inventory recorded on it).
package nvml

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/caravan-sched/caravan/devicegpu/topology"
)

// Source tells a node's GPUs. Its methods may be called at the same time.
type Source interface {
	// Inventory lists the GPUs. A GPU that is there but of no use is listed
	// with its reason in Unhealthy; an error means that nothing can be said at
	// present about any of them.
	Inventory() (Inventory, error)
	// Samples reads the current figures of GPUs and MIG instances.
	Samples() ([]Sample, error)
	// Events calls got with faults as they happen, until ctx ends. It returns
	// before that if the driver cannot tell faults, or has to be asked anew.
	Events(ctx context.Context, got func(Event)) error
	// Simulated reports that there are no such GPUs on this machine, so that
	// there are no device nodes to hand out.
	Simulated() bool
	Close() error
}

// Inventory is what a source found. It is the format of recorded files too.
type Inventory struct {
	DriverVersion string `json:"driver_version,omitempty"`
	// CUDAVersion is the newest CUDA that the driver supports, "12.4".
	CUDAVersion string `json:"cuda_version,omitempty"`
	// GPUs are in the order of the source's indexes, and Matrix.GPUs with them.
	GPUs   []GPU           `json:"gpus"`
	Matrix topology.Matrix `json:"matrix"`
	// Problems are sentences for an operator; they concern no single GPU's
	// health.
	Problems []string `json:"problems,omitempty"`
}

// GPU is one GPU. UUID, bus ID, model, NUMA and links are in the Inventory's
// Matrix. A nil pointer means that it is not reported.
type GPU struct {
	// Vendor is "nvidia" or "amd".
	Vendor string `json:"vendor"`
	// Minor is the number of its device node, /dev/nvidia<minor>.
	Minor *int `json:"minor,omitempty"`
	// Unhealthy says why the GPU cannot be used; empty means that it can. It is
	// the judgement on Health, and not a source's to make.
	Unhealthy string `json:"unhealthy,omitempty"`
	Health    Health `json:"health,omitzero"`
	// MIG is set when the GPU is divided into instances and cannot be used
	// whole; nil is unknown.
	MIG *bool `json:"mig,omitempty"`
	// Instances are the parts of a divided GPU that can be used.
	Instances []Instance `json:"instances,omitempty"`
	// Partial is set when the driver did not tell all of the Instances.
	Partial bool `json:"-"`
	// Sharing is set when the GPU is offered in slices. It is the operator's to
	// say, and not a source's.
	Sharing *Sharing `json:"-"`

	MemoryMiB *uint64 `json:"memory_mib,omitempty"`
	BAR1MiB   *uint64 `json:"bar1_mib,omitempty"`
	// PowerLimitW is the limit in force.
	PowerLimitW *uint64 `json:"power_limit_w,omitempty"`
	// CoresClockMHz and MemoryClockMHz are the highest clocks.
	CoresClockMHz  *uint64 `json:"cores_clock_mhz,omitempty"`
	MemoryClockMHz *uint64 `json:"memory_clock_mhz,omitempty"`
	// PCIeGeneration and PCIeWidth are the most that GPU and slot can do.
	PCIeGeneration *uint64 `json:"pcie_generation,omitempty"`
	PCIeWidth      *uint64 `json:"pcie_width,omitempty"`
	// DisplayOn and PersistenceOn are NVML's display and persistence modes.
	DisplayOn     *bool `json:"display_on,omitempty"`
	PersistenceOn *bool `json:"persistence_on,omitempty"`
	// ComputeCapability is CUDA's, "9.0".
	ComputeCapability string `json:"compute_capability,omitempty"`
}

// Divided reports whether the GPU is in MIG mode.
func (g GPU) Divided() bool { return g.MIG != nil && *g.MIG }

// Sharing is how a GPU is shared by tasks that use it in turn.
type Sharing struct {
	// Slices is by how many.
	Slices int
	// MemoryMiB is how much of its memory each is told to use, 0 if unknown.
	MemoryMiB uint64
	// MPSPipe is the folder by which tasks reach NVIDIA's MPS daemon; "" without.
	MPSPipe string
}

// Instance is a MIG instance: a compute instance within a GPU instance.
type Instance struct {
	UUID string `json:"uuid"`
	// Model is the driver's name for it, "NVIDIA A100-SXM4-40GB MIG 3g.20gb".
	Model string `json:"model"`
	// Profile is the last part of it, "3g.20gb" or "1c.3g.20gb".
	Profile         string  `json:"profile"`
	GPUInstance     int     `json:"gpu_instance"`
	ComputeInstance int     `json:"compute_instance"`
	MemoryMiB       *uint64 `json:"memory_mib,omitempty"`
	Multiprocessors *uint64 `json:"multiprocessors,omitempty"`
	// Slices are the GPU instance's compute slices, of seven on an A100.
	Slices *uint64 `json:"slices,omitempty"`
	// Caps are the numbers of its device nodes,
	// /dev/nvidia-caps/nvidia-cap<number>.
	Caps []int `json:"caps,omitempty"`
	// Unhealthy is as for a GPU.
	Unhealthy string `json:"unhealthy,omitempty"`
	// Gone counts the looks since it was found last.
	Gone int `json:"-"`
}

// Sample is a GPU's figures at one moment; nil means not reported.
type Sample struct {
	UUID               string
	PowerW             *uint64
	TemperatureC       *uint64
	GPUUtilization     *uint64 // percent of the last sample period
	MemoryUtilization  *uint64 // percent of the last sample period
	EncoderUtilization *uint64 // percent
	DecoderUtilization *uint64 // percent
	MemoryUsedMiB      *uint64
	BAR1UsedMiB        *uint64
	// Corrected ECC errors since the driver was loaded.
	ECCL1Cache, ECCL2Cache, ECCMemory *uint64
	// Uncorrectable ECC errors since the driver was loaded, and in the GPU's
	// life.
	UncorrectedVolatile, UncorrectedAggregate *uint64
	// RemappedRows are the rows of memory that were replaced for good.
	RemappedRows *uint64
	// CoresClockMHz and MemoryClockMHz are the clocks at this moment.
	CoresClockMHz, MemoryClockMHz *uint64
	// PCIeSentKBs and PCIeReceivedKBs are kB/s, over 20 milliseconds.
	PCIeSentKBs, PCIeReceivedKBs *uint64
	// NVLinkSentKiB and NVLinkReceivedKiB are what went over all NVLinks since
	// the driver was loaded.
	NVLinkSentKiB, NVLinkReceivedKiB *uint64
	// NVLinksActive counts the links that are up.
	NVLinksActive *uint64
	// SliceMemoryMiB and SliceUtilization are of the processes that have a slice of a
	// shared GPU; sources leave them out.
	SliceMemoryMiB, SliceUtilization *uint64
	// Throttled says what keeps the clocks down, in words; empty is nothing.
	Throttled *[]string
}

// Spec says which source to open.
type Spec struct {
	// Source is "nvml", "mock:MACHINE" or "file:PATH".
	Source string
	// Seed makes the UUIDs of simulated GPUs: they are the same for the same
	// seed, and differ between seeds. A node needs one of its own.
	Seed string
	// MIG divides simulated GPUs, see ParseMIG.
	MIG []string
	// Divides: simulated GPUs may be divided while they are there.
	Divides bool
	// Faults is the path of a file with the faults of simulated GPUs, one in a
	// line; it is read at every look.
	Faults string
}

// ErrSource is wrapped by the error of a source whose name cannot be read.
var ErrSource = errors.New("unknown GPU source")

// The forms of a source's name.
const (
	SourceNVML = "nvml"
	mockPrefix = "mock:"
	filePrefix = "file:"
)

// Sources lists the allowed forms of a source's name, for messages.
func Sources() string {
	return SourceNVML + ", " + mockPrefix + strings.Join(machineNames(), ", "+mockPrefix) + ", " + filePrefix + "PATH"
}

// Open opens a source. The library of the source "nvml" is loaded at its first
// use, and tried again at every use until it is there.
func Open(spec Spec) (Source, error) {
	source, err := open(spec)
	if err != nil {
		return nil, err
	}
	return simulate(source, spec)
}

func open(spec Spec) (Source, error) {
	if spec.Source == SourceNVML {
		return openNVML(), nil
	}
	if name, ok := strings.CutPrefix(spec.Source, mockPrefix); ok {
		if m, ok := machines[name]; ok {
			return openMock(name, m, spec.Seed)
		}
	}
	if path, ok := strings.CutPrefix(spec.Source, filePrefix); ok && path != "" {
		return openFile(path, spec.Seed)
	}
	return nil, fmt.Errorf("%w %q: allowed are %s", ErrSource, spec.Source, Sources())
}

// ValidSource reports whether a source's name has one of the allowed forms.
func ValidSource(name string) bool {
	if machine, ok := strings.CutPrefix(name, mockPrefix); ok {
		_, known := machines[machine]
		return known
	}
	path, isFile := strings.CutPrefix(name, filePrefix)
	return name == SourceNVML || isFile && path != ""
}
