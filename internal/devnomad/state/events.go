package state

import (
	"sort"

	"github.com/hashicorp/nomad/api"
)

// The types of events, as in Nomad's event stream.
const (
	EventJobRegistered       = "JobRegistered"
	EventJobDeregistered     = "JobDeregistered"
	EventEvaluation          = "EvaluationUpdated"
	EventAllocUpdated        = "AllocationUpdated"
	EventAllocDesired        = "AllocationUpdateDesiredStatus"
	EventPlanResult          = "PlanResult"
	EventDeployment          = "DeploymentStatusUpdate"
	EventDeploymentPromotion = "DeploymentPromotion"
	EventDeploymentHealth    = "DeploymentAllocHealth"
	EventNodeRegistration    = "NodeRegistration"
	EventNodeDeregistered    = "NodeDeregistration"
	EventNode                = "NodeStreamEvent"
	EventNodeDrain           = "NodeDrain"
	EventNodeEligibility     = "NodeEligibility"
	EventVariable            = "VariableUpdated"
	EventSchedulerSettings   = "" // Nomad publishes none
)

// Event is one change as the event stream shows it.
type Event struct {
	Topic      api.Topic
	Type       string
	Key        string
	Namespace  string
	FilterKeys []string
	Index      uint64
	Payload    map[string]any
}

// Events are the events of one index.
type Events struct {
	Index  uint64
	Events []Event
}

// eventBuffer is how many indexes with events are kept, as Nomad's
// event_buffer_size.
const eventBuffer = 100

type eventLog struct{ entries []Events }

func (l *eventLog) add(index uint64, events []Event) {
	if len(events) == 0 {
		return
	}
	l.entries = append(l.entries, Events{Index: index, Events: events})
	if over := len(l.entries) - eventBuffer; over > 0 {
		l.entries = append([]Events(nil), l.entries[over:]...)
	}
}

func (l *eventLog) from(index uint64) []Events {
	i := sort.Search(len(l.entries), func(i int) bool { return l.entries[i].Index >= index })
	return append([]Events(nil), l.entries[i:]...)
}

// event records what a watcher of the event stream sees. The payload is the
// object under its kind's name.
func (tx *Tx) event(topic api.Topic, key, namespace string, filter []string, object any) {
	if tx.eventType == "" {
		return
	}
	tx.pending = append(tx.pending, Event{
		Topic: topic, Type: tx.eventType, Key: key, Namespace: namespace, FilterKeys: filter,
		Index: tx.Index, Payload: map[string]any{string(topic): object},
	})
}
