package model

import (
	"strings"
	"testing"
)

// Every fault of what is said of shared GPUs is told at once.
func TestSharingFaults(t *testing.T) {
	slice := func(id, parent string, slices, memory int) GPU {
		return GPU{UUID: id, Parent: parent, Slices: slices, SharedMiB: memory}
	}
	s := &Snapshot{
		Nodes: []Node{{ID: "n", GPUs: []GPU{
			slice("a0", "a", 2, 10), slice("a1", "a", 2, 10), slice("a2", "a", 2, 10),
			slice("b0", "b", 2, 10), slice("b1", "b", 3, 10),
			slice("c0", "", 2, 10), slice("d0", "d", 1, -1), slice("e0", "e", 33, 0),
		}}},
		Jobs: []Job{
			{ID: "j", State: StateQueued, Usage: &Usage{MemoryMiB: -1, Busy: 101, Minutes: []int{0, -1, 101}}},
			{ID: "k", State: StateQueued, Usage: &Usage{Samples: 1, Minutes: make([]int, MaxUsageMinutes+1)},
				Groups: []TaskGroup{{Name: "g", Devices: []DeviceAsk{{Name: "gpu", Count: 1, Shared: "yes"}}}}},
		},
	}
	err := s.Validate()
	for _, want := range []string{
		"nodes[0] (n).gpus[2]: is one slice more of a than there are, 2",
		"nodes[0] (n).gpus[4]: 3 slices and 10 MiB: another slice of b says 2 and 10",
		"nodes[0] (n).gpus[5].parent: empty", "nodes[0] (n).gpus[6].slices: 1: want 0 (not shared) or 2 to 32",
		"nodes[0] (n).gpus[6].shared_mib: -1", "nodes[0] (n).gpus[7].slices: 33",
		"jobs[0] (j).usage.memory_mib: -1", "jobs[0] (j).usage.busy: 101: want 0 to 100 percent", "jobs[0] (j).usage.samples: 0",
		"jobs[0] (j).usage.minutes[1]: -1", "jobs[0] (j).usage.minutes[2]: 101", "jobs[1] (k).usage.minutes: 65 of them: want at most 64",
		`jobs[1] (k).groups[0] (g).devices[0].shared: "yes": want "allow" or "only"`,
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("faults lack %q:\n%v", want, err)
		}
	}
}
