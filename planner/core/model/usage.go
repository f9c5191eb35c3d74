package model

// Usage is what a job is expected to use of a GPU that it shares, by what was
// measured of it and of others like it.
type Usage struct {
	// MemoryMiB is the most memory that one of its tasks is expected to take.
	MemoryMiB int `json:"memory_mib"`
	// Busy is how much of the time the GPU works for one of its tasks, in percent:
	// four fifths of the time no more than that.
	Busy int `json:"busy"`
	// Minutes is how busy it was in each minute, in percent, the latest last; of a
	// job that waits, in the first minutes of others like it. Fewer than a handful
	// tell nothing of who is busy at the same time.
	Minutes []int `json:"minutes,omitempty"`
	// Samples is how many measurements that is.
	Samples int `json:"samples"`
}

// MaxUsageMinutes bounds the Minutes of a Usage.
const MaxUsageMinutes = 64

// Whether a device request may be served by a time slice of a shared GPU.
const (
	// SharedAllow: by a slice or by anything else that it matches.
	SharedAllow = "allow"
	// SharedOnly: by a slice and by nothing else.
	SharedOnly = "only"
)

// MaxSlices bounds the time slices of one GPU.
const MaxSlices = 32

func (j *Job) validateUsage(f *faults, i int) {
	u := j.Usage
	if u == nil {
		return
	}
	if u.MemoryMiB < 0 || u.MemoryMiB > MaxQuantity {
		f.add("jobs[%d] (%s).usage.memory_mib: %d: want 0 to %d", i, j.ID, u.MemoryMiB, MaxQuantity)
	}
	if u.Busy < 0 || u.Busy > 100 {
		f.add("jobs[%d] (%s).usage.busy: %d: want 0 to 100 percent", i, j.ID, u.Busy)
	}
	if u.Samples < 1 {
		f.add("jobs[%d] (%s).usage.samples: %d: want 1 or more", i, j.ID, u.Samples)
	}
	if len(u.Minutes) > MaxUsageMinutes {
		f.add("jobs[%d] (%s).usage.minutes: %d of them: want at most %d", i, j.ID, len(u.Minutes), MaxUsageMinutes)
	}
	for k, m := range u.Minutes {
		if m < 0 || m > 100 {
			f.add("jobs[%d] (%s).usage.minutes[%d]: %d: want 0 to 100 percent", i, j.ID, k, m)
		}
	}
}

// validateSlices checks what a node says of its shared GPUs.
func (n *Node) validateSlices(f *faults, i int) {
	type gpu struct{ slices, memory, seen int }
	parents := map[string]gpu{}
	for k := range n.GPUs {
		g := &n.GPUs[k]
		if g.Slices == 0 && g.SharedMiB == 0 {
			continue
		}
		if g.Slices < 2 || g.Slices > MaxSlices {
			f.add("nodes[%d] (%s).gpus[%d].slices: %d: want 0 (not shared) or 2 to %d", i, n.ID, k, g.Slices, MaxSlices)
		}
		if g.SharedMiB < 0 || g.SharedMiB > MaxQuantity {
			f.add("nodes[%d] (%s).gpus[%d].shared_mib: %d: want 0 (unknown) to %d", i, n.ID, k, g.SharedMiB, MaxQuantity)
		}
		if g.Parent == "" {
			f.add("nodes[%d] (%s).gpus[%d].parent: empty: want the UUID of the GPU that it is a slice of", i, n.ID, k)
			continue
		}
		p, known := parents[g.Parent]
		if known && (p.slices != g.Slices || p.memory != g.SharedMiB) {
			f.add("nodes[%d] (%s).gpus[%d]: %d slices and %d MiB: another slice of %s says %d and %d", i, n.ID, k, g.Slices, g.SharedMiB, g.Parent, p.slices, p.memory)
		}
		if p.seen == g.Slices && known {
			f.add("nodes[%d] (%s).gpus[%d]: is one slice more of %s than there are, %d", i, n.ID, k, g.Parent, g.Slices)
		}
		parents[g.Parent] = gpu{g.Slices, g.SharedMiB, p.seen + 1}
	}
}
