package machine

import (
	"errors"
	"testing"

	"github.com/caravan-sched/caravan/driver/gangapi"
)

// What happens while the user's code runs.
func TestRunning(t *testing.T) {
	playAll(t, map[string]scenario{
		"an order for a checkpoint that cannot be asked for": {
			config: func(c *Config) { c.CheckpointSignal = "" },
			steps: append(running(),
				step{10 * sec, order(1, gangapi.Order{Sequence: 4, Kind: gangapi.OrderCheckpoint}), []string{"tell problem", "report running e1/1 seen=4"}, Running}),
		},
		"an order for a checkpoint that fails": {
			steps: append(running(),
				step{10 * sec, order(1, gangapi.Order{Sequence: 4, Kind: gangapi.OrderCheckpoint}), []string{"tell order", "askcheckpoint", "report running e1/1 seen=4"}, Running},
				step{10 * sec, Asked{Serial: 1, Err: errors.New("gone")}, []string{"tell problem"}, Running}),
		},
		"an order that nobody knows": {
			steps: append(running(),
				step{10 * sec, order(1, gangapi.Order{Sequence: 4, Kind: "dance"}), []string{"report running e1/1 seen=4"}, Running}),
		},
		"checkpoints are told once a minute": {
			config: func(c *Config) { c.FenceAfter = 0 },
			steps: append(running(),
				step{10 * sec, CheckpointSeen{Step: new(int64), Path: "/c/1"}, []string{"tell checkpoint"}, Running},
				step{69 * sec, CheckpointSeen{}, nil, Running},
				step{70 * sec, CheckpointSeen{}, []string{"tell checkpoint"}, Running}),
		},
		"an order is obeyed once": {
			steps: append(running(),
				step{10 * sec, order(1, gangapi.Order{Sequence: 4, Kind: gangapi.OrderCheckpoint}), []string{"tell order", "askcheckpoint", "report running e1/1 seen=4"}, Running},
				step{11 * sec, order(2, gangapi.Order{Sequence: 4, Kind: gangapi.OrderCheckpoint}), []string{"report running e1/1 seen=4"}, Running},
				step{11 * sec, order(2, gangapi.Order{Sequence: 9, Kind: gangapi.OrderFail}), nil, Running}),
		},
		"suspend and resume, and a stop of a suspended task": {
			steps: append(running(),
				step{10 * sec, order(1, gangapi.Order{Sequence: 1, Kind: gangapi.OrderSuspend}), []string{"tell suspended", "freeze", "report running e1/1 seen=1"}, Running},
				step{10 * sec, Frozen{Suspended: true}, []string{"report suspended e1/1 seen=1"}, Suspended},
				step{11 * sec, ResumeAsked{}, []string{"tell resumed", "thaw"}, Suspended},
				step{11 * sec, Frozen{}, []string{"report running e1/1 seen=1"}, Running},
				step{12 * sec, SuspendAsked{}, []string{"tell suspended", "freeze"}, Running},
				step{12 * sec, Frozen{Suspended: true}, []string{"report suspended e1/1 seen=1"}, Suspended},
				step{13 * sec, StopAsked{Timeout: 100 * sec}, []string{"thaw", "report stopping e1/1 seen=1", "tell stopping", "askcheckpoint"}, Stopping}),
		},
		"a suspension that fails": {
			steps: append(running(),
				step{12 * sec, SuspendAsked{}, []string{"tell suspended", "freeze"}, Running},
				step{12 * sec, Frozen{Suspended: true, Err: errors.New("busy")}, []string{"tell problem"}, Running},
				step{13 * sec, SuspendAsked{}, []string{"tell suspended", "freeze"}, Running}),
		},
		"another membership: files, a signal, no restart": {
			steps: append(running(),
				step{10 * sec, ReportAnswered{Serial: 1, Answer: gangapi.ReportAnswer{Membership: gang("e1", 2, "a0", "a1", "a2")}}, []string{"update 2 SIGHUP"}, Running},
				step{10 * sec, Updated{Epoch: "e1", Generation: 2}, []string{"tell resized", "report running e1/2 seen=0"}, Running},
				step{20 * sec, ReportAnswered{Serial: 2, Answer: gangapi.ReportAnswer{Membership: gang("e1", 2, "a1")}}, []string{"report running e1/2 seen=0"}, Running},
				step{30 * sec, ReportAnswered{Serial: 3, Answer: gangapi.ReportAnswer{Membership: gang("e2", 3, "a1")}}, []string{"report running e1/2 seen=0"}, Running},
				step{40 * sec, ReportAnswered{Serial: 4, Answer: gangapi.ReportAnswer{Membership: gang("e1", 3, "a2")}}, []string{"report running e1/2 seen=0"}, Running}),
		},
		"another membership that cannot be written is asked for again": {
			steps: append(running(),
				step{10 * sec, ReportAnswered{Serial: 1, Answer: gangapi.ReportAnswer{Membership: gang("e1", 2, "a0", "a1", "a2")}}, []string{"update 2 SIGHUP"}, Running},
				step{10 * sec, Updated{Epoch: "e1", Generation: 2, Err: errors.New("no space left")}, []string{"tell problem", "report running e1/1 seen=0 pause=5s"}, Running}),
		},
		"an absent planner stops nothing": {
			steps: append(running(),
				step{10 * sec, ReportAnswered{Serial: 1, Err: errors.New("refused")}, []string{"report running e1/1 seen=0 failures=1"}, Running},
				step{20 * sec, ReportAnswered{Serial: 2, Err: errors.New("refused")}, []string{"report running e1/1 seen=0 failures=2"}, Running},
				step{30 * sec, ReportAnswered{Serial: 3, Err: errors.New("refused")}, []string{"tell problem", "report running e1/1 seen=0 failures=3"}, Running},
				step{9000 * sec, Tick{}, []string{"tell fence"}, Running},
				step{9000 * sec, ReportAnswered{Serial: 4}, []string{"tell problem", "report running e1/1 seen=0"}, Running}),
		},
		"an allocation that is not wanted waits for Nomad": {
			steps: append(running(),
				step{10 * sec, ReportAnswered{Serial: 1, Answer: gangapi.ReportAnswer{Gone: true, Order: &gangapi.Order{Sequence: 1, Kind: gangapi.OrderFail}}}, []string{"tell unwanted", "report running e1/1 seen=0"}, Running},
				step{10 * sec, ReportAnswered{Serial: 2, Answer: gangapi.ReportAnswer{Gone: true}}, []string{"report running e1/1 seen=0 pause=1s"}, Running}),
		},
	})
}
