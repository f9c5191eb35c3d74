package client

import (
	"fmt"
	"strings"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/internal/nomadplugin/driver"
)

// Types of task events that Nomad's API package does not name.
const (
	taskHookFailed     = "Task hook failed"
	taskRestoreFailed  = "Failed Restoring Task"
	restartRequested   = "User requested task to restart"
	withinPolicy       = "Restart within policy"
	noRestarts         = "Policy allows no restarts"
	unrecoverable      = "Error was unrecoverable"
	exceededThenDelays = "Exceeded allowed attempts, applying a delay"
)

// display fills in what the command line shows of an event.
func display(e *api.TaskEvent) {
	if e.DisplayMessage != "" {
		return
	}
	switch e.Type {
	case api.TaskReceived:
		e.DisplayMessage = "Task received by client"
	case api.TaskStarted:
		e.DisplayMessage = "Task started by client"
	case api.TaskFailedValidation:
		e.DisplayMessage = e.ValidationError
	case api.TaskDriverFailure:
		e.DisplayMessage = e.DriverError
	case api.TaskKilling:
		e.DisplayMessage = fmt.Sprintf("Sent interrupt. Waiting %v before force killing", e.KillTimeout)
	case api.TaskKilled:
		e.DisplayMessage = "Task successfully killed"
	case api.TaskTerminated:
		e.DisplayMessage = terminatedText(e)
	case api.TaskRestarting:
		e.DisplayMessage = fmt.Sprintf("Task restarting in %v", time.Duration(e.StartDelay))
		if e.RestartReason != "" && e.RestartReason != withinPolicy {
			e.DisplayMessage = e.RestartReason + " - " + e.DisplayMessage
		}
	case api.TaskNotRestarting, api.TaskRestartSignal:
		e.DisplayMessage = e.RestartReason
	case api.TaskSiblingFailed:
		e.DisplayMessage = fmt.Sprintf("Task's sibling %q failed", e.FailedSibling)
	case api.TaskSignaling:
		e.DisplayMessage = "Task being sent signal " + e.TaskSignal
		if e.TaskSignalReason != "" {
			e.DisplayMessage += ": " + e.TaskSignalReason
		}
	case api.TaskDriverMessage:
		e.DisplayMessage = e.DriverMessage
	case api.TaskLeaderDead:
		e.DisplayMessage = "Leader Task in Group dead"
	case taskMainDead:
		e.DisplayMessage = "Main tasks in the group died"
	default:
		e.DisplayMessage = e.Message
	}
}

func terminatedText(e *api.TaskEvent) string {
	parts := []string{fmt.Sprintf("Exit Code: %d", e.ExitCode)}
	if e.Signal != 0 {
		parts = append(parts, fmt.Sprintf("Signal: %d", e.Signal))
	}
	if e.Message != "" {
		parts = append(parts, fmt.Sprintf("Exit Message: %q", e.Message))
	}
	return strings.Join(parts, ", ")
}

func messageEvent(e driver.Event) *api.TaskEvent {
	return &api.TaskEvent{Type: api.TaskDriverMessage, Time: e.Time.UnixNano(), DriverMessage: e.Message, Details: e.Annotations}
}
