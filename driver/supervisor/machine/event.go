package machine

// EventKind is a stable word for something that is told to the user.
type EventKind string

// The kinds.
const (
	EventWaiting    EventKind = "waiting"
	EventPreflight  EventKind = "preflight"
	EventStarting   EventKind = "starting"
	EventStarted    EventKind = "started"
	EventResized    EventKind = "resized"
	EventOrder      EventKind = "order"
	EventSuspended  EventKind = "suspended"
	EventResumed    EventKind = "resumed"
	EventCheckpoint EventKind = "checkpoint"
	EventStopping   EventKind = "stopping"
	EventTerminate  EventKind = "terminate"
	EventKill       EventKind = "kill"
	EventEnded      EventKind = "ended"
	EventFence      EventKind = "fence"
	EventRejoin     EventKind = "rejoin"
	EventUnwanted   EventKind = "unwanted"
	EventProblem    EventKind = "problem"
	EventExit       EventKind = "exit"
)
