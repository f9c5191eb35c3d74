package devicegpu

import (
	"bytes"
	"fmt"
	"io"
	"os"

	"github.com/caravan-sched/caravan/devicegpu/nvml"
)

// sliceUse is what the processes of one slice use; nil is not known.
type sliceUse struct{ memoryMiB, busy *uint64 }

// sliceUses tells for each slice of the shared GPUs what its own processes use. A
// process tells its slice by its environment, which its children have, too. Where
// one cannot be read nothing is told of its GPU: what others use would be missing.
func (p *Plugin) sliceUses(source nvml.Source, inv nvml.Inventory) map[string]sliceUse {
	out := map[string]sliceUse{}
	for i, g := range inv.GPUs {
		if g.Sharing == nil || g.Divided() {
			continue
		}
		list, known, err := nvml.Processes(source, inv.Matrix.GPUs[i].UUID)
		if err != nil {
			p.log.Debug("list the processes of a shared GPU", "error", err)
		}
		if err != nil || !known {
			continue
		}
		uses := map[string]sliceUse{}
		for n := range g.Sharing.Slices {
			uses[unit{i, -1, n}.id(inv)] = sliceUse{new(uint64), new(uint64)}
		}
		readable := true
		for _, process := range list {
			slice, err := p.sliceOf(process.PID)
			if readable = err == nil; !readable {
				p.log.Debug("a process on a shared GPU does not tell its slice", "pid", process.PID, "error", err)
				break
			}
			if use, ok := uses[slice]; ok {
				uses[slice] = sliceUse{add(use.memoryMiB, process.MemoryMiB), add(use.busy, process.Utilization)}
			}
		}
		if !readable {
			continue
		}
		for id, use := range uses {
			out[id] = use
		}
	}
	return out
}

// add adds two numbers, of which neither may be unknown.
func add(a, b *uint64) *uint64 {
	if a == nil || b == nil {
		return nil
	}
	sum := *a + *b
	return &sum
}

// maxEnviron bounds what is read of a process's environment.
const maxEnviron = 1 << 20

// sliceOf finds a process's slice in its environment; "" if it has none. One that has
// ended uses nothing.
func (p *Plugin) sliceOf(pid int) (string, error) {
	environ, err := p.environ(pid)
	if err != nil {
		if os.IsNotExist(err) {
			return "", nil
		}
		return "", err
	}
	for entry := range bytes.SplitSeq(environ, []byte{0}) {
		if value, ok := bytes.CutPrefix(entry, []byte(envSlice+"=")); ok {
			return string(value), nil
		}
	}
	return "", nil
}

func readEnviron(pid int) ([]byte, error) {
	f, err := os.Open(fmt.Sprintf("/proc/%d/environ", pid))
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // it was read
	return io.ReadAll(io.LimitReader(f, maxEnviron))
}
