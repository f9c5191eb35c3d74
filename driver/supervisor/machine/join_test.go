package machine

import (
	"errors"
	"testing"

	"github.com/caravan-sched/caravan/driver/gangapi"
	"github.com/caravan-sched/caravan/driver/rendezvous"
)

// From the beginning to the start of the user's code.
func TestBarrier(t *testing.T) {
	waiting := gangapi.JoinAnswer{State: gangapi.JoinWaiting, Joined: 1, Size: 2}
	playAll(t, map[string]scenario{
		"joins, waits, starts, ends": {
			steps: []step{
				{1 * sec, joined(1, waiting), []string{"tell waiting", "join 1 failures=0 pause=0s fault=false"}, Waiting},
				{1 * sec, joined(1, waiting), []string{"join 1 failures=0 pause=1s fault=false"}, Waiting},
				{30 * sec, joined(1, starts("e1")), []string{"tell starting", "prepare e1"}, Starting},
				{30 * sec, Tick{}, nil, Starting},
				{31 * sec, Tick{}, nil, Starting},
				{32 * sec, Prepared{Attempt: 1}, []string{"launch"}, Starting},
				{32 * sec, Launched{PID: 7}, []string{"tell started", "report running e1/1 seen=0"}, Running},
				{40 * sec, Ended{}, []string{"clear", "tell ended", "stopreports"}, Settling},
				{40 * sec, Cleared{}, []string{"tell exit", "stopjoin", "finish exited 0/0 started=true", "report exited e1/1 seen=0 exit=0/0 ordered=false final"}, Exited},
			},
		},
		"tells what it waits for on change, at most every 30 s": {
			steps: []step{
				{1 * sec, joined(1, waiting), []string{"tell waiting", "join 1 failures=0 pause=0s fault=false"}, Waiting},
				{10 * sec, JoinAnswered{Attempt: 1, Err: errors.New("refused")}, []string{"join 1 failures=1 pause=0s fault=false"}, Waiting},
				{20 * sec, joined(1, waiting), []string{"join 1 failures=0 pause=0s fault=false"}, Waiting},
				{30 * sec, JoinAnswered{Attempt: 1, Err: errors.New("refused")}, []string{"join 1 failures=1 pause=0s fault=false"}, Waiting},
				{31 * sec, Tick{}, []string{"tell waiting"}, Waiting},
				{200 * sec, Tick{}, nil, Waiting},
			},
		},
		"past the join timeout it fails": {
			steps: []step{{600 * sec, Tick{}, []string{"tell exit", "stopjoin", "finish join-timeout 1/0 started=false", "stopreports"}, Exited}},
		},
		"a start without a gang": {
			steps: []step{
				{0, joined(1, gangapi.JoinAnswer{State: gangapi.JoinAlone}), []string{"prepare -"}, Starting},
				{0, Prepared{Attempt: 1}, []string{"launch"}, Starting},
			},
		},
		"a task of no gang does not join": {
			config: func(c *Config) { c.Role = None },
			steps: []step{
				{0, Prepared{Attempt: 1}, []string{"launch"}, Starting},
				{0, Launched{PID: 7}, []string{"tell started"}, Running},
				{1 * sec, Ended{Code: 3}, []string{"clear", "tell ended", "stopreports"}, Settling},
				{1 * sec, Cleared{}, []string{"tell exit", "stopjoin", "finish exited 3/0 started=true", "stopreports"}, Exited},
			},
		},
		"a follower starts with the gang and makes no reports": {
			config: func(c *Config) { c.Role, c.GPUs = Follow, nil },
			steps: []step{
				{0, joined(1, starts("e1")), []string{"tell starting", "prepare e1"}, Starting},
				{0, Prepared{Attempt: 1}, nil, Starting},
				{1 * sec, Tick{}, []string{"launch"}, Starting},
				{1 * sec, Launched{PID: 7}, []string{"tell started"}, Running},
				{2 * sec, Ended{Code: 1}, []string{"clear", "tell ended", "stopreports"}, Settling},
				{2 * sec, Cleared{}, []string{"tell exit", "stopjoin", "finish exited 1/0 started=true", "stopreports"}, Exited},
			},
		},
		"refused": {
			steps: []step{{0, joined(1, gangapi.JoinAnswer{State: gangapi.JoinRefused, Reason: "replaced"}), []string{"tell exit", "stopjoin", "finish refused 1/0 started=false", "stopreports"}, Exited}},
		},
		"other GPUs than planned": {
			config: func(c *Config) { c.GPUs = []string{"GPU-1", "GPU-3"} },
			steps:  []step{{0, joined(1, starts("e1")), []string{"tell exit", "stopjoin", "finish devices 1/0 started=false", "report exited e1/1 seen=0 exit=1/0 ordered=false final"}, Exited}},
		},
		"a node that is not fit is reported, and fails when it is refused": {
			config: func(c *Config) { c.Preflight = true },
			steps: []step{
				{1 * sec, PreflightDone{Fault: &gangapi.NodeFault{Check: "gpu", GPU: "GPU-1", Detail: "lost"}}, []string{"tell preflight", "join 1 failures=0 pause=0s fault=true"}, Joining},
				{2 * sec, joined(1, gangapi.JoinAnswer{State: gangapi.JoinRefused}), []string{"tell exit", "stopjoin", "finish preflight 1/0 started=false", "stopreports"}, Exited},
			},
		},
		"an unfit node never starts, whatever the planner says": {
			config: func(c *Config) { c.Preflight = true },
			steps: []step{
				{1 * sec, PreflightDone{Fault: &gangapi.NodeFault{Check: "gpu"}}, []string{"tell preflight", "join 1 failures=0 pause=0s fault=true"}, Joining},
				{2 * sec, joined(1, starts("e1")), []string{"tell exit", "stopjoin", "finish preflight 1/0 started=false", "stopreports"}, Exited},
			},
		},
		"an unfit node of a task of no gang": {
			config: func(c *Config) { c.Role, c.Preflight = None, true },
			steps:  []step{{1 * sec, PreflightDone{Fault: &gangapi.NodeFault{Check: "gpu"}}, []string{"tell preflight", "tell exit", "stopjoin", "finish preflight 1/0 started=false", "stopreports"}, Exited}},
		},
		"an unfit node that nobody takes note of": {
			config: func(c *Config) { c.Preflight = true },
			steps: []step{
				{1 * sec, PreflightDone{Fault: &gangapi.NodeFault{Check: "gpu"}}, []string{"tell preflight", "join 1 failures=0 pause=0s fault=true"}, Joining},
				{601 * sec, Tick{}, []string{"tell exit", "stopjoin", "finish preflight 1/0 started=false", "stopreports"}, Exited},
			},
		},
		"a plan of whole nodes names no GPUs": {
			config: func(c *Config) { c.Alloc = "a0" },
			steps:  []step{{0, joined(1, starts("e1")), []string{"tell starting", "prepare e1"}, Starting}},
		},
		"an image that cannot be made ready": {
			config: func(c *Config) { c.Preflight = true },
			steps:  []step{{1 * sec, PreflightDone{Err: errors.New("no such image")}, []string{"tell exit", "stopjoin", "finish start-failed 1/0 started=false", "stopreports"}, Exited}},
		},
		"a launch that fails": {
			steps: append(running()[:3:3],
				step{1 * sec, Launched{Err: errors.New("no such file")}, []string{"tell exit", "stopjoin", "finish start-failed 1/0 started=false", "report exited e1/1 seen=0 exit=1/0 ordered=false final"}, Exited}),
		},
		"files that cannot be written": {
			steps: []step{
				{0, joined(1, starts("e1")), []string{"tell starting", "prepare e1"}, Starting},
				{0, Prepared{Attempt: 1, Err: errors.New("no space left")}, []string{"tell exit", "stopjoin", "finish start-failed 1/0 started=false", "report exited e1/1 seen=0 exit=1/0 ordered=false final"}, Exited},
			},
		},
		"nonsense of a planner is no answer": {
			steps: []step{
				{1 * sec, joined(1, gangapi.JoinAnswer{State: "maybe"}), []string{"tell waiting", "join 1 failures=1 pause=0s fault=false"}, Joining},
				{2 * sec, joined(1, gangapi.JoinAnswer{State: gangapi.JoinStart}), []string{"join 1 failures=2 pause=0s fault=false"}, Joining},
				{3 * sec, joined(1, gangapi.JoinAnswer{State: gangapi.JoinStart, StartInMS: -1, Membership: gang("e1", 1, "a1")}), []string{"join 1 failures=3 pause=0s fault=false"}, Joining},
				{4 * sec, joined(1, gangapi.JoinAnswer{State: gangapi.JoinStart, StartInMS: 1 << 60, Membership: gang("e1", 1, "a1")}), []string{"join 1 failures=4 pause=0s fault=false"}, Joining},
				{5 * sec, joined(1, gangapi.JoinAnswer{State: gangapi.JoinStart, Membership: gang("e1", 1, "a2")}), []string{"join 1 failures=5 pause=0s fault=false"}, Joining},
				{6 * sec, joined(1, gangapi.JoinAnswer{State: gangapi.JoinStart, Membership: &rendezvous.Membership{Epoch: "e1", Generation: 1, Namespace: "default", Job: "other", Members: gang("e1", 1, "a1").Members}}), []string{"join 1 failures=6 pause=0s fault=false"}, Joining},
				{7 * sec, joined(1, gangapi.JoinAnswer{State: gangapi.JoinStart, Membership: gang("", 1, "a1")}), []string{"join 1 failures=7 pause=0s fault=false"}, Joining},
				{8 * sec, joined(1, gangapi.JoinAnswer{State: gangapi.JoinAlone, Membership: gang("e1", 1, "a2")}), []string{"join 1 failures=8 pause=0s fault=false"}, Joining},
			},
		},
		"inputs that nobody waits for change nothing": {
			steps: []step{
				{1 * sec, Prepared{Attempt: 1}, nil, Joining},
				{1 * sec, Launched{PID: 1}, nil, Joining},
				{1 * sec, Ended{Code: 1}, nil, Joining},
				{1 * sec, Cleared{}, nil, Joining},
				{1 * sec, Frozen{Suspended: true}, nil, Joining},
				{1 * sec, SuspendAsked{}, nil, Joining},
				{1 * sec, ResumeAsked{}, nil, Joining},
				{1 * sec, Asked{Serial: 1}, nil, Joining},
				{1 * sec, Updated{Epoch: "e", Generation: 1}, nil, Joining},
				{1 * sec, PreflightDone{}, nil, Joining},
				{1 * sec, ReportAnswered{}, nil, Joining},
				{1 * sec, CheckpointSeen{}, nil, Joining},
			},
		},
	})
}
