package exec

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// pipeBytes is how much a FIFO should hold while nobody reads it: the most that
// the kernel gives everybody, against 64 KiB by default.
const pipeBytes = 1 << 20

// output is where a workload's output goes.
type output struct {
	// file is what the workload writes to.
	file *os.File
	// keeper holds a FIFO open for reading as well, without ever reading, so
	// that a writer finds a reader at all times: it waits when the FIFO is full,
	// and gets no SIGPIPE. It is nil for files.
	keeper *os.File
}

// Output keeps FIFOs open for writing between the workloads of one task. Whoever
// reads a FIFO, such as Nomad's log collector, takes it for the end when the last
// writer has gone, and what is written afterwards is lost, or fills the FIFO.
type Output struct{ keepers []*os.File }

// HoldOutput keeps those of the paths open that are FIFOs. What cannot be opened
// is for the workload's start to complain about.
func HoldOutput(paths ...string) *Output {
	held := &Output{}
	for _, path := range paths {
		info, err := os.Lstat(path)
		if err != nil || info.Mode()&os.ModeNamedPipe == 0 {
			continue
		}
		if out, err := openFIFO(path); err == nil {
			out.started()
			held.keepers = append(held.keepers, out.keeper)
		}
	}
	return held
}

// Release lets go of the FIFOs. It may be called again.
func (o *Output) Release() {
	for _, f := range o.keepers {
		_ = f.Close()
	}
	o.keepers = nil
}

func checkOutput(field, path string) []Fault {
	if path == "" {
		return nil
	}
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, os.ErrNotExist):
		if err := unix.Access(filepath.Dir(path), unix.W_OK); err != nil {
			return []Fault{{field, path, "cannot be made: " + plainError(err)}}
		}
		return nil
	case err != nil:
		return []Fault{{field, path, "cannot be opened: " + plainError(err)}}
	case info.Mode()&os.ModeNamedPipe == 0 && !info.Mode().IsRegular():
		return []Fault{{field, path, "is neither a FIFO nor a file"}}
	}
	if unix.Access(path, unix.W_OK) != nil {
		return []Fault{{field, path, "cannot be written"}}
	}
	return nil
}

// openOutput opens a FIFO or file. Links are not followed: the directory of the
// logs can be written by tasks.
func openOutput(path string) (*output, error) {
	if path == "" {
		null, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
		return &output{file: null}, err
	}
	info, err := os.Lstat(path)
	if err == nil && info.Mode()&os.ModeNamedPipe != 0 {
		return openFIFO(path)
	}
	fd, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND|os.O_CREATE|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0o644)
	if err != nil {
		return nil, err
	}
	if info, err = fd.Stat(); err == nil && !info.Mode().IsRegular() {
		err = &os.PathError{Op: "open", Path: path, Err: errors.New("is neither a FIFO nor a file")}
	}
	if err != nil {
		_ = fd.Close()
		return nil, err
	}
	return &output{file: fd}, nil
}

func openFIFO(path string) (*output, error) {
	// Both ends at once: opening only the one for writing waits for a reader.
	fd, err := unix.Open(path, unix.O_RDWR|unix.O_NONBLOCK|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: path, Err: err}
	}
	keeper := os.NewFile(uintptr(fd), path)
	var stat unix.Stat_t
	if err := unix.Fstat(fd, &stat); err != nil || stat.Mode&unix.S_IFMT != unix.S_IFIFO {
		_ = keeper.Close()
		return nil, &os.PathError{Op: "open", Path: path, Err: errors.New("is not a FIFO any more")}
	}
	// Best effort: without it, a writer waits a little sooner.
	_, _ = unix.FcntlInt(uintptr(fd), unix.F_SETPIPE_SZ, pipeBytes)
	// The same FIFO, also when the path was changed meanwhile.
	end, err := unix.Open(fmt.Sprintf("/proc/self/fd/%d", fd), unix.O_WRONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		_ = keeper.Close()
		return nil, &os.PathError{Op: "open", Path: path, Err: err}
	}
	return &output{file: os.NewFile(uintptr(end), path), keeper: keeper}, nil
}

// started closes what only the workload needs.
func (o *output) started() {
	if o.file != nil {
		_ = o.file.Close()
		o.file = nil
	}
}

func (o *output) close() {
	o.started()
	if o.keeper != nil {
		_ = o.keeper.Close()
		o.keeper = nil
	}
}

// drain waits until a FIFO was read empty: what is in it is lost when its last
// end is closed before a reader comes back.
func (o *output) drain(ctx context.Context) error {
	pause := time.Millisecond
	for o.keeper != nil {
		waiting, err := o.buffered()
		if err != nil || waiting == 0 {
			return err
		}
		if err := sleep(ctx, pause); err != nil {
			return fmt.Errorf("wait for %d bytes of output to be read: %w", waiting, err)
		}
		pause = min(2*pause, 100*time.Millisecond)
	}
	return nil
}

// buffered is how many bytes are in the FIFO.
func (o *output) buffered() (n int, err error) {
	raw, err := o.keeper.SyscallConn()
	if err != nil {
		return 0, err
	}
	var failed error
	err = raw.Control(func(fd uintptr) { n, failed = unix.IoctlGetInt(int(fd), unix.TIOCINQ) })
	return n, errors.Join(err, failed)
}

// sleep waits; when the context ends before, the error is the context's cause.
func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-timer.C:
		return nil
	}
}
