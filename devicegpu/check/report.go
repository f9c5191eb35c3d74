// Package check tells an operator what the plugin would show to Nomad of a
// node's GPUs, and why not.
package check

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/caravan-sched/caravan/devicegpu"
	"github.com/caravan-sched/caravan/devicegpu/nvml"
	"github.com/caravan-sched/caravan/devicegpu/topology"
)

// Report is the JSON form of `nomad-device-caravan check --json`.
type Report struct {
	Source        string `json:"source"`
	Simulated     bool   `json:"simulated"`
	DriverVersion string `json:"driver_version,omitempty"`
	CUDAVersion   string `json:"cuda_version,omitempty"`
	GPUCount      int    `json:"gpu_count"`
	GPUs          []GPU  `json:"gpus"`
	// Islands are lists of indexes into GPUs; a GPU without NVLink or XGMI is
	// an island of one.
	Islands  [][]int `json:"islands"`
	NVSwitch bool    `json:"nvswitch"`
	// Links[i][j] joins GPUs i and j.
	Links [][]topology.Link `json:"links"`
	NICs  []topology.NIC    `json:"nics"`
	// Groups are what Nomad would be told.
	Groups []Group `json:"groups"`
	// Problems are never null.
	Problems []string `json:"problems"`
}

// GPU is one GPU of a report.
type GPU struct {
	Index     int    `json:"index"`
	UUID      string `json:"uuid"`
	Vendor    string `json:"vendor"`
	Model     string `json:"model,omitempty"`
	BusID     string `json:"bus_id,omitempty"`
	Minor     *int   `json:"minor,omitempty"`
	MemoryMiB uint64 `json:"memory_mib,omitempty"`
	NUMA      []int  `json:"numa,omitempty"`
	CPUs      string `json:"cpus,omitempty"`
	// Switch is the number of the GPU's PCIe switch, nil if none is known.
	Switch *int `json:"pcie_switch,omitempty"`
	Island int  `json:"island"`
	// NICs are the names of the nearest RDMA cards.
	NICs      []string        `json:"nearest_nics,omitempty"`
	Fabric    topology.Fabric `json:"fabric,omitzero"`
	Healthy   bool            `json:"healthy"`
	Unhealthy string          `json:"unhealthy,omitempty"`
	// MIG is set when the GPU is divided; Instances are its parts.
	MIG       bool            `json:"mig,omitempty"`
	Instances []nvml.Instance `json:"instances,omitempty"`
}

// Group is a device group as Nomad would have it.
type Group struct {
	// Name is what a job's device block asks for.
	Name    string   `json:"name"`
	Devices []string `json:"devices"`
	// Attributes are printed as Nomad prints them.
	Attributes map[string]string `json:"attributes"`
}

// Make looks at a source. Its error means that the source cannot be read; what
// is wrong with the GPUs is among the report's problems.
func Make(spec nvml.Spec) (Report, error) {
	source, err := nvml.Open(spec)
	if err != nil {
		return Report{}, err
	}
	defer source.Close()
	inv, err := source.Inventory()
	if err != nil {
		return Report{}, err
	}
	inv.Problems = append(inv.Problems, neighbours()...)
	return describe(spec.Source, devicegpu.Judge(inv), source.Simulated())
}

// neighbours tells of other plugins beside this binary.
func neighbours() []string {
	path, err := os.Executable()
	if err != nil {
		return nil // then nothing is known of its folder
	}
	return devicegpu.Neighbours(filepath.Dir(path))
}

func describe(name string, inv nvml.Inventory, simulated bool) (Report, error) {
	r := Report{
		Source: name, Simulated: simulated, DriverVersion: inv.DriverVersion, CUDAVersion: inv.CUDAVersion,
		GPUCount: len(inv.GPUs), GPUs: []GPU{}, Islands: [][]int{}, NVSwitch: inv.Matrix.NVSwitch,
		Links: append([][]topology.Link{}, inv.Matrix.Links...), NICs: append([]topology.NIC{}, inv.Matrix.NICs...),
		Groups: []Group{}, Problems: append([]string{}, inv.Problems...),
	}
	r.Islands = append(r.Islands, inv.Matrix.Islands()...)
	for i := range inv.GPUs {
		r.GPUs = append(r.GPUs, gpu(inv, i))
		if reason := inv.GPUs[i].Unhealthy; reason != "" {
			r.Problems = append(r.Problems, fmt.Sprintf("GPU %d (%s): %s", i, inv.Matrix.GPUs[i].UUID, reason))
		}
		if inv.GPUs[i].Divided() && len(inv.GPUs[i].Instances) == 0 {
			r.Problems = append(r.Problems, fmt.Sprintf("GPU %d (%s) is in MIG mode and has no instances: nothing of it is offered", i, inv.Matrix.GPUs[i].UUID))
		}
	}
	for n, island := range r.Islands {
		for _, i := range island {
			r.GPUs[i].Island = n
		}
	}
	groups, err := devicegpu.Groups(inv, simulated)
	if err != nil {
		r.Problems = append(r.Problems, "Nomad would be shown no GPU: "+err.Error())
	}
	for _, g := range groups {
		out := Group{Name: strings.Join([]string{g.Vendor, g.Type, g.Name}, "/"), Attributes: map[string]string{}}
		for _, d := range g.Devices {
			out.Devices = append(out.Devices, d.ID)
		}
		for key, v := range g.Attributes {
			out.Attributes[key] = v.Text()
		}
		r.Groups = append(r.Groups, out)
	}
	return r, nil
}

func gpu(inv nvml.Inventory, i int) GPU {
	t, g := inv.Matrix.GPUs[i], inv.GPUs[i]
	out := GPU{
		Index: i, UUID: t.UUID, Vendor: g.Vendor, Model: t.Model, BusID: t.BusID, Minor: g.Minor,
		NUMA: t.NUMA, CPUs: t.CPUs, Fabric: t.Fabric, Healthy: g.Unhealthy == "", Unhealthy: g.Unhealthy,
		MIG: g.Divided(), Instances: g.Instances,
	}
	if g.MemoryMiB != nil {
		out.MemoryMiB = *g.MemoryMiB
	}
	if t.Switch >= 0 {
		out.Switch = &t.Switch
	}
	for _, n := range inv.Matrix.NearestNICs(i) {
		name := inv.Matrix.NICs[n].Name
		if name == "" {
			name = inv.Matrix.NICs[n].BusID
		}
		out.NICs = append(out.NICs, name)
	}
	return out
}
