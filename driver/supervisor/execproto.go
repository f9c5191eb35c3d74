package supervisor

import (
	"bufio"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"

	"github.com/caravan-sched/caravan/driver/exec"
)

// A command inside the user's code is a connection of its own: a request, and
// after its answer frames in both directions. A frame is one byte of kind, the
// length of its body in four bytes (big-endian), and the body.
const (
	frameStdin    = 'i' // an empty one ends the input
	frameResize   = 'r' // exec.Size
	frameStdout   = 'o'
	frameStderr   = 'e'
	frameExit     = 'x' // exec.Exit
	frameFailed   = 'f' // wireError
	maxFrame      = 1 << 20
	execProtocol  = "caravan-exec"
	frameOverhead = 5
)

// frames writes frames; it is safe for concurrent use.
type frames struct {
	mu sync.Mutex
	w  io.Writer
}

func (f *frames) write(kind byte, body []byte) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	b := make([]byte, frameOverhead, frameOverhead+len(body))
	b[0] = kind
	binary.BigEndian.PutUint32(b[1:], uint32(len(body)))
	_, err := f.w.Write(append(b, body...))
	return err
}

func (f *frames) writeJSON(kind byte, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return f.write(kind, b)
}

// stream is one of the outputs.
type stream struct {
	frames *frames
	kind   byte
}

func (s stream) Write(p []byte) (int, error) {
	n := 0
	for len(p) > 0 {
		part := p[:min(len(p), 32<<10)]
		if err := s.frames.write(s.kind, part); err != nil {
			return n, err
		}
		n += len(part)
		p = p[len(part):]
	}
	return n, nil
}

var errFrame = errors.New("not a frame")

func readFrame(r *bufio.Reader) (kind byte, body []byte, err error) {
	var head [frameOverhead]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return 0, nil, err
	}
	n := binary.BigEndian.Uint32(head[1:])
	if n > maxFrame {
		return 0, nil, fmt.Errorf("%w: %d bytes", errFrame, n)
	}
	body = make([]byte, n)
	if _, err := io.ReadFull(r, body); err != nil {
		return 0, nil, io.ErrUnexpectedEOF
	}
	return head[0], body, nil
}

// exec runs a command until it ends, or the client goes away.
func (s *server) exec(w http.ResponseWriter, req *http.Request) error {
	var in execRequest
	if err := read(req, &in); err != nil {
		return err
	}
	code, err := s.code(req.Context())
	if err != nil {
		return err
	}
	conn, rw, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return fmt.Errorf("take over connection: %w", err)
	}
	defer func() { _ = conn.Close() }()
	if _, err := io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: "+execProtocol+"\r\nConnection: Upgrade\r\n\r\n"); err != nil {
		return nil
	}
	ctx, cancel := context.WithCancel(s.runner.ctx)
	defer cancel()
	out := &frames{w: conn}
	stdin, feed := io.Pipe()
	started, err := code.Exec(ctx, exec.ExecSpec{
		Command: in.Command, Env: in.Env, TTY: in.TTY, Size: in.Size,
		Stdin: stdin, Stdout: stream{out, frameStdout}, Stderr: stream{out, frameStderr},
	})
	if err != nil {
		e := wireError{Message: err.Error()}
		if errors.Is(err, exec.ErrNotRunning) {
			e.Code = "not-running"
		}
		_ = out.writeJSON(frameFailed, e)
		return nil
	}
	go func() {
		defer cancel()
		take(rw.Reader, feed, started)
	}()
	exit, err := started.Wait(ctx)
	_ = stdin.Close()
	if err != nil {
		_ = out.writeJSON(frameFailed, wireError{Message: err.Error()})
		return nil
	}
	_ = out.writeJSON(frameExit, exit)
	return nil
}

// take reads the client's frames until it goes away.
func take(r *bufio.Reader, stdin *io.PipeWriter, started session) {
	defer func() { _ = stdin.Close() }()
	for {
		kind, body, err := readFrame(r)
		if err != nil {
			return
		}
		switch {
		case kind == frameStdin && len(body) == 0:
			_ = stdin.Close()
		case kind == frameStdin:
			_, _ = stdin.Write(body) // the command may have closed its input
		case kind == frameResize:
			var size exec.Size
			if json.Unmarshal(body, &size) == nil {
				_ = started.Resize(size)
			}
		}
	}
}

// Exec runs a command inside the user's code, as its user and with its limits,
// and returns how it ended. What comes on resize changes the size of its
// terminal; nil is allowed. ErrNotRunning where the user's code does not run.
func (c *Client) Exec(ctx context.Context, spec exec.ExecSpec, resize <-chan exec.Size) (exec.Exit, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	body, err := json.Marshal(execRequest{Command: spec.Command, Env: spec.Env, TTY: spec.TTY, Size: spec.Size})
	if err != nil {
		return exec.Exit{}, fmt.Errorf("ask supervisor: %w", err)
	}
	conn, err := dialSocket(ctx, c.dir)
	if err != nil {
		return exec.Exit{}, c.lost(err)
	}
	defer func() { _ = conn.Close() }()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	r, err := upgrade(conn, body)
	if err != nil {
		var remote *remoteError
		if errors.As(err, &remote) {
			return exec.Exit{}, err
		}
		return exec.Exit{}, c.lost(err)
	}
	out := &frames{w: conn}
	go sendInput(out, spec.Stdin)
	go sendSizes(ctx, out, resize)
	exit, err := receive(r, spec)
	if ctx.Err() != nil && err != nil {
		return exec.Exit{}, fmt.Errorf("run command: %w", ctx.Err())
	}
	return exit, err
}

// receive takes the command's output in until its exit.
func receive(r *bufio.Reader, spec exec.ExecSpec) (exec.Exit, error) {
	outputs := map[byte]io.Writer{frameStdout: spec.Stdout, frameStderr: spec.Stderr}
	for {
		kind, body, err := readFrame(r)
		if err != nil {
			return exec.Exit{}, fmt.Errorf("run command: %w", err)
		}
		switch kind {
		case frameStdout, frameStderr:
			if w := outputs[kind]; w != nil {
				if _, err := w.Write(body); err != nil {
					return exec.Exit{}, fmt.Errorf("run command: write its output: %w", err)
				}
			}
		case frameExit:
			var exit exec.Exit
			if err := json.Unmarshal(body, &exit); err != nil {
				return exec.Exit{}, fmt.Errorf("run command: %w", err)
			}
			return exit, nil
		case frameFailed:
			var e wireError
			if err := json.Unmarshal(body, &e); err != nil {
				return exec.Exit{}, fmt.Errorf("run command: %w", err)
			}
			return exec.Exit{}, &remoteError{message: "run command: " + e.Message, is: codes[e.Code]}
		}
	}
}

func sendInput(out *frames, stdin io.Reader) {
	if stdin != nil {
		// Where the reading fails, the input ends: there is nobody else to tell.
		_, _ = io.Copy(stream{out, frameStdin}, stdin)
	}
	_ = out.write(frameStdin, nil)
}

func sendSizes(ctx context.Context, out *frames, sizes <-chan exec.Size) {
	for {
		select {
		case size, ok := <-sizes:
			if !ok || out.writeJSON(frameResize, size) != nil {
				return
			}
		case <-ctx.Done():
			return
		}
	}
}
