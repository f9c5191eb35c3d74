//go:build cgo

package nvml

import (
	"errors"
	"fmt"
	"slices"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// plainProfiles are NVML's numbers of the GPU instance profiles that package mig
// knows: without media extensions and without graphics.
var plainProfiles = []int{
	nvml.GPU_INSTANCE_PROFILE_1_SLICE, nvml.GPU_INSTANCE_PROFILE_2_SLICE, nvml.GPU_INSTANCE_PROFILE_3_SLICE,
	nvml.GPU_INSTANCE_PROFILE_4_SLICE, nvml.GPU_INSTANCE_PROFILE_7_SLICE, nvml.GPU_INSTANCE_PROFILE_1_SLICE_REV2,
}

// wholeComputes are the compute instance profiles that take all of a GPU instance,
// by its slices.
var wholeComputes = map[uint32]int{
	1: nvml.COMPUTE_INSTANCE_PROFILE_1_SLICE, 2: nvml.COMPUTE_INSTANCE_PROFILE_2_SLICE, 3: nvml.COMPUTE_INSTANCE_PROFILE_3_SLICE,
	4: nvml.COMPUTE_INSTANCE_PROFILE_4_SLICE, 7: nvml.COMPUTE_INSTANCE_PROFILE_7_SLICE,
}

// divideSymbols are the functions of the driver that Divide calls.
var divideSymbols = []string{"nvmlDeviceSetMigMode", "nvmlDeviceGetGpuInstances", "nvmlDeviceCreateGpuInstance", "nvmlGpuInstanceDestroy",
	"nvmlGpuInstanceCreateComputeInstance", "nvmlGpuInstanceGetComputeInstances", "nvmlComputeInstanceDestroy"}

// Divide implements Divider.
func (l *library) Divide(uuid string, profiles []string) error {
	if err := l.start(); err != nil {
		return err
	}
	l.use.RLock()
	defer l.use.RUnlock()
	for _, symbol := range divideSymbols {
		if !l.simulated && !l.has(symbol) {
			return fmt.Errorf("divide GPU %s: the driver is too old: it has no %s", uuid, symbol)
		}
	}
	dev, ret := l.lib.DeviceGetHandleByUUID(uuid)
	if ret != nvml.SUCCESS {
		return fmt.Errorf("divide GPU %s: %s", uuid, errorText(ret))
	}
	d := &division{dev: dev}
	if err := d.idle(); err != nil {
		return fmt.Errorf("divide GPU %s: %w", uuid, err)
	}
	mode, _, ret := dev.GetMigMode()
	if ret != nvml.SUCCESS {
		return fmt.Errorf("divide GPU %s: read its MIG mode: %s", uuid, errorText(ret))
	}
	before, err := d.read(mode)
	if err != nil {
		return fmt.Errorf("divide GPU %s: %w", uuid, err)
	}
	if err := d.make(profiles); err != nil {
		err = fmt.Errorf("divide GPU %s: %w", uuid, err)
		if back := d.makeAgain(mode, before); back != nil {
			return errors.Join(err, fmt.Errorf("and it could not be made again as it was: %w", back))
		}
		return err
	}
	return nil
}

// division changes how one GPU is divided.
type division struct{ dev nvml.Device }

// idle reports that no process uses the GPU.
func (d *division) idle() error {
	processes, ret := d.dev.GetComputeRunningProcesses()
	switch ret {
	case nvml.SUCCESS:
	case nvml.ERROR_NOT_SUPPORTED:
		return nil
	default:
		return fmt.Errorf("list its processes: %s", errorText(ret))
	}
	if len(processes) > 0 {
		return fmt.Errorf("%w: process %d and %d more", ErrInUse, processes[0].Pid, len(processes)-1)
	}
	return nil
}

// read lists the profiles of the instances that there are, by NVML's numbers.
func (d *division) read(mode int) ([]int, error) {
	if mode != nvml.DEVICE_MIG_ENABLE {
		return nil, nil
	}
	var out []int
	for i := range nvml.GPU_INSTANCE_PROFILE_COUNT {
		info, ret := d.dev.GetGpuInstanceProfileInfo(i)
		if ret != nvml.SUCCESS {
			continue // this model has no such profile
		}
		list, ret := d.dev.GetGpuInstances(&info)
		if ret != nvml.SUCCESS {
			return nil, fmt.Errorf("list its instances: %s", errorText(ret))
		}
		out = append(out, slices.Repeat([]int{i}, len(list))...)
	}
	return out, nil
}

// clear destroys all instances.
func (d *division) clear() error {
	for i := range nvml.GPU_INSTANCE_PROFILE_COUNT {
		info, ret := d.dev.GetGpuInstanceProfileInfo(i)
		if ret != nvml.SUCCESS {
			continue
		}
		list, ret := d.dev.GetGpuInstances(&info)
		if ret != nvml.SUCCESS {
			return fmt.Errorf("list its instances: %s", errorText(ret))
		}
		for _, gi := range list {
			if err := destroy(gi); err != nil {
				return err
			}
		}
	}
	return nil
}

// destroy destroys a GPU instance with its compute instances.
func destroy(gi nvml.GpuInstance) error {
	for i := range nvml.COMPUTE_INSTANCE_PROFILE_COUNT {
		info, ret := gi.GetComputeInstanceProfileInfo(i, nvml.COMPUTE_INSTANCE_ENGINE_PROFILE_SHARED)
		if ret != nvml.SUCCESS {
			continue
		}
		list, ret := gi.GetComputeInstances(&info)
		if ret != nvml.SUCCESS {
			return fmt.Errorf("list compute instances: %s", errorText(ret))
		}
		for _, ci := range list {
			if ret := ci.Destroy(); ret != nvml.SUCCESS {
				return fmt.Errorf("destroy a compute instance: %s", inUse(ret))
			}
		}
	}
	if ret := gi.Destroy(); ret != nvml.SUCCESS {
		return fmt.Errorf("destroy a GPU instance: %s", inUse(ret))
	}
	return nil
}

func inUse(ret nvml.Return) string {
	if ret == nvml.ERROR_IN_USE {
		return "it is in use"
	}
	return errorText(ret)
}

// make divides the GPU anew; no profiles make it whole.
func (d *division) make(profiles []string) error {
	numbers := make([]int, len(profiles))
	for i, name := range profiles {
		n, err := d.number(name)
		if err != nil {
			return err
		}
		numbers[i] = n
	}
	return d.makeNumbers(numbers)
}

func (d *division) makeNumbers(numbers []int) error {
	mode, _, ret := d.dev.GetMigMode()
	if ret != nvml.SUCCESS {
		return fmt.Errorf("read its MIG mode: %s", errorText(ret))
	}
	if mode == nvml.DEVICE_MIG_ENABLE {
		if err := d.clear(); err != nil {
			return err
		}
	}
	if len(numbers) == 0 {
		return d.setMode(nvml.DEVICE_MIG_DISABLE)
	}
	if err := d.setMode(nvml.DEVICE_MIG_ENABLE); err != nil {
		return err
	}
	for _, n := range numbers {
		if err := d.create(n); err != nil {
			return err
		}
	}
	return nil
}

// makeAgain makes the GPU as it was.
func (d *division) makeAgain(mode int, before []int) error {
	if mode == nvml.DEVICE_MIG_ENABLE && len(before) == 0 {
		return d.clear()
	}
	now, _, ret := d.dev.GetMigMode()
	if ret != nvml.SUCCESS {
		return fmt.Errorf("read its MIG mode: %s", errorText(ret))
	}
	there, err := d.read(now)
	if err != nil {
		return err
	}
	missing := slices.Clone(before)
	for _, n := range there {
		at := slices.Index(missing, n)
		if at < 0 {
			return d.makeNumbers(before)
		}
		missing = slices.Delete(missing, at, at+1)
	}
	if len(there) == 0 {
		return d.makeNumbers(before)
	}
	// What could not be destroyed is as it was.
	for _, n := range missing {
		if err := d.create(n); err != nil {
			return err
		}
	}
	return nil
}

// number is NVML's number of a profile. What NVML calls the memory in MB is not
// quite what the profile's name says.
func (d *division) number(name string) (int, error) {
	slots, gb, ok := profileSize(name)
	if !ok {
		return 0, fmt.Errorf("%q is no profile such as 3g.20gb", name)
	}
	best, off := -1, uint64(3)
	for _, i := range plainProfiles {
		info, ret := d.dev.GetGpuInstanceProfileInfo(i)
		if ret != nvml.SUCCESS || uint64(info.SliceCount) != slots {
			continue
		}
		has := (info.MemorySizeMB + 1023) / 1024
		if diff := max(has, gb) - min(has, gb); diff < off {
			best, off = i, diff
		}
	}
	if best < 0 {
		return 0, fmt.Errorf("the GPU has no profile %s", name)
	}
	return best, nil
}

// setMode sets the MIG mode. Some GPUs need a reset for that, which is left to
// people.
func (d *division) setMode(want int) error {
	mode, pending, ret := d.dev.GetMigMode()
	if ret != nvml.SUCCESS {
		return fmt.Errorf("read its MIG mode: %s", errorText(ret))
	}
	if mode == want && pending == want {
		return nil
	}
	activation, ret := d.dev.SetMigMode(want)
	if ret != nvml.SUCCESS {
		return fmt.Errorf("set its MIG mode: %s", inUse(ret))
	}
	if mode, _, ret = d.dev.GetMigMode(); ret != nvml.SUCCESS || mode != want {
		return fmt.Errorf("set its MIG mode: it takes effect only after a reset (nvidia-smi --gpu-reset): %s", errorText(activation))
	}
	return nil
}

// create makes a GPU instance, and one compute instance that takes all of it.
func (d *division) create(number int) error {
	info, ret := d.dev.GetGpuInstanceProfileInfo(number)
	if ret != nvml.SUCCESS {
		return fmt.Errorf("read profile %d: %s", number, errorText(ret))
	}
	gi, ret := d.dev.CreateGpuInstance(&info)
	if ret != nvml.SUCCESS {
		return fmt.Errorf("create an instance of %d slices with %d MB: %s", info.SliceCount, info.MemorySizeMB, inUse(ret))
	}
	compute, ret := gi.GetComputeInstanceProfileInfo(wholeComputes[info.SliceCount], nvml.COMPUTE_INSTANCE_ENGINE_PROFILE_SHARED)
	if ret != nvml.SUCCESS {
		return fmt.Errorf("read the compute profile of %d slices: %s", info.SliceCount, errorText(ret))
	}
	if _, ret := gi.CreateComputeInstance(&compute); ret != nvml.SUCCESS {
		return fmt.Errorf("create a compute instance of %d slices: %s", info.SliceCount, inUse(ret))
	}
	return nil
}
