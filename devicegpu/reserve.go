package devicegpu

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/caravan-sched/caravan/devicegpu/nvml"
	"github.com/caravan-sched/caravan/internal/nomadplugin/device"
)

// The variables that tell a task about its GPUs.
const (
	envCUDADevices   = "CUDA_VISIBLE_DEVICES"
	envCUDAOrder     = "CUDA_DEVICE_ORDER"
	envNVIDIADevices = "NVIDIA_VISIBLE_DEVICES"
	envIMEXChannels  = "NVIDIA_IMEX_CHANNELS"
	envNCCLTopology  = "NCCL_TOPO_FILE"
	envROCmDevices   = "ROCR_VISIBLE_DEVICES"
	envBusIDs        = "CARAVAN_GPU_BUS_IDS"
)

const vendorAMD = "amd"

// Reserve implements device.Plugin. The GPUs come in topology order, so that
// ranks that count them up are neighbours.
func (p *Plugin) Reserve(_ context.Context, ids []string) (device.Reservation, error) {
	if len(ids) == 0 {
		return device.Reservation{}, nil
	}
	p.mu.Lock()
	enabled, scanned := p.cfg.enabled, p.scanned
	p.mu.Unlock()
	if !enabled {
		return device.Reservation{}, device.ErrDisabled
	}
	if !scanned {
		p.scan() // a task of before the agent's restart, ahead of the first fingerprint
	}
	p.mu.Lock()
	inv, source, cfg := p.inventory, p.source, p.cfg
	p.mu.Unlock()
	of, err := lookUp(inv, ids)
	if err != nil {
		return device.Reservation{}, fmt.Errorf("reserve GPUs: %w", err)
	}
	if err := oneSlice(inv, of); err != nil {
		return device.Reservation{}, fmt.Errorf("reserve GPUs: %w", err)
	}
	if err := p.beingDivided(inv, of); err != nil {
		return device.Reservation{}, fmt.Errorf("reserve GPUs: %w", err)
	}
	of = inOrder(inv, of)
	r := device.Reservation{Env: environment(inv, of)}
	addSharing(&r, inv, of)
	if !source.Simulated() {
		if ids := busIDs(inv, of); ids != "" {
			r.Env[envBusIDs] = ids
		}
		r.Devices = deviceNodes(inv, of, p.exists)
		if slices.ContainsFunc(r.Devices, func(n device.Node) bool { return n.HostPath == imexChannel }) {
			r.Env[envIMEXChannels] = "0"
		}
	}
	if err := addNCCLTopology(&r, inv, of, cfg.ncclDir); err != nil {
		// NCCL finds out by itself what it needs; only slower, or not as well.
		p.log.Warn("a task gets no NCCL topology file", "gpus", strings.Join(ids, ","), "reason", err)
	}
	return r, nil
}

// environment makes the GPUs known to the vendors' runtimes.
func environment(inv nvml.Inventory, of []unit) map[string]string {
	uuids := make([]string, 0, len(of))
	amd := false
	for _, u := range of {
		uuids = append(uuids, u.driverID(inv))
		amd = amd || inv.GPUs[u.gpu].Vendor == vendorAMD
	}
	all := strings.Join(uuids, ",")
	if amd {
		return map[string]string{envROCmDevices: all}
	}
	return map[string]string{envCUDADevices: all, envNVIDIADevices: all, envCUDAOrder: "PCI_BUS_ID"}
}

// busIDs are the PCI addresses of the GPUs, by which the task driver finds the
// cores that are near them; "" where they are not known.
func busIDs(inv nvml.Inventory, of []unit) string {
	var out []string
	for _, u := range of {
		if id := inv.Matrix.GPUs[u.gpu].BusID; id != "" && !slices.Contains(out, id) {
			out = append(out, id)
		}
	}
	return strings.Join(out, ",")
}

// inOrder puts whole GPUs in topology order, and instances behind them, in
// that of their GPUs and their numbers.
func inOrder(inv nvml.Inventory, of []unit) []unit {
	var gpus []int
	for _, u := range of {
		if !slices.Contains(gpus, u.gpu) {
			gpus = append(gpus, u.gpu)
		}
	}
	place := map[int]int{}
	for n, i := range inv.Matrix.Order(gpus) {
		place[i] = n
	}
	return slices.SortedFunc(slices.Values(of), func(a, b unit) int {
		switch {
		case a.whole() && !b.whole():
			return -1
		case b.whole() && !a.whole():
			return 1
		}
		return cmp.Or(cmp.Compare(place[a.gpu], place[b.gpu]), cmp.Compare(a.instance, b.instance))
	})
}

// lookUp finds the units, or says everything that is wrong with the request.
func lookUp(inv nvml.Inventory, ids []string) ([]unit, error) {
	byID := map[string]unit{}
	for _, u := range units(inv) {
		byID[u.id(inv)] = u
	}
	var found []unit
	var faults []string
	fault := func(format string, args ...any) { faults = append(faults, fmt.Sprintf(format, args...)) }
	seen := map[string]int{}
	for _, id := range ids {
		seen[id]++
		if seen[id] > 1 {
			continue
		}
		u, ok := byID[id]
		switch {
		case !ok:
			fault("GPU %q is unknown", id)
		case u.unhealthy(inv) != "":
			fault("GPU %q cannot be used: %s", id, u.unhealthy(inv))
		default:
			found = append(found, u)
		}
	}
	for _, id := range slices.Sorted(maps.Keys(seen)) {
		if seen[id] > 1 {
			fault("GPU %q is asked for %d times", id, seen[id])
		}
	}
	if len(faults) > 0 {
		return nil, errors.New(strings.Join(faults, "; "))
	}
	return found, nil
}
