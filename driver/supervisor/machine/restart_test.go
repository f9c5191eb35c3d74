package machine

import (
	"errors"
	"testing"

	"github.com/caravan-sched/caravan/driver/gangapi"
)

// One that fails, and those that start anew because of it.
func TestRestartAndFailure(t *testing.T) {
	playAll(t, map[string]scenario{
		"a failure that fails the gang": {
			steps: append(running(),
				step{10 * sec, Ended{OOM: true, Signal: 9}, []string{"clear", "tell ended", "report exited e1/1 seen=0 exit=0/9 ordered=false"}, Settling},
				step{10 * sec, Cleared{}, nil, Settling},
				step{11 * sec, order(2, gangapi.Order{Sequence: 1, Kind: gangapi.OrderFail}), []string{"tell exit", "stopjoin", "finish ordered 0/9 started=true", "stopreports"}, Exited}),
		},
		"a failure after which nothing can be cleared": {
			steps: append(running(),
				step{10 * sec, Ended{Code: 1}, []string{"clear", "tell ended", "report exited e1/1 seen=0 exit=1/0 ordered=false"}, Settling},
				step{10 * sec, order(2, gangapi.Order{Sequence: 1, Kind: gangapi.OrderRestart}), []string{"tell order"}, Settling},
				step{80 * sec, Tick{}, []string{"tell problem", "tell exit", "stopjoin", "finish stuck 1/0 started=true", "stopreports"}, Exited}),
		},
		"restart: stop, then back to the barrier": {
			steps: append(running(),
				step{10 * sec, order(1, gangapi.Order{Sequence: 3, Kind: gangapi.OrderRestart, Reason: "rank 3 failed"}), []string{"tell order", "report stopping e1/1 seen=3", "tell stopping", "askcheckpoint"}, Stopping},
				step{11 * sec, CheckpointSeen{Answers: 1}, []string{"tell checkpoint", "tell terminate", "signal SIGTERM"}, Stopping},
				step{12 * sec, Ended{Signal: 15}, []string{"clear", "tell ended"}, Stopping},
				step{12 * sec, Cleared{}, []string{"stopreports", "tell rejoin", "join 2 failures=0 pause=0s fault=false"}, Joining},
				step{13 * sec, joined(2, starts("e1")), []string{"tell waiting", "join 2 failures=1 pause=0s fault=false"}, Joining},
				step{13 * sec, joined(1, starts("e2")), nil, Joining},
				step{14 * sec, joined(2, starts("e2")), []string{"tell starting", "prepare e2"}, Starting},
				step{14 * sec, Prepared{Attempt: 1}, nil, Starting},
				step{15 * sec, Prepared{Attempt: 2}, []string{"launch"}, Starting},
				step{15 * sec, Launched{PID: 9}, []string{"tell started", "report running e2/1 seen=3"}, Running}),
		},
		"restart: urgent ones ask for no checkpoint": {
			steps: append(running(),
				step{10 * sec, order(1, gangapi.Order{Sequence: 1, Kind: gangapi.OrderRestart, Urgent: true}), []string{"tell order", "report stopping e1/1 seen=1", "tell stopping", "tell terminate", "signal SIGTERM"}, Stopping},
				step{19 * sec, Tick{}, nil, Stopping},
				// Soon: a survivor hangs in a collective, whatever its checkpoints take.
				step{20 * sec, Tick{}, []string{"tell kill", "kill"}, Stopping}),
		},
		"restart: a stop by Nomad meanwhile ends the task": {
			steps: append(running(),
				step{10 * sec, order(1, gangapi.Order{Sequence: 1, Kind: gangapi.OrderRestart}), []string{"tell order", "report stopping e1/1 seen=1", "tell stopping", "askcheckpoint"}, Stopping},
				step{11 * sec, StopAsked{Timeout: 60 * sec}, nil, Stopping},
				step{12 * sec, Ended{Signal: 15}, []string{"clear", "tell ended"}, Stopping},
				step{12 * sec, Cleared{}, []string{"tell exit", "stopjoin", "finish stopped 0/15 started=true", "report exited e1/1 seen=1 exit=0/15 ordered=true final"}, Exited}),
		},
		"restart: not while something is left": {
			steps: append(running(),
				step{10 * sec, order(1, gangapi.Order{Sequence: 1, Kind: gangapi.OrderRestart, Urgent: true}), []string{"tell order", "report stopping e1/1 seen=1", "tell stopping", "tell terminate", "signal SIGTERM"}, Stopping},
				step{12 * sec, Ended{Signal: 15}, []string{"clear", "tell ended"}, Stopping},
				step{13 * sec, Cleared{Err: errors.New("1 process is left")}, []string{"tell problem", "tell exit", "stopjoin", "finish stuck 0/15 started=true", "report exited e1/1 seen=1 exit=0/15 ordered=true final"}, Exited}),
		},
		"the planner ends the gang": {
			steps: append(running(),
				step{10 * sec, order(1, gangapi.Order{Sequence: 1, Kind: gangapi.OrderFail, Urgent: true}), []string{"tell order", "report stopping e1/1 seen=1", "tell stopping", "tell terminate", "signal SIGTERM"}, Stopping},
				step{12 * sec, Ended{}, []string{"clear", "tell ended"}, Stopping},
				step{12 * sec, Cleared{}, []string{"tell exit", "stopjoin", "finish ordered 0/0 started=true", "report exited e1/1 seen=1 exit=0/0 ordered=true final"}, Exited}),
		},
		"a failure that another member caused goes back to the barrier": {
			steps: append(running(),
				step{10 * sec, Ended{Code: 1}, []string{"clear", "tell ended", "report exited e1/1 seen=0 exit=1/0 ordered=false"}, Settling},
				step{10 * sec, order(2, gangapi.Order{Sequence: 1, Kind: gangapi.OrderRestart, Reason: "rank 3 failed first"}), []string{"tell order"}, Settling},
				step{11 * sec, Cleared{}, []string{"stopreports", "tell rejoin", "join 2 failures=0 pause=0s fault=false"}, Joining}),
		},
		"a failure of its own ends the task": {
			steps: append(running(),
				step{10 * sec, Ended{Code: 1}, []string{"clear", "tell ended", "report exited e1/1 seen=0 exit=1/0 ordered=false"}, Settling},
				step{10 * sec, Cleared{}, nil, Settling},
				step{11 * sec, ReportAnswered{Serial: 2}, []string{"tell exit", "stopjoin", "finish exited 1/0 started=true", "stopreports"}, Exited}),
		},
		"a failure without a gang": {
			steps: []step{
				{0, joined(1, gangapi.JoinAnswer{State: gangapi.JoinAlone}), []string{"prepare -"}, Starting},
				{0, Prepared{Attempt: 1}, []string{"launch"}, Starting},
				{0, Launched{PID: 7}, []string{"tell started", "report running /0 seen=0"}, Running},
				{10 * sec, Ended{Code: 1}, []string{"clear", "tell ended", "stopreports"}, Settling},
				{10 * sec, Cleared{}, []string{"tell exit", "stopjoin", "finish exited 1/0 started=true", "stopreports"}, Exited},
			},
		},
		"a failure while the planner is away": {
			steps: append(running(),
				step{10 * sec, Ended{Signal: 11}, []string{"clear", "tell ended", "report exited e1/1 seen=0 exit=0/11 ordered=false"}, Settling},
				step{10 * sec, Cleared{}, nil, Settling},
				step{10 * sec, ReportAnswered{Serial: 2, Err: errors.New("refused")}, []string{"report exited e1/1 seen=0 exit=0/11 ordered=false failures=1"}, Settling},
				step{13 * sec, Tick{}, []string{"tell exit", "stopjoin", "finish exited 0/11 started=true", "report exited e1/1 seen=0 exit=0/11 ordered=false final"}, Exited}),
		},
		"a failed task that is stopped while it waits for the planner's word": {
			steps: append(running(),
				step{10 * sec, Ended{Code: 1}, []string{"clear", "tell ended", "report exited e1/1 seen=0 exit=1/0 ordered=false"}, Settling},
				step{10 * sec, Cleared{}, nil, Settling},
				step{11 * sec, StopAsked{Timeout: 60 * sec}, []string{"stopreports", "tell exit", "stopjoin", "finish stopped 1/0 started=true", "report exited e1/1 seen=0 exit=1/0 ordered=true final"}, Exited}),
		},
	})
}
