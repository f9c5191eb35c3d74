package driver

import (
	"github.com/caravan-sched/caravan/internal/nomadplugin/attr"
	"github.com/caravan-sched/caravan/internal/nomadplugin/stream"
	"github.com/caravan-sched/caravan/internal/nomadplugin/wire/driverpb"
)

// enum maps our names to the wire's numbers. What is not known maps to the
// zero number, and back to its name.
type enum[S ~string, W ~int32] map[S]W

func (e enum[S, W]) toWire(s S) W { return e[s] }

func (e enum[S, W]) fromWire(w W) S {
	var zero S
	for s, n := range e {
		if n == w {
			return s
		}
		if n == 0 {
			zero = s
		}
	}
	return zero
}

var (
	fsIsolations = enum[FSIsolation, driverpb.DriverCapabilities_FSIsolation]{
		FSNone: driverpb.DriverCapabilities_NONE, FSChroot: driverpb.DriverCapabilities_CHROOT,
		FSImage: driverpb.DriverCapabilities_IMAGE, FSUnveil: driverpb.DriverCapabilities_UNVEIL,
	}
	networkModes = enum[NetworkMode, driverpb.NetworkIsolationSpec_NetworkIsolationMode]{
		NetworkHost: driverpb.NetworkIsolationSpec_HOST, NetworkGroup: driverpb.NetworkIsolationSpec_GROUP,
		NetworkTask: driverpb.NetworkIsolationSpec_TASK, NetworkNone: driverpb.NetworkIsolationSpec_NONE,
	}
	healths = enum[Health, driverpb.FingerprintResponse_HealthState]{
		Undetected: driverpb.FingerprintResponse_UNDETECTED, Unhealthy: driverpb.FingerprintResponse_UNHEALTHY,
		Healthy: driverpb.FingerprintResponse_HEALTHY,
	}
	states = enum[State, driverpb.TaskState]{
		StateUnknown: driverpb.TaskState_UNKNOWN, StateRunning: driverpb.TaskState_RUNNING,
		StateExited: driverpb.TaskState_EXITED,
	}
)

func capabilitiesToWire(c Capabilities) *driverpb.DriverCapabilities {
	w := &driverpb.DriverCapabilities{
		SendSignals: c.Signals, Exec: c.Exec, FsIsolation: fsIsolations.toWire(c.FSIsolation),
		MustCreateNetwork: c.CreatesNetwork, DisableLogCollection: c.NoLogCollection,
		DynamicWorkloadUsers: c.DynamicUsers,
	}
	if c.NoMounts {
		w.MountConfigs = driverpb.DriverCapabilities_NO_MOUNTS
	}
	for _, m := range c.NetworkModes {
		w.NetworkIsolationModes = append(w.NetworkIsolationModes, networkModes.toWire(m))
	}
	return w
}

func capabilitiesFromWire(w *driverpb.DriverCapabilities) Capabilities {
	c := Capabilities{
		Signals: w.GetSendSignals(), Exec: w.GetExec(), FSIsolation: fsIsolations.fromWire(w.GetFsIsolation()),
		CreatesNetwork: w.GetMustCreateNetwork(), NoLogCollection: w.GetDisableLogCollection(),
		DynamicUsers: w.GetDynamicWorkloadUsers(),
		NoMounts:     w.GetMountConfigs() == driverpb.DriverCapabilities_NO_MOUNTS,
	}
	for _, m := range w.GetNetworkIsolationModes() {
		c.NetworkModes = append(c.NetworkModes, networkModes.fromWire(m))
	}
	return c
}

func fingerprintToWire(f Fingerprint) *driverpb.FingerprintResponse {
	return &driverpb.FingerprintResponse{
		Attributes: attr.MapToWire(f.Attributes), Health: healths.toWire(f.Health), HealthDescription: f.Description,
	}
}

func fingerprintFromWire(w *driverpb.FingerprintResponse) Fingerprint {
	return Fingerprint{
		Attributes: attr.MapFromWire(w.GetAttributes()), Health: healths.fromWire(w.GetHealth()), Description: w.GetHealthDescription(),
	}
}

func exitToWire(e Exit) *driverpb.ExitResult {
	return &driverpb.ExitResult{ExitCode: int32(e.Code), Signal: int32(e.Signal), OomKilled: e.OOMKilled}
}

func exitFromWire(w *driverpb.ExitResult) Exit {
	return Exit{Code: int(w.GetExitCode()), Signal: int(w.GetSignal()), OOMKilled: w.GetOomKilled()}
}

func statusToWire(s Status) *driverpb.InspectTaskResponse {
	return &driverpb.InspectTaskResponse{
		Task: &driverpb.TaskStatus{
			Id: s.ID, Name: s.Name, State: states.toWire(s.State), Result: exitToWire(s.Exit),
			StartedAt: stream.TimeToWire(s.Started), CompletedAt: stream.TimeToWire(s.Completed),
		},
		Driver:          &driverpb.TaskDriverStatus{Attributes: s.Attributes},
		NetworkOverride: networkToWire(s.Network),
	}
}

func statusFromWire(w *driverpb.InspectTaskResponse) Status {
	t := w.GetTask()
	return Status{
		ID: t.GetId(), Name: t.GetName(), State: states.fromWire(t.GetState()), Exit: exitFromWire(t.GetResult()),
		Started: stream.TimeFromWire(t.GetStartedAt()), Completed: stream.TimeFromWire(t.GetCompletedAt()),
		Attributes: w.GetDriver().GetAttributes(), Network: networkFromWire(w.GetNetworkOverride()),
	}
}

func eventToWire(e Event) *driverpb.DriverTaskEvent {
	return &driverpb.DriverTaskEvent{
		TaskId: e.TaskID, AllocId: e.AllocID, TaskName: e.TaskName,
		Timestamp: stream.TimeToWire(e.Time), Message: e.Message, Annotations: e.Annotations,
	}
}

func eventFromWire(w *driverpb.DriverTaskEvent) Event {
	return Event{
		TaskID: w.GetTaskId(), AllocID: w.GetAllocId(), TaskName: w.GetTaskName(),
		Time: stream.TimeFromWire(w.GetTimestamp()), Message: w.GetMessage(), Annotations: w.GetAnnotations(),
	}
}
