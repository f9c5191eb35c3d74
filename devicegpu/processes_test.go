package devicegpu

import (
	"errors"
	"fmt"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/caravan-sched/caravan/devicegpu/nvml"
)

// busyGPUs is a source whose GPUs have processes.
type busyGPUs struct {
	*fake
	list  []nvml.Process
	known bool
	err   error
}

func (b *busyGPUs) Processes(uuid string) ([]nvml.Process, bool, error) {
	if uuid != "GPU-3" {
		return nil, false, errors.New("only shared GPUs are asked about")
	}
	return b.list, b.known, b.err
}

func TestSliceUses(t *testing.T) {
	n := func(v uint64) *uint64 { return &v }
	environments := map[int]string{
		1: "PATH=/bin\x00CARAVAN_GPU_SLICE=GPU-3::0\x00A=b", 2: "CARAVAN_GPU_SLICE=GPU-3::0", 3: "CARAVAN_GPU_SLICE=GPU-3::1",
		4: "PATH=/bin", 5: "CARAVAN_GPU_SLICE=GPU-9::0", 6: "",
	}
	environ := func(pid int) ([]byte, error) {
		text, ok := environments[pid]
		switch {
		case pid == 99:
			return nil, os.ErrPermission
		case !ok:
			return nil, os.ErrNotExist
		}
		return []byte(text), nil
	}
	process := func(pid int, memory, busy uint64) nvml.Process {
		return nvml.Process{PID: pid, MemoryMiB: n(memory), Utilization: n(busy)}
	}
	idle := map[string]string{"GPU-3::0": "0 MiB, 0 %", "GPU-3::1": "0 MiB, 0 %"}
	tests := map[string]struct {
		source busyGPUs
		want   map[string]string
	}{
		"nobody":                      {busyGPUs{known: true}, idle},
		"each with its own":           {busyGPUs{known: true, list: []nvml.Process{process(1, 100, 10), process(2, 200, 5), process(3, 7, 50)}}, map[string]string{"GPU-3::0": "300 MiB, 15 %", "GPU-3::1": "7 MiB, 50 %"}},
		"others, and one that ended":  {busyGPUs{known: true, list: []nvml.Process{process(4, 100, 10), process(5, 1, 1), process(6, 1, 1), process(7, 1, 1)}}, idle},
		"one that cannot be read":     {busyGPUs{known: true, list: []nvml.Process{process(1, 100, 10), process(99, 1, 1)}}, map[string]string{}},
		"one whose memory is unknown": {busyGPUs{known: true, list: []nvml.Process{{PID: 1, Utilization: n(3)}, process(3, 7, 50)}}, map[string]string{"GPU-3::0": "unknown, 3 %", "GPU-3::1": "7 MiB, 50 %"}},
		"not told":                    {busyGPUs{}, map[string]string{}},
		"cannot be told":              {busyGPUs{known: true, err: errors.New("no")}, map[string]string{}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			used := uint64(5000)
			tt.source.fake = &fake{inventory: pairs(), samples: []nvml.Sample{{UUID: "GPU-3", MemoryUsedMiB: &used}, {UUID: "GPU-0", MemoryUsedMiB: &used}}}
			p := newPlugin(t, tt.source.fake, `sharing {
				slices = 2
				count  = 1
			}`)
			p.environ = environ
			p.scan()
			uses := p.sliceUses(&tt.source, p.inventory)
			got := map[string]string{}
			for id, use := range uses {
				text := "unknown"
				if use.memoryMiB != nil {
					text = fmt.Sprintf("%d MiB", *use.memoryMiB)
				}
				got[id] = fmt.Sprintf("%s, %d %%", text, *use.busy)
			}
			if d := cmp.Diff(tt.want, got); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
			for _, g := range groupStats(p.inventory, figures{}, figures{samples: tt.source.samples}, uses) {
				for id, s := range g.Instances {
					_, own := s.Values["Slice memory"]
					if want := uses[id].memoryMiB != nil; own != want || *s.Values["Memory state"].Int != 5000 {
						t.Errorf("%s: %+v, with its own memory: %v", id, s.Values, want)
					}
				}
			}
		})
	}
}

func TestReadEnviron(t *testing.T) {
	p := newPlugin(t, &fake{inventory: pairs()}, "")
	if slice, err := p.sliceOf(os.Getpid()); err != nil || slice != "" {
		t.Errorf("this process has slice %q: %v", slice, err)
	}
	if slice, err := p.sliceOf(1 << 30); err != nil || slice != "" {
		t.Errorf("a process that is not there has slice %q: %v", slice, err)
	}
}
