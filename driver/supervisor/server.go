package supervisor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"

	"github.com/caravan-sched/caravan/driver/exec"
	"github.com/caravan-sched/caravan/driver/supervisor/machine"
)

// server answers the control socket.
type server struct {
	runner *runner
	board  *board
	// destroyed is called when the supervisor is to end.
	destroyed func()
}

func (s *server) handler() http.Handler {
	mux := http.NewServeMux()
	for pattern, f := range map[string]func(http.ResponseWriter, *http.Request) error{
		"GET " + pathStatus:   s.status,
		"GET " + pathWait:     s.wait,
		"GET " + pathEvents:   s.events,
		"GET " + pathUsage:    s.usage,
		"POST " + pathStop:    s.stop,
		"POST " + pathSignal:  s.signal,
		"POST " + pathSuspend: s.suspend,
		"POST " + pathResume:  s.resume,
		"POST " + pathExec:    s.exec,
		"POST " + pathDestroy: s.destroy,
	} {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, req *http.Request) {
			if err := f(w, req); err != nil {
				answerError(w, err)
			}
		})
	}
	return mux
}

func answer(w http.ResponseWriter, v any) error {
	w.Header().Set("Content-Type", "application/json")
	// Where that fails, the client is gone, and there is nobody to tell.
	_ = json.NewEncoder(w).Encode(v)
	return nil
}

// runningError gives the workload's word for having ended as ours.
func runningError(what string, err error) error {
	if errors.Is(err, exec.ErrNotRunning) {
		err = ErrNotRunning
	}
	return fmt.Errorf("%s: %w", what, err)
}

func answerError(w http.ResponseWriter, err error) {
	e, status := wireError{Message: err.Error()}, http.StatusInternalServerError
	for code, is := range codes {
		if errors.Is(err, is) {
			e.Code, status = code, http.StatusConflict
		}
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = answer(w, e)
}

// maxRequest bounds the body of a request.
const maxRequest = 1 << 20

func read(req *http.Request, v any) error {
	dec := json.NewDecoder(io.LimitReader(req.Body, maxRequest))
	if err := dec.Decode(v); err != nil {
		return fmt.Errorf("%w: %w", ErrBadRequest, err)
	}
	return nil
}

// patience is how long a poll may wait.
func patience(req *http.Request) (context.Context, context.CancelFunc) {
	ms, err := strconv.ParseInt(req.URL.Query().Get("wait_ms"), 10, 64)
	if err != nil || ms < 0 {
		ms = 0
	}
	return context.WithTimeout(req.Context(), min(time.Duration(ms)*time.Millisecond, time.Minute))
}

func (s *server) status(w http.ResponseWriter, _ *http.Request) error {
	status, _, _ := s.board.look(0)
	return answer(w, status)
}

func (s *server) wait(w http.ResponseWriter, req *http.Request) error {
	ctx, cancel := patience(req)
	defer cancel()
	s.board.await(ctx, func(st Status) bool { return st.Exit != nil })
	status, _, _ := s.board.look(0)
	return answer(w, map[string]*Exit{"exit": status.Exit})
}

func (s *server) events(w http.ResponseWriter, req *http.Request) error {
	ctx, cancel := patience(req)
	defer cancel()
	since, err := strconv.ParseInt(req.URL.Query().Get("since"), 10, 64)
	if err != nil {
		return fmt.Errorf("%w: since: a number", ErrBadRequest)
	}
	s.board.await(ctx, func(st Status) bool { return st.Events > since })
	_, events, _ := s.board.look(since)
	return answer(w, map[string][]Event{"events": events})
}

// startFor is how long somebody waits for user's code that is about to start.
const startFor = 5 * time.Second

// code is the user's code. Its output may be seen before its start has returned;
// who reacts to that is not told that it does not run.
func (s *server) code(ctx context.Context) (workload, error) {
	ctx, cancel := context.WithTimeout(ctx, startFor)
	defer cancel()
	s.board.await(ctx, func(st Status) bool { return st.Phase != machine.Starting })
	if w := s.runner.workload(); w != nil {
		return w, nil
	}
	return nil, ErrNotRunning
}

func (s *server) usage(w http.ResponseWriter, req *http.Request) error {
	code, err := s.code(req.Context())
	if err != nil {
		return err
	}
	u, err := code.Usage()
	if err != nil {
		return runningError("measure the user's code", err)
	}
	return answer(w, u)
}

func (s *server) stop(w http.ResponseWriter, req *http.Request) error {
	var in stopRequest
	if err := read(req, &in); err != nil {
		return err
	}
	if in.TimeoutMS < 0 || in.TimeoutMS > maxStop.Milliseconds() {
		return fmt.Errorf("%w: timeout_ms = %d: 0 to %d", ErrBadRequest, in.TimeoutMS, maxStop.Milliseconds())
	}
	if in.Signal != "" {
		if _, err := parseSignal(in.Signal); err != nil {
			return fmt.Errorf("%w: signal: %w", ErrBadRequest, err)
		}
	}
	s.runner.post(machine.StopAsked{Timeout: time.Duration(in.TimeoutMS) * time.Millisecond, Signal: in.Signal})
	return answer(w, struct{}{})
}

// maxStop is longer than any stop may take.
const maxStop = 30 * 24 * time.Hour

func (s *server) signal(w http.ResponseWriter, req *http.Request) error {
	var in signalRequest
	if err := read(req, &in); err != nil {
		return err
	}
	sig, err := parseSignal(in.Signal)
	if err != nil {
		return fmt.Errorf("%w: signal: %w", ErrBadRequest, err)
	}
	code, err := s.code(req.Context())
	if err != nil {
		return err
	}
	if err := code.Signal(sig); err != nil {
		return runningError("signal the user's code", err)
	}
	return answer(w, struct{}{})
}

func (s *server) suspend(w http.ResponseWriter, req *http.Request) error {
	return s.freeze(w, req, machine.SuspendAsked{}, machine.Suspended)
}

func (s *server) resume(w http.ResponseWriter, req *http.Request) error {
	return s.freeze(w, req, machine.ResumeAsked{}, machine.Running)
}

// freeze asks for a phase and waits until it is there, or cannot be.
func (s *server) freeze(w http.ResponseWriter, req *http.Request, ask machine.Input, want machine.Phase) error {
	if _, err := s.code(req.Context()); err != nil {
		return err
	}
	before, _ := s.board.lastFreeze()
	s.runner.post(ask)
	var failed error
	done := s.board.await(req.Context(), func(st Status) bool {
		if n, err := s.board.lastFreeze(); n > before && err != nil {
			failed = err
			return true
		}
		return st.Phase == want || st.Phase != machine.Running && st.Phase != machine.Suspended
	})
	status, _, _ := s.board.look(0)
	switch {
	case failed != nil:
		return fmt.Errorf("suspend or resume the user's code: %w", failed)
	case status.Phase == want:
		return answer(w, struct{}{})
	case !done:
		return req.Context().Err()
	}
	return ErrNotRunning
}

func (s *server) destroy(w http.ResponseWriter, req *http.Request) error {
	var in destroyRequest
	if err := read(req, &in); err != nil {
		return err
	}
	over := func(st Status) bool { return st.Exit != nil }
	if status, _, _ := s.board.look(0); !over(status) {
		if !in.Force {
			return ErrRunning
		}
		s.runner.post(machine.StopAsked{})
		if !s.board.await(req.Context(), over) {
			return req.Context().Err()
		}
	}
	err := answer(w, struct{}{})
	s.destroyed()
	return err
}
