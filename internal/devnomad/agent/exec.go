package agent

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"sync"

	"github.com/gorilla/websocket"
	"github.com/hashicorp/nomad/api"

	"github.com/caravan-sched/caravan/internal/devnomad/client"
	"github.com/caravan-sched/caravan/internal/nomadplugin/driver"
)

// closeText is how long the reason of a close message may be, in bytes.
const closeText = 120

var upgrader = websocket.Upgrader{ReadBufferSize: 2048, WriteBufferSize: 2048}

// execAlloc runs a command beside a task. Command, task and whether there is a
// terminal stand in the address; input and output are messages of a web
// socket. A caller that cannot set headers sends its token first.
func (a *Agent) execAlloc(w http.ResponseWriter, r *http.Request) (any, error) {
	q := r.URL.Query()
	var command []string
	if err := json.Unmarshal([]byte(q.Get("command")), &command); err != nil {
		return nil, fmt.Errorf("failed to marshal command into json: %v", err)
	}
	tty := false
	if s := q.Get("tty"); s != "" {
		var err error
		if tty, err = strconv.ParseBool(s); err != nil {
			return nil, fmt.Errorf("tty value is not a boolean: %v", err)
		}
	}
	conn, err := upgrader.Upgrade(w, r, nil)
	if err != nil {
		return nil, nil // the upgrader has answered
	}
	defer conn.Close()
	if err := a.handshake(conn, r); err != nil {
		closeWith(conn, 403, err)
		return nil, nil
	}
	if code, err := a.execOn(conn, r.PathValue("id"), q.Get("task"), command, tty); err != nil {
		closeWith(conn, code, err)
	}
	return nil, nil
}

// handshake checks the right to enter tasks, and those of drivers that do not
// isolate: the stand-in has no others.
func (a *Agent) handshake(conn *websocket.Conn, r *http.Request) error {
	if ok, err := strconv.ParseBool(r.URL.Query().Get("ws_handshake")); err == nil && ok {
		var hello struct {
			Version   int    `json:"version"`
			AuthToken string `json:"auth_token"`
		}
		if err := conn.ReadJSON(&hello); err != nil || hello.Version != 1 {
			return fmt.Errorf("unsupported handshake version number: %d", hello.Version)
		}
		r.Header.Set("X-Nomad-Token", hello.AuthToken)
	}
	for _, need := range []string{"alloc-exec", "alloc-node-exec"} {
		if err := a.acl.check(r, need); err != nil {
			return err
		}
	}
	return nil
}

func closeWith(conn *websocket.Conn, code int, err error) {
	closing := websocket.ClosePolicyViolation
	if code == http.StatusInternalServerError {
		closing = websocket.CloseInternalServerErr
	}
	text := err.Error()
	_ = conn.WriteMessage(websocket.CloseMessage, websocket.FormatCloseMessage(closing, text[:min(len(text), closeText)]))
}

func (a *Agent) execOn(conn *websocket.Conn, alloc, task string, command []string, tty bool) (int, error) {
	c, err := a.host(alloc)
	switch {
	case err != nil:
		return 404, err
	case task == "":
		return 400, fmt.Errorf("task not present")
	case len(command) == 0:
		return 400, fmt.Errorf("command is not present")
	}
	return execStream(c, conn, alloc, task, driver.ExecOptions{Command: command, TTY: tty})
}

// execStream connects the socket to the command until that ends.
func execStream(c *client.Client, conn *websocket.Conn, alloc, task string, x driver.ExecOptions) (int, error) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	in, typed := io.Pipe()
	defer in.Close()
	sizes := make(chan driver.TerminalSize, 1)
	go func() {
		defer cancel()
		typed.CloseWithError(receive(ctx, conn, typed, sizes))
	}()
	out := &frames{conn: conn}
	x.Stdin, x.Resize = in, sizes
	x.Stdout = frameWriter(func(p []byte) error {
		return out.send(&api.ExecStreamingOutput{Stdout: &api.ExecStreamingIOOperation{Data: p}})
	})
	x.Stderr = frameWriter(func(p []byte) error {
		return out.send(&api.ExecStreamingOutput{Stderr: &api.ExecStreamingIOOperation{Data: p}})
	})
	code, err := c.Exec(alloc, task, x, ctx.Done())
	if err != nil {
		return 500, err
	}
	last := &api.ExecStreamingIOOperation{Close: true}
	for _, f := range []*api.ExecStreamingOutput{{Stdout: last}, {Stderr: last}, {Exited: true, Result: &api.ExecStreamingExitResult{ExitCode: code}}} {
		if err := out.send(f); err != nil {
			return 500, err
		}
	}
	return 0, nil
}

// receive takes what the user types and the size of the terminal, until the
// connection ends.
func receive(ctx context.Context, conn *websocket.Conn, in *io.PipeWriter, sizes chan driver.TerminalSize) error {
	for {
		var msg api.ExecStreamingInput
		if err := conn.ReadJSON(&msg); err != nil {
			return err
		}
		if msg.Stdin != nil {
			// A command that reads no more still gets the terminal's size.
			_, _ = in.Write(msg.Stdin.Data)
			if msg.Stdin.Close {
				in.Close()
			}
		}
		if msg.TTYSize == nil {
			continue
		}
		select {
		case <-sizes: // only the newest counts
		default:
		}
		select {
		case sizes <- driver.TerminalSize{Width: msg.TTYSize.Width, Height: msg.TTYSize.Height}:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// frames lets two outputs share a socket, which takes one message at a time.
type frames struct {
	mu   sync.Mutex
	conn *websocket.Conn
}

func (f *frames) send(out *api.ExecStreamingOutput) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.conn.WriteJSON(out)
}

type frameWriter func(p []byte) error

// Write implements io.Writer.
func (f frameWriter) Write(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	if err := f(p); err != nil {
		return 0, err
	}
	return len(p), nil
}
