package supervisor

import (
	"context"
	"errors"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/caravan-sched/caravan/driver/exec"
	"github.com/caravan-sched/caravan/driver/gangapi"
	"github.com/caravan-sched/caravan/driver/rendezvous"
	"github.com/caravan-sched/caravan/driver/supervisor/machine"
)

func unchanged(*rig, *Start) {}

func wantTrace(t *testing.T, r *rig, want ...string) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	if diff := cmp.Diff(want, r.trace); diff != "" {
		t.Errorf("what was done (-want +got):\n%s", diff)
	}
}

func TestPlannerAway(t *testing.T) {
	play(t, func(r *rig, _ *Start) {
		r.join = func(gangapi.JoinRequest) (gangapi.JoinAnswer, error) { return gangapi.JoinAnswer{}, errDown }
	}, func(r *rig) {
		s := r.after(5 * time.Minute)
		if s.Phase != machine.Joining || !strings.Contains(s.Reason, "connection refused; trying again") {
			t.Errorf("status %+v, want joining and why", s)
		}
		// Waits of 0.25 s doubled up to 15 s, each half as long or half as long again.
		if n := r.done(); n < 15 || n > 60 {
			t.Errorf("%d polls in 5 minutes", n)
		}
		if got := r.happened(); !slices.Equal(got, []machine.EventKind{machine.EventWaiting}) {
			t.Errorf("events %v, want one", got)
		}
		s = r.after(5*time.Minute - time.Millisecond)
		if s.Exit != nil {
			t.Errorf("exit before the join timeout: %+v", s.Exit)
		}
		s = r.after(time.Millisecond)
		if s.Exit == nil || s.Exit.Cause != machine.CauseTimeout || s.Exit.Code == 0 || !strings.Contains(s.Exit.Fault, "join_timeout") {
			t.Errorf("exit %+v, want the join timeout", s.Exit)
		}
		polls := r.done()
		if r.after(time.Hour); r.done() != polls {
			t.Error("polls go on after the end")
		}
	})
}

func TestStartsTogether(t *testing.T) {
	play(t, func(r *rig, _ *Start) {
		r.join = func(gangapi.JoinRequest) (gangapi.JoinAnswer, error) {
			return gangapi.JoinAnswer{State: gangapi.JoinWaiting, Reason: "waiting for gang: 3 of 4 joined, node-7 missing"}, nil
		}
	}, func(r *rig) {
		if s := r.after(50 * time.Second); s.Phase != machine.Waiting || s.Reason != "waiting for gang: 3 of 4 joined, node-7 missing" {
			t.Errorf("status %+v", s)
		}
		r.set(func() {
			r.join = func(q gangapi.JoinRequest) (gangapi.JoinAnswer, error) {
				a := startAtOnce(q)
				a.StartInMS = 700
				return a, nil
			}
		})
		r.news()
		s := r.after(2 * time.Second)
		if s.Phase != machine.Running || s.Epoch != "e1" || s.WorkloadPID != 77 {
			t.Errorf("status %+v, want running", s)
		}
		wantTrace(t, r, "0s join 1", "1s join 1", "21s join 1", "41s join 1", "50.7s launch in e1")
		if got, want := r.happened(), []machine.EventKind{machine.EventWaiting, machine.EventStarting, machine.EventStarted}; !slices.Equal(got, want) {
			t.Errorf("events %v, want %v", got, want)
		}
	})
}

func TestStopConversation(t *testing.T) {
	tests := map[string]struct {
		timeout  time.Duration
		onSignal func(r *rig, w *fakeWorkload, sig syscall.Signal)
		want     []string
	}{
		"a checkpoint ends the wait": {
			timeout: 2 * time.Minute,
			onSignal: func(r *rig, w *fakeWorkload, sig syscall.Signal) {
				switch sig {
				case syscall.SIGUSR1:
					time.AfterFunc(3*time.Second, func() { r.saves(1, false) })
					time.AfterFunc(8*time.Second, func() { r.saves(2, true) })
				case syscall.SIGTERM:
					time.AfterFunc(time.Second, func() { w.end(exec.Exit{Code: 5}) })
				}
			},
			want: []string{"10s signal 10", "18s signal 15", "19s kill", "19s report exit 5"},
		},
		"everything ignored": {
			timeout:  2 * time.Minute,
			onSignal: func(*rig, *fakeWorkload, syscall.Signal) {},
			want:     []string{"10s signal 10", "1m10s signal 15", "2m10s kill", "2m10s kill", "2m10s report exit 0"},
		},
		"kill_timeout below grace": {
			timeout:  10 * time.Second,
			onSignal: func(*rig, *fakeWorkload, syscall.Signal) {},
			want:     []string{"10s signal 10", "18s signal 15", "20s kill", "20s kill", "20s report exit 0"},
		},
		"the checkpoint's signal ends it": {
			timeout:  2 * time.Minute,
			onSignal: func(_ *rig, w *fakeWorkload, sig syscall.Signal) { w.end(exec.Exit{Signal: int(sig)}) },
			want:     []string{"10s signal 10", "10s kill", "10s report exit 0"},
		},
		"no time at all": {
			timeout:  0,
			onSignal: func(*rig, *fakeWorkload, syscall.Signal) {},
			want:     []string{"10s kill", "10s kill", "10s report exit 0"},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			play(t, func(r *rig, _ *Start) {
				r.onSignal = func(w *fakeWorkload, sig syscall.Signal) { test.onSignal(r, w, sig) }
			}, func(r *rig) {
				r.after(10 * time.Second)
				r.runner.post(machine.StopAsked{Timeout: test.timeout, Signal: "SIGTERM"})
				s := r.after(10 * time.Minute)
				if s.Exit == nil || s.Exit.Cause != machine.CauseStopped {
					t.Fatalf("exit %+v, want a stop", s.Exit)
				}
				wantTrace(t, r, append([]string{"0s join 1", "0s launch in e1"}, test.want...)...)
			})
		})
	}
}

func TestFence(t *testing.T) {
	cut := func(r *rig) { r.set(func() { r.attached = func() error { return errDown } }) }
	t.Run("cut off", func(t *testing.T) {
		play(t, unchanged, func(r *rig) {
			r.after(32 * time.Second)
			cut(r) // seen last at 30 s
			if s := r.after(57900 * time.Millisecond); s.Phase != machine.Running {
				t.Errorf("phase %s at 89.9 s, want running", s.Phase)
			}
			s := r.after(200 * time.Millisecond)
			if s.Exit == nil || s.Exit.Cause != machine.CauseFenced || s.Exit.Fault == "" {
				t.Errorf("exit %+v at 90.1 s, want fenced", s.Exit)
			}
		})
	})
	t.Run("only the planner is away", func(t *testing.T) {
		play(t, func(r *rig, _ *Start) {
			r.report = func(gangapi.ReportRequest) (gangapi.ReportAnswer, error) { return gangapi.ReportAnswer{}, errDown }
		}, func(r *rig) {
			if s := r.after(3 * time.Hour); s.Phase != machine.Running {
				t.Errorf("phase %s, want running", s.Phase)
			}
		})
	})
	t.Run("the planner still sees the node", func(t *testing.T) {
		play(t, func(r *rig, _ *Start) {
			r.report = func(gangapi.ReportRequest) (gangapi.ReportAnswer, error) {
				return gangapi.ReportAnswer{Attached: true}, nil
			}
		}, func(r *rig) {
			r.after(30 * time.Second)
			cut(r)
			if s := r.after(time.Hour); s.Phase != machine.Running {
				t.Errorf("phase %s, want running", s.Phase)
			}
		})
	})
	t.Run("an agent that was never there", func(t *testing.T) {
		play(t, cutFromTheStart, func(r *rig) {
			if s := r.after(time.Hour); s.Phase != machine.Running {
				t.Errorf("phase %s, want running", s.Phase)
			}
		})
	})
	t.Run("the host slept", func(t *testing.T) {
		play(t, unchanged, func(r *rig) {
			r.after(31 * time.Second)
			r.set(func() { r.attached = func() error { return errDown }; r.slept = time.Hour })
			if s := r.after(lookAtLeast); s.Exit == nil || s.Exit.Cause != machine.CauseFenced {
				t.Errorf("status %+v, want fenced soon after waking", s)
			}
		})
	})
}

func cutFromTheStart(r *rig, _ *Start) { r.attached = func() error { return errDown } }

func TestRestartOrder(t *testing.T) {
	play(t, unchanged, func(r *rig) {
		r.after(10 * time.Second)
		r.set(func() {
			r.report = func(q gangapi.ReportRequest) (gangapi.ReportAnswer, error) {
				if q.Seen >= 4 {
					return gangapi.ReportAnswer{}, nil
				}
				return gangapi.ReportAnswer{Order: &gangapi.Order{Sequence: 4, Kind: gangapi.OrderRestart, Urgent: true, Reason: "rank 3 on node-7 failed first, with exit code 1"}}, nil
			}
		})
		r.news()
		s := r.after(time.Minute)
		if s.Phase != machine.Running || s.Epoch != "e2" || s.Attempt != 2 || s.Exit != nil {
			t.Errorf("status %+v, want the second attempt running", s)
		}
		wantTrace(t, r, "0s join 1", "0s launch in e1", "10s signal 15", "10s kill", "10s join 2", "10s launch in e2")
	})
}

func TestFailureOfAnother(t *testing.T) {
	play(t, func(r *rig, _ *Start) {
		r.report = func(q gangapi.ReportRequest) (gangapi.ReportAnswer, error) {
			if q.Exit == nil || q.Seen > 0 {
				return gangapi.ReportAnswer{}, nil
			}
			return gangapi.ReportAnswer{Order: &gangapi.Order{Sequence: 1, Kind: gangapi.OrderRestart, Reason: "rank 3 failed first"}}, nil
		}
	}, func(r *rig) {
		r.after(10 * time.Second)
		r.runner.workload().(*fakeWorkload).end(exec.Exit{Code: 1})
		if s := r.after(10 * time.Second); s.Epoch != "e2" || s.Exit != nil {
			t.Errorf("status %+v, want the second epoch", s)
		}
	})
}

func TestFinalReportIsToldUntilHeard(t *testing.T) {
	play(t, func(r *rig, _ *Start) {
		r.report = func(gangapi.ReportRequest) (gangapi.ReportAnswer, error) { return gangapi.ReportAnswer{}, errDown }
	}, func(r *rig) {
		r.after(10 * time.Second)
		r.runner.workload().(*fakeWorkload).end(exec.Exit{Code: 0})
		if s := r.after(0); s.Exit == nil || s.Exit.Cause != machine.CauseExited {
			t.Errorf("exit %+v, want it at once", s.Exit)
		}
		r.after(20 * time.Second)
		told := r.done()
		r.set(func() {
			r.report = func(gangapi.ReportRequest) (gangapi.ReportAnswer, error) { return gangapi.ReportAnswer{}, nil }
		})
		r.after(30 * time.Second)
		if n := r.done() - told; n != 1 {
			t.Errorf("%d reports after the planner was back, want 1", n)
		}
	})
}

func TestResize(t *testing.T) {
	play(t, func(_ *rig, s *Start) { s.ResizeSignal = "SIGHUP" }, func(r *rig) {
		r.after(10 * time.Second)
		fails := true
		r.set(func() {
			r.update = func() error {
				if fails {
					fails = false
					return syscall.ENOSPC
				}
				return nil
			}
		})
		grown := memberOf(gangapi.JoinRequest{Address: "127.0.0.1", Port: 1}, "e1")
		grown.Generation, grown.Max = 2, 2
		grown.Members = append(grown.Members, rendezvous.Member{Group: "g", Index: 1, Alloc: "a2", Node: "n2", Address: "10.0.0.2", Processes: 1})
		r.set(func() {
			r.report = func(q gangapi.ReportRequest) (gangapi.ReportAnswer, error) {
				if q.Generation == 2 {
					return gangapi.ReportAnswer{}, nil
				}
				return gangapi.ReportAnswer{Membership: grown}, nil
			}
		})
		r.news()
		s := r.after(time.Minute)
		if s.Phase != machine.Running || s.Generation != 2 {
			t.Errorf("status %+v, want generation 2", s)
		}
		wantTrace(t, r, "0s join 1", "0s launch in e1", "10s files of generation 2", "15s files of generation 2", "15s signal 1")
	})
}

func TestPreflightIsCancelled(t *testing.T) {
	play(t, func(r *rig, s *Start) {
		s.Preflight = &Preflight{Timeout: time.Minute}
		r.examine = func(ctx context.Context) *gangapi.NodeFault {
			<-ctx.Done()
			return &gangapi.NodeFault{Check: "cancelled"}
		}
	}, func(r *rig) {
		r.after(10 * time.Second)
		r.runner.post(machine.StopAsked{Timeout: time.Minute})
		if s := r.after(0); s.Exit == nil || s.Exit.Cause != machine.CauseStopped {
			t.Errorf("exit %+v, want a stop at once", s.Exit)
		}
		wantTrace(t, r)
	})
}

// What tidies up after the run before kills all in the task's cgroup, which the
// next preflight's command is in, too.
func TestPreflightWaitsForTheRunBefore(t *testing.T) {
	play(t, func(r *rig, s *Start) {
		s.Preflight = &Preflight{Timeout: time.Minute}
		r.drain = 2 * time.Second
		r.examine = func(ctx context.Context) *gangapi.NodeFault {
			r.mu.Lock()
			defer r.mu.Unlock()
			if r.up != 0 {
				return &gangapi.NodeFault{Check: "/bin/echo", Detail: "it was ended by signal 9"}
			}
			return nil
		}
		r.report = func(q gangapi.ReportRequest) (gangapi.ReportAnswer, error) {
			if q.Seen >= 4 {
				return gangapi.ReportAnswer{}, nil
			}
			return gangapi.ReportAnswer{Order: &gangapi.Order{Sequence: 4, Kind: gangapi.OrderRestart, Reason: "rank 3 failed first"}}, nil
		}
	}, func(r *rig) {
		s := r.after(time.Hour)
		if s.Phase != machine.Running || s.Attempt != 2 || slices.Contains(r.happened(), machine.EventPreflight) {
			t.Errorf("status %+v after %v, want the second attempt running on a node that is fit", s, r.happened())
		}
	})
}

func TestCannotStart(t *testing.T) {
	tests := map[string]func(r *rig){
		"the disk is full":     func(r *rig) { r.prepare = func() error { return syscall.ENOSPC } },
		"the command is gone":  func(r *rig) { r.launch = func() error { return errors.New("no such file") } },
		"a kill that fails":    func(r *rig) { r.onKill = func(w *fakeWorkload) error { return exec.ErrSurvivors } },
		"a kill that succeeds": func(r *rig) {},
	}
	for name, change := range tests {
		t.Run(name, func(t *testing.T) {
			play(t, func(r *rig, _ *Start) { change(r) }, func(r *rig) {
				r.after(10 * time.Second)
				r.runner.post(machine.StopAsked{})
				if s := r.after(3 * time.Minute); s.Exit == nil {
					t.Errorf("status %+v, want an end", s)
				}
			})
		})
	}
}

func TestQuitKillsWhatRuns(t *testing.T) {
	var killed *rig
	play(t, unchanged, func(r *rig) {
		killed = r
		r.after(10 * time.Second)
	})
	if got := killed.trace[len(killed.trace)-1]; got != "10s kill" {
		t.Errorf("last of all: %q, want the kill", got)
	}
}

func TestAlone(t *testing.T) {
	play(t, func(r *rig, _ *Start) {
		r.join = func(gangapi.JoinRequest) (gangapi.JoinAnswer, error) {
			return gangapi.JoinAnswer{State: gangapi.JoinAlone}, nil
		}
	}, func(r *rig) {
		if s := r.after(time.Second); s.Phase != machine.Running || s.Epoch != "" {
			t.Errorf("status %+v, want running without an epoch", s)
		}
		wantTrace(t, r, "0s join 1", "0s launch in run-1-1")
	})
}
