package sched

// What makes an evaluation, as Nomad names it.
const (
	TriggerJobRegister   = "job-register"
	TriggerJobDeregister = "job-deregister"
	TriggerNodeUpdate    = "node-update"
	TriggerNodeDrain     = "node-drain"
	TriggerAllocStop     = "alloc-stop"
	TriggerAllocFailure  = "alloc-failure"
	TriggerScaling       = "job-scaling"
	TriggerDeployment    = "deployment-watcher"
	TriggerPreemption    = "preemption"
	TriggerQueued        = "queued-allocs"
	TriggerPeriodic      = "periodic-job"
	TriggerReconnect     = "reconnect"
	TriggerDisconnect    = "max-disconnect-timeout"
)
