package client

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
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

	"github.com/caravan-sched/caravan/internal/nomadplugin/driver"
)

// rawTask is a task of raw_exec: a plain process in a group of its own.
type rawTask struct {
	t   *taskRunner
	cmd *exec.Cmd
}

func (t *taskRunner) startRaw(env map[string]string) (process, error) {
	cmd, logs, err := t.command(env)
	if err == nil {
		err = cmd.Start()
	}
	for _, f := range logs {
		f.Close()
	}
	if err != nil {
		return nil, err
	}
	return &rawTask{t: t, cmd: cmd}, nil
}

func (p *rawTask) pid() int { return p.cmd.Process.Pid }

func (p *rawTask) wait() exit {
	err := p.cmd.Wait()
	endGroup(p.pid())
	return exitOf(err)
}

// stop signals the process, waits for its grace, and kills the group.
func (p *rawTask) stop(over <-chan exit, grace time.Duration, signal string, now <-chan struct{}) exit {
	sig := syscall.SIGINT
	if s := unix.SignalNum(signal); s != 0 {
		sig = s
	}
	_ = syscall.Kill(p.pid(), sig)
	select {
	case x := <-over:
		return x
	case <-p.t.r.after(grace):
	case <-now:
	}
	_ = syscall.Kill(-p.pid(), syscall.SIGKILL)
	return <-over
}

func (p *rawTask) signal(name string) error {
	num := unix.SignalNum(name)
	if num == 0 {
		return fmt.Errorf("Signal %s is not supported", name)
	}
	return syscall.Kill(p.pid(), num)
}

// exec runs a command beside the task. There is no terminal: it gets pipes.
func (p *rawTask) exec(x driver.ExecOptions, cancel <-chan struct{}) (int, error) {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	go func() {
		select {
		case <-cancel:
			stop()
		case <-ctx.Done():
		}
	}()
	cmd := exec.CommandContext(ctx, x.Command[0], x.Command[1:]...)
	cmd.Dir, cmd.Env = p.cmd.Dir, p.cmd.Env
	cmd.Stdout, cmd.Stderr = x.Stdout, x.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return 0, fmt.Errorf("run command: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	// A user who types nothing must not hold up the end.
	go func() {
		defer in.Close()
		copyInput(in, x.Stdin)
	}()
	result := exitOf(cmd.Wait())
	return result.code, result.err
}

func (p *rawTask) usage() *api.TaskResourceUsage { return nil }

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
	path = t.lookUp(path)
	cmd := exec.Command(path, args...)
	cmd.Dir = t.dir
	if wd, _ := t.task.Config["work_dir"].(string); wd != "" {
		cmd.Dir = t.interpolate(wd, env)
	}
	env["TMPDIR"] = filepath.Join(t.dir, "tmp")
	for _, k := range slices.Sorted(maps.Keys(env)) {
		cmd.Env = append(cmd.Env, k+"="+env[k])
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

// lookUp finds a command that is a bare name where the agent's PATH has it. One
// that is nowhere stays as it is, for the start to say so.
func (t *taskRunner) lookUp(name string) string {
	if _, err := exec.LookPath(name); err == nil || strings.Contains(name, "/") {
		return name
	}
	for _, dir := range t.r.c.cfg.Path {
		if path := filepath.Join(dir, name); unix.Access(path, unix.X_OK) == nil {
			return path
		}
	}
	return name
}
