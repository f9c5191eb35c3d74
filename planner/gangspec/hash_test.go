package gangspec_test

import (
	"time"

	"github.com/hashicorp/nomad/api"
)

// fullJob uses as much of Nomad's job specification as a job with GPUs is
// likely to.
func fullJob() *api.Job {
	t := gpuTask("raw_exec", "nvidia/gpu", 4)
	t.Config = map[string]any{"command": "/bin/sleep", "args": []any{"600"}, "n": 1.5, "nested": []any{map[string]any{"a": 1, "b": ""}}}
	t.Env = map[string]string{"A": "1", "B": "${NOMAD_ALLOC_INDEX}"}
	t.Meta = map[string]string{"m": ""}
	t.KillSignal, t.KillTimeout = "SIGTERM", ptr(20*time.Second)
	t.Constraints = []*api.Constraint{{LTarget: "${attr.cpu.arch}", RTarget: "amd64", Operand: "="}}
	t.Affinities = []*api.Affinity{{LTarget: "${meta.x}", RTarget: "y", Operand: "="}}
	t.Services = []*api.Service{{Name: "${TASK}-${JOB}", PortLabel: "http", Provider: "nomad", Checks: []api.ServiceCheck{{Type: "tcp", Interval: 10 * time.Second, Timeout: time.Second}}}}
	t.Templates = []*api.Template{{EmbeddedTmpl: ptr("x"), DestPath: ptr("local/x"), ChangeMode: ptr("signal"), ChangeSignal: ptr("sighup")}}
	t.Artifacts = []*api.TaskArtifact{{GetterSource: ptr("https://example.com/a.tgz")}}
	t.Identities = []*api.WorkloadIdentity{{Name: "default", Env: true}, {Name: "aws", Audience: []string{"a"}, File: true, TTL: time.Hour}}
	t.LogConfig = &api.LogConfig{MaxFiles: ptr(3)}
	t.Leader = true
	t.Resources.CPU, t.Resources.MemoryMB, t.Resources.MemoryMaxMB = ptr(500), ptr(256), ptr(512)
	t.Resources.Devices[0].Constraints = []*api.Constraint{{LTarget: "${device.attr.memory}", Operand: ">=", RTarget: "10 GiB"}}
	t.Resources.Devices[0].Affinities = []*api.Affinity{{LTarget: "${device.model}", RTarget: "H100", Operand: "="}}
	side := &api.Task{Name: "side", Driver: "raw_exec", Config: map[string]any{"command": "/bin/sleep"}, Lifecycle: &api.TaskLifecycle{Hook: "prestart", Sidecar: true},
		RestartPolicy: &api.RestartPolicy{Attempts: ptr(9)}}
	g := group("workers", 2, t, side)
	g.Constraints = []*api.Constraint{{Operand: "distinct_hosts", RTarget: "true"}, {LTarget: "${attr.kernel.name}", RTarget: "linux", Operand: "="}}
	g.Networks = []*api.NetworkResource{{DynamicPorts: []api.Port{{Label: "http"}}, ReservedPorts: []api.Port{{Label: "nccl", Value: 29500}}}}
	g.Services = []*api.Service{{Name: "${BASE}-svc", PortLabel: "http", Provider: "nomad", Tags: []string{"a"}}}
	g.Spreads = []*api.Spread{{Attribute: "${node.datacenter}"}}
	g.RestartPolicy = &api.RestartPolicy{Attempts: ptr(0), Mode: ptr("fail")}
	g.ReschedulePolicy = &api.ReschedulePolicy{Attempts: ptr(0), Unlimited: ptr(false)}
	g.Disconnect = &api.DisconnectStrategy{LostAfter: ptr(time.Hour), Replace: ptr(false)}
	g.EphemeralDisk = &api.EphemeralDisk{SizeMB: ptr(500), Sticky: ptr(true)}
	g.Scaling = &api.ScalingPolicy{Max: ptr(int64(8)), Enabled: ptr(true), Policy: map[string]any{"cooldown": "1m"}}
	g.ShutdownDelay = ptr(time.Second)
	g.Meta = map[string]string{"k": "v"}
	job := gpuJob("batch", g, group("ps", 1, &api.Task{Name: "ps", Driver: "raw_exec", Config: map[string]any{"command": "/bin/sleep"}}))
	job.Meta = map[string]string{"caravan_gang": "job", "owner": ""}
	job.Spreads = []*api.Spread{{Attribute: "${meta.rack}", Weight: ptr(int8(10)), SpreadTarget: []*api.SpreadTarget{{Value: "r1", Percent: 50}}}}
	job.Constraints = []*api.Constraint{{LTarget: "${node.class}", Operand: "regexp", RTarget: "gpu.*"}}
	job.Reschedule = &api.ReschedulePolicy{Delay: ptr(20 * time.Second), DelayFunction: ptr("constant")}
	return job
}
