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

// scenario is a task's life, with its configuration where it matters.
type scenario struct {
	config func(c *Config)
	steps  []step
}

func playAll(t *testing.T, tests map[string]scenario) {
	t.Helper()
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
		"no identity": {
			steps: []step{{in: JoinAnswered{Attempt: 1, Err: fmt.Errorf("none at PATH: %w", gangapi.ErrNoIdentity)}}},
			want:  "none at PATH: read workload identity; waiting for the planner to place the job anew with it",
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
