package driver

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/caravan-sched/caravan/driver/gangapi"
	"github.com/caravan-sched/caravan/internal/nomadplugin/driver"
)

// TestRuns is the life of one task from its start to its end.
func TestRuns(t *testing.T) {
	r := newRig(t)
	task, _ := r.start("a", `trap 'echo bye; exit 3' TERM; trap 'echo told' USR1; echo "$GREETING in $PWD"; while :; do sleep 0.02; done`)
	r.output(task, "hello in "+task.TaskDir())
	if err := r.Signal(t.Context(), task.ID, "SIGUSR1"); err != nil {
		t.Fatal(err)
	}
	r.output(task, "told")
	s, err := r.Inspect(t.Context(), task.ID)
	if err != nil || s.State != driver.StateRunning || s.Attributes["phase"] != "running" {
		t.Errorf("inspection = %+v, %v", s, err)
	}
	res, err := r.Exec(t.Context(), task.ID, []string{"/bin/sh", "-c", "echo $GREETING; echo oops >&2; exit 4"}, patience)
	if err != nil || string(res.Stdout) != "hello\n" || string(res.Stderr) != "oops\n" || res.Exit.Code != 4 {
		t.Errorf("exec = %+v, %v", res, err)
	}
	usage := make(chan driver.Usage, 1)
	err = r.Stats(t.Context(), task.ID, 10*time.Millisecond, func(u driver.Usage) error {
		if u.Total.RSS == nil || *u.Total.RSS == 0 {
			return nil
		}
		usage <- u
		return context.Canceled
	})
	if len(usage) != 1 {
		t.Errorf("no usage: %v", err)
	}
	if err := r.Stop(t.Context(), task.ID, patience, "SIGTERM"); err != nil {
		t.Fatal(err)
	}
	if e := r.exit(task.ID); e.Code != 3 || e.Err != nil {
		t.Errorf("exit = %+v", e)
	}
	r.output(task, "bye")
	if s, err := r.Inspect(t.Context(), task.ID); err != nil || s.State != driver.StateExited || s.Exit.Code != 3 || s.Completed.IsZero() {
		t.Errorf("inspection = %+v, %v", s, err)
	}
	if err := r.Destroy(t.Context(), task.ID, false); err != nil {
		t.Fatal(err)
	}
	if left, _ := os.ReadDir(r.state); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

// TestGangWaits: a member's code does not start before the gang's does, and then
// knows its rank.
func TestGangWaits(t *testing.T) {
	r := newRig(t)
	r.planner.hold()
	events := make(chan driver.Event, 100)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() { _ = r.Events(ctx, func(e driver.Event) error { events <- e; return nil }) }()

	script := `echo "rank $RANK of $WORLD_SIZE at $MASTER_ADDR:$MASTER_PORT"; cat $CARAVAN_HOSTFILE; sleep 60`
	a, _ := r.start("a", script)
	b, _ := r.start("b", script)
	for e := range events {
		if strings.Contains(e.Message, "waiting for gang: 1 of 2 joined, gpu-2 missing") && e.AllocID != "" && e.TaskName == "main" {
			break
		}
	}
	for _, task := range []driver.TaskConfig{a, b} {
		if data, err := os.ReadFile(task.StdoutPath); err == nil && len(data) > 0 {
			t.Fatalf("started before the gang: %q", data)
		}
		if s, err := r.Inspect(t.Context(), task.ID); err != nil || s.State != driver.StateRunning {
			t.Errorf("inspection = %+v, %v", s, err)
		}
	}
	r.eventually("join of both", func() (bool, any) {
		n := 0
		r.planner.set(func() { n = len(r.planner.joins) })
		return n == 2, n
	})
	r.planner.release("e1")
	text := r.output(a, "slots=2") + r.output(b, "slots=2")
	for _, want := range []string{"rank 0 of 2 at 127.0.0.1:29500", "rank 1 of 2 at 127.0.0.1:29500"} {
		if !strings.Contains(text, want) {
			t.Errorf("output lacks %q:\n%s", want, text)
		}
	}
}

// TestStopWhileWaiting: a stop, and a forced destroy, do not wait for the gang.
func TestStopWhileWaiting(t *testing.T) {
	r := newRig(t)
	r.planner.hold()
	a, _ := r.start("a", "echo started")
	began := time.Now()
	if err := r.Stop(t.Context(), a.ID, patience, ""); err != nil {
		t.Fatal(err)
	}
	if e := r.exit(a.ID); e == (driver.Exit{}) || time.Since(began) > patience/2 {
		t.Errorf("exit = %+v after %s", e, time.Since(began))
	}
	b, _ := r.start("b", "echo started")
	if err := r.Destroy(t.Context(), b.ID, false); err == nil {
		t.Error("a running task was destroyed")
	}
	if err := r.Destroy(t.Context(), b.ID, true); err != nil {
		t.Error(err)
	}
	for _, task := range []driver.TaskConfig{a, b} {
		if data, err := os.ReadFile(task.StdoutPath); err == nil && len(data) > 0 {
			t.Errorf("it ran: %q", data)
		}
	}
}

// TestPluginDies: what a task does while its plugin is away is not lost: not its
// process, not its output, not its exit code, not its events.
func TestPluginDies(t *testing.T) {
	r := newRig(t)
	gate := filepath.Join(t.TempDir(), "gate")
	running, runningHandle := r.start("a", `echo $$; while [ ! -e `+gate+` ]; do sleep 0.02; done; echo end; exit 5`)
	ending, endingHandle := r.start("b", `while [ ! -e `+gate+` ]; do sleep 0.02; done; exit 6`)
	pid, err := strconv.Atoi(strings.TrimSpace(r.output(running, "\n")))
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(r.plugin.Handle().PID(), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	r.eventually("end of the plugin", func() (bool, any) { return r.plugin.Exited(), nil })
	if err := syscall.Kill(pid, 0); err != nil {
		t.Fatalf("the task died with its plugin: %v", err)
	}
	r.launch()
	for _, h := range []driver.Handle{runningHandle, endingHandle} {
		if err := r.Recover(t.Context(), h); err != nil {
			t.Fatal(err)
		}
		if err := r.Recover(t.Context(), h); err != nil {
			t.Errorf("recovery of what is there: %v", err)
		}
	}
	if s, err := r.Inspect(t.Context(), running.ID); err != nil || s.Attributes["pid"] != strconv.Itoa(pid) {
		t.Errorf("inspection = %+v, %v; want process %d", s, err, pid)
	}
	r.plugin.Close()
	if err := os.WriteFile(gate, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	r.output(running, "end")
	r.launch()
	for _, h := range []driver.Handle{runningHandle, endingHandle} {
		if err := r.Recover(t.Context(), h); err != nil {
			t.Fatal(err)
		}
	}
	for id, want := range map[string]int{running.ID: 5, ending.ID: 6} {
		if e := r.exit(id); e.Code != want || e.Err != nil {
			t.Errorf("exit of %s = %+v, want %d", id, e, want)
		}
	}
}

// TestSupervisorDies: nothing of the task survives, and its end is told.
func TestSupervisorDies(t *testing.T) {
	r := newRig(t)
	task, h := r.start("a", `setsid sh -c 'echo $$; exec sleep 600' & wait`)
	pid, err := strconv.Atoi(strings.TrimSpace(r.output(task, "\n")))
	if err != nil {
		t.Fatal(err)
	}
	s, err := r.Inspect(t.Context(), task.ID)
	if err != nil {
		t.Fatal(err)
	}
	supervisor, err := strconv.Atoi(s.Attributes["supervisor_pid"])
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(supervisor, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if e := r.exit(task.ID); e.Err == nil || !strings.Contains(e.Err.Error(), "supervisor has died") {
		t.Errorf("exit = %+v", e)
	}
	r.eventually("end of what it left", func() (bool, any) {
		data, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
		return err != nil || bytes.Contains(data, []byte(") Z ")), string(data)
	})
	if s, err := r.Inspect(t.Context(), task.ID); err != nil || s.State != driver.StateExited {
		t.Errorf("inspection = %+v, %v", s, err)
	}
	// The same for a plugin that comes later.
	r.plugin.Close()
	r.launch()
	if err := r.Recover(t.Context(), h); err != nil {
		t.Fatal(err)
	}
	if e := r.exit(task.ID); e.Err == nil {
		t.Errorf("exit = %+v", e)
	}
	if err := r.Destroy(t.Context(), task.ID, false); err != nil {
		t.Error(err)
	}
}

// TestSupervisorDeathIsTold: the planner learns at once that a member is gone, so
// that the others do not work on without it.
func TestSupervisorDeathIsTold(t *testing.T) {
	r := newRig(t)
	r.planner.hold()
	task, _ := r.start("a", `echo up; sleep 600`)
	r.eventually("join", func() (bool, any) {
		n := 0
		r.planner.set(func() { n = len(r.planner.joins) })
		return n == 1, n
	})
	r.planner.release("e1")
	r.output(task, "up")
	s, err := r.Inspect(t.Context(), task.ID)
	if err != nil {
		t.Fatal(err)
	}
	supervisor, err := strconv.Atoi(s.Attributes["supervisor_pid"])
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(supervisor, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if e := r.exit(task.ID); e.Err == nil {
		t.Errorf("exit = %+v", e)
	}
	var told gangapi.ReportRequest
	r.planner.set(func() { told = r.planner.reports[task.AllocID] })
	if told.State != gangapi.MemberExited || told.Epoch != "e1" || told.Exit == nil || told.Exit.Signal != int(syscall.SIGKILL) {
		t.Errorf("the planner was told %+v", told)
	}
}
