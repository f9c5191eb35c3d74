package devicegpu

import (
	"fmt"
	"os"
	"strconv"

	"github.com/caravan-sched/caravan/devicegpu/nvml"
	"github.com/caravan-sched/caravan/internal/nomadplugin/device"
)

// controlNodes are needed beside each GPU's own node.
var controlNodes = []string{"/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools", "/dev/nvidia-modeset"}

// migNodes is the folder of the device nodes that give access to a MIG
// instance.
const migNodes = "/dev/nvidia-caps/nvidia-cap"

// imexChannel is the device node by which a task shares memory with tasks of
// its NVLink domain on other nodes. Fabrics that are divided among users have
// more channels; the first one is everybody's.
const imexChannel = "/dev/nvidia-caps-imex-channels/channel0"

// deviceNodes lists the device nodes of the units. Nodes that are not there
// (the driver makes some at their first use) are left out: a container would
// not start with them.
func deviceNodes(inv nvml.Inventory, of []unit, exists func(string) bool) []device.Node {
	var nodes []device.Node
	seen := map[string]bool{}
	add := func(path, permissions string) {
		if !seen[path] && exists(path) {
			nodes = append(nodes, device.Node{TaskPath: path, HostPath: path, Permissions: permissions})
		}
		seen[path] = true
	}
	for _, u := range of {
		if minor := inv.GPUs[u.gpu].Minor; minor != nil {
			add(fmt.Sprintf("/dev/nvidia%d", *minor), "rwm")
		}
		if u.instance >= 0 {
			for _, n := range inv.GPUs[u.gpu].Instances[u.instance].Caps {
				add(migNodes+strconv.Itoa(n), "r")
			}
		}
	}
	for _, path := range controlNodes {
		add(path, "rwm")
	}
	for _, u := range of {
		if u.whole() && inv.Matrix.GPUs[u.gpu].Fabric.ClusterUUID != "" {
			add(imexChannel, "rw")
		}
	}
	return nodes
}

func nodeExists(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode()&os.ModeDevice != 0
}
