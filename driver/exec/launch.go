package exec

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
	"time"

	"github.com/prometheus/procfs"
)

// launch is how a child is started.
type launch struct {
	config childConfig
	stdin  *os.File
	stdout *os.File
	stderr *os.File
	flags  uintptr
	// namespaces are those of config.Join.
	namespaces []*os.File
	groups     *cgroups
	mark       string
}

// child is a command that this process started.
type child struct {
	// pid is the command's, outer that of this process's own child, which is
	// another one where a process is in between. start is outer's start time.
	pid   int
	outer int
	start uint64
	// handle is the command's, safe against reuse of its PID.
	handle *os.Process
	// done is closed when status is set.
	done   chan struct{}
	status syscall.WaitStatus
}

// start starts a child and returns when it has become the command.
func (l launch) start(ctx context.Context, h host) (*child, error) {
	pipes, err := newPipes()
	if err != nil {
		return nil, err
	}
	defer pipes.close()
	cmd := childCommand()
	cmd.Env = []string{Mark + "=" + l.mark}
	// A nil *os.File in an interface would not be nil.
	if l.stdin != nil {
		cmd.Stdin = l.stdin
	}
	cmd.Stdout, cmd.Stderr = l.stdout, l.stderr
	cmd.ExtraFiles = append([]*os.File{pipes.config.r, pipes.faults.w, pipes.reports.w}, l.namespaces...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: l.config.TTY && !l.config.Between, Cloneflags: l.flags}
	if err := children.start(cmd); err != nil {
		return nil, fmt.Errorf("run again: %w", err)
	}
	pipes.handedOver()
	c := &child{pid: cmd.Process.Pid, outer: cmd.Process.Pid, handle: cmd.Process, done: make(chan struct{})}
	stop := context.AfterFunc(ctx, func() { _ = cmd.Process.Kill() })
	err = l.guide(h, c, pipes)
	if !stop() {
		err = ctx.Err()
	}
	if err != nil {
		_ = cmd.Process.Kill()
		_, _ = children.wait(cmd)
		c.release()
		return nil, err
	}
	reports := pipes.keepReports()
	go func() {
		defer close(c.done)
		last := lastReport(reports)
		status, err := children.wait(cmd)
		if last.Ended {
			status = syscall.WaitStatus(last.Status)
		} else if err != nil {
			status = syscall.WaitStatus(125 << 8)
		}
		c.status = status
	}()
	return c, nil
}

// guide takes the child through its steps.
func (l launch) guide(h host, c *child, pipes *pipes) error {
	fs, err := procfs.NewFS(h.proc)
	if err != nil {
		return err
	}
	outer, err := fs.Proc(c.outer)
	if err != nil {
		return fmt.Errorf("look at child: %w", err)
	}
	stat, err := outer.Stat()
	if err != nil {
		return fmt.Errorf("look at child: %w", err)
	}
	c.start = stat.Starttime
	if err := l.groups.add(c.outer); err != nil {
		return err
	}
	feed := json.NewEncoder(pipes.config.w)
	if err := feed.Encode(l.config); err != nil {
		return fmt.Errorf("hand configuration to child: %w", err)
	}
	if l.config.Between {
		if err := c.meetInner(fs, pipes); err != nil {
			return err
		}
		if err := feed.Encode(true); err != nil {
			return fmt.Errorf("let child go on: %w", err)
		}
	}
	return readFault(pipes.faults.r)
}

// readFault waits until the child became the command or failed.
func readFault(from io.Reader) error {
	var fault childFault
	switch err := json.NewDecoder(from).Decode(&fault); {
	case errors.Is(err, io.EOF):
		return nil
	case err != nil:
		return fmt.Errorf("read what the child says: %w", err)
	case fault.Field != "":
		return &SpecError{Faults: []Fault{{Field: fault.Field, Why: fault.Error()}}}
	}
	return fault
}

// meetInner finds the command behind an intermediate process: the child of it
// that has the PID that it tells.
func (c *child) meetInner(fs procfs.FS, pipes *pipes) error {
	var told report
	if err := pipes.reports.decoder().Decode(&told); err != nil {
		if fault := readFault(pipes.faults.r); fault != nil {
			return fault
		}
		return fmt.Errorf("read the child's report: %w", err)
	}
	procs, err := fs.AllProcs()
	if err != nil {
		return fmt.Errorf("list processes: %w", err)
	}
	for _, p := range procs {
		stat, err := p.Stat()
		if err != nil || stat.PPID != c.outer {
			continue
		}
		handle, err := os.FindProcess(p.PID)
		if err != nil {
			return fmt.Errorf("open process: %w", err)
		}
		c.pid, c.handle = p.PID, handle
		return nil
	}
	return errors.New("the child's command is not to be seen in /proc")
}

// lastReport reads reports until the intermediate process ends; a command
// without one sends none.
func lastReport(reports *pipe) report {
	defer reports.close()
	var last report
	for reports.decoder().Decode(&last) == nil && !last.Ended {
		continue
	}
	return last
}

// signal sends a signal to the command.
func (c *child) signal(sig syscall.Signal) error {
	select {
	case <-c.done:
		return ErrNotRunning
	default:
	}
	err := c.handle.Signal(sig)
	if errors.Is(err, os.ErrProcessDone) {
		return ErrNotRunning
	}
	return err
}

// release gives the handle back.
func (c *child) release() {
	if c.pid != c.outer {
		_ = c.handle.Release()
	}
}

// exit tells a status apart.
func exitOf(status syscall.WaitStatus) Exit {
	if status.Signaled() {
		return Exit{Signal: int(status.Signal())}
	}
	return Exit{Code: status.ExitStatus()}
}

// pipe is one pipe to or from a child.
type pipe struct {
	r, w *os.File
	dec  *json.Decoder
}

func (p *pipe) decoder() *json.Decoder {
	if p.dec == nil {
		p.dec = json.NewDecoder(p.r)
	}
	return p.dec
}

func (p *pipe) close() {
	_ = p.r.Close()
	_ = p.w.Close()
}

// pipes are those of a start.
type pipes struct {
	config, faults, reports *pipe
}

func newPipes() (*pipes, error) {
	all := &pipes{}
	for _, p := range []**pipe{&all.config, &all.faults, &all.reports} {
		r, w, err := os.Pipe()
		if err != nil {
			all.close()
			return nil, fmt.Errorf("make pipe: %w", err)
		}
		*p = &pipe{r: r, w: w}
	}
	return all, nil
}

// handedOver closes the ends that are the child's.
func (p *pipes) handedOver() {
	_ = p.config.r.Close()
	_ = p.faults.w.Close()
	_ = p.reports.w.Close()
}

// keepReports takes the reports out of what close closes.
func (p *pipes) keepReports() *pipe {
	kept := p.reports
	p.reports = nil
	return kept
}

func (p *pipes) close() {
	for _, one := range []*pipe{p.config, p.faults, p.reports} {
		if one != nil {
			one.close()
		}
	}
}

// startDeadline bounds a start whose context does not.
const startDeadline = time.Minute
