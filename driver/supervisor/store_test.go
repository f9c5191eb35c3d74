package supervisor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/go-hclog"

	"github.com/caravan-sched/caravan/driver/exec"
	"github.com/caravan-sched/caravan/driver/supervisor/machine"
)

func tellMany(b *board, n int) {
	for i := range n {
		b.tell(Event{Kind: machine.EventProblem, Message: fmt.Sprint(i)})
	}
}

func TestStoreKeepsTheNewest(t *testing.T) {
	dir := t.TempDir()
	b := newBoard()
	s := newStore(dir, b, hclog.NewNullLogger())
	for range 40 {
		tellMany(b, 50)
		if err := s.keep(); err != nil {
			t.Fatal(err)
		}
	}
	kept, err := readEvents(filepath.Join(dir, fileEvents), 0)
	if err != nil {
		t.Fatal(err)
	}
	if len(kept) < keptEvents || len(kept) > 2*keptEvents || kept[len(kept)-1].Sequence != 2000 {
		t.Errorf("%d events on disk, the last is %d; want between %d and %d, and 2000", len(kept), kept[len(kept)-1].Sequence, keptEvents, 2*keptEvents)
	}
	for i, e := range kept {
		if want := 2000 - int64(len(kept)-1-i); e.Sequence != want {
			t.Fatalf("event %d has the number %d, want %d", i, e.Sequence, want)
		}
	}
}

func TestStoreFullDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBoard()
		var full atomic.Bool
		full.Store(true)
		var exits []Exit
		var events []Event
		write := func() error {
			if full.Load() {
				return syscall.ENOSPC
			}
			return nil
		}
		s := &store{
			board: b, log: hclog.NewNullLogger(),
			writeExit: func(e Exit) error {
				if err := write(); err != nil {
					return err
				}
				exits = append(exits, e)
				return nil
			},
			appendEvents:  func(all []Event) error { events = append(events, all...); return write() },
			rewriteEvents: func(all []Event) error { events = all; return write() },
		}
		ctx, cancel := context.WithCancel(t.Context())
		go s.run(ctx)
		tellMany(b, 3)
		b.exit(Exit{Exit: exec.Exit{Code: 7}})
		synctest.Wait()
		status, _, _ := b.look(0)
		if status.Exit == nil || status.Exit.Code != 7 || len(status.Notes) != 1 || !strings.Contains(status.Notes[0], "no space left") {
			t.Errorf("status %+v, want the exit and a note", status)
		}
		full.Store(false)
		time.Sleep(storeAgain)
		synctest.Wait()
		if len(exits) != 1 || exits[0].Code != 7 || len(events) != 3 {
			t.Errorf("written: exits %v, %d events; want one and 3", exits, len(events))
		}
		if status, _, _ := b.look(0); len(status.Notes) != 0 {
			t.Errorf("notes %v, want none any more", status.Notes)
		}
		cancel()
		synctest.Wait()
	})
}

func TestStoreHangingDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBoard()
		disk := make(chan struct{})
		s := &store{
			board: b, log: hclog.NewNullLogger(),
			writeExit:     func(Exit) error { <-disk; return nil },
			appendEvents:  func([]Event) error { <-disk; return nil },
			rewriteEvents: func([]Event) error { <-disk; return nil },
		}
		ctx, cancel := context.WithCancel(t.Context())
		go s.run(ctx)
		tellMany(b, 1000)
		b.exit(Exit{Exit: exec.Exit{Code: 7}})
		if !b.await(t.Context(), func(s Status) bool { return s.Exit != nil && s.Events == 1000 }) {
			t.Error("no exit")
		}
		close(disk)
		cancel()
		synctest.Wait()
	})
}

func TestReadEventsOfACrash(t *testing.T) {
	path := filepath.Join(t.TempDir(), fileEvents)
	text := `{"sequence":1,"kind":"started","message":"a"}
nonsense
{"sequence":2,"kind":"ended","message":"b"}
{"sequence":3,"kind":"ex`
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	got, err := readEvents(path, 1)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]Event{{Sequence: 2, Kind: "ended", Message: "b"}}, got); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
	if got, err := readEvents(path+".not", 0); got != nil || err != nil {
		t.Errorf("events of no file: %v, %v", got, err)
	}
}

func FuzzReadEvents(f *testing.F) {
	f.Add([]byte(`{"sequence":1,"kind":"started","message":"a"}` + "\n"))
	f.Add([]byte("\n\n{}\n{\"sequence\":-1}"))
	f.Fuzz(func(t *testing.T, body []byte) {
		path := filepath.Join(t.TempDir(), fileEvents)
		if err := os.WriteFile(path, body, 0o600); err != nil {
			t.Fatal(err)
		}
		got, _ := readEvents(path, 0)
		for _, e := range got {
			if e.Sequence <= 0 {
				t.Fatalf("an event that was not asked for: %+v", e)
			}
		}
	})
}

func TestWriteFileFails(t *testing.T) {
	dir := t.TempDir()
	if err := writeFile(filepath.Join(dir, "none", "exit.json"), nil); err == nil {
		t.Error("no error for a directory that is not there")
	}
	path := filepath.Join(dir, "exit.json")
	if err := os.Mkdir(path, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := writeFile(path, []byte("x")); err == nil {
		t.Error("no error for a directory in the file's place")
	}
	left, err := filepath.Glob(filepath.Join(dir, ".exit*"))
	if err != nil || len(left) != 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

func TestLogIsBounded(t *testing.T) {
	dir := t.TempDir()
	l := openLog(dir)
	line := []byte(strings.Repeat("x", 1000) + "\n")
	for range 3 * maxLog / len(line) {
		l.lines <- line // not by Write, which drops what comes too fast
	}
	l.Close()
	for _, name := range []string{fileLog, fileLog + ".1"} {
		info, err := os.Stat(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		if info.Size() == 0 || info.Size() > maxLog {
			t.Errorf("%s has %d bytes, want up to %d", name, info.Size(), maxLog)
		}
	}
}

func TestLogDropsWhatTheDiskDoesNotTake(t *testing.T) {
	l := &logFile{lines: make(chan []byte, 1)} // nobody reads
	for range 3 {
		if n, err := l.Write([]byte("line")); n != 4 || err != nil {
			t.Fatalf("write: %d, %v", n, err)
		}
	}
}

func TestClientVersions(t *testing.T) {
	dir := t.TempDir()
	_, s := shell(t, nil, "true")
	if err := writeJSON(filepath.Join(dir, fileStart), s); err != nil {
		t.Fatal(err)
	}
	if err := writeJSON(filepath.Join(dir, fileInfo), info{Version: Version + 5, Compatible: Version}); err != nil {
		t.Fatal(err)
	}
	if _, err := Attach(dir); err != nil {
		t.Errorf("a newer supervisor that this client understands: %v", err)
	}
	if err := writeJSON(filepath.Join(dir, fileInfo), info{Version: Version + 5, Compatible: Version + 1}); err != nil {
		t.Fatal(err)
	}
	if _, err := Attach(dir); !errors.Is(err, ErrVersion) {
		t.Errorf("attach: %v, want ErrVersion", err)
	}
	if err := os.WriteFile(filepath.Join(dir, fileInfo), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Attach(dir); err == nil {
		t.Error("attach to a file that was cut off: no error")
	}
}

func TestKillOnlyTheSupervisor(t *testing.T) {
	me, err := thisProcess("run")
	if err != nil {
		t.Fatal(err)
	}
	// This process has the PID, but is another one: it would die.
	other := me
	other.StartTicks++
	rebooted := me
	rebooted.Boot = "another"
	for _, i := range []info{other, rebooted} {
		if err := i.kill(); err != nil {
			t.Error(err)
		}
	}
}
