package client

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/hashicorp/nomad/api"
)

// Nomad's log settings of a task without a logs block.
const (
	defaultLogFiles  = 10
	defaultLogFileMB = 10
)

// closeTolerance is how long what a task left behind may go on writing.
const closeTolerance = 2 * time.Second

// logmon collects what a task writes into its two FIFOs. In Nomad it is a
// process of its own, so that it lives on when the agent is killed.
type logmon struct {
	stdout, stderr *logPipe
}

// logPipe copies a FIFO into files. It ends when the last writer has closed
// the FIFO: whoever opens it later finds no reader until the task is started
// again.
type logPipe struct {
	fifo string // "/dev/null" collects nothing
	out  *rotator

	mu   sync.Mutex
	done chan struct{} // nil before the first start
	in   *os.File      // nil until a writer came
}

func newLogmon(t *taskRunner, off bool) *logmon {
	settings := t.task.LogConfig
	if settings != nil && settings.Disabled != nil && *settings.Disabled {
		off = true
	}
	dir := filepath.Join(t.r.dir(), "alloc", "logs")
	pipe := func(kind string) *logPipe {
		if off {
			return &logPipe{fifo: os.DevNull}
		}
		return &logPipe{
			fifo: filepath.Join(dir, fmt.Sprintf(".%s.%s.fifo", t.task.Name, kind)),
			out:  newRotator(filepath.Join(dir, t.task.Name+"."+kind), settings),
		}
	}
	return &logmon{stdout: pipe("stdout"), stderr: pipe("stderr")}
}

// start makes the FIFOs and reads them, unless that is going on.
func (l *logmon) start() error { return errors.Join(l.stdout.start(), l.stderr.start()) }

// close ends it; nothing is read any more.
func (l *logmon) close() {
	l.stdout.close()
	l.stderr.close()
}

func (p *logPipe) start() error {
	if p.out == nil {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.done != nil {
		select {
		case <-p.done:
			p.in = nil
		default:
			return nil
		}
	}
	if err := syscall.Mkfifo(p.fifo, 0o600); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("make log pipe: %w", err)
	}
	if err := p.out.open(); err != nil {
		return err
	}
	done := make(chan struct{})
	p.done = done
	go func() {
		defer close(done)
		in, err := os.OpenFile(p.fifo, os.O_RDONLY, 0)
		if err != nil {
			return // the allocation's folder is gone
		}
		defer in.Close()
		p.mu.Lock()
		p.in = in
		p.mu.Unlock()
		_, _ = io.Copy(p.out, in)
	}()
	return nil
}

// close ends the copying, after a while if a writer is left. A reader that
// waits for its first writer is woken.
func (p *logPipe) close() {
	p.mu.Lock()
	done, in := p.done, p.in
	p.mu.Unlock()
	if done == nil {
		return
	}
	if in == nil {
		if w, err := os.OpenFile(p.fifo, os.O_WRONLY|syscall.O_NONBLOCK, 0); err == nil {
			w.Close()
		}
	}
	timer := time.NewTimer(closeTolerance)
	defer timer.Stop()
	select {
	case <-done:
	case <-timer.C:
		if in != nil {
			in.Close()
		}
	}
	p.out.close()
}

// rotator writes into NAME.0, NAME.1, … and keeps the newest.
type rotator struct {
	name  string
	files int
	size  int64

	mu      sync.Mutex
	file    *os.File
	index   int
	written int64
}

func newRotator(name string, c *api.LogConfig) *rotator {
	out := &rotator{name: name, files: defaultLogFiles, size: defaultLogFileMB << 20}
	if c != nil && c.MaxFiles != nil && *c.MaxFiles > 0 {
		out.files = *c.MaxFiles
	}
	if c != nil && c.MaxFileSizeMB != nil && *c.MaxFileSizeMB > 0 {
		out.size = int64(*c.MaxFileSizeMB) << 20
	}
	return out
}

func (r *rotator) path(index int) string { return fmt.Sprintf("%s.%d", r.name, index) }

// open makes the current file.
func (r *rotator) open() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.file != nil {
		return nil
	}
	return r.openLocked()
}

func (r *rotator) openLocked() error {
	f, err := os.OpenFile(r.path(r.index), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return fmt.Errorf("open log: %w", err)
	}
	r.file, r.written = f, 0
	if s, err := f.Stat(); err == nil {
		r.written = s.Size()
	}
	return nil
}

// Write implements io.Writer.
func (r *rotator) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	total := 0
	for len(p) > 0 {
		if r.written >= r.size {
			if err := r.next(); err != nil {
				return total, err
			}
		}
		n, err := r.file.Write(p[:min(int64(len(p)), r.size-r.written)])
		total, r.written, p = total+n, r.written+int64(n), p[n:]
		if err != nil {
			return total, fmt.Errorf("write log: %w", err)
		}
	}
	return total, nil
}

func (r *rotator) next() error {
	r.file.Close()
	r.index++
	if old := r.index - r.files; old >= 0 {
		if err := os.Remove(r.path(old)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("remove log: %w", err)
		}
	}
	return r.openLocked()
}

func (r *rotator) close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.file != nil {
		r.file.Close()
		r.file = nil
	}
}
