package devicegpu

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"syscall"

	"github.com/caravan-sched/caravan/devicegpu/nvml"
	"github.com/caravan-sched/caravan/devicegpu/topology"
	"github.com/caravan-sched/caravan/internal/nomadplugin/device"
)

// ncclDefaultDir is where the topology files are if the configuration does not
// say it. It is emptied at a reboot, as the tasks are.
const ncclDefaultDir = "/run/nomad-device-caravan"

// addNCCLTopology writes a topology file of the GPUs and shows it to the task.
// It stands at the same path inside and outside of the task, so that tasks
// that are not isolated find it, too. MIG instances cannot reach one another,
// so they get none; who has a slice uses one GPU.
func addNCCLTopology(r *device.Reservation, inv nvml.Inventory, of []unit, dir string) error {
	if dir == "" {
		return nil
	}
	gpus := make([]int, 0, len(of))
	for _, u := range of {
		if !u.whole() {
			return nil
		}
		gpus = append(gpus, u.gpu)
	}
	details := make([]topology.Detail, len(inv.GPUs))
	for i, g := range inv.GPUs {
		details[i] = topology.Detail{Vendor: g.Vendor, ComputeCapability: g.ComputeCapability}
		if g.PCIeGeneration != nil && g.PCIeWidth != nil {
			details[i].PCIeGeneration, details[i].PCIeWidth = int(*g.PCIeGeneration), int(*g.PCIeWidth)
		}
	}
	text, err := topology.WriteNCCL(inv.Matrix, details, gpus)
	if err != nil {
		return err
	}
	path, err := writeNCCLFile(dir, text)
	if err != nil {
		return fmt.Errorf("write NCCL topology: %w", err)
	}
	r.Env[envNCCLTopology] = path
	r.Mounts = append(r.Mounts, device.Mount{TaskPath: path, HostPath: path, ReadOnly: true})
	return nil
}

// writeNCCLFile writes a file that is named by its content, so that tasks with
// the same GPUs share it, and none is changed under a task that runs.
func writeNCCLFile(dir string, text []byte) (string, error) {
	dir, err := privateDir(dir)
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, fmt.Sprintf("nccl-%.16x.xml", sha256.Sum256(text)))
	if have, err := os.ReadFile(path); err == nil && string(have) == string(text) {
		return path, nil
	}
	f, err := os.CreateTemp(dir, ".nccl-*")
	if err != nil {
		return "", err
	}
	defer os.Remove(f.Name()) // it is not there any more if all went well
	_, err = f.Write(text)
	err = errors.Join(err, f.Chmod(0o644), f.Close())
	if err != nil {
		return "", err
	}
	return path, os.Rename(f.Name(), path)
}

// privateDir makes the folder. The default one has a stand-in for agents that
// do not run as root. A folder in which others can write is refused: they
// could put links there, or a file of their own under a task.
func privateDir(dir string) (string, error) {
	err := os.MkdirAll(dir, 0o755)
	if errors.Is(err, os.ErrPermission) && dir == ncclDefaultDir {
		dir = filepath.Join(os.TempDir(), filepath.Base(ncclDefaultDir)+"-"+strconv.Itoa(os.Getuid()))
		err = os.MkdirAll(dir, 0o755)
	}
	if err != nil {
		return "", err
	}
	info, err := os.Lstat(dir)
	if err != nil {
		return "", err
	}
	if owner, ok := info.Sys().(*syscall.Stat_t); !info.IsDir() || info.Mode().Perm()&0o022 != 0 || ok && int(owner.Uid) != os.Geteuid() {
		return "", fmt.Errorf("%s: want a folder of the agent's own, in which nobody else can write", dir)
	}
	return dir, nil
}
