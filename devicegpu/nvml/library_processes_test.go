//go:build cgo

package nvml

import (
	"testing"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/google/go-cmp/cmp"
)

func TestProcesses(t *testing.T) {
	const down = nvml.ERROR_UNKNOWN
	running := []nvml.ProcessInfo{{Pid: 9, UsedGpuMemory: notAvailable}, {Pid: 7, UsedGpuMemory: 3 << 30}}
	busy := []nvml.ProcessUtilizationSample{{Pid: 7, SmUtil: 40}, {Pid: 7, SmUtil: 60}, {Pid: 1, SmUtil: 5}, {Pid: 9, SmUtil: 400}}
	tests := map[string]struct {
		list, busy nvml.Return
		want       []Process
		known      bool
		fails      bool
	}{
		"both":           {nvml.SUCCESS, nvml.SUCCESS, []Process{{7, ptr(uint64(3072)), ptr(uint64(50))}, {9, nil, ptr(uint64(100))}}, true, false},
		"memory only":    {nvml.SUCCESS, nvml.ERROR_NOT_SUPPORTED, []Process{{7, ptr(uint64(3072)), nil}, {9, nil, nil}}, true, false},
		"idle lately":    {nvml.SUCCESS, nvml.ERROR_NOT_FOUND, []Process{{7, ptr(uint64(3072)), ptr(uint64(0))}, {9, nil, ptr(uint64(0))}}, true, false},
		"not told":       {nvml.ERROR_NOT_SUPPORTED, nvml.SUCCESS, nil, false, false},
		"cannot be told": {down, nvml.SUCCESS, nil, false, true},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			l, dev := mockGPU(t)
			dev.GetComputeRunningProcessesFunc = func() ([]nvml.ProcessInfo, nvml.Return) { return running, tt.list }
			dev.GetProcessUtilizationFunc = func(uint64) ([]nvml.ProcessUtilizationSample, nvml.Return) {
				if tt.busy != nvml.SUCCESS {
					return nil, tt.busy
				}
				return busy, tt.busy
			}
			got, known, err := Processes(Guard(l, time.Minute), dev.UUID)
			if known != tt.known || (err != nil) != tt.fails {
				t.Errorf("known %v, error %v", known, err)
			}
			if d := cmp.Diff(tt.want, got); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
		})
	}
	l, _ := mockGPU(t)
	if _, _, err := l.Processes("GPU-elsewhere"); err == nil {
		t.Error("a GPU that is not there has processes")
	}
	if _, known, err := Processes(absentLister{}, "x"); known || err != nil {
		t.Errorf("a source that cannot tell: %v, %v", known, err)
	}
}

// absentLister is a source that knows of no processes.
type absentLister struct{ Source }
