package machine

import (
	"errors"
	"testing"

	"github.com/caravan-sched/caravan/driver/gangapi"
)

// Stops in every phase, and the fence.
func TestStopAndFence(t *testing.T) {
	playAll(t, map[string]scenario{
		"stop: a second one without any time kills": {
			steps: append(running(),
				step{10 * sec, StopAsked{Timeout: 100 * sec}, []string{"report stopping e1/1 seen=0", "tell stopping", "askcheckpoint"}, Stopping},
				step{11 * sec, StopAsked{}, []string{"tell kill", "kill"}, Stopping}),
		},
		"a preflight that is not cancelled in time does not hold up a stop": {
			config: func(c *Config) { c.Preflight = true },
			steps: []step{
				{1 * sec, StopAsked{Timeout: 60 * sec}, []string{"cancelpreflight"}, Stopping},
				{6 * sec, Tick{}, []string{"tell exit", "stopjoin", "finish stopped 0/15 started=false", "stopreports"}, Exited},
			},
		},
		"a stop during the preflight": {
			config: func(c *Config) { c.Preflight = true },
			steps: []step{
				{1 * sec, StopAsked{Timeout: 60 * sec}, []string{"cancelpreflight"}, Stopping},
				{1 * sec, PreflightDone{}, []string{"tell exit", "stopjoin", "finish stopped 0/15 started=false", "stopreports"}, Exited},
			},
		},
		"a stop while joining": {
			steps: []step{{1 * sec, StopAsked{Timeout: 60 * sec}, []string{"tell exit", "stopjoin", "finish stopped 0/15 started=false", "stopreports"}, Exited}},
		},
		"a stop while starting": {
			steps: append(running()[:2:2],
				step{1 * sec / 4, StopAsked{}, []string{"tell exit", "stopjoin", "finish stopped 0/15 started=false", "report exited e1/1 seen=0 exit=0/15 ordered=true final"}, Exited}),
		},
		"a stop during the launch": {
			steps: append(running()[:3:3],
				step{1 * sec, StopAsked{Timeout: 20 * sec}, nil, Stopping},
				step{2 * sec, Launched{PID: 7}, []string{"tell started", "report stopping e1/1 seen=0", "tell stopping", "askcheckpoint"}, Stopping}),
		},
		"a stop during a launch that fails": {
			steps: append(running()[:3:3],
				step{1 * sec, StopAsked{Timeout: 20 * sec}, nil, Stopping},
				step{2 * sec, Launched{Err: errors.New("no such file")}, []string{"tell exit", "stopjoin", "finish stopped 0/15 started=false", "report exited e1/1 seen=0 exit=0/15 ordered=true final"}, Exited}),
		},
		"stop: checkpoint, terminate, end": {
			steps: append(running(),
				step{10 * sec, StopAsked{Timeout: 100 * sec, Signal: "SIGINT"}, []string{"report stopping e1/1 seen=0", "tell stopping", "askcheckpoint"}, Stopping},
				step{10 * sec, CheckpointSeen{Answers: 0}, []string{"tell checkpoint"}, Stopping},
				step{11 * sec, Asked{Serial: 1}, nil, Stopping},
				step{15 * sec, CheckpointSeen{Answers: 1}, []string{"tell checkpoint", "tell terminate", "signal SIGINT"}, Stopping},
				step{16 * sec, Ended{Signal: 2}, []string{"clear", "tell ended"}, Stopping},
				step{16 * sec, Cleared{}, []string{"tell exit", "stopjoin", "finish stopped 0/2 started=true", "report exited e1/1 seen=0 exit=0/2 ordered=true final"}, Exited}),
		},
		"stop: the checkpoint may be there before it is known that it was asked for": {
			steps: append(running(),
				step{10 * sec, StopAsked{Timeout: 100 * sec}, []string{"report stopping e1/1 seen=0", "tell stopping", "askcheckpoint"}, Stopping},
				step{11 * sec, CheckpointSeen{Answers: 1}, []string{"tell checkpoint", "tell terminate", "signal SIGTERM"}, Stopping},
				step{11 * sec, Asked{Serial: 1}, nil, Stopping}),
		},
		"stop: a task that ignores everything dies on time": {
			steps: append(running(),
				step{10 * sec, StopAsked{Timeout: 100 * sec}, []string{"report stopping e1/1 seen=0", "tell stopping", "askcheckpoint"}, Stopping},
				step{10 * sec, Asked{Serial: 1}, nil, Stopping},
				step{69 * sec, Tick{}, nil, Stopping},
				step{70 * sec, Tick{}, []string{"tell checkpoint", "tell terminate", "signal SIGTERM"}, Stopping},
				step{109 * sec, Tick{}, nil, Stopping},
				step{110 * sec, Tick{}, []string{"tell kill", "kill"}, Stopping},
				step{120 * sec, Tick{}, []string{"kill"}, Stopping},
				step{120 * sec, Ended{Signal: 9}, []string{"clear", "tell ended"}, Stopping}),
		},
		"stop: kill_timeout below grace wins, and leaves time to end": {
			steps: append(running(),
				step{10 * sec, StopAsked{Timeout: 20 * sec}, []string{"report stopping e1/1 seen=0", "tell stopping", "askcheckpoint"}, Stopping},
				step{10 * sec, Asked{Serial: 1}, nil, Stopping},
				step{26 * sec, Tick{}, []string{"tell checkpoint", "tell terminate", "signal SIGTERM"}, Stopping},
				step{30 * sec, Tick{}, []string{"tell kill", "kill"}, Stopping}),
		},
		"stop: what cannot be killed is given up": {
			steps: append(running(),
				step{10 * sec, StopAsked{}, []string{"report stopping e1/1 seen=0", "tell kill", "kill"}, Stopping},
				step{70 * sec, Tick{}, []string{"kill", "tell problem", "tell exit", "stopjoin", "finish stuck 0/9 started=true", "report exited e1/1 seen=0 exit=0/9 ordered=true final"}, Exited}),
		},
		"stop: a second one makes it earlier": {
			steps: append(running(),
				step{10 * sec, StopAsked{Timeout: 100 * sec}, []string{"report stopping e1/1 seen=0", "tell stopping", "askcheckpoint"}, Stopping},
				step{11 * sec, StopAsked{Timeout: 5 * sec}, nil, Stopping},
				step{15 * sec, Tick{}, []string{"tell checkpoint", "tell terminate", "signal SIGTERM"}, Stopping},
				step{16 * sec, Tick{}, []string{"tell kill", "kill"}, Stopping}),
		},
		"stop: without a checkpoint's signal": {
			config: func(c *Config) { c.CheckpointSignal = "" },
			steps: append(running(),
				step{10 * sec, StopAsked{Timeout: 100 * sec}, []string{"report stopping e1/1 seen=0", "tell stopping", "tell terminate", "signal SIGTERM"}, Stopping}),
		},
		"stop: a checkpoint's signal that cannot be sent": {
			steps: append(running(),
				step{10 * sec, StopAsked{Timeout: 100 * sec}, []string{"report stopping e1/1 seen=0", "tell stopping", "askcheckpoint"}, Stopping},
				step{10 * sec, Asked{Serial: 1, Err: errors.New("gone")}, []string{"tell problem", "tell terminate", "signal SIGTERM"}, Stopping}),
		},
		"the fence: cut off, warned, killed": {
			steps: append(running(),
				step{10 * sec, AgentSeen{At: 9 * sec}, nil, Running},
				step{38 * sec, Tick{}, nil, Running},
				step{39 * sec, Tick{}, []string{"tell fence"}, Running},
				step{68 * sec, Tick{}, nil, Running},
				step{69 * sec, Tick{}, []string{"tell fence", "report stopping e1/1 seen=0", "tell kill", "kill"}, Stopping},
				step{69 * sec, Ended{Signal: 9}, []string{"clear", "tell ended"}, Stopping},
				step{69 * sec, Cleared{}, []string{"tell exit", "stopjoin", "finish fenced 0/9 started=true", "report exited e1/1 seen=0 exit=0/9 ordered=true final"}, Exited}),
		},
		"the fence: back in time, and by the planner's word": {
			steps: append(running(),
				step{10 * sec, AgentSeen{At: 9 * sec}, nil, Running},
				step{39 * sec, Tick{}, []string{"tell fence"}, Running},
				step{50 * sec, ReportAnswered{Serial: 1, Answer: gangapi.ReportAnswer{Attached: true}, At: 50 * sec}, []string{"tell fence", "report running e1/1 seen=0"}, Running},
				step{51 * sec, AgentSeen{At: 20 * sec}, nil, Running},
				step{79 * sec, Tick{}, nil, Running},
				step{80 * sec, Tick{}, []string{"tell fence"}, Running}),
		},
		"the fence: it kills a stop that takes its time": {
			steps: append(running(),
				step{10 * sec, AgentSeen{At: 10 * sec}, nil, Running},
				step{11 * sec, StopAsked{Timeout: 500 * sec}, []string{"report stopping e1/1 seen=0", "tell stopping", "askcheckpoint"}, Stopping},
				step{11 * sec, Asked{Serial: 1}, nil, Stopping},
				step{40 * sec, Tick{}, []string{"tell fence"}, Stopping},
				step{70 * sec, Tick{}, []string{"tell fence", "tell kill", "kill"}, Stopping}),
		},
		"the fence: not armed before the servers were seen": {
			steps: append(running(),
				step{60 * sec, Tick{}, nil, Running},
				step{9000 * sec, Tick{}, []string{"tell fence"}, Running}, // that it is not armed, once
				step{18000 * sec, Tick{}, nil, Running}),
		},
		"the fence: the planner's word does not arm it, as an agent that cannot be asked must not end what a planner that is away leaves alone": {
			steps: append(running(),
				step{10 * sec, ReportAnswered{Serial: 1, Answer: gangapi.ReportAnswer{Attached: true}, At: 10 * sec}, []string{"report running e1/1 seen=0"}, Running},
				step{9000 * sec, Tick{}, []string{"tell fence"}, Running}),
		},
		"the fence: nothing to stop while waiting": {
			steps: []step{
				{0, AgentSeen{}, nil, Joining},
				{300 * sec, Tick{}, nil, Joining},
				{300 * sec, joined(1, starts("e1")), []string{"tell starting", "prepare e1", "tell fence", "tell exit", "stopjoin", "finish fenced 1/0 started=false", "report exited e1/1 seen=0 exit=1/0 ordered=true final"}, Exited},
			},
		},
	})
}
