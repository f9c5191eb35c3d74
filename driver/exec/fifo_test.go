package exec

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func fifo(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "stdout.fifo")
	if err := unix.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// reader opens a FIFO as an agent's log collector does.
func reader(t *testing.T, path string) *os.File {
	t.Helper()
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	return f
}

func TestOutputSurvivesItsReader(t *testing.T) {
	const lines = 20000 // with what follows each more than a FIFO holds
	fill := strings.Repeat("-", 80)
	spec := shell(t, "i=0; while [ $i -lt "+strconv.Itoa(lines)+" ]; do i=$((i+1)); echo $i "+fill+"; done")
	spec.Stdout = fifo(t)
	w := start(t, spec) // nobody reads yet

	var want strings.Builder
	for i := range lines {
		fmt.Fprintln(&want, i+1, fill)
	}
	var got bytes.Buffer
	take := func(n int) { // one reader, for so many bytes
		t.Helper()
		f := reader(t, spec.Stdout)
		if _, err := io.CopyN(&got, f, int64(n)); err != nil {
			t.Fatalf("read: %v", err)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}
	take(1000)
	take(50001)
	select {
	case <-w.Done():
		t.Fatalf("it ended without a reader: %+v", w.exit)
	default:
	}
	const rest = 500
	take(want.Len() - got.Len() - rest)
	if exit := wait(t, w); exit != (Exit{}) {
		t.Errorf("exit = %+v", exit)
	}
	// What is left in the FIFO waits for its reader.
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := w.outputs[0].drain(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("drain: %v", err)
	}
	closed := make(chan error, 1)
	go func() { closed <- w.Close(soon(t)) }()
	take(rest)
	if err := <-closed; err != nil {
		t.Errorf("close: %v", err)
	}
	if got.String() != want.String() {
		t.Errorf("read %d bytes, want %d, or others", got.Len(), want.Len())
	}
}

func TestOutputEndsWithTheWorkload(t *testing.T) {
	spec := shell(t, "echo end >/dev/stdout")
	spec.Stdout = fifo(t)
	if os.Geteuid() == 0 {
		spec.User = "nobody" // who did not make the FIFO
		if err := os.Chmod(filepath.Dir(spec.Stdout), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(filepath.Dir(filepath.Dir(spec.Stdout)), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	f := reader(t, spec.Stdout)
	w := start(t, spec)
	wait(t, w)
	closed := make(chan error, 1)
	go func() { closed <- w.Close(soon(t)) }()
	text := bufio.NewReader(f)
	if line, err := text.ReadString('\n'); err != nil || line != "end\n" {
		t.Fatalf("read %q, %v", line, err)
	}
	if err := <-closed; err != nil {
		t.Fatal(err)
	}
	if _, err := text.ReadByte(); err == nil {
		t.Error("more is read after the end")
	}
}

func TestOutputFiles(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, []byte("before\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(dir, "link")
	if err := os.Symlink(file, link); err != nil {
		t.Fatal(err)
	}
	spec := shell(t, "echo out; echo err >&2")
	spec.Stdout, spec.Stderr = file, file
	wait(t, start(t, spec))
	if got, want := read(t, file), "before\nout\nerr\n"; got != want {
		t.Errorf("file = %q, want %q", got, want)
	}
	fresh := shell(t, "true")
	if err := Check(fresh); err != nil || exists(fresh.Stdout) {
		t.Errorf("a file that is not there yet: %v; made by checking: %v", err, exists(fresh.Stdout))
	}
	for _, path := range []string{link, dir, "/dev/tty", filepath.Join(dir, "missing", "file")} {
		spec := shell(t, "echo out")
		spec.Stdout = path
		var faults *SpecError
		if err := Check(spec); !errors.As(err, &faults) || faults.Faults[0].Field != "stdout" {
			t.Errorf("%s: %v", path, err)
		}
		if out, err := openOutput(path); err == nil {
			out.close()
			t.Errorf("%s was opened", path)
		}
	}
}
