package devicegpu

import (
	"fmt"
	"os"

	"github.com/caravan-sched/caravan/devicegpu/nvml"
	"github.com/caravan-sched/caravan/internal/nomadplugin/device"
)

// controlNodes are needed beside each GPU's own node.
var controlNodes = []string{"/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools", "/dev/nvidia-modeset"}

// deviceNodes lists the device nodes of the GPUs. Nodes that are not there
// (the driver makes some at their first use) are left out: a container would
// not start with them.
func deviceNodes(inv nvml.Inventory, gpus []int, exists func(string) bool) []device.Node {
	var paths []string
	for _, i := range gpus {
		if minor := inv.GPUs[i].Minor; minor != nil {
			paths = append(paths, fmt.Sprintf("/dev/nvidia%d", *minor))
		}
	}
	paths = append(paths, controlNodes...)
	var nodes []device.Node
	for _, path := range paths {
		if exists(path) {
			nodes = append(nodes, device.Node{TaskPath: path, HostPath: path, Permissions: "rwm"})
		}
	}
	return nodes
}

func nodeExists(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode()&os.ModeDevice != 0
}
