package supervisor

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/caravan-sched/caravan/driver/exec"
	"github.com/caravan-sched/caravan/driver/gangapi"
	"github.com/caravan-sched/caravan/driver/supervisor/machine"
)

func TestProcessSuspendSignalUsageExec(t *testing.T) {
	dir, s := shell(t, nil, `trap 'echo usr1' USR1; echo up; while :; do sleep 0.02; done`)
	c, ctx := launch(t, dir, s)
	untilOutput(t, ctx, s, "up")
	if err := c.Suspend(ctx); err != nil {
		t.Fatal(err)
	}
	if err := c.Suspend(ctx); err != nil {
		t.Errorf("suspend twice: %v", err)
	}
	until(t, ctx, c, "suspended", inPhase(machine.Suspended))
	if err := c.Resume(ctx); err != nil {
		t.Fatal(err)
	}
	if err := c.Signal(ctx, "usr1"); err != nil {
		t.Fatal(err)
	}
	untilOutput(t, ctx, s, "usr1")
	if err := c.Signal(ctx, "SIGNONSENSE"); !errors.Is(err, ErrBadRequest) {
		t.Errorf("unknown signal: %v, want ErrBadRequest", err)
	}
	if u, err := c.Usage(ctx); err != nil || len(u.Processes) == 0 {
		t.Errorf("usage %+v, %v; want processes", u, err)
	}
	var stdout, stderr bytes.Buffer
	exit, err := c.Exec(ctx, exec.ExecSpec{
		Command: []string{"/bin/sh", "-c", "cat; echo $WORD; echo bad >&2; exit 3"}, Env: []string{"WORD=inside"},
		Stdin: strings.NewReader("in "), Stdout: &stdout, Stderr: &stderr,
	}, nil)
	if err != nil || exit.Code != 3 || stdout.String() != "in inside\n" || stderr.String() != "bad\n" {
		t.Errorf("exec: %+v, %v, stdout %q, stderr %q", exit, err, stdout.String(), stderr.String())
	}
	if _, err := c.Exec(ctx, exec.ExecSpec{Command: []string{"/no/such/thing"}}, nil); err == nil {
		t.Error("exec of what is not there: no error")
	}
}

// What the supervisor ignores, the user's code does not; what was ignored before
// all of us, such as by nohup, is not our doing.
func TestNoSignalIsIgnored(t *testing.T) {
	dir, s := shell(t, nil, `grep SigIgn /proc/self/status`)
	c, ctx := launch(t, dir, s)
	if _, err := c.Wait(ctx); err != nil {
		t.Fatal(err)
	}
	own, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	if got, before := ignored(t, untilOutput(t, ctx, s, "SigIgn")), ignored(t, string(own)); got&^before != 0 {
		t.Errorf("signals %064b are ignored, want none but %064b", got, before)
	}
}

func TestProcessPreflight(t *testing.T) {
	p := newHTTPPlanner(t)
	p.join = func(r gangapi.JoinRequest) gangapi.JoinAnswer {
		if r.Fault != nil {
			return gangapi.JoinAnswer{State: gangapi.JoinRefused, Reason: "the gang is moved: " + r.Fault.Detail}
		}
		return startAtOnce(r)
	}
	t.Run("fit", func(t *testing.T) {
		dir, s := shell(t, p, `echo "run"`)
		s.Preflight = &Preflight{GPUSource: "mock:dgxh100", Command: "/bin/sh", Args: []string{"-c", "echo checked"}, Timeout: patient}
		c, ctx := launch(t, dir, s)
		if exit, err := c.Wait(ctx); err != nil || exit.Code != 0 {
			t.Errorf("exit %+v, %v; want 0", exit, err)
		}
		untilOutput(t, ctx, s, "checked\nrun\n")
	})
	t.Run("not fit", func(t *testing.T) {
		dir, s := shell(t, p, `echo "run"`)
		s.Preflight = &Preflight{Command: "/bin/sh", Args: []string{"-c", "exit 6"}, Timeout: patient}
		c, ctx := launch(t, dir, s)
		exit, err := c.Wait(ctx)
		if err != nil || exit.Cause != machine.CausePreflight || exit.Started || !strings.Contains(exit.Fault, "exited with code 6") {
			t.Errorf("exit %+v, %v; want the preflight's", exit, err)
		}
	})
	t.Run("stopped meanwhile", func(t *testing.T) {
		dir, s := shell(t, p, `echo "run"`)
		s.Preflight = &Preflight{Command: "/bin/sh", Args: []string{"-c", "echo $$; while :; do sleep 0.02; done"}, Timeout: 10 * patient}
		c, ctx := launch(t, dir, s)
		out := untilOutput(t, ctx, s, "\n")
		if err := c.Stop(ctx, 10*patient, ""); err != nil {
			t.Fatal(err)
		}
		if exit, err := c.Wait(ctx); err != nil || exit.Cause != machine.CauseStopped || exit.Started {
			t.Errorf("exit %+v, %v; want a stop", exit, err)
		}
		var pid int
		if _, err := fmt.Sscan(out, &pid); err != nil || runs(pid) {
			t.Errorf("the check %d (%v) is left", pid, err)
		}
	})
}

func TestProcessExecIsEnded(t *testing.T) {
	dir, s := shell(t, nil, `echo up; while :; do sleep 0.02; done`)
	c, ctx := launch(t, dir, s)
	untilOutput(t, ctx, s, "up")
	inside, cancel := context.WithCancel(ctx)
	pids, w := io.Pipe()
	done := make(chan error, 1)
	go func() {
		_, err := c.Exec(inside, exec.ExecSpec{Command: []string{"/bin/sh", "-c", "echo $$; sleep 1000"}, Stdout: w}, nil)
		done <- err
	}()
	var pid int
	if _, err := fmt.Fscan(pids, &pid); err != nil {
		t.Fatal(err)
	}
	go func() { _, _ = io.Copy(io.Discard, pids) }()
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("exec: %v, want cancelled", err)
	}
	for runs(pid) {
		if sleep(ctx, 5*time.Millisecond) != nil {
			t.Fatalf("the command %d is left", pid)
		}
	}
}

func TestProcessTerminal(t *testing.T) {
	dir, s := shell(t, nil, `echo up; while :; do sleep 0.02; done`)
	c, ctx := launch(t, dir, s)
	untilOutput(t, ctx, s, "up")
	sizes := make(chan exec.Size, 1)
	sizes <- exec.Size{Rows: 50, Columns: 132}
	var out bytes.Buffer
	exit, err := c.Exec(ctx, exec.ExecSpec{
		Command: []string{"/bin/sh", "-c", `until [ "$(stty size)" = "50 132" ]; do sleep 0.02; done; echo resized`},
		TTY:     true, Size: exec.Size{Rows: 24, Columns: 80}, Stdout: &out,
	}, sizes)
	if err != nil || exit.Code != 0 || !strings.Contains(out.String(), "resized") {
		t.Errorf("exit %+v, %v, output %q", exit, err, out.String())
	}
}

func TestProcessOfAUser(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root, to run as somebody else")
	}
	if _, err := user.Lookup("nobody"); err != nil {
		t.Skipf("needs the user nobody: %v", err)
	}
	dir, s := shell(t, nil, `[ -w "$CARAVAN_SOCKET" ] && id -un`)
	for _, d := range []string{filepath.Dir(s.Workload.Dir), s.Workload.Dir} {
		if err := os.Chmod(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(s.Workload.Stdout, nil, 0o666); err != nil {
		t.Fatal(err)
	}
	s.Workload.User = "nobody"
	c, ctx := launch(t, dir, s)
	if exit, err := c.Wait(ctx); err != nil || exit.Code != 0 {
		t.Errorf("exit %+v, %v; want the socket to be the user's", exit, err)
	}
	untilOutput(t, ctx, s, "nobody")
}

// ignored is the set of signals that a process's status says it ignores.
func ignored(t *testing.T, status string) uint64 {
	t.Helper()
	for line := range strings.Lines(status) {
		if text, ok := strings.CutPrefix(line, "SigIgn:"); ok {
			set, err := strconv.ParseUint(strings.TrimSpace(text), 16, 64)
			if err != nil {
				t.Fatal(err)
			}
			return set
		}
	}
	t.Fatalf("no SigIgn in %q", status)
	return 0
}
