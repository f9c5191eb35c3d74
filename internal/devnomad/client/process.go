package client

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/hashicorp/nomad/api"
	"golang.org/x/sys/unix"
)

// defaultKillTimeout is Nomad's kill_timeout.
const defaultKillTimeout = 5 * time.Second

// once runs the task's process to its end.
func (t *taskRunner) once(env map[string]string, end <-chan struct{}, evenStopping bool) exit {
	kill := t.r.kill
	if evenStopping {
		kill = nil
	}
	if t.task.Driver == "mock_driver" {
		return t.mock(end, kill)
	}
	cmd, logs, err := t.command(env)
	if err == nil {
		err = cmd.Start()
	}
	for _, f := range logs {
		f.Close()
	}
	if err != nil {
		t.r.set(t.task.Name, nil, &api.TaskEvent{Type: api.TaskDriverFailure, DisplayMessage: err.Error(), DriverError: err.Error()})
		return exit{err: err}
	}
	restart := t.running(cmd.Process.Pid)
	t.started()
	over := make(chan error, 1)
	go func() { over <- cmd.Wait() }()
	killed, again := false, false
	select {
	case err = <-over:
	case <-kill:
		killed = true
	case <-end:
		killed = true
	case <-restart:
		again = true
	}
	if killed || again {
		err = t.terminate(cmd.Process.Pid, over)
	}
	t.running(0)
	endGroup(cmd.Process.Pid)
	x := exitOf(err)
	x.killed, x.restart = killed, again
	t.terminated(x)
	return x
}

// groupGrace is how long a killed process may take to be gone, and groupLook
// the time between two looks.
const (
	groupGrace = 5 * time.Second
	groupLook  = 2 * time.Millisecond
)

// endGroup kills what a task left behind in its process group, and waits until
// none of it can write any more.
func endGroup(group int) {
	if syscall.Kill(-group, syscall.SIGKILL) != nil {
		return // there is none
	}
	for end := time.Now().Add(groupGrace); groupLives(group) && time.Now().Before(end); {
		time.Sleep(groupLook)
	}
}

// groupLives says whether a process of the group is more than a corpse that
// nobody has asked about.
func groupLives(group int) bool {
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		return false
	}
	for _, path := range stats {
		raw, err := os.ReadFile(path)
		if err != nil {
			continue // it has ended meanwhile
		}
		// PID (COMMAND) STATE PPID PGRP …; a command may hold brackets.
		fields := strings.Fields(string(raw[bytes.LastIndexByte(raw, ')')+1:]))
		if len(fields) > 2 && fields[2] == strconv.Itoa(group) && fields[0] != "Z" && fields[0] != "X" {
			return true
		}
	}
	return false
}

// running notes the task's process, and returns the channel that asks for its
// restart.
func (t *taskRunner) running(pid int) <-chan struct{} {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.pid, t.restart = pid, make(chan struct{})
	return t.restart
}

// Signal sends a signal to the tasks of an allocation, or to one of them.
func (c *Client) Signal(alloc, task, signal string) error {
	num := unix.SignalNum(signal)
	if num == 0 {
		return fmt.Errorf("Signal %s is not supported", signal)
	}
	return c.eachTask(alloc, task, func(t *taskRunner) {
		t.r.set(t.task.Name, nil, &api.TaskEvent{Type: api.TaskSignaling, TaskSignal: signal, DisplayMessage: "Task being sent a signal: " + signal})
		_ = syscall.Kill(t.pid, num)
	})
}

// Restart ends the processes of an allocation's tasks, or of one of them, and
// starts them anew.
func (c *Client) Restart(alloc, task string) error {
	return c.eachTask(alloc, task, func(t *taskRunner) {
		t.pid = 0
		close(t.restart)
	})
}

// eachTask calls f with the tasks of an allocation that have a process.
func (c *Client) eachTask(alloc, task string, f func(t *taskRunner)) error {
	c.mu.Lock()
	r := c.runners[alloc]
	c.mu.Unlock()
	if r == nil {
		return fmt.Errorf("Unknown allocation %q", alloc)
	}
	if task != "" && r.tasks[task] == nil {
		return fmt.Errorf("Could not find task named %q", task)
	}
	found := false
	for name, t := range r.tasks {
		if task != "" && name != task {
			continue
		}
		t.mu.Lock()
		if t.pid != 0 {
			found = true
			f(t)
		}
		t.mu.Unlock()
	}
	if !found {
		return fmt.Errorf("Task not running")
	}
	return nil
}

func (t *taskRunner) started() {
	t.r.set(t.task.Name, func(s *api.TaskState) {
		s.State, s.StartedAt = taskRunning, t.r.c.cfg.Clock.Now()
	}, &api.TaskEvent{Type: api.TaskStarted, DisplayMessage: "Task started by client"})
}

func (t *taskRunner) terminated(x exit) {
	t.r.set(t.task.Name, nil, &api.TaskEvent{
		Type: api.TaskTerminated, ExitCode: x.code, Signal: x.signal, DisplayMessage: fmt.Sprintf("Exit Code: %d", x.code),
		Details: map[string]string{"exit_code": fmt.Sprint(x.code), "signal": fmt.Sprint(x.signal)},
	})
}

// terminate signals the process, waits for its grace, and kills the group.
func (t *taskRunner) terminate(pid int, over <-chan error) error {
	t.r.mu.Lock()
	noDelay := t.r.noDelay
	t.r.mu.Unlock()
	grace := defaultKillTimeout
	if t.task.KillTimeout != nil {
		grace = *t.task.KillTimeout
	}
	t.r.set(t.task.Name, nil, &api.TaskEvent{Type: api.TaskKilling, KillTimeout: grace, DisplayMessage: fmt.Sprintf("Sent interrupt. Waiting %v before force killing", grace)})
	if d := t.task.ShutdownDelay; d > 0 && !noDelay {
		select {
		case err := <-over:
			return err
		case <-t.after(d):
		case <-t.r.now:
		}
	}
	sig := syscall.SIGINT
	if s := unix.SignalNum(t.task.KillSignal); s != 0 {
		sig = s
	}
	_ = syscall.Kill(pid, sig)
	select {
	case err := <-over:
		return err
	case <-t.after(grace):
	case <-t.r.now:
	}
	_ = syscall.Kill(-pid, syscall.SIGKILL)
	return <-over
}

func (t *taskRunner) after(d time.Duration) <-chan struct{} {
	fired := make(chan struct{})
	t.r.c.cfg.Clock.AfterFunc(d, func() { close(fired) })
	return fired
}

func exitOf(err error) exit {
	if err == nil {
		return exit{}
	}
	var e *exec.ExitError
	if errors.As(err, &e) {
		if ws, ok := e.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
			return exit{code: 128 + int(ws.Signal()), signal: int(ws.Signal())}
		}
		return exit{code: e.ExitCode()}
	}
	return exit{err: err}
}

// command builds the process of a raw_exec task.
func (t *taskRunner) command(env map[string]string) (*exec.Cmd, []*os.File, error) {
	path, _ := t.task.Config["command"].(string)
	if path == "" {
		return nil, nil, fmt.Errorf("missing command for %s driver", t.task.Driver)
	}
	var args []string
	switch list := t.task.Config["args"].(type) {
	case []any:
		for _, a := range list {
			args = append(args, t.interpolate(fmt.Sprint(a), env))
		}
	case []string:
		for _, a := range list {
			args = append(args, t.interpolate(a, env))
		}
	}
	path = t.interpolate(path, env)
	if local := filepath.Join(t.dir, path); !filepath.IsAbs(path) && strings.Contains(path, "/") {
		path = local
	}
	if wd, _ := t.task.Config["work_dir"].(string); wd != "" {
		env["PWD"] = t.interpolate(wd, env)
	}
	cmd := exec.Command(path, args...)
	cmd.Dir = t.dir
	if wd := env["PWD"]; wd != "" {
		cmd.Dir = wd
	}
	cmd.Env = slices.Clone(t.r.c.cfg.TaskEnv)
	for k, v := range env {
		cmd.Env = append(cmd.Env, k+"="+v)
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	var logs []*os.File
	for _, kind := range []string{"stdout", "stderr"} {
		name := filepath.Join(t.r.dir(), "alloc", "logs", t.task.Name+"."+kind+".0")
		f, err := os.OpenFile(name, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
		if err != nil {
			return nil, logs, fmt.Errorf("open log: %w", err)
		}
		logs = append(logs, f)
	}
	cmd.Stdout, cmd.Stderr = logs[0], logs[1]
	return cmd, logs, nil
}

// mock runs nothing: run_for is how long it "runs", for ever without one, and
// exit_code, start_error and kill_after are what Nomad's mock driver has.
func (t *taskRunner) mock(end, kill <-chan struct{}) exit {
	text := func(k string) string { s, _ := t.task.Config[k].(string); return s }
	if e := text("start_error"); e != "" {
		t.r.set(t.task.Name, nil, &api.TaskEvent{Type: api.TaskDriverFailure, DisplayMessage: e, DriverError: e})
		return exit{err: errors.New(e)}
	}
	t.started()
	var over <-chan struct{}
	if d, err := time.ParseDuration(text("run_for")); err == nil {
		over = t.after(d)
	}
	x := exit{}
	select {
	case <-over:
		switch n := t.task.Config["exit_code"].(type) {
		case float64:
			x.code = int(n)
		case int:
			x.code = n
		}
	case <-kill:
		x.killed = true
	case <-end:
		x.killed = true
	}
	if x.killed {
		if d, err := time.ParseDuration(text("kill_after")); err == nil {
			select {
			case <-t.after(d):
			case <-t.r.now:
			}
		}
	}
	t.terminated(x)
	return x
}
