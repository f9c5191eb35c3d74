package supervisor

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/caravan-sched/caravan/driver/container"
	"github.com/caravan-sched/caravan/driver/exec"
)

// Client talks to a task's supervisor. Its methods may be called concurrently.
// After the supervisor has died, Wait and Events still give what it left on
// disk, and everything else returns ErrDied.
type Client struct {
	dir   string
	start Start
	info  info
	http  *http.Client
	// answerIn is how long the supervisor may take to answer what it can answer
	// at once.
	answerIn time.Duration
}

const (
	// pollFor is how long one long poll lasts.
	pollFor = 30 * time.Second
	// defaultAnswerIn is Client.answerIn.
	defaultAnswerIn = 20 * time.Second
	// retryIn is the wait before a living supervisor that did not answer is
	// asked again.
	retryIn = 200 * time.Millisecond
)

// Attach returns a client for the supervisor of a state directory, alive or
// not. The error wraps ErrNoSupervisor, or ErrVersion.
func Attach(dir string) (*Client, error) {
	c := &Client{dir: dir, answerIn: defaultAnswerIn}
	ok, err := readJSON(filepath.Join(dir, fileStart), &c.start)
	if err != nil {
		return nil, fmt.Errorf("attach to supervisor: %w", err)
	}
	known := false
	if ok {
		if known, err = readJSON(filepath.Join(dir, fileInfo), &c.info); err != nil {
			return nil, fmt.Errorf("attach to supervisor: %w", err)
		}
	}
	if !known {
		return nil, fmt.Errorf("attach to supervisor in %s: %w", dir, ErrNoSupervisor)
	}
	if c.info.Compatible > Version {
		return nil, fmt.Errorf("attach to supervisor of version %d: %w than version %d", c.info.Version, ErrVersion, Version)
	}
	c.http = &http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return dialSocket(ctx, dir) },
		// Clients are many and calls are few: no idle connection is worth a
		// descriptor on either side.
		DisableKeepAlives: true,
	}}
	return c, nil
}

// Dir is the state directory.
func (c *Client) Dir() string { return c.dir }

// Start is what the supervisor was launched with.
func (c *Client) Start() Start { return c.start }

// Alive reports whether the supervisor lives. It may still be stuck.
func (c *Client) Alive() (bool, error) { return alive(c.dir) }

// Status says how the task stands.
func (c *Client) Status(ctx context.Context) (Status, error) {
	var out Status
	return out, c.call(ctx, http.MethodGet, pathStatus, nil, &out)
}

// Usage measures the user's code; ErrNotRunning where it does not run.
func (c *Client) Usage(ctx context.Context) (exec.Usage, error) {
	var out exec.Usage
	return out, c.call(ctx, http.MethodGet, pathUsage, nil, &out)
}

// Stop begins the stop conversation, and returns. The user's code is killed
// when timeout has passed; signal is what it is asked to end with, "" is the
// task's default. A task that is being stopped, or is over, takes it well: the
// earlier of two timeouts counts.
func (c *Client) Stop(ctx context.Context, timeout time.Duration, signal string) error {
	return c.call(ctx, http.MethodPost, pathStop, stopRequest{TimeoutMS: timeout.Milliseconds(), Signal: signal}, nil)
}

// Signal sends a signal, by name, to the user's process; ErrNotRunning where it
// does not run.
func (c *Client) Signal(ctx context.Context, signal string) error {
	return c.call(ctx, http.MethodPost, pathSignal, signalRequest{Signal: signal}, nil)
}

// Suspend freezes every process of the user's code, and Resume lets them go on.
// Both return when it is done; ErrNotRunning where nothing runs.
func (c *Client) Suspend(ctx context.Context) error {
	return c.call(ctx, http.MethodPost, pathSuspend, nil, nil)
}

// Resume undoes Suspend.
func (c *Client) Resume(ctx context.Context) error {
	return c.call(ctx, http.MethodPost, pathResume, nil, nil)
}

// Wait waits until the task is over. It returns ErrDied where its supervisor
// died before.
func (c *Client) Wait(ctx context.Context) (Exit, error) {
	for {
		var out struct {
			Exit *Exit `json:"exit"`
		}
		err := c.poll(ctx, pathWait, &out)
		switch {
		case err == nil && out.Exit != nil:
			return *out.Exit, nil
		case errors.Is(err, ErrDied):
			var exit Exit
			if ok, diskErr := readJSON(filepath.Join(c.dir, fileExit), &exit); diskErr != nil || !ok {
				return Exit{}, errors.Join(err, diskErr)
			}
			return exit, nil
		case err != nil:
			return Exit{}, err
		}
	}
}

// Events waits until there are events after the given Sequence, and returns
// them in order. If the supervisor is gone, what it left on disk comes without
// waiting, and ErrDied when there is nothing more.
func (c *Client) Events(ctx context.Context, since int64) ([]Event, error) {
	for {
		var out struct {
			Events []Event `json:"events"`
		}
		err := c.poll(ctx, pathEvents+"?since="+strconv.FormatInt(since, 10), &out)
		if errors.Is(err, ErrDied) {
			left, diskErr := readEvents(filepath.Join(c.dir, fileEvents), since)
			if len(left) > 0 {
				return left, nil
			}
			return nil, errors.Join(err, diskErr)
		}
		if err != nil || len(out.Events) > 0 {
			return out.Events, err
		}
	}
}

// Destroy ends the supervisor and removes its state. A task that is not over is
// killed if force is set, else the error is ErrRunning. What a dead supervisor
// left running is killed. Destroying twice is no error.
func (c *Client) Destroy(ctx context.Context, force bool) error {
	err := c.askDestroy(ctx, force)
	switch {
	case errors.Is(err, ErrRunning):
		return err
	case err == nil:
		err = c.gone(ctx)
	}
	if err != nil {
		// Dead, or stuck: a stuck one holds a lock that would let nobody else in.
		if !errors.Is(err, ErrDied) && !force {
			return fmt.Errorf("destroy supervisor: %w", err)
		}
		if err := c.reap(ctx); err != nil {
			return fmt.Errorf("destroy supervisor: %w", err)
		}
	}
	return removeState(c.dir)
}

// leftover is the end of the name of a state directory that is being removed.
const leftover = ".gone"

// removeState makes a state directory vanish at once, so that whoever dies while
// removing it leaves nothing that looks like a task.
func removeState(dir string) error {
	gone := strings.TrimSuffix(dir, "/") + leftover
	if err := os.RemoveAll(gone); err != nil {
		return fmt.Errorf("remove supervisor's state: %w", err)
	}
	if err := os.Rename(dir, gone); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("remove supervisor's state: %w", err)
	}
	if err := os.RemoveAll(gone); err != nil {
		return fmt.Errorf("remove supervisor's state: %w", err)
	}
	return nil
}

// Sweep removes what is left in the parent of state directories where a
// removal was interrupted.
func Sweep(parent string) error {
	left, err := filepath.Glob(filepath.Join(parent, "*"+leftover))
	if err != nil {
		return fmt.Errorf("look for leftovers: %w", err)
	}
	for _, dir := range left {
		err = errors.Join(err, os.RemoveAll(dir))
	}
	if err != nil {
		return fmt.Errorf("remove leftovers: %w", err)
	}
	return nil
}

// askDestroy asks again where the connection breaks: the supervisor may be on its
// way out, having done as it was told, with the answer unsent.
func (c *Client) askDestroy(ctx context.Context, force bool) error {
	ctx, cancel := context.WithTimeout(ctx, c.answerIn)
	defer cancel()
	for {
		err := c.do(ctx, http.MethodPost, pathDestroy, destroyRequest{Force: force}, nil)
		var remote *remoteError
		if err == nil || errors.Is(err, ErrDied) || errors.As(err, &remote) {
			return err
		}
		if sleep(ctx, retryIn/10) != nil {
			return err
		}
	}
}

// Reap kills what a supervisor that has died left running, and keeps its state
// on disk. The supervisor itself is killed, too, should it be stuck.
func (c *Client) Reap(ctx context.Context) error {
	if err := c.reap(ctx); err != nil {
		return fmt.Errorf("reap task: %w", err)
	}
	return nil
}

func (c *Client) reap(ctx context.Context) error {
	if _, err := os.Stat(c.dir); errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err := c.info.kill(); err != nil {
		return err
	}
	if err := c.gone(ctx); err != nil {
		return err
	}
	var errs []error
	if of := c.start.Container; of != nil {
		// The runtime keeps it, whoever started it; and it goes first, since the
		// runtime needs its own processes beside the container to remove it.
		inside := *of
		inside.Name += preflightSuffix
		errs = append(errs, container.Remove(ctx, container.Machine{}, *of), container.Remove(ctx, container.Machine{}, inside))
	}
	check := c.start.Workload
	check.ID += preflightSuffix
	errs = append(errs, exec.Reap(ctx, c.start.Workload), exec.Reap(ctx, check))
	return errors.Join(errs...)
}

// gone waits until the supervisor has let go of its lock.
func (c *Client) gone(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, c.answerIn)
	defer cancel()
	for {
		if ok, err := alive(c.dir); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		} else if !ok {
			return nil
		}
		if err := sleep(ctx, retryIn/10); err != nil {
			return fmt.Errorf("wait for supervisor to end: %w", err)
		}
	}
}

// poll makes long polls until one is answered.
func (c *Client) poll(ctx context.Context, path string, out any) error {
	u, err := url.Parse(path)
	if err != nil {
		return fmt.Errorf("ask supervisor: %w", err)
	}
	q := u.Query()
	q.Set("wait_ms", strconv.FormatInt(pollFor.Milliseconds(), 10))
	u.RawQuery = q.Encode()
	for {
		once, cancel := context.WithTimeout(ctx, pollFor+c.answerIn)
		err := c.do(once, http.MethodGet, u.String(), nil, out)
		cancel()
		var remote *remoteError
		if err == nil || errors.Is(err, ErrDied) || errors.As(err, &remote) {
			return err
		}
		if err := sleep(ctx, retryIn); err != nil {
			return fmt.Errorf("ask supervisor: %w", err)
		}
	}
}

func (c *Client) call(ctx context.Context, method, path string, in, out any) error {
	ctx, cancel := context.WithTimeout(ctx, c.answerIn)
	defer cancel()
	return c.do(ctx, method, path, in, out)
}

func (c *Client) do(ctx context.Context, method, path string, in, out any) error {
	var body io.Reader
	if in != nil {
		b, err := json.Marshal(in)
		if err != nil {
			return fmt.Errorf("ask supervisor: %w", err)
		}
		body = bytes.NewReader(b)
	}
	req, err := http.NewRequestWithContext(ctx, method, "http://supervisor"+path, body)
	if err != nil {
		return fmt.Errorf("ask supervisor: %w", err)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return c.lost(err)
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode >= 300 {
		return readError(resp)
	}
	if out == nil {
		return nil
	}
	if err := json.NewDecoder(bufio.NewReader(resp.Body)).Decode(out); err != nil {
		return c.lost(err)
	}
	return nil
}

// lost says what the failure of a connection means.
func (c *Client) lost(err error) error {
	if ok, lockErr := alive(c.dir); lockErr == nil && ok {
		return fmt.Errorf("ask supervisor: %w", err)
	} else if lockErr != nil && !errors.Is(lockErr, os.ErrNotExist) {
		return fmt.Errorf("ask supervisor: %w", errors.Join(err, lockErr))
	}
	return fmt.Errorf("ask supervisor: %w", ErrDied)
}

func readError(resp *http.Response) error {
	var e wireError
	if err := json.NewDecoder(io.LimitReader(resp.Body, 1<<20)).Decode(&e); err != nil {
		return fmt.Errorf("ask supervisor: it answered %s", resp.Status)
	}
	return &remoteError{message: e.Message, is: codes[e.Code]}
}

func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// upgrade makes a connection one of frames.
func upgrade(conn net.Conn, body []byte) (*bufio.Reader, error) {
	req, err := http.NewRequest(http.MethodPost, "http://supervisor"+pathExec, bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("ask supervisor: %w", err)
	}
	req.Header.Set("Upgrade", execProtocol)
	req.Header.Set("Connection", "Upgrade")
	if err := req.Write(conn); err != nil {
		return nil, fmt.Errorf("ask supervisor: %w", err)
	}
	r := bufio.NewReader(conn)
	resp, err := http.ReadResponse(r, req)
	if err != nil {
		return nil, fmt.Errorf("ask supervisor: %w", err)
	}
	if resp.StatusCode != http.StatusSwitchingProtocols {
		defer func() { _ = resp.Body.Close() }()
		return nil, readError(resp)
	}
	return r, nil
}
