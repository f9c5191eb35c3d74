//go:build cgo

package nvml

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock/dgxh100"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock/server"
)

// mockGPU is a machine of go-nvml's with instances that can be made, and its first
// GPU.
func mockGPU(t *testing.T) (*library, *server.Device) {
	t.Helper()
	s := dgxh100.New()
	dev := s.Devices[0].(*server.Device)
	dev.GetComputeRunningProcessesFunc = func() ([]nvml.ProcessInfo, nvml.Return) { return nil, nvml.SUCCESS }
	return &library{lib: s, simulated: true, proc: nothing{}, host: func([]string) host { return host{} }}, dev
}

// slices of the instances of a GPU, in the order of their size.
func dividedInto(dev *server.Device) []uint32 {
	var out []uint32
	for gi := range dev.GpuInstances {
		if len(gi.ComputeInstances) != 1 {
			return []uint32{99}
		}
		info, _ := dev.GetGpuInstanceProfileInfo(int(gi.Info.ProfileId))
		for i := range nvml.GPU_INSTANCE_PROFILE_COUNT {
			if p, ret := dev.GetGpuInstanceProfileInfo(i); ret == nvml.SUCCESS && p.Id == gi.Info.ProfileId {
				info = p
			}
		}
		out = append(out, info.SliceCount)
	}
	slices.Sort(out)
	return out
}

func TestLibraryDivides(t *testing.T) {
	l, dev := mockGPU(t)
	steps := []struct {
		profiles string
		want     []uint32
	}{
		{"3g.40gb 3g.40gb", []uint32{3, 3}}, {"1g.10gb 1g.10gb 1g.10gb", []uint32{1, 1, 1}}, {"", nil}, {"4g.40gb 2g.20gb 1g.10gb", []uint32{1, 2, 4}}, {"7g.80gb", []uint32{7}}, {"", nil},
	}
	for _, step := range steps {
		if err := l.Divide(dev.UUID, strings.Fields(step.profiles)); err != nil {
			t.Fatal(err)
		}
		if got := dividedInto(dev); !slices.Equal(got, step.want) || (dev.MigMode == nvml.DEVICE_MIG_ENABLE) != (step.profiles != "") {
			t.Errorf("%q: slices %v in mode %d, want %v", step.profiles, got, dev.MigMode, step.want)
		}
	}
}

// TestLibraryDividesBack lets the driver refuse each step: the GPU is as it was.
func TestLibraryDividesBack(t *testing.T) {
	want := []uint32{3, 3}
	tests := map[string]struct {
		breakIt func(*server.Device) (mend func())
		wantErr string
		inUse   bool
	}{
		"a process": {func(d *server.Device) func() {
			d.GetComputeRunningProcessesFunc = func() ([]nvml.ProcessInfo, nvml.Return) { return []nvml.ProcessInfo{{Pid: 7}}, nvml.SUCCESS }
			return func() {}
		}, "process 7", true},
		"an instance that is in use": {func(d *server.Device) func() {
			for gi := range d.GpuInstances {
				for ci := range gi.ComputeInstances {
					ci.DestroyFunc = func() nvml.Return { return nvml.ERROR_IN_USE }
				}
				break
			}
			return func() {}
		}, "it is in use", false},
		"the second instance": {func(d *server.Device) func() {
			create, n := d.CreateGpuInstanceFunc, 0
			d.CreateGpuInstanceFunc = func(info *nvml.GpuInstanceProfileInfo) (nvml.GpuInstance, nvml.Return) {
				if n++; n == 2 {
					return nil, nvml.ERROR_INSUFFICIENT_RESOURCES
				}
				return create(info)
			}
			return func() {}
		}, "create an instance of 1 slices", false},
		"a profile that is none": {func(*server.Device) func() { return func() {} }, "the GPU has no profile 1g.99gb", false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			l, dev := mockGPU(t)
			if err := l.Divide(dev.UUID, []string{"3g.40gb", "3g.40gb"}); err != nil {
				t.Fatal(err)
			}
			test.breakIt(dev)
			profiles := []string{"1g.10gb", "1g.10gb"}
			if strings.Contains(name, "none") {
				profiles = []string{"1g.99gb"}
			}
			err := l.Divide(dev.UUID, profiles)
			if err == nil || !strings.Contains(err.Error(), test.wantErr) || errors.Is(err, ErrInUse) != test.inUse {
				t.Errorf("error %v, want %q", err, test.wantErr)
			}
			if got := dividedInto(dev); !slices.Equal(got, want) {
				t.Errorf("slices %v, want %v", got, want)
			}
		})
	}
	t.Run("a reset is needed", func(t *testing.T) {
		l, dev := mockGPU(t)
		dev.SetMigModeFunc = func(int) (nvml.Return, nvml.Return) { return nvml.ERROR_RESET_REQUIRED, nvml.SUCCESS }
		if err := l.Divide(dev.UUID, []string{"7g.80gb"}); err == nil || !strings.Contains(err.Error(), "only after a reset") {
			t.Errorf("error %v", err)
		}
	})
}

func TestSimulationDivides(t *testing.T) {
	faults := filepath.Join(t.TempDir(), "faults")
	source, err := Open(Spec{Source: "mock:dgxh100", Seed: "n1", Divides: true, Faults: faults})
	if err != nil {
		t.Fatal(err)
	}
	look := func() (string, []string) {
		inv, err := source.Inventory()
		if err != nil {
			t.Fatal(err)
		}
		var out []string
		for _, i := range inv.GPUs[2].Instances {
			out = append(out, i.Profile)
		}
		if inv.GPUs[2].Divided() != (len(out) > 0) {
			t.Errorf("divided %v into %v", inv.GPUs[2].Divided(), out)
		}
		return inv.Matrix.GPUs[2].UUID, out
	}
	uuid, _ := look()
	try := func(fault, want string, profiles ...string) {
		t.Helper()
		if err := os.WriteFile(faults, []byte(fault), 0o644); err != nil {
			t.Fatal(err)
		}
		_, before := look()
		err := Divide(Guard(source, time.Minute), uuid, profiles)
		_, after := look()
		switch {
		case want == "" && (err != nil || !slices.Equal(after, profiles)):
			t.Errorf("divided into %v, %v; want %v", after, err, profiles)
		case want != "" && (err == nil || !strings.Contains(err.Error(), want) || !slices.Equal(before, after)):
			t.Errorf("error %v, %v became %v; want %q and no change", err, before, after, want)
		}
	}
	try("", "", "3g.40gb", "3g.40gb")
	try("2 mig_refused", "NVML error 999", "7g.80gb")
	try("2 busy", "in use")
	try("", "cannot be divided into", "4g.40gb", "4g.40gb")
	try("1 busy", "")
	if err := Divide(source, "GPU-none", nil); err == nil || !strings.Contains(err.Error(), "no such GPU") {
		t.Errorf("error %v", err)
	}
	fixed, err := Open(Spec{Source: "mock:dgxh100", Seed: "n1"})
	if err != nil {
		t.Fatal(err)
	}
	if _, is := fixed.(*simulation); is {
		t.Error("a source that is not to be divided is a simulation")
	}
}
