package driver

import (
	"github.com/caravan-sched/caravan/internal/nomadplugin/wire/driverpb"
)

func taskToWire(t TaskConfig) *driverpb.TaskConfig {
	w := &driverpb.TaskConfig{
		Id: t.ID, Name: t.Name, Namespace: t.Namespace,
		JobId: t.JobID, JobName: t.JobName, ParentJobId: t.ParentJobID,
		TaskGroupName: t.Group, AllocId: t.AllocID, NodeId: t.NodeID, NodeName: t.NodeName,
		Env: t.Env, DeviceEnv: t.DeviceEnv, User: t.User, AllocDir: t.AllocDir,
		StdoutPath: t.StdoutPath, StderrPath: t.StderrPath,
		MsgpackDriverConfig: t.Raw, Resources: resourcesToWire(t.Resources),
	}
	for _, m := range t.Mounts {
		w.Mounts = append(w.Mounts, &driverpb.Mount{
			TaskPath: m.TaskPath, HostPath: m.HostPath, Readonly: m.ReadOnly,
			PropagationMode: m.Propagation, SelinuxLabel: m.SELinuxLabel, RequestName: m.Request,
		})
	}
	for _, d := range t.Devices {
		w.Devices = append(w.Devices, &driverpb.Device{TaskPath: d.TaskPath, HostPath: d.HostPath, CgroupPermissions: d.Permissions})
	}
	if t.Network != nil {
		w.NetworkIsolationSpec = isolationToWire(*t.Network)
	}
	if t.DNS != nil {
		w.Dns = &driverpb.DNSConfig{Servers: t.DNS.Servers, Searches: t.DNS.Searches, Options: t.DNS.Options}
	}
	return w
}

func taskFromWire(w *driverpb.TaskConfig) TaskConfig {
	t := TaskConfig{
		ID: w.GetId(), Name: w.GetName(), Namespace: w.GetNamespace(),
		JobID: w.GetJobId(), JobName: w.GetJobName(), ParentJobID: w.GetParentJobId(),
		Group: w.GetTaskGroupName(), AllocID: w.GetAllocId(), NodeID: w.GetNodeId(), NodeName: w.GetNodeName(),
		Env: w.GetEnv(), DeviceEnv: w.GetDeviceEnv(), User: w.GetUser(), AllocDir: w.GetAllocDir(),
		StdoutPath: w.GetStdoutPath(), StderrPath: w.GetStderrPath(),
		Raw: w.GetMsgpackDriverConfig(), Resources: resourcesFromWire(w.GetResources()),
	}
	for _, m := range w.GetMounts() {
		t.Mounts = append(t.Mounts, Mount{
			TaskPath: m.GetTaskPath(), HostPath: m.GetHostPath(), ReadOnly: m.GetReadonly(),
			Propagation: m.GetPropagationMode(), SELinuxLabel: m.GetSelinuxLabel(), Request: m.GetRequestName(),
		})
	}
	for _, d := range w.GetDevices() {
		t.Devices = append(t.Devices, DeviceNode{TaskPath: d.GetTaskPath(), HostPath: d.GetHostPath(), Permissions: d.GetCgroupPermissions()})
	}
	if n := w.GetNetworkIsolationSpec(); n != nil {
		isolation := isolationFromWire(n)
		t.Network = &isolation
	}
	if d := w.GetDns(); d != nil {
		t.DNS = &DNS{Servers: d.GetServers(), Searches: d.GetSearches(), Options: d.GetOptions()}
	}
	return t
}

func resourcesToWire(r Resources) *driverpb.Resources {
	w := &driverpb.Resources{
		AllocatedResources: &driverpb.AllocatedTaskResources{
			Cpu:    &driverpb.AllocatedCpuResources{CpuShares: r.CPUMHz},
			Memory: &driverpb.AllocatedMemoryResources{MemoryMb: r.MemoryMiB, MemoryMaxMb: r.MemoryMaxMiB},
		},
		LinuxResources: &driverpb.LinuxResources{
			CpuPeriod: r.Linux.CPUPeriod, CpuQuota: r.Linux.CPUQuota, CpuShares: r.Linux.CPUShares,
			MemoryLimitBytes: r.Linux.MemoryLimitBytes, OomScoreAdj: r.Linux.OOMScoreAdj,
			CpusetCpus: r.Linux.CPUSet, CpusetCgroup: r.Linux.Cgroup, PercentTicks: r.Linux.PercentTicks,
		},
	}
	for _, n := range r.Networks {
		w.AllocatedResources.Networks = append(w.AllocatedResources.Networks, &driverpb.NetworkResource{
			Device: n.Device, Cidr: n.CIDR, Ip: n.IP, Mbits: int32(n.MBits),
			ReservedPorts: portsToWire(n.Reserved), DynamicPorts: portsToWire(n.Dynamic),
		})
	}
	for _, p := range r.Ports {
		w.Ports = append(w.Ports, &driverpb.PortMapping{Label: p.Label, Value: int32(p.Value), To: int32(p.To), HostIp: p.HostIP})
	}
	return w
}

func resourcesFromWire(w *driverpb.Resources) Resources {
	a, l := w.GetAllocatedResources(), w.GetLinuxResources()
	r := Resources{
		CPUMHz: a.GetCpu().GetCpuShares(), MemoryMiB: a.GetMemory().GetMemoryMb(), MemoryMaxMiB: a.GetMemory().GetMemoryMaxMb(),
		Linux: Linux{
			CPUPeriod: l.GetCpuPeriod(), CPUQuota: l.GetCpuQuota(), CPUShares: l.GetCpuShares(),
			MemoryLimitBytes: l.GetMemoryLimitBytes(), OOMScoreAdj: l.GetOomScoreAdj(),
			CPUSet: l.GetCpusetCpus(), Cgroup: l.GetCpusetCgroup(), PercentTicks: l.GetPercentTicks(),
		},
	}
	for _, n := range a.GetNetworks() {
		r.Networks = append(r.Networks, NetworkResource{
			Device: n.GetDevice(), CIDR: n.GetCidr(), IP: n.GetIp(), MBits: int(n.GetMbits()),
			Reserved: portsFromWire(n.GetReservedPorts()), Dynamic: portsFromWire(n.GetDynamicPorts()),
		})
	}
	for _, p := range w.GetPorts() {
		r.Ports = append(r.Ports, PortMapping{Label: p.GetLabel(), Value: int(p.GetValue()), To: int(p.GetTo()), HostIP: p.GetHostIp()})
	}
	return r
}

func portsToWire(ports []Port) []*driverpb.NetworkPort {
	var out []*driverpb.NetworkPort
	for _, p := range ports {
		out = append(out, &driverpb.NetworkPort{Label: p.Label, Value: int32(p.Value)})
	}
	return out
}

func portsFromWire(ports []*driverpb.NetworkPort) []Port {
	var out []Port
	for _, p := range ports {
		out = append(out, Port{Label: p.GetLabel(), Value: int(p.GetValue())})
	}
	return out
}

func isolationToWire(n NetworkIsolation) *driverpb.NetworkIsolationSpec {
	w := &driverpb.NetworkIsolationSpec{Mode: networkModes.toWire(n.Mode), Path: n.Path, Labels: n.Labels}
	if n.Hosts != nil {
		w.HostsConfig = &driverpb.HostsConfig{Hostname: n.Hosts.Hostname, Address: n.Hosts.Address}
	}
	return w
}

func isolationFromWire(w *driverpb.NetworkIsolationSpec) NetworkIsolation {
	n := NetworkIsolation{Mode: networkModes.fromWire(w.GetMode()), Path: w.GetPath(), Labels: w.GetLabels()}
	if h := w.GetHostsConfig(); h != nil {
		n.Hosts = &Hosts{Hostname: h.GetHostname(), Address: h.GetAddress()}
	}
	return n
}

func networkToWire(n *Network) *driverpb.NetworkOverride {
	if n == nil {
		return nil
	}
	w := &driverpb.NetworkOverride{Addr: n.IP, AutoAdvertise: n.Advertise, PortMap: make(map[string]int32, len(n.Ports))}
	for label, port := range n.Ports {
		w.PortMap[label] = int32(port)
	}
	return w
}

func networkFromWire(w *driverpb.NetworkOverride) *Network {
	if w == nil {
		return nil
	}
	n := &Network{IP: w.GetAddr(), Advertise: w.GetAutoAdvertise()}
	if len(w.GetPortMap()) > 0 {
		n.Ports = make(map[string]int, len(w.GetPortMap()))
	}
	for label, port := range w.GetPortMap() {
		n.Ports[label] = int(port)
	}
	return n
}

func handleToWire(h Handle) *driverpb.TaskHandle {
	return &driverpb.TaskHandle{
		Version: int32(h.Version), Config: taskToWire(h.Config),
		State: states.toWire(h.State), DriverState: h.DriverState,
	}
}

func handleFromWire(w *driverpb.TaskHandle) Handle {
	return Handle{
		Version: int(w.GetVersion()), Config: taskFromWire(w.GetConfig()),
		State: states.fromWire(w.GetState()), DriverState: w.GetDriverState(),
	}
}
