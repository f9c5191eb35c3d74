package sched

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/internal/devnomad/state"
)

// amounts are the countable resources.
type amounts struct {
	cpu, memory, disk int64
	cores             map[uint16]bool
}

func used(allocs map[string]*api.Allocation) amounts {
	u := amounts{cores: map[uint16]bool{}}
	for _, a := range allocs {
		res := a.AllocatedResources
		if res == nil {
			continue
		}
		u.disk += res.Shared.DiskMB
		for _, t := range res.Tasks {
			u.cpu += t.Cpu.CpuShares
			u.memory += t.Memory.MemoryMB
			for _, c := range t.Cpu.ReservedCores {
				u.cores[c] = true
			}
		}
	}
	return u
}

// fit finds room for a group on a node that holds allocs. The second result
// names the exhausted dimension when there is none.
func (r *run) fit(tg *api.TaskGroup, n *state.Node, allocs map[string]*api.Allocation) (*api.AllocatedResources, string) {
	u := used(allocs)
	res := &api.AllocatedResources{Tasks: map[string]*api.AllocatedTaskResources{}}
	res.Shared.DiskMB = int64(deref(tg.EphemeralDisk.SizeMB))
	if len(tg.Networks) > 0 {
		why := r.assignPorts(tg.Networks[0], n, allocs, res)
		if why != "" {
			return nil, "network: " + why
		}
	}
	devices := newDeviceUse(r.re, n.NodeResources.Devices, allocs)
	total := n.NodeResources
	perCore := int64(0)
	if total.Cpu.TotalCpuCores > 0 {
		perCore = total.Cpu.CpuShares / int64(total.Cpu.TotalCpuCores)
	}
	for _, t := range tg.Tasks {
		tr := &api.AllocatedTaskResources{}
		tr.Memory.MemoryMB = int64(deref(t.Resources.MemoryMB))
		for _, ask := range t.Resources.Devices {
			offer, why := devices.offer(ask, r.rng)
			if offer == nil {
				return nil, "devices: " + why
			}
			devices.take(offer)
			tr.Devices = append(tr.Devices, offer)
		}
		if want := deref(t.Resources.Cores); want > 0 {
			for c := uint16(0); c < total.Cpu.TotalCpuCores && len(tr.Cpu.ReservedCores) < want; c++ {
				if !u.cores[c] {
					u.cores[c] = true
					tr.Cpu.ReservedCores = append(tr.Cpu.ReservedCores, c)
				}
			}
			if len(tr.Cpu.ReservedCores) < want {
				return nil, "cores"
			}
			tr.Cpu.CpuShares = perCore * int64(want)
		} else {
			tr.Cpu.CpuShares = int64(deref(t.Resources.CPU))
		}
		u.cpu += tr.Cpu.CpuShares
		u.memory += tr.Memory.MemoryMB
		res.Tasks[t.Name] = tr
	}
	u.disk += res.Shared.DiskMB
	return res, exceeded(n, u)
}

func exceeded(n *state.Node, u amounts) string {
	total, kept := n.NodeResources, n.ReservedResources
	switch {
	case u.cpu > total.Cpu.CpuShares-int64(kept.Cpu.CpuShares):
		return "cpu"
	case u.memory > total.Memory.MemoryMB-int64(kept.Memory.MemoryMB):
		return "memory"
	case u.disk > total.Disk.DiskMB-int64(kept.Disk.DiskMB):
		return "disk"
	}
	return ""
}

// assignPorts gives a group its host ports, or says why it cannot.
func (r *run) assignPorts(ask *api.NetworkResource, n *state.Node, allocs map[string]*api.Allocation, res *api.AllocatedResources) string {
	taken := map[int]bool{}
	if n.ReservedResources != nil {
		for _, p := range portList(n.ReservedResources.Networks.ReservedHostPorts) {
			taken[p] = true
		}
	}
	for _, a := range allocs {
		if a.AllocatedResources != nil {
			for _, p := range a.AllocatedResources.Shared.Ports {
				taken[p.Value] = true
			}
		}
	}
	ip := "127.0.0.1"
	for _, nw := range n.NodeResources.Networks {
		if nw.IP != "" {
			ip = nw.IP
		}
	}
	give := func(p api.Port, value int) {
		taken[value] = true
		to := p.To
		if to == -1 {
			to = value
		}
		res.Shared.Ports = append(res.Shared.Ports, api.PortMapping{Label: p.Label, Value: value, To: to, HostIP: ip})
	}
	for _, p := range ask.ReservedPorts {
		if taken[p.Value] && !p.IgnoreCollision {
			return fmt.Sprintf("reserved port collision %s=%d", p.Label, p.Value)
		}
		give(p, p.Value)
	}
	low, high := n.NodeResources.MinDynamicPort, n.NodeResources.MaxDynamicPort
	for _, p := range ask.DynamicPorts {
		value := 0
		for i, start := 0, r.rng.IntN(high-low+1); i <= high-low; i++ {
			if c := low + (start+i)%(high-low+1); !taken[c] {
				value = c
				break
			}
		}
		if value == 0 {
			return "dynamic port selection failed"
		}
		give(p, value)
	}
	nw := *ask
	nw.IP, nw.Device = ip, "lo"
	nw.DynamicPorts, nw.ReservedPorts = placedPorts(ask.DynamicPorts, res), placedPorts(ask.ReservedPorts, res)
	res.Shared.Networks = []*api.NetworkResource{&nw}
	return ""
}

func placedPorts(asked []api.Port, res *api.AllocatedResources) []api.Port {
	var out []api.Port
	for _, p := range asked {
		for _, m := range res.Shared.Ports {
			if m.Label == p.Label {
				p.Value = m.Value
			}
		}
		out = append(out, p)
	}
	return out
}

// portList reads Nomad's "22,80,8500-8600"; what is no port is left out.
func portList(s string) []int {
	var out []int
	for part := range strings.SplitSeq(s, ",") {
		lo, hi, isRange := strings.Cut(strings.TrimSpace(part), "-")
		a, err := strconv.ParseUint(lo, 10, 16)
		if err != nil {
			continue
		}
		b := a
		if isRange {
			if b, err = strconv.ParseUint(hi, 10, 16); err != nil {
				continue
			}
		}
		for p := a; p <= b; p++ {
			out = append(out, int(p))
		}
	}
	return out
}
