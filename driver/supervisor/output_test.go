package supervisor

import (
	"io"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/caravan-sched/caravan/driver/gangapi"
	"github.com/caravan-sched/caravan/driver/supervisor/machine"
)

// collect reads a FIFO into a file as Nomad's log collector does: until its last
// writer has gone, and never again. The channel is closed then.
func collect(t *testing.T, fifo, file string) <-chan struct{} {
	t.Helper()
	if err := unix.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := os.Create(file)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer out.Close()
		in, err := os.Open(fifo)
		if err != nil {
			return
		}
		defer in.Close()
		_, _ = io.Copy(out, in)
	}()
	return done
}

// Nomad reads a task's output until the last writer closes it. A preflight, and
// code that goes back to the barrier, must not be the last.
func TestOutputOutlivesRestarts(t *testing.T) {
	p := newHTTPPlanner(t)
	p.join = startAtOnce
	dir, s := shell(t, p, `echo "in $CARAVAN_EPOCH"; while :; do sleep 0.02; done`)
	s.Preflight = &Preflight{Command: "/bin/sh", Args: []string{"-c", "echo checked"}, Timeout: patient}
	fifo := filepath.Join(s.Workload.Dir, "fifo")
	ended := collect(t, fifo, s.Workload.Stdout)
	read := s
	s.Workload.Stdout, s.Workload.Stderr = fifo, fifo
	c, ctx := launch(t, dir, s)
	untilOutput(t, ctx, read, "checked\nin e1\n")
	p.set(func() {
		p.report = func(r gangapi.ReportRequest) gangapi.ReportAnswer {
			if r.Epoch != "e1" {
				return gangapi.ReportAnswer{}
			}
			return gangapi.ReportAnswer{Order: &gangapi.Order{Sequence: 1, Kind: gangapi.OrderRestart, Urgent: true, Reason: "rank 3 failed first"}}
		}
	})
	until(t, ctx, c, "the second start", func(s Status) bool { return s.Epoch == "e2" && s.Phase == machine.Running })
	untilOutput(t, ctx, read, "checked\nin e1\nchecked\nin e2\n")
	if err := c.Stop(ctx, 0, ""); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Wait(ctx); err != nil {
		t.Fatal(err)
	}
	// Nomad waits for this end, though the supervisor lives on.
	select {
	case <-ended:
	case <-ctx.Done():
		t.Error("the output has no end after the task's")
	}
}
