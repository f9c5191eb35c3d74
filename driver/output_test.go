package driver

import (
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/caravan-sched/caravan/internal/nomadplugin/driver"
)

// filler makes lines of a usual length, as the program in the test's image does.
var filler = strings.Repeat("-", 80)

// fifos gives a task's output FIFOs, as a client does.
func (r *rig) fifos(t *driver.TaskConfig) {
	r.t.Helper()
	for _, path := range []*string{&t.StdoutPath, &t.StderrPath} {
		*path += ".fifo"
		if err := unix.Mkfifo(*path, 0o600); err != nil {
			r.t.Fatal(err)
		}
	}
}

// readFIFO reads so many bytes of a FIFO as somebody who has just come and then
// goes; all there is for less than 0.
func (r *rig) readFIFO(path string, n int64) string {
	r.t.Helper()
	f, err := os.Open(path)
	if err != nil {
		r.t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	var out strings.Builder
	if n < 0 {
		_, err = io.Copy(&out, f)
	} else {
		_, err = io.CopyN(&out, f, n)
	}
	if err != nil {
		r.t.Fatalf("read %s: %v after %d bytes", path, err, out.Len())
	}
	return out.String()
}

// numbered are lines with numbers.
func numbered(lines int) string {
	var want strings.Builder
	for i := range lines {
		fmt.Fprintln(&want, i+1, filler)
	}
	return want.String()
}

// losesNothing reads what a task writes as fast as it can, goes away with the
// agent, which is killed, and comes back with the next one.
func (r *rig) losesNothing(t driver.TaskConfig, h driver.Handle, lines int) {
	r.t.Helper()
	got := r.readFIFO(t.StdoutPath, 10_007)
	if err := syscall.Kill(r.plugin.Handle().PID(), syscall.SIGKILL); err != nil {
		r.t.Fatal(err)
	}
	r.eventually("end of the plugin", func() (bool, any) { return r.plugin.Exited(), nil })
	// Nobody has read on: the task waits for a reader with the FIFO full.
	r.eventually("full FIFO", func() (bool, any) {
		f, err := os.OpenFile(t.StdoutPath, os.O_RDWR, 0)
		if err != nil {
			return false, err
		}
		defer func() { _ = f.Close() }()
		waiting, err := unix.IoctlGetInt(int(f.Fd()), unix.TIOCINQ)
		return waiting > 32<<10, fmt.Sprint(waiting, err)
	})
	r.launch()
	if err := r.Recover(r.t.Context(), h); err != nil {
		r.t.Fatal(err)
	}
	got += r.readFIFO(t.StdoutPath, 100_003)
	got += r.readFIFO(t.StdoutPath, -1)
	if e := r.exit(t.ID); e != (driver.Exit{}) {
		r.t.Errorf("exit = %+v", e)
	}
	want := numbered(lines)
	if got == want {
		return
	}
	at := 0
	for at < min(len(got), len(want)) && got[at] == want[at] {
		at++
	}
	r.t.Errorf("read %d bytes, want %d; other from byte %d on:\ngot  %.100q\nwant %.100q", len(got), len(want), at, got[max(0, at-20):], want[max(0, at-20):])
}

// TestOutputIsNotLost: not a line, and none comes twice, though nobody reads for
// a while and the plugin dies in the meantime.
func TestOutputIsNotLost(t *testing.T) {
	const lines = 60_000
	r := newRig(t)
	task := r.task("a", fmt.Sprintf("command = \"/bin/sh\"\nargs = [\"-c\", %q]", fmt.Sprintf("i=0; while [ $i -lt %d ]; do i=$((i+1)); echo $i %s; done", lines, filler)))
	r.fifos(&task)
	h, _, err := r.Start(t.Context(), task)
	if err != nil {
		t.Fatal(err)
	}
	r.losesNothing(task, h, lines)
}

// TestPodmanOutputIsNotLost is the same through the client of a runtime.
func TestPodmanOutputIsNotLost(t *testing.T) {
	const lines = 60_000
	r := newPodRig(t)
	task := r.pod("a", []string{"count", fmt.Sprint(lines)}, r.fifos)
	r.losesNothing(task, r.run(task), lines)
}
