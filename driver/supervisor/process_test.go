package supervisor

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caravan-sched/caravan/driver/gangapi"
	"github.com/caravan-sched/caravan/driver/supervisor/machine"
)

func TestProcessRunsAndEnds(t *testing.T) {
	dir, s := shell(t, nil, `echo "$RANK $CARAVAN_SOCKET"; exit 7`)
	c, ctx := launch(t, dir, s)
	exit, err := c.Wait(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if exit.Code != 7 || exit.Cause != machine.CauseExited || !exit.Started || exit.Fault != "" {
		t.Errorf("exit %+v, want code 7 by itself", exit)
	}
	untilOutput(t, ctx, s, "mine "+filepath.Join(s.Files.Dir, fileProgress))
	events, err := c.Events(ctx, 0)
	if err != nil {
		t.Fatal(err)
	}
	if want := []machine.EventKind{machine.EventStarted, machine.EventEnded, machine.EventExit}; !slices.Equal(kinds(events), want) {
		t.Errorf("events %v, want %v", kinds(events), want)
	}
	if err := c.Signal(ctx, "SIGUSR1"); !errors.Is(err, ErrNotRunning) {
		t.Errorf("signal after the end: %v, want ErrNotRunning", err)
	}
	if _, err := c.Usage(ctx); !errors.Is(err, ErrNotRunning) {
		t.Errorf("usage after the end: %v, want ErrNotRunning", err)
	}
	if err := c.Stop(ctx, time.Second, ""); err != nil {
		t.Errorf("stop after the end: %v", err)
	}
}

func TestProcessBarrierAndStop(t *testing.T) {
	p := newHTTPPlanner(t)
	dir, s := shell(t, p, `
trap 'echo saving; echo x > ckpt/step-1' USR1
trap 'echo term; exit 0' TERM
mkdir -p ckpt; cat "$CARAVAN_MEMBERSHIP"; echo "rank $RANK of $WORLD_SIZE at $MASTER_ADDR"
while :; do sleep 0.02; done`)
	s.Checkpoint = Checkpoint{Signal: "SIGUSR1", Grace: patient, Paths: []string{filepath.Join(s.Workload.Dir, "ckpt")}}
	c, ctx := launch(t, dir, s)
	until(t, ctx, c, "waiting", inPhase(machine.Waiting))
	if err := c.Suspend(ctx); !errors.Is(err, ErrNotRunning) {
		t.Errorf("suspend at the barrier: %v, want ErrNotRunning", err)
	}
	if err := c.Destroy(ctx, false); !errors.Is(err, ErrRunning) {
		t.Errorf("destroy at the barrier: %v, want ErrRunning", err)
	}
	p.set(func() { p.join = startAtOnce })
	running := until(t, ctx, c, "running", inPhase(machine.Running))
	if running.Epoch != "e1" || running.WorkloadPID == 0 {
		t.Errorf("status %+v, want epoch e1 and a PID", running)
	}
	if out := untilOutput(t, ctx, s, "rank 0 of 1 at 127.0.0.1"); !strings.Contains(out, `"epoch": "e1"`) {
		t.Errorf("output %q, want the membership in it", out)
	}
	if err := c.Stop(ctx, 10*patient, "SIGTERM"); err != nil {
		t.Fatal(err)
	}
	exit, err := c.Wait(ctx)
	if err != nil || exit.Code != 0 || exit.Cause != machine.CauseStopped {
		t.Fatalf("exit %+v, %v; want a stop with code 0", exit, err)
	}
	events, err := c.Events(ctx, 0)
	if err != nil {
		t.Fatal(err)
	}
	want := []machine.EventKind{
		machine.EventWaiting, machine.EventStarting, machine.EventStarted, machine.EventStopping,
		machine.EventCheckpoint, machine.EventTerminate, machine.EventEnded, machine.EventExit,
	}
	if !slices.Equal(kinds(events), want) {
		t.Errorf("events %v, want %v", kinds(events), want)
	}
}

func TestProcessIgnoresEverything(t *testing.T) {
	dir, s := shell(t, nil, `trap '' TERM USR1; setsid sleep 1000 & echo "child $!"; while :; do sleep 0.02; done`)
	c, ctx := launch(t, dir, s)
	out := untilOutput(t, ctx, s, "child")
	var child int
	if _, err := fmt.Sscanf(out, "child %d", &child); err != nil {
		t.Fatal(err)
	}
	if err := c.Stop(ctx, 200*time.Millisecond, "SIGTERM"); err != nil {
		t.Fatal(err)
	}
	exit, err := c.Wait(ctx)
	if err != nil || exit.Signal != int(unix.SIGKILL) {
		t.Errorf("exit %+v, %v; want SIGKILL", exit, err)
	}
	if runs(child) {
		t.Error("the grandchild in a session of its own is left")
	}
}

func TestProcessRestartOrder(t *testing.T) {
	p := newHTTPPlanner(t)
	p.join = startAtOnce
	dir, s := shell(t, p, `echo "in $CARAVAN_EPOCH"; while :; do sleep 0.02; done`)
	c, ctx := launch(t, dir, s)
	untilOutput(t, ctx, s, "in e1")
	p.set(func() {
		p.report = func(r gangapi.ReportRequest) gangapi.ReportAnswer {
			return gangapi.ReportAnswer{Order: &gangapi.Order{Sequence: 1, Kind: gangapi.OrderRestart, Urgent: true, Reason: "rank 3 failed first"}}
		}
	})
	untilOutput(t, ctx, s, "in e2")
	second := until(t, ctx, c, "running", inPhase(machine.Running))
	if second.Attempt != 2 || second.Epoch != "e2" || second.Exit != nil {
		t.Errorf("status %+v, want the second attempt", second)
	}
}

func TestProcessDies(t *testing.T) {
	dir, s := shell(t, nil, `echo up; while :; do sleep 0.02; done`)
	c, ctx := launch(t, dir, s)
	untilOutput(t, ctx, s, "up")
	st := until(t, ctx, c, "running", inPhase(machine.Running))
	again, err := Attach(dir)
	if err != nil {
		t.Fatal(err)
	}
	waited := make(chan error, 1)
	go func() {
		_, err := again.Wait(ctx)
		waited <- err
	}()
	if err := unix.Kill(st.PID, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if err := <-waited; !errors.Is(err, ErrDied) {
		t.Errorf("wait: %v, want ErrDied", err)
	}
	if _, err := again.Status(ctx); !errors.Is(err, ErrDied) {
		t.Errorf("status: %v, want ErrDied", err)
	}
	events, err := again.Events(ctx, 0)
	if err != nil || len(events) == 0 || events[0].Kind != machine.EventStarted {
		t.Errorf("events %v, %v; want those on disk", events, err)
	}
	if _, err := again.Events(ctx, events[len(events)-1].Sequence); !errors.Is(err, ErrDied) {
		t.Errorf("further events: %v, want ErrDied", err)
	}
	if err := again.Reap(ctx); err != nil {
		t.Fatal(err)
	}
	if runs(st.WorkloadPID) {
		t.Error("the user's code is left")
	}
}

func TestProcessExitOnDisk(t *testing.T) {
	dir, s := shell(t, nil, `exit 9`)
	c, ctx := launch(t, dir, s)
	if _, err := c.Wait(ctx); err != nil {
		t.Fatal(err)
	}
	for { // the disk may be slower than the socket
		if _, err := os.Stat(filepath.Join(dir, fileExit)); err == nil {
			break
		}
		if sleep(ctx, time.Millisecond) != nil {
			t.Fatal("no exit on disk")
		}
	}
	st, err := c.Status(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Kill(st.PID, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	exit, err := c.Wait(ctx)
	for err == nil && exit.Code != 9 {
		t.Fatalf("exit %+v, want code 9", exit)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func TestLaunchFaults(t *testing.T) {
	ctx := t.Context()
	binary, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir, s := shell(t, nil, "true")
	s.Task.Job, s.Role = "", "chief"
	var faults *StartError
	if _, err := Launch(ctx, binary, dir, s); !errors.As(err, &faults) || len(faults.Faults) != 2 {
		t.Errorf("launch: %v, want both faults", err)
	}
	if _, err := Attach(t.TempDir()); !errors.Is(err, ErrNoSupervisor) {
		t.Errorf("attach to nothing: %v, want ErrNoSupervisor", err)
	}
	dir, s = shell(t, nil, "sleep 1000")
	if _, err := Launch(ctx, "/bin/false", dir, s); err == nil {
		t.Error("a binary that is no supervisor: no error")
	}
	if _, err := Launch(ctx, "/no/such/binary", dir, s); err == nil {
		t.Error("a binary that is not there: no error")
	}
	launch(t, dir, s)
	if _, err := Launch(ctx, binary, dir, s); !errors.Is(err, ErrExists) {
		t.Errorf("launch twice: %v, want ErrExists", err)
	}
}

func TestLongDirectory(t *testing.T) {
	dir, s := shell(t, nil, "exit 0")
	c, ctx := launch(t, filepath.Join(dir, strings.Repeat("d", 120)), s)
	if _, err := c.Wait(ctx); err != nil {
		t.Fatal(err)
	}
}

func TestTerminatedWithItsHost(t *testing.T) {
	dir, s := shell(t, nil, `trap 'exit 4' TERM; echo up; while :; do sleep 0.02; done`)
	c, ctx := launch(t, dir, s)
	untilOutput(t, ctx, s, "up")
	st, err := c.Status(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Kill(st.PID, unix.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if exit, err := c.Wait(ctx); err != nil || exit.Code != 4 || exit.Cause != machine.CauseStopped {
		t.Errorf("exit %+v, %v; want a stop with code 4", exit, err)
	}
}

// A signal that the supervisor ignored would be ignored by the user's code, too:
// it would not hear of a stop by SIGINT, for one.

func TestProcessIsStuck(t *testing.T) {
	dir, s := shell(t, nil, `echo up; while :; do sleep 0.02; done`)
	c, ctx := launch(t, dir, s)
	untilOutput(t, ctx, s, "up")
	st := until(t, ctx, c, "running", inPhase(machine.Running))
	if err := unix.Kill(st.PID, unix.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	c.answerIn = 200 * time.Millisecond
	for { // it takes a moment to stop
		_, err := c.Status(ctx)
		if errors.Is(err, ErrDied) || ctx.Err() != nil {
			t.Fatalf("status: %v, want an error, but not ErrDied", err)
		}
		if err != nil {
			break
		}
	}
	if err := c.Destroy(ctx, false); err == nil {
		t.Error("destroy without force: no error")
	}
	c.answerIn = patient
	if alive, err := c.Alive(); err != nil || !alive {
		t.Errorf("alive: %t, %v; want true", alive, err)
	}
	if err := c.Reap(ctx); err != nil {
		t.Fatal(err)
	}
	if runs(st.PID) || runs(st.WorkloadPID) {
		t.Error("the supervisor or the user's code is left")
	}
}

// Nobody can stop a supervisor whose directory was taken away.
func TestProcessEndsWithItsDirectory(t *testing.T) {
	dir, s := shell(t, nil, `echo up; while :; do sleep 0.02; done`)
	c, ctx := launch(t, dir, s)
	untilOutput(t, ctx, s, "up")
	st := until(t, ctx, c, "running", inPhase(machine.Running))
	// At one stroke: the supervisor may write while files are removed one by one.
	if err := os.Rename(dir, dir+"-gone"); err != nil {
		t.Fatal(err)
	}
	for runs(st.PID) || runs(st.WorkloadPID) {
		if sleep(ctx, 5*time.Millisecond) != nil {
			t.Fatal("the supervisor or the user's code is left")
		}
	}
}
