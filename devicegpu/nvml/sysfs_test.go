package nvml

import (
	"io/fs"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"

	"github.com/caravan-sched/caravan/devicegpu/topology"
)

// sysTree is a part of sysfs: devices by their real path below devices/.
type sysTree struct{ fstest.MapFS }

func (s sysTree) link(name, target string) {
	s.MapFS[name] = &fstest.MapFile{Data: []byte(target), Mode: fs.ModeSymlink | 0o777}
}

func (s sysTree) file(name, text string) { s.MapFS[name] = &fstest.MapFile{Data: []byte(text + "\n")} }

func (s sysTree) device(path, numa, cpus string) {
	busID := path[len(path)-len("0000:00:00.0"):]
	s.link("bus/pci/devices/"+busID, "../../../devices/"+path)
	s.file("devices/"+path+"/numa_node", numa)
	s.file("devices/"+path+"/local_cpulist", cpus)
}

func (s sysTree) nic(path, name, rate string) {
	s.device(path, "0", "0-3")
	s.link("class/infiniband/"+name, "../../devices/"+path+"/infiniband/"+name)
	s.link("devices/"+path+"/infiniband/"+name+"/device", "../../../"+path[len(path)-len("0000:00:00.0"):])
	s.file("devices/"+path+"/infiniband/"+name+"/ports/1/rate", rate)
}

func TestReadHost(t *testing.T) {
	s := sysTree{fstest.MapFS{}}
	const up = "pci0000:15/0000:15:01.0/0000:16:00.0"
	s.device(up+"/0000:17:00.0/0000:18:00.0", "0", "0-3,8-11")                           // GPU
	s.device(up+"/0000:17:01.0/0000:1a:00.0/0000:1b:01.0/0000:1c:00.0", "0", "0-3,8-11") // GPU behind a second switch
	s.device("pci0000:15/0000:15:02.0/0000:30:00.0", "0", "0-3,8-11")                    // GPU at the same host bridge
	s.device("pci0000:40/0000:40:01.0/0000:41:00.0", "0", "0-3,8-11")                    // same NUMA node
	s.device("pci0000:90/0000:90:01.0/0000:91:00.0", "1", "4-7,12-15")                   // other NUMA node
	s.nic(up+"/0000:17:02.0/0000:19:00.0", "mlx5_0", "400 Gb/sec (4X NDR)")
	s.nic("pci0000:90/0000:90:02.0/0000:92:00.0", "mlx5_1", "")
	s.nic("pci0000:90/0000:90:02.0/0000:92:00.1", "mlx5_2", "100 Gb/sec")
	s.file("devices/pci0000:90/0000:90:02.0/0000:92:00.1/physfn/vendor", "0x15b3") // a virtual function
	s.link("class/infiniband/rxe0", "../../devices/virtual/infiniband/rxe0")       // soft RoCE
	s.file("devices/virtual/infiniband/rxe0/node_guid", "0")

	gpus := []string{"0000:18:00.0", "0000:1c:00.0", "0000:30:00.0", "0000:41:00.0", "0000:91:00.0", "0000:ff:00.0"}
	h := readHost(s, gpus)
	want := []topology.NIC{
		{Name: "mlx5_0", BusID: "0000:19:00.0", RDMA: true, SpeedMbps: 400000, Switch: -1},
		{Name: "mlx5_1", BusID: "0000:92:00.0", RDMA: true, Switch: -1},
	}
	if d := cmp.Diff(want, h.nics); d != "" {
		t.Errorf("NICs (-want +got):\n%s", d)
	}
	if got := h.places["0000:91:00.0"]; got.numa != 1 || got.cpus != "4-7,12-15" {
		t.Errorf("GPU at 91 is on NUMA node %d, CPUs %s", got.numa, got.cpus)
	}
	var paths []topology.Kind
	for _, g := range gpus {
		paths = append(paths, h.path(g, "0000:19:00.0"))
	}
	wantPaths := []topology.Kind{topology.KindPIX, topology.KindPXB, topology.KindPHB, topology.KindNode, topology.KindSys, topology.KindUnknown}
	if d := cmp.Diff(wantPaths, paths); d != "" {
		t.Errorf("paths to mlx5_0 (-want +got):\n%s", d)
	}
}

func TestReadHostWithoutSysfs(t *testing.T) {
	h := readHost(fstest.MapFS{}, []string{"0000:18:00.0"})
	if len(h.places) > 0 || len(h.nics) > 0 {
		t.Errorf("found %v and %v in an empty file system", h.places, h.nics)
	}
	var inv Inventory
	inv.assemble([]found{{uuid: "a", busID: "0000:18:00.0"}, {uuid: "b", busID: "0000:19:00.0"}}, h)
	if got := inv.Matrix.Links[0][1].Kind; got != topology.KindUnknown {
		t.Errorf("link is %q, want unknown", got)
	}
}

func TestLinkLoopEnds(t *testing.T) {
	s := sysTree{fstest.MapFS{}}
	s.link("bus/pci/devices/0000:18:00.0", "0000:18:00.0")
	if h := readHost(s, []string{"0000:18:00.0"}); len(h.places) > 0 {
		t.Errorf("found %v", h.places)
	}
}
