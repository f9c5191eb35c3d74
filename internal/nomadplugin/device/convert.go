package device

import (
	"github.com/caravan-sched/caravan/internal/nomadplugin/attr"
	"github.com/caravan-sched/caravan/internal/nomadplugin/stream"
	"github.com/caravan-sched/caravan/internal/nomadplugin/wire/devicepb"
	"github.com/caravan-sched/caravan/internal/nomadplugin/wire/structspb"
)

func groupsToWire(groups []Group) *devicepb.FingerprintResponse {
	out := &devicepb.FingerprintResponse{}
	for _, g := range groups {
		w := &devicepb.DeviceGroup{
			Vendor: g.Vendor, DeviceType: g.Type, DeviceName: g.Name,
			Attributes: attr.MapToWire(g.Attributes),
		}
		for _, d := range g.Devices {
			dev := &devicepb.DetectedDevice{ID: d.ID, Healthy: d.Healthy, HealthDescription: d.HealthDescription}
			if d.PCIBusID != "" {
				dev.HwLocality = &devicepb.DeviceLocality{PciBusId: d.PCIBusID}
			}
			w.Devices = append(w.Devices, dev)
		}
		out.DeviceGroup = append(out.DeviceGroup, w)
	}
	return out
}

func groupsFromWire(r *devicepb.FingerprintResponse) []Group {
	var out []Group
	for _, w := range r.GetDeviceGroup() {
		g := Group{
			Vendor: w.GetVendor(), Type: w.GetDeviceType(), Name: w.GetDeviceName(),
			Attributes: attr.MapFromWire(w.GetAttributes()),
		}
		for _, d := range w.GetDevices() {
			g.Devices = append(g.Devices, Device{
				ID: d.GetID(), Healthy: d.GetHealthy(), HealthDescription: d.GetHealthDescription(),
				PCIBusID: d.GetHwLocality().GetPciBusId(),
			})
		}
		out = append(out, g)
	}
	return out
}

func reservationToWire(r Reservation) *devicepb.ContainerReservation {
	out := &devicepb.ContainerReservation{Envs: r.Env}
	for _, m := range r.Mounts {
		out.Mounts = append(out.Mounts, &devicepb.Mount{TaskPath: m.TaskPath, HostPath: m.HostPath, ReadOnly: m.ReadOnly})
	}
	for _, d := range r.Devices {
		out.Devices = append(out.Devices, &devicepb.DeviceSpec{TaskPath: d.TaskPath, HostPath: d.HostPath, Permissions: d.Permissions})
	}
	return out
}

func reservationFromWire(w *devicepb.ContainerReservation) Reservation {
	out := Reservation{Env: w.GetEnvs()}
	for _, m := range w.GetMounts() {
		out.Mounts = append(out.Mounts, Mount{TaskPath: m.GetTaskPath(), HostPath: m.GetHostPath(), ReadOnly: m.GetReadOnly()})
	}
	for _, d := range w.GetDevices() {
		out.Devices = append(out.Devices, Node{TaskPath: d.GetTaskPath(), HostPath: d.GetHostPath(), Permissions: d.GetPermissions()})
	}
	return out
}

func statsToWire(groups []GroupStats) *devicepb.StatsResponse {
	out := &devicepb.StatsResponse{}
	for _, g := range groups {
		w := &devicepb.DeviceGroupStats{
			Vendor: g.Vendor, Type: g.Type, Name: g.Name,
			InstanceStats: make(map[string]*devicepb.DeviceStats, len(g.Instances)),
		}
		for id, s := range g.Instances {
			values := make(map[string]*structspb.StatValue, len(s.Values))
			for name, v := range s.Values {
				values[name] = v.ToWire()
			}
			d := &devicepb.DeviceStats{Summary: s.Summary.ToWire(), Stats: &structspb.StatObject{Attributes: values}}
			d.Timestamp = stream.TimeToWire(s.Time)
			w.InstanceStats[id] = d
		}
		out.Groups = append(out.Groups, w)
	}
	return out
}

func statsFromWire(r *devicepb.StatsResponse) []GroupStats {
	var out []GroupStats
	for _, w := range r.GetGroups() {
		g := GroupStats{
			Vendor: w.GetVendor(), Type: w.GetType(), Name: w.GetName(),
			Instances: make(map[string]Stats, len(w.GetInstanceStats())),
		}
		for id, d := range w.GetInstanceStats() {
			s := Stats{Summary: attr.StatFromWire(d.GetSummary()), Time: stream.TimeFromWire(d.GetTimestamp())}
			if attributes := d.GetStats().GetAttributes(); len(attributes) > 0 {
				s.Values = make(map[string]attr.Stat, len(attributes))
				for name, v := range attributes {
					s.Values[name] = attr.StatFromWire(v)
				}
			}
			g.Instances[id] = s
		}
		out = append(out, g)
	}
	return out
}
