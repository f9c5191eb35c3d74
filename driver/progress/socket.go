package progress

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"time"
)

const (
	// maxSocketPath is what fits into a socket address, without the final NUL.
	maxSocketPath = 107
	// maxConnections is far above the processes of a node.
	maxConnections = 512
	// maxBytesPerSecond is what the socket takes in from all connections
	// together. Writers beyond it wait, so nothing is lost; a writer of one line
	// for each step of a fast loop is far below it.
	maxBytesPerSecond = 2 << 20
	// maxBad is how many faulty lines in a row end a connection.
	maxBad = 100
)

// listen opens the socket.
func (s *Source) listen(ctx context.Context) error {
	path := s.config.Socket
	if len(path) > maxSocketPath {
		dir, err := os.MkdirTemp(shortDir(os.TempDir()), "caravan-")
		if err != nil {
			return fmt.Errorf("make directory for the progress socket: %w", err)
		}
		s.closers = append(s.closers, func() { _ = os.RemoveAll(dir) })
		if err := os.Chmod(dir, 0o711); err != nil {
			return fmt.Errorf("open the directory of the progress socket: %w", err)
		}
		if path = filepath.Join(dir, "progress.sock"); len(path) > maxSocketPath {
			return fmt.Errorf("listen for progress: %s is too long for a socket", path)
		}
	}
	// One of an earlier supervisor is in the way; anything else is not ours.
	if info, err := os.Lstat(path); err == nil && info.Mode()&fs.ModeSocket != 0 {
		if err := os.Remove(path); err != nil {
			return fmt.Errorf("remove old progress socket: %w", err)
		}
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return fmt.Errorf("listen for progress: %w", err)
	}
	s.closers = append(s.closers, func() { _ = l.Close() })
	if err := os.Chmod(path, s.config.SocketMode); err != nil {
		return fmt.Errorf("set mode of the progress socket: %w", err)
	}
	if o := s.config.SocketOwner; o != nil {
		if err := os.Chown(path, o.UID, o.GID); err != nil {
			return fmt.Errorf("set owner of the progress socket: %w", err)
		}
	}
	s.socket = path
	s.running.Go(func() { s.accept(ctx, l) })
	return nil
}

// shortDir is the directory for temporary files, unless that is long itself, as
// where Nomad gives a task its own.
func shortDir(dir string) string {
	if len(dir) > maxSocketPath/2 {
		return "/tmp"
	}
	return dir
}

// accept serves connections until the listener is closed. When the process has
// no more file descriptors it tries again a little later.
func (s *Source) accept(ctx context.Context, l net.Listener) {
	room := make(chan struct{}, maxConnections)
	for {
		conn, err := l.Accept()
		if ctx.Err() != nil || errors.Is(err, net.ErrClosed) {
			if err == nil {
				_ = conn.Close()
			}
			return
		}
		if err != nil {
			s.faults.tell("accept", fmt.Errorf("accept on the progress socket: %w", err))
			select {
			case <-ctx.Done():
			case <-time.After(least):
			}
			continue
		}
		select {
		case room <- struct{}{}:
		default:
			s.faults.tell("connections", fmt.Errorf("more than %d connections to the progress socket: the rest are closed", maxConnections))
			_ = conn.Close()
			continue
		}
		s.running.Go(func() {
			defer func() { <-room }()
			defer conn.Close()
			defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
			s.serve(ctx, conn)
		})
	}
}

// serve reads lines until the connection ends or only talks nonsense.
func (s *Source) serve(ctx context.Context, conn io.Reader) {
	r := &lines{take: s.line}
	buf := make([]byte, 4096)
	for {
		n, err := conn.Read(buf)
		if n > 0 && s.limit.WaitN(ctx, n) != nil {
			return
		}
		if !r.feed(buf[:n]) {
			s.faults.tell("garbage", fmt.Errorf("%d faulty lines in a row on the progress socket: the connection is closed", maxBad))
			return
		}
		if err != nil {
			if errors.Is(err, io.EOF) {
				r.feed([]byte("\n")) // the last line may lack its end
			}
			return
		}
	}
}

// line takes in one line, and says whether it could be read.
func (s *Source) line(line []byte) bool {
	t, err := parseLine(line)
	if err != nil {
		s.faults.tell("line", fmt.Errorf("read progress line: %w", err))
		return false
	}
	if t != (told{}) {
		s.apply(t)
	}
	return true
}

// lines cuts what comes in into lines. One that is too long is passed on as far
// as it was kept, one byte more than is allowed, and the rest is skipped.
type lines struct {
	take func([]byte) bool
	line []byte
	bad  int
}

// feed takes the next bytes. It returns false after too many faulty lines in a
// row.
func (r *lines) feed(b []byte) bool {
	for _, c := range b {
		if c != '\n' {
			if len(r.line) <= maxLine {
				r.line = append(r.line, c)
			}
			continue
		}
		ok := r.take(r.line)
		r.line = r.line[:0]
		if r.bad++; ok {
			r.bad = 0
		}
		if r.bad >= maxBad {
			return false
		}
	}
	return true
}
