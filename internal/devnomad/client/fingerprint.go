package client

import (
	"cmp"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"maps"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/internal/devnomad/state"
)

// NomadVersion is the version whose behaviour the stand-in follows.
const NomadVersion = "2.0.5"

// Drivers are the task drivers that every node has. raw_exec runs plain
// processes, mock_driver none.
var Drivers = []string{"mock_driver", "raw_exec"}

// fingerprint is the node as it registers.
func (c *Client) fingerprint() *state.Node {
	cfg := c.cfg
	n := &api.Node{
		ID: cfg.ID, Name: cfg.Node.Name, Datacenter: cmp.Or(cfg.Node.Datacenter, "dc1"),
		NodePool: cmp.Or(cfg.Node.Pool, api.NodePoolDefault), NodeClass: cfg.Node.Class, HTTPAddr: cfg.HTTPAddr,
		Attributes: map[string]string{
			"cpu.arch":                  runtime.GOARCH,
			"cpu.numcores":              strconv.Itoa(cfg.Capacity.Cores),
			"cpu.totalcompute":          strconv.Itoa(cfg.Capacity.CPUMHz),
			"kernel.name":               runtime.GOOS,
			"memory.totalbytes":         strconv.Itoa(cfg.Capacity.MemoryMiB << 20),
			"nomad.version":             NomadVersion,
			"os.name":                   runtime.GOOS,
			"os.signals":                "SIGHUP,SIGINT,SIGKILL,SIGTERM,SIGUSR1,SIGUSR2",
			"unique.hostname":           cfg.Node.Name,
			"unique.network.ip-address": "127.0.0.1",
			"unique.storage.bytesfree":  strconv.Itoa(cfg.Capacity.DiskMiB << 20),
		},
		Drivers:           map[string]*api.DriverInfo{},
		HostVolumes:       map[string]*api.HostVolumeInfo{},
		Links:             map[string]string{},
		Meta:              c.meta(),
		ReservedResources: &api.NodeReservedResources{},
		NodeResources: &api.NodeResources{
			Cpu:            api.NodeCpuResources{CpuShares: int64(cfg.Capacity.CPUMHz), TotalCpuCores: uint16(cfg.Capacity.Cores)},
			Memory:         api.NodeMemoryResources{MemoryMB: int64(cfg.Capacity.MemoryMiB)},
			Disk:           api.NodeDiskResources{DiskMB: int64(cfg.Capacity.DiskMiB)},
			Networks:       []*api.NetworkResource{{Mode: "host", Device: "lo", CIDR: "127.0.0.1/32", IP: "127.0.0.1"}},
			MinDynamicPort: dynamicPorts(cfg.Ordinal), MaxDynamicPort: dynamicPorts(cfg.Ordinal) + dynamicPortsPerNode - 1,
		},
	}
	for i := range cfg.Capacity.Cores {
		n.NodeResources.Cpu.ReservableCpuCores = append(n.NodeResources.Cpu.ReservableCpuCores, uint16(i))
	}
	n.Resources = &api.Resources{CPU: &cfg.Capacity.CPUMHz, MemoryMB: &cfg.Capacity.MemoryMiB, DiskMB: &cfg.Capacity.DiskMiB}
	n.Reserved = &api.Resources{CPU: new(int), MemoryMB: new(int), DiskMB: new(int)}
	if cfg.Node.DistinctClass {
		n.Meta["caravan_dev_class"] = cfg.Node.Name
	}
	for _, d := range Drivers {
		n.Attributes["driver."+d] = "1"
		n.Drivers[d] = &api.DriverInfo{Detected: true, Healthy: true, HealthDescription: "Healthy", Attributes: map[string]string{"driver." + d: "true"}, UpdateTime: c.cfg.Clock.Now()}
	}
	c.mu.Lock()
	plugins, drivers := c.plugins, slices.Collect(maps.Values(c.drivers))
	c.mu.Unlock()
	for _, d := range drivers {
		d.show(n)
	}
	for _, p := range plugins {
		n.NodeResources.Devices = append(n.NodeResources.Devices, p.devices()...)
	}
	return &state.Node{Node: n, ComputedClass: computedClass(n)}
}

// All nodes share one machine's ports, so that each gets a range of its own.
const dynamicPortsPerNode = 100

func dynamicPorts(ordinal int) int { return 20000 + ordinal%100*dynamicPortsPerNode }

// computedClass hashes what makes nodes interchangeable for the scheduler. Keys
// that start with "unique." are left out, as are the device instances.
func computedClass(n *api.Node) string {
	type group struct {
		Vendor, Type, Name string
		Attributes         map[string]string
	}
	var groups []group
	for _, d := range n.NodeResources.Devices {
		g := group{d.Vendor, d.Type, d.Name, map[string]string{}}
		for k, v := range d.Attributes {
			if !strings.HasPrefix(k, "unique.") {
				g.Attributes[k] = v.String()
			}
		}
		groups = append(groups, g)
	}
	plain := func(m map[string]string) map[string]string {
		m = maps.Clone(m)
		maps.DeleteFunc(m, func(k, _ string) bool { return strings.HasPrefix(k, "unique.") })
		return m
	}
	slices.SortFunc(groups, func(a, b group) int { return cmp.Compare(a.Name, b.Name) })
	raw, err := json.Marshal([]any{n.Datacenter, n.NodePool, n.NodeClass, plain(n.Attributes), plain(n.Meta), groups})
	if err != nil {
		return "v1:0"
	}
	h := fnv.New64a()
	h.Write(raw)
	return fmt.Sprintf("v1:%d", h.Sum64())
}
