package machine

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/caravan-sched/caravan/driver/gangapi"
	"github.com/caravan-sched/caravan/driver/rendezvous"
)

// step is what happens at a time, what is to be done then, and the phase after.
type step struct {
	at    time.Duration
	in    Input
	want  []string
	phase Phase
}

const sec = time.Second

func config() Config {
	return Config{
		Namespace: "default", Job: "train", Alloc: "a1", GPUs: []string{"GPU-1", "GPU-2"}, Role: Rank,
		JoinTimeout: 10 * time.Minute, CheckpointSignal: "SIGUSR1", Grace: 60 * sec, KillAfter: 70 * sec, FenceAfter: 60 * sec,
		ResizeSignal: "SIGHUP",
	}
}

func gang(epoch string, generation int, allocs ...string) *rendezvous.Membership {
	m := &rendezvous.Membership{Epoch: epoch, Generation: generation, Namespace: "default", Job: "train", MasterAddr: "10.0.0.1", MasterPort: 29500, Min: 1, Max: 8}
	for i, a := range allocs {
		member := rendezvous.Member{Group: "g", Index: i, Alloc: a, Node: "n" + a, NodeName: "node-" + a, Address: "10.0.0.1", Processes: 2}
		if a == "a1" {
			member.GPUs = []string{"GPU-2", "GPU-1"}
		}
		m.Members = append(m.Members, member)
	}
	return m
}

func joined(attempt int, a gangapi.JoinAnswer) JoinAnswered {
	return JoinAnswered{Attempt: attempt, Answer: a}
}

func starts(epoch string) gangapi.JoinAnswer {
	return gangapi.JoinAnswer{State: gangapi.JoinStart, StartInMS: 500, Membership: gang(epoch, 1, "a0", "a1")}
}

// render makes actions readable, without the sentences of those that are told.
func render(actions []Action) []string {
	var out []string
	for _, a := range actions {
		switch a := a.(type) {
		case Tell:
			out = append(out, "tell "+string(a.Kind))
		case Join:
			out = append(out, fmt.Sprintf("join %d failures=%d pause=%s fault=%t", a.Attempt, a.Failures, a.Pause, a.Fault != nil))
		case Prepare:
			epoch := "-"
			if a.Membership != nil {
				epoch = a.Membership.Epoch
			}
			out = append(out, "prepare "+epoch)
		case Signal:
			out = append(out, "signal "+a.Name)
		case Report:
			text := fmt.Sprintf("report %s %s/%d seen=%d", a.State, a.Epoch, a.Generation, a.Seen)
			if a.Exit != nil {
				text += fmt.Sprintf(" exit=%d/%d ordered=%t", a.Exit.Code, a.Exit.Signal, a.Exit.Ordered)
			}
			if a.Failures > 0 {
				text += fmt.Sprintf(" failures=%d", a.Failures)
			}
			if a.Pause > 0 {
				text += fmt.Sprintf(" pause=%s", a.Pause)
			}
			if a.Final {
				text += " final"
			}
			out = append(out, text)
		case Update:
			out = append(out, fmt.Sprintf("update %d %s", a.Membership.Generation, a.Signal))
		case Finish:
			out = append(out, fmt.Sprintf("finish %s %d/%d started=%t", a.Exit.Cause, a.Exit.Code, a.Exit.Signal, a.Exit.Started))
		default:
			out = append(out, strings.ToLower(strings.TrimPrefix(fmt.Sprintf("%T", a), "machine.")))
		}
	}
	return out
}

func play(t *testing.T, m *Machine, steps []step) (all []Action) {
	t.Helper()
	all = m.Begin(0)
	for i, s := range steps {
		got := m.Step(s.at, s.in)
		all = append(all, got...)
		if diff := cmp.Diff(s.want, render(got)); diff != "" {
			t.Fatalf("step %d, %T at %s (-want +got):\n%s", i, s.in, s.at, diff)
		}
		if m.Phase() != s.phase {
			t.Fatalf("step %d, %T at %s: phase %s, want %s", i, s.in, s.at, m.Phase(), s.phase)
		}
	}
	return all
}

// running are the steps until the user's code runs, in the epoch e1.
func running() []step {
	return []step{
		{0, joined(1, starts("e1")), []string{"tell starting", "prepare e1"}, Starting},
		{0, Prepared{Attempt: 1}, nil, Starting},
		{500 * time.Millisecond, Tick{}, []string{"launch"}, Starting},
		{500 * time.Millisecond, Launched{PID: 7}, []string{"tell started", "report running e1/1 seen=0"}, Running},
	}
}

// order is a report's answer with an order.
func order(serial int64, o gangapi.Order) ReportAnswered {
	return ReportAnswered{Serial: serial, Answer: gangapi.ReportAnswer{Order: &o}}
}

func TestTransitions(t *testing.T) {
	waiting := gangapi.JoinAnswer{State: gangapi.JoinWaiting, Joined: 1, Size: 2}
	tests := map[string]struct {
		config func(c *Config)
		steps  []step
	}{
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
			steps: append(running(),
				step{10 * sec, CheckpointSeen{Step: new(int64), Path: "/c/1"}, []string{"tell checkpoint"}, Running},
				step{69 * sec, CheckpointSeen{}, nil, Running},
				step{70 * sec, CheckpointSeen{}, []string{"tell checkpoint"}, Running}),
		},
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
		"stop: a second one without any time kills": {
			steps: append(running(),
				step{10 * sec, StopAsked{Timeout: 100 * sec}, []string{"report stopping e1/1 seen=0", "tell stopping", "askcheckpoint"}, Stopping},
				step{11 * sec, StopAsked{}, []string{"tell kill", "kill"}, Stopping}),
		},
		"an image that cannot be made ready": {
			config: func(c *Config) { c.Preflight = true },
			steps:  []step{{1 * sec, PreflightDone{Err: errors.New("no such image")}, []string{"tell exit", "stopjoin", "finish start-failed 1/0 started=false", "stopreports"}, Exited}},
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
			steps: []step{{1 * sec, StopAsked{Timeout: 60 * sec}, []string{"stopjoin", "tell exit", "stopjoin", "finish stopped 0/15 started=false", "stopreports"}, Exited}},
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
				step{10 * sec, order(1, gangapi.Order{Sequence: 1, Kind: gangapi.OrderRestart, Urgent: true}), []string{"tell order", "report stopping e1/1 seen=1", "tell stopping", "tell terminate", "signal SIGTERM"}, Stopping}),
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
		"an absent planner stops nothing": {
			steps: append(running(),
				step{10 * sec, ReportAnswered{Serial: 1, Err: errors.New("refused")}, []string{"report running e1/1 seen=0 failures=1"}, Running},
				step{20 * sec, ReportAnswered{Serial: 2, Err: errors.New("refused")}, []string{"report running e1/1 seen=0 failures=2"}, Running},
				step{30 * sec, ReportAnswered{Serial: 3, Err: errors.New("refused")}, []string{"tell problem", "report running e1/1 seen=0 failures=3"}, Running},
				step{9000 * sec, Tick{}, nil, Running},
				step{9000 * sec, ReportAnswered{Serial: 4}, []string{"tell problem", "report running e1/1 seen=0"}, Running}),
		},
		"an allocation that is not wanted waits for Nomad": {
			steps: append(running(),
				step{10 * sec, ReportAnswered{Serial: 1, Answer: gangapi.ReportAnswer{Gone: true, Order: &gangapi.Order{Sequence: 1, Kind: gangapi.OrderFail}}}, []string{"tell unwanted", "report running e1/1 seen=0"}, Running},
				step{10 * sec, ReportAnswered{Serial: 2, Answer: gangapi.ReportAnswer{Gone: true}}, []string{"report running e1/1 seen=0 pause=1s"}, Running}),
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
			steps: append(running(), step{9000 * sec, Tick{}, nil, Running}),
		},
		"the fence: nothing to stop while waiting": {
			steps: []step{
				{0, AgentSeen{}, nil, Joining},
				{300 * sec, Tick{}, nil, Joining},
				{300 * sec, joined(1, starts("e1")), []string{"tell starting", "prepare e1", "tell fence", "tell exit", "stopjoin", "finish fenced 1/0 started=false", "report exited e1/1 seen=0 exit=1/0 ordered=true final"}, Exited},
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
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			c := config()
			if test.config != nil {
				test.config(&c)
			}
			play(t, New(c), test.steps)
		})
	}
}

func TestWords(t *testing.T) {
	tests := map[string]struct {
		config func(c *Config)
		steps  []step
		want   string
	}{
		"the planner's own": {
			steps: []step{{in: joined(1, gangapi.JoinAnswer{State: gangapi.JoinWaiting, Reason: "waiting for gang: 3 of 4 joined, node-7 missing"})}},
			want:  "waiting for gang: 3 of 4 joined, node-7 missing",
		},
		"made of numbers": {
			steps: []step{{in: joined(1, gangapi.JoinAnswer{State: gangapi.JoinWaiting, Joined: 3, Size: 9, Missing: []gangapi.Missing{
				{NodeName: "node-7"}, {Group: "g", Index: 2}, {NodeName: "c"}, {NodeName: "d"}, {NodeName: "e"}, {NodeName: "f"}}})}},
			want: "waiting for gang: 3 of 9 joined, node-7, g[2], c, d, 2 more missing",
		},
		"unreachable": {
			steps: []step{{in: JoinAnswered{Attempt: 1, Err: errors.New("planner cannot be reached:\n connection\x00 refused \xff")}}},
			want:  "the planner gives no answer that can be used: planner cannot be reached: connection? refused ?; trying again",
		},
		"join timeout": {
			steps: []step{
				{at: 1 * sec, in: joined(1, gangapi.JoinAnswer{State: gangapi.JoinWaiting, Joined: 3, Size: 4})},
				{at: 600 * sec, in: Tick{}},
			},
			want: "the task has failed: the gang was not complete within 10m0s (join_timeout): waiting for gang: 3 of 4 joined",
		},
		"other GPUs": {
			config: func(c *Config) { c.GPUs = nil },
			steps:  []step{{in: joined(1, starts("e1"))}},
			want:   "the task has failed: the GPUs are not those that were planned: granted none, planned GPU-2, GPU-1",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			c := config()
			if test.config != nil {
				test.config(&c)
			}
			m := New(c)
			m.Begin(0)
			got := ""
			for _, s := range test.steps {
				for _, a := range m.Step(s.at, s.in) {
					if tell, ok := a.(Tell); ok {
						got = tell.Message
					}
				}
			}
			if got != test.want {
				t.Errorf("told %q, want %q", got, test.want)
			}
		})
	}
}
