package driver

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/caravan-sched/caravan/driver/gangapi"
	"github.com/caravan-sched/caravan/internal/nomadplugin/driver"
)

// What Nomad's client expects of a driver, call by call and in each state that a
// task may be in. The calls go to the real binary over go-plugin.

// stage is a state of a task, and how it comes to it.
type stage struct {
	name string
	make func(r *rig, name string) (driver.TaskConfig, driver.Handle)
}

const forever = `trap 'exit 9' TERM; trap 'echo told' USR1; echo up; while :; do sleep 0.02; done`

func stages() []stage {
	running := func(r *rig, name string) (driver.TaskConfig, driver.Handle) {
		t, h := r.start(name, forever)
		r.output(t, "up")
		return t, h
	}
	return []stage{
		{"unknown", func(r *rig, name string) (driver.TaskConfig, driver.Handle) {
			t := r.task(name, `command = "/bin/true"`)
			h, err := driver.NewHandle(handleVersion, t, handle{Dir: r.state + "/none"})
			if err != nil {
				r.t.Fatal(err)
			}
			return t, h
		}},
		{"waiting", func(r *rig, name string) (driver.TaskConfig, driver.Handle) {
			r.planner.hold()
			t, h := r.start(name, forever)
			r.eventually("join", func() (bool, any) {
				seen := false
				r.planner.set(func() { _, seen = r.planner.joins[t.AllocID] })
				return seen, nil
			})
			r.planner.set(func() {
				r.planner.answer = func(alloc string, _ gangapi.JoinRequest) gangapi.JoinAnswer {
					if strings.Contains(alloc, "waiting") {
						return gangapi.JoinAnswer{State: gangapi.JoinWaiting, Reason: "waiting for gang"}
					}
					return gangapi.JoinAnswer{State: gangapi.JoinAlone}
				}
			})
			return t, h
		}},
		{"running", running},
		{"suspended", func(r *rig, name string) (driver.TaskConfig, driver.Handle) {
			t, h := running(r, name)
			r.planner.set(func() {
				r.planner.order = func(alloc string, q gangapi.ReportRequest) gangapi.ReportAnswer {
					if alloc == t.AllocID && q.Seen == 0 {
						return gangapi.ReportAnswer{Attached: true, Order: &gangapi.Order{Sequence: 1, Kind: gangapi.OrderSuspend, Reason: "the operator says so"}}
					}
					return gangapi.ReportAnswer{Attached: true}
				}
			})
			r.eventually("suspension", func() (bool, any) {
				s, err := r.Inspect(r.t.Context(), t.ID)
				return err == nil && s.Attributes["phase"] == "suspended", s.Attributes
			})
			return t, h
		}},
		{"exited", func(r *rig, name string) (driver.TaskConfig, driver.Handle) {
			t, h := r.start(name, "exit 5")
			r.exit(t.ID)
			return t, h
		}},
		{"destroyed", func(r *rig, name string) (driver.TaskConfig, driver.Handle) {
			t, h := r.start(name, "exit 5")
			r.exit(t.ID)
			if err := r.Destroy(r.t.Context(), t.ID, false); err != nil {
				r.t.Fatal(err)
			}
			return t, h
		}},
	}
}

// call is one of the contract's, and what must come of it: by state, "ok", "not
// found", "refused", or a check of its own.
type call struct {
	name string
	do   func(r *rig, t driver.TaskConfig, h driver.Handle) error
	want map[string]string
}

// errStill says that a call was still at it when its time was over.
var errStill = errors.New("still waiting")

func calls() []call {
	alive := map[string]string{"unknown": "not found", "waiting": "ok", "running": "ok", "suspended": "ok", "exited": "ok", "destroyed": "not found"}
	only := func(change map[string]string) map[string]string {
		out := maps.Clone(alive)
		maps.Copy(out, change)
		return out
	}
	return []call{
		{"inspect", func(r *rig, t driver.TaskConfig, _ driver.Handle) error {
			s, err := r.Inspect(r.t.Context(), t.ID)
			if err == nil && (s.ID != t.ID || s.Name != t.Name || s.Started.IsZero()) {
				return fmt.Errorf("status is %+v", s)
			}
			return err
		}, alive},
		{"wait", func(r *rig, t driver.TaskConfig, _ driver.Handle) error {
			ctx, cancel := context.WithTimeout(r.t.Context(), 300*time.Millisecond)
			defer cancel()
			_, err := r.Wait(ctx, t.ID)
			// The plugin may see that the time is over a little earlier.
			if ctx.Err() != nil || status.Code(err) == codes.DeadlineExceeded {
				return errStill
			}
			return err
		}, only(map[string]string{"waiting": "still", "running": "still", "suspended": "still"})},
		{"statistics", func(r *rig, t driver.TaskConfig, _ driver.Handle) error {
			ctx, cancel := context.WithTimeout(r.t.Context(), patience)
			defer cancel()
			done := errors.New("one is enough")
			err := r.Stats(ctx, t.ID, 10*time.Millisecond, func(u driver.Usage) error {
				if u.TaskID != t.ID || u.Time.IsZero() {
					return fmt.Errorf("usage is %+v", u)
				}
				return done
			})
			if errors.Is(err, done) {
				return nil
			}
			return err
		}, alive},
		{"signal", func(r *rig, t driver.TaskConfig, _ driver.Handle) error {
			return r.Signal(r.t.Context(), t.ID, "SIGUSR1")
		},
			only(map[string]string{"waiting": "refused", "exited": "refused"})},
		{"signal that there is not", func(r *rig, t driver.TaskConfig, _ driver.Handle) error {
			return r.Signal(r.t.Context(), t.ID, "SIGNONE")
		}, only(map[string]string{"waiting": "refused", "running": "refused", "suspended": "refused", "exited": "refused"})},
		{"exec", func(r *rig, t driver.TaskConfig, _ driver.Handle) error {
			res, err := r.Exec(r.t.Context(), t.ID, []string{"/bin/sh", "-c", "exit 3"}, patience)
			if err == nil && res.Exit.Code != 3 {
				return fmt.Errorf("result is %+v", res)
			}
			return err
		}, only(map[string]string{"waiting": "refused", "exited": "refused", "suspended": "any"})},
		{"exec of nothing", func(r *rig, t driver.TaskConfig, _ driver.Handle) error {
			_, err := r.Exec(r.t.Context(), t.ID, nil, patience)
			return err
		}, only(map[string]string{"waiting": "refused", "running": "refused", "suspended": "refused", "exited": "refused"})},
		{"streaming exec", func(r *rig, t driver.TaskConfig, _ driver.Handle) error {
			var out bytes.Buffer
			e, err := r.ExecStream(r.t.Context(), t.ID, driver.ExecOptions{
				Command: []string{"/bin/sh", "-c", "tr a-z A-Z; exit 3"}, Stdin: strings.NewReader("through"), Stdout: &out, Stderr: &out,
			})
			if err == nil && (e.Code != 3 || out.String() != "THROUGH") {
				return fmt.Errorf("exit %+v, output %q", e, &out)
			}
			return err
		}, only(map[string]string{"waiting": "refused", "exited": "refused", "suspended": "any"})},
		{"streaming exec with a terminal", func(r *rig, t driver.TaskConfig, _ driver.Handle) error {
			var out bytes.Buffer
			resize := make(chan driver.TerminalSize, 1)
			resize <- driver.TerminalSize{Width: 101, Height: 33}
			close(resize)
			_, err := r.ExecStream(r.t.Context(), t.ID, driver.ExecOptions{
				Command: []string{"/bin/sh", "-c", "test -t 0 && n=0; while [ $n -lt 100 ] && [ \"$(stty size)\" != '33 101' ]; do n=$((n+1)); sleep 0.05; done; stty size"},
				TTY:     true, Resize: resize, Stdin: strings.NewReader(""), Stdout: &out, Stderr: &out,
			})
			if err == nil && !strings.Contains(out.String(), "33 101") {
				return fmt.Errorf("output %q", &out)
			}
			return err
		}, only(map[string]string{"waiting": "refused", "exited": "refused", "suspended": "any"})},
		{"recover", func(r *rig, _ driver.TaskConfig, h driver.Handle) error { return r.Recover(r.t.Context(), h) },
			only(map[string]string{"unknown": "refused", "destroyed": "refused"})},
		{"start again", func(r *rig, t driver.TaskConfig, _ driver.Handle) error {
			_, _, err := r.Start(r.t.Context(), t)
			return err
		}, map[string]string{"unknown": "ok", "waiting": "refused", "running": "refused", "suspended": "refused", "exited": "refused", "destroyed": "ok"}},
		{"stop", func(r *rig, t driver.TaskConfig, _ driver.Handle) error {
			if err := r.Stop(r.t.Context(), t.ID, 20*time.Second, "SIGTERM"); err != nil {
				return err
			}
			_, err := r.Wait(r.t.Context(), t.ID) // as Nomad does after that
			return err
		}, alive},
		{"stop at once", func(r *rig, t driver.TaskConfig, _ driver.Handle) error {
			if err := r.Stop(r.t.Context(), t.ID, 0, ""); err != nil {
				return err
			}
			_, err := r.Wait(r.t.Context(), t.ID)
			return err
		}, alive},
		{"destroy", func(r *rig, t driver.TaskConfig, _ driver.Handle) error { return r.Destroy(r.t.Context(), t.ID, false) },
			only(map[string]string{"waiting": "refused", "running": "refused", "suspended": "refused"})},
		{"destroy by force", func(r *rig, t driver.TaskConfig, _ driver.Handle) error {
			if err := r.Destroy(r.t.Context(), t.ID, true); err != nil {
				return err
			}
			if _, err := r.Inspect(r.t.Context(), t.ID); !errors.Is(err, driver.ErrTaskNotFound) {
				return fmt.Errorf("it is still known: %w", err)
			}
			return nil
		}, alive},
	}
}

func verdict(err error) string {
	switch {
	case err == nil:
		return "ok"
	case errors.Is(err, errStill):
		return "still"
	case errors.Is(err, driver.ErrTaskNotFound):
		return "not found"
	default:
		return "refused"
	}
}

// TestConformance makes every call in every state.
func TestConformance(t *testing.T) {
	r := newRig(t)
	for _, s := range stages() {
		for i, c := range calls() {
			t.Run(s.name+"/"+c.name, func(t *testing.T) {
				r := &rig{t: t, planner: r.planner, state: r.state, allocs: r.allocs, plugin: r.plugin, Client: r.Client}
				task, h := s.make(r, fmt.Sprintf("%s-%d", s.name, i))
				err := c.do(r, task, h)
				if got := verdict(err); got != c.want[s.name] && c.want[s.name] != "any" {
					t.Errorf("%s: %v, want %s", got, err, c.want[s.name])
				}
			})
		}
	}
	r.nothingLeft()
}

// TestConcurrent makes all calls at once, in every state. What each answers
// depends on the others; that all are answered, that the plugin lives, and that
// the tasks can be got rid of does not.
func TestConcurrent(t *testing.T) {
	r := newRig(t)
	for _, s := range stages() {
		task, h := s.make(r, s.name+"-all")
		var all sync.WaitGroup
		for round := range 3 {
			for _, c := range calls() {
				if round < 2 && slices.Contains([]string{"stop", "stop at once", "destroy", "destroy by force", "start again"}, c.name) {
					continue // they end the task, so they come last
				}
				all.Go(func() { _ = c.do(r, task, h) })
			}
		}
		all.Wait()
		if r.plugin.Exited() {
			t.Fatalf("%s: the plugin is gone", s.name)
		}
		r.sweep(task.ID)
	}
	r.nothingLeft()
}

// nothingLeft checks that no supervisor's state is left.
func (r *rig) nothingLeft() {
	r.t.Helper()
	r.eventually("empty state directory", func() (bool, any) {
		left := r.supervisors()
		return len(left) == 0, left
	})
}
