package devicegpu

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/caravan-sched/caravan/devicegpu/nvml"
	"github.com/caravan-sched/caravan/devicegpu/topology"
	"github.com/caravan-sched/caravan/internal/nomadplugin/attr"
	"github.com/caravan-sched/caravan/internal/nomadplugin/device"
	"github.com/caravan-sched/caravan/internal/nomadplugin/hclspec"
)

// Sharing GPUs: a GPU that the operator names is offered as several devices, time
// slices, each to one task. The GPU switches between the tasks' processes by itself;
// nothing keeps them apart.

// sharing is one block of the configuration: which GPUs are shared, and by how many.
type sharing struct {
	// Slices is how many tasks share a GPU.
	Slices int `codec:"slices"`
	// GPUs are UUIDs and Models the driver's names; empty is any.
	GPUs   []string `codec:"gpus"`
	Models []string `codec:"models"`
	// Count is how many of those GPUs the node shares, 0 all.
	Count int `codec:"count"`
	// MemoryMiB is what a task is told to use; 0 is an equal part.
	MemoryMiB int `codec:"memory_mib"`
	// MPSPipe is the folder of the pipes of NVIDIA's MPS daemon; "" without MPS.
	MPSPipe string `codec:"mps_pipe"`
}

func sharingSchema() *hclspec.Spec {
	attr := func(name, typ, fallback string) *hclspec.Spec {
		return hclspec.Default(hclspec.Attr(name, typ, false), hclspec.Literal(fallback))
	}
	return hclspec.BlockList("sharing", hclspec.Object(map[string]*hclspec.Spec{
		"slices":     hclspec.Attr("slices", "number", true),
		"gpus":       attr("gpus", "list(string)", "[]"),
		"models":     attr("models", "list(string)", "[]"),
		"count":      attr("count", "number", "0"),
		"memory_mib": attr("memory_mib", "number", "0"),
		"mps_pipe":   attr("mps_pipe", "string", `""`),
	}))
}

// maxMemoryMiB is more than any GPU has.
const maxMemoryMiB = 1 << 24

func (s sharing) validate(at int, fail func(string, ...any)) {
	if s.Slices < topology.MinSlices || s.Slices > topology.MaxSlices {
		fail("sharing[%d].slices = %d: want %d to %d", at, s.Slices, topology.MinSlices, topology.MaxSlices)
	}
	if s.Count < 0 || s.Count > topology.MaxGPUs {
		fail("sharing[%d].count = %d: want 0 (all) to %d", at, s.Count, topology.MaxGPUs)
	}
	if s.MemoryMiB < 0 || s.MemoryMiB > maxMemoryMiB {
		fail("sharing[%d].memory_mib = %d: want 0 (an equal part) to %d", at, s.MemoryMiB, maxMemoryMiB)
	}
	if s.MPSPipe != "" && !filepath.IsAbs(s.MPSPipe) {
		fail("sharing[%d].mps_pipe = %q: want the absolute path of the MPS daemon's folder, such as \"/tmp/nvidia-mps\"", at, s.MPSPipe)
	}
	for i, word := range slices.Concat(s.GPUs, s.Models) {
		key := "gpus"
		if i >= len(s.GPUs) {
			key, i = "models", i-len(s.GPUs)
		}
		if strings.TrimSpace(word) != word || word == "" {
			fail("sharing[%d].%s[%d] = %q: want a name without spaces around it", at, key, i, word)
		}
	}
}

// names reports whether a block is about a GPU.
func (s sharing) names(uuid, model string) bool {
	return (len(s.GPUs) == 0 || slices.Contains(s.GPUs, uuid)) && (len(s.Models) == 0 || slices.Contains(s.Models, model))
}

// shared is a GPU that is shared, and the block that says so.
type shared struct {
	block int
	nvml.Sharing
}

// share sets which GPUs are shared. One that is shared stays so as long as the
// plugin runs, and no other one takes the place of one that is lost: a GPU that is
// given away whole must never be offered in slices too.
func share(inv nvml.Inventory, blocks []sharing, known map[string]shared) nvml.Inventory {
	if len(blocks) == 0 {
		return inv
	}
	out := pick(inv, indexes(len(inv.GPUs)))
	out.Problems = slices.Clone(inv.Problems)
	have := make([]int, len(blocks))
	devices := 0
	for i := range out.GPUs {
		if s, ok := known[out.Matrix.GPUs[i].UUID]; ok {
			have[s.block]++
			devices += s.Slices
		} else {
			devices += max(1, len(out.GPUs[i].Instances))
		}
	}
	// The last ones: jobs that want whole GPUs are given the first ones first.
	for i := len(out.GPUs) - 1; i >= 0; i-- {
		place := out.Matrix.GPUs[i]
		block := slices.IndexFunc(blocks, func(s sharing) bool { return s.names(place.UUID, place.Model) })
		if _, done := known[place.UUID]; done || block < 0 || out.GPUs[i].Divided() || blocks[block].Count > 0 && have[block] >= blocks[block].Count {
			continue
		}
		if devices+blocks[block].Slices-1 > topology.MaxNodeDevices {
			out.Problems = append(out.Problems, fmt.Sprintf("GPU %s is offered whole: shared by %d, the node would have %d devices, and %d are the most", place.UUID, blocks[block].Slices, devices+blocks[block].Slices-1, topology.MaxNodeDevices))
			continue
		}
		have[block]++
		devices += blocks[block].Slices - 1
		known[place.UUID] = shared{block, nvml.Sharing{Slices: blocks[block].Slices, MPSPipe: blocks[block].MPSPipe}}
	}
	for i := range out.GPUs {
		s, ok := known[out.Matrix.GPUs[i].UUID]
		if !ok {
			continue
		}
		if out.GPUs[i].Divided() {
			out.Problems = append(out.Problems, fmt.Sprintf("GPU %s is to be shared, and is in MIG mode: its instances are offered", out.Matrix.GPUs[i].UUID))
			continue
		}
		set := s.Sharing
		set.MemoryMiB = partOf(out.GPUs[i].MemoryMiB, set.Slices, blocks[s.block].MemoryMiB)
		if want := uint64(blocks[s.block].MemoryMiB); set.MemoryMiB < want {
			out.Problems = append(out.Problems, fmt.Sprintf("GPU %s: %d slices of memory_mib = %d do not fit; each is told of %d MiB", out.Matrix.GPUs[i].UUID, set.Slices, want, set.MemoryMiB))
		}
		out.GPUs[i].Sharing = &set
	}
	return out
}

// partOf is a slice's part of a GPU's memory in MiB: what is wanted, if it fits as
// often as there are slices; 0 if nothing is known.
func partOf(memory *uint64, slices, want int) uint64 {
	if memory == nil {
		return uint64(want)
	}
	part := *memory / uint64(slices)
	if want > 0 {
		part = min(part, uint64(want))
	}
	return part
}

// sharedName names the group of a shared GPU's slices.
func sharedName(model string, slices int) string {
	return fmt.Sprintf("%s SHARED 1of%d", model, slices)
}

// addShares sets what is different for time slices, of which each is a part of a
// GPU that others use too. NVLinks are not told of: they are the whole GPU's.
func (a attributes) addShares(inv nvml.Inventory, of []unit) error {
	var list []topology.Share
	var memory, all []reading
	for _, u := range of {
		g := inv.GPUs[u.gpu]
		if u.slice == 0 {
			s := topology.Share{GPU: inv.Matrix.GPUs[u.gpu].UUID, Index: u.gpu, Slices: g.Sharing.Slices}
			if g.MemoryMiB != nil {
				s.MemoryMiB = *g.MemoryMiB
			}
			list = append(list, s)
		}
		part := reading{sick: g.Unhealthy != ""}
		if g.Sharing.MemoryMiB > 0 {
			part.value = &g.Sharing.MemoryMiB
		}
		memory, all = append(memory, part), append(all, reading{g.MemoryMiB, g.Unhealthy != ""})
	}
	encoded, err := topology.EncodeShares(list)
	if err != nil {
		return err
	}
	a.text(topology.AttrShares, encoded)
	a["shared_slices"] = attr.Int(int64(list[0].Slices))
	delete(a, "memory") // the whole GPU's
	a.lowest("memory", "MiB", memory)
	a.lowest("shared_memory", "MiB", all)
	return nil
}

// The variables that tell a task of its slice.
const (
	envSlice      = "CARAVAN_GPU_SLICE"
	envSlices     = "CARAVAN_GPU_SLICES"
	envMemory     = "CARAVAN_GPU_MEMORY_MIB"
	envMPSPipe    = "CUDA_MPS_PIPE_DIRECTORY"
	envMPSMemory  = "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"
	envMPSThreads = "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"
)

// addSharing tells a task of its slice. Only under MPS is there anything that
// keeps it to its part.
func addSharing(r *device.Reservation, inv nvml.Inventory, of []unit) {
	for _, u := range of {
		if !u.shared() {
			continue
		}
		s := inv.GPUs[u.gpu].Sharing
		r.Env[envSlice], r.Env[envSlices] = u.id(inv), fmt.Sprint(s.Slices)
		if s.MemoryMiB > 0 {
			r.Env[envMemory] = fmt.Sprint(s.MemoryMiB)
		}
		if s.MPSPipe == "" {
			continue
		}
		r.Env[envMPSPipe], r.Env[envMPSThreads] = s.MPSPipe, fmt.Sprint(100/s.Slices)
		if s.MemoryMiB > 0 {
			r.Env[envMPSMemory] = fmt.Sprintf("0=%dM", s.MemoryMiB) // the task sees one GPU, number 0
		}
		r.Mounts = append(r.Mounts, device.Mount{TaskPath: s.MPSPipe, HostPath: s.MPSPipe})
	}
}

// oneSlice refuses what a slice cannot be given with: CUDA would show a second
// slice of one GPU as the same GPU, and limits by number hold for one GPU only.
func oneSlice(inv nvml.Inventory, of []unit) error {
	for _, u := range of {
		if u.shared() && len(of) > 1 {
			return fmt.Errorf("GPU %q is a part of a shared GPU, and %d devices are asked for: a device block gets one slice, with count = 1", u.id(inv), len(of))
		}
	}
	return nil
}
