package supervisor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/hashicorp/go-hclog"
)

// storeAgain is the wait after something could not be written.
const storeAgain = 5 * time.Second

// store keeps the exit and the events on disk. It has a goroutine of its own:
// a disk that is full or hangs holds nothing else up, and what could not be
// written is written when it can be.
type store struct {
	board *board
	log   hclog.Logger
	// writeExit replaces the exit's file; appendEvents adds to the events' file,
	// and rewriteEvents replaces it.
	writeExit     func(Exit) error
	appendEvents  func([]Event) error
	rewriteEvents func([]Event) error

	lines   int
	written int64
	exit    bool
	failing bool
}

func newStore(dir string, b *board, log hclog.Logger) *store {
	events := filepath.Join(dir, fileEvents)
	return &store{
		board: b, log: log,
		writeExit:     func(e Exit) error { return writeJSON(filepath.Join(dir, fileExit), e) },
		appendEvents:  func(all []Event) error { return appendEvents(events, all) },
		rewriteEvents: func(all []Event) error { return rewriteEvents(events, all) },
	}
}

// run keeps what changes until ctx ends, and then once more.
func (s *store) run(ctx context.Context) {
	for {
		_, _, changed := s.board.look(0)
		err := s.keep()
		s.judge(err)
		if err != nil {
			changed = nil // nothing new makes it more urgent
		}
		var again <-chan time.Time
		if err != nil {
			again = time.After(storeAgain)
		}
		select {
		case <-changed:
		case <-again:
		case <-ctx.Done():
			s.judge(s.keep())
			return
		}
	}
}

// judge tells the operator when the disk begins and ends to fail.
func (s *store) judge(err error) {
	switch {
	case err != nil && !s.failing:
		s.failing = true
		s.log.Error("could not write the task's state; trying again", "reason", err)
		s.board.note("the task's state cannot be written: " + err.Error())
	case err == nil && s.failing:
		s.failing = false
		s.board.note("")
	}
}

// keep writes what is new. The exit comes first: it matters most.
func (s *store) keep() error {
	status, events, _ := s.board.look(s.written)
	var errs []error
	if status.Exit != nil && !s.exit {
		if err := s.writeExit(*status.Exit); err != nil {
			errs = append(errs, err)
		} else {
			s.exit = true
		}
	}
	if len(events) > 0 {
		errs = append(errs, s.keepEvents(events))
	}
	return errors.Join(errs...)
}

func (s *store) keepEvents(events []Event) error {
	// A line that was written in part is left behind by a failure.
	if s.failing || s.lines+len(events) > 2*keptEvents {
		_, all, _ := s.board.look(0)
		if err := s.rewriteEvents(all); err != nil {
			return err
		}
		s.lines, s.written = len(all), all[len(all)-1].Sequence
		return nil
	}
	if err := s.appendEvents(events); err != nil {
		return err
	}
	s.lines += len(events)
	s.written = events[len(events)-1].Sequence
	return nil
}

func encodeEvents(all []Event) ([]byte, error) {
	var out []byte
	for _, e := range all {
		line, err := json.Marshal(e)
		if err != nil {
			return nil, fmt.Errorf("encode event: %w", err)
		}
		out = append(append(out, line...), '\n')
	}
	return out, nil
}

func appendEvents(path string, events []Event) error {
	body, err := encodeEvents(events)
	if err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return fmt.Errorf("append events: %w", err)
	}
	_, err = f.Write(body)
	if err := errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("append events: %w", err)
	}
	return nil
}

func rewriteEvents(path string, all []Event) error {
	body, err := encodeEvents(all)
	if err != nil {
		return err
	}
	return writeFile(path, body)
}
