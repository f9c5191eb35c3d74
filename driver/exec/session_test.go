package exec

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

// buffer may be read while it is written.
type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

func runIn(t *testing.T, w *Workload, spec ExecSpec) (stdout, stderr string, exit Exit) {
	t.Helper()
	var out, errs buffer
	spec.Stdout, spec.Stderr = &out, &errs
	s, err := w.Exec(soon(t), spec)
	if err != nil {
		t.Fatalf("run in workload: %v", err)
	}
	exit, err = s.Wait(soon(t))
	if err != nil {
		t.Fatalf("wait: %v", err)
	}
	return out.String(), errs.String(), exit
}

func script(text string) []string { return []string{"/bin/sh", "-c", text} }

func TestExec(t *testing.T) {
	tests := map[string]struct {
		spec     ExecSpec
		wantOut  string
		wantErr  string
		wantExit Exit
	}{
		"output":      {spec: ExecSpec{Command: script("echo out; echo err >&2; exit 7")}, wantOut: "out\n", wantErr: "err\n", wantExit: Exit{Code: 7}},
		"signal":      {spec: ExecSpec{Command: script("kill -TERM $$")}, wantExit: Exit{Signal: 15}},
		"input":       {spec: ExecSpec{Command: []string{"cat"}, Stdin: strings.NewReader("in")}, wantOut: "in"},
		"no input":    {spec: ExecSpec{Command: []string{"cat"}}},
		"environment": {spec: ExecSpec{Command: script("echo $A $B"), Env: []string{"B=3"}}, wantOut: "1 3\n"},
		"directory":   {spec: ExecSpec{Command: []string{"pwd"}}, wantOut: "/tmp\n"},
		"ulimit":      {spec: ExecSpec{Command: script("ulimit -n")}, wantOut: "99\n"},
		"terminal": {
			spec:    ExecSpec{Command: script("stty size; tty >/dev/null && echo terminal; ps -o tpgid= -o pgid= -p $$ | awk '{print $1==$2}'"), TTY: true, Size: Size{Rows: 12, Columns: 34}},
			wantOut: "12 34\r\nterminal\r\n1\r\n",
		},
		"terminal's input": {spec: ExecSpec{Command: script("stty -echo; echo ready; cat"), TTY: true, Stdin: strings.NewReader("")}, wantOut: "ready\r\n"},
		"much": {
			spec:    ExecSpec{Command: script("head -c 3000000 /dev/zero | tr '\\0' x")},
			wantOut: strings.Repeat("x", 3000000),
		},
	}
	for way, change := range ways() {
		t.Run(way, func(t *testing.T) {
			spec := shell(t, "sleep 1000")
			spec.Dir, spec.Env, spec.Ulimits = "/tmp", append(spec.Env, "A=1", "B=2"), map[string]string{"nofile": "99"}
			change(t, &spec)
			w := start(t, spec)
			for name, test := range tests {
				t.Run(name, func(t *testing.T) {
					if s, ok := test.spec.Stdin.(*strings.Reader); ok {
						_, _ = s.Seek(0, io.SeekStart)
					}
					out, errs, exit := runIn(t, w, test.spec)
					if out != test.wantOut && len(out)+len(test.wantOut) > 1000 {
						t.Errorf("got %d bytes, want %d", len(out), len(test.wantOut))
					} else if diff := cmp.Diff(test.wantOut, out); diff != "" {
						t.Errorf("output (-want +got):\n%s", diff)
					}
					if diff := cmp.Diff(test.wantErr, errs); diff != "" {
						t.Errorf("errors (-want +got):\n%s", diff)
					}
					if exit != test.wantExit {
						t.Errorf("exit = %+v, want %+v", exit, test.wantExit)
					}
				})
			}
		})
	}
}

func TestExecIsInside(t *testing.T) {
	needRoot(t)
	spec := shell(t, "")
	spec.User, spec.PIDNamespace, spec.IPCNamespace = "4711:4712", true, true
	spec.Command, spec.Args = "/bin/sh", []string{"-c", "exec sleep 1000"}
	w := start(t, spec)
	const show = "id -u; for n in pid mnt ipc net; do readlink /proc/self/ns/$n; done; cat /proc/self/cgroup; ps ax -o comm= | grep sleep"
	out, errs, exit := runIn(t, w, ExecSpec{Command: script(show)})
	if exit != (Exit{}) {
		t.Fatalf("exit = %+v: %s%s", exit, out, errs)
	}
	var want strings.Builder
	want.WriteString("4711\n")
	for _, n := range []string{"pid", "mnt", "ipc", "net"} {
		ns, err := os.Readlink("/proc/" + pidText(w.PID()) + "/ns/" + n)
		if err != nil {
			t.Fatal(err)
		}
		want.WriteString(ns + "\n")
	}
	want.WriteString(read(t, "/proc/"+pidText(w.PID())+"/cgroup") + "sleep\n")
	if diff := cmp.Diff(want.String(), out); diff != "" {
		t.Errorf("inside (-want +got):\n%s", diff)
	}
}

func TestTerminal(t *testing.T) {
	for way, change := range ways() {
		t.Run(way, func(t *testing.T) {
			spec := shell(t, "sleep 1000")
			change(t, &spec)
			w := start(t, spec)
			in, feed := io.Pipe()
			var out buffer
			s, err := w.Exec(soon(t), ExecSpec{Command: script("trap 'stty size' WINCH; trap 'echo interrupted; exit 3' INT; echo ready; while :; do read x; done"), TTY: true, Stdin: in, Stdout: &out})
			if err != nil {
				t.Fatal(err)
			}
			eventually(t, "ready", func() bool { return strings.Contains(out.String(), "ready") })
			if err := s.Resize(Size{Rows: 50, Columns: 60}); err != nil {
				t.Fatal(err)
			}
			// The shell runs its trap between two lines.
			if _, err := feed.Write([]byte("\n")); err != nil {
				t.Fatal(err)
			}
			eventually(t, "resized", func() bool { return strings.Contains(out.String(), "50 60") })
			if _, err := feed.Write([]byte{3}); err != nil { // ^C
				t.Fatal(err)
			}
			exit, err := s.Wait(soon(t))
			if err != nil || exit != (Exit{Code: 3}) {
				t.Errorf("exit = %+v, %v; output %q", exit, err, out.String())
			}
			_ = feed.Close()
		})
	}
}

func TestExecFaults(t *testing.T) {
	w := start(t, shell(t, "sleep 1000"))
	var fault *SpecError
	if _, err := w.Exec(soon(t), ExecSpec{Command: []string{"no-such-command"}, Env: []string{"x"}}); !errors.As(err, &fault) || len(fault.Faults) != 2 {
		t.Errorf("a missing command and a bad variable: %v", err)
	}
	if _, err := w.Exec(soon(t), ExecSpec{}); !errors.As(err, &fault) {
		t.Errorf("no command: %v", err)
	}
	s, err := w.Exec(soon(t), ExecSpec{Command: []string{"sleep", "1000"}})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Resize(Size{}); err == nil {
		t.Error("resized what is no terminal")
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := s.Wait(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("wait: %v", err)
	}
	if err := s.Signal(unix.SIGTERM); !errors.Is(err, ErrNotRunning) {
		t.Errorf("signal: %v", err)
	}
	// What it leaves behind holds its output open; it is not waited for.
	if out, _, _ := runIn(t, w, ExecSpec{Command: script("sleep 1000 & echo x")}); out != "x\n" {
		t.Errorf("output = %q", out)
	}
	// Killed with the workload.
	s, err = w.Exec(soon(t), ExecSpec{Command: []string{"sleep", "1000"}})
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Kill(soon(t)); err != nil {
		t.Fatal(err)
	}
	if exit, err := s.Wait(soon(t)); err != nil || exit.Signal != int(unix.SIGKILL) {
		t.Errorf("exit = %+v, %v", exit, err)
	}
	if _, err := w.Exec(soon(t), ExecSpec{Command: []string{"true"}}); !errors.Is(err, ErrNotRunning) {
		t.Errorf("after the end: %v", err)
	}
}

func TestExecSeesMounts(t *testing.T) {
	needRoot(t)
	source, target := t.TempDir(), t.TempDir()
	if err := os.WriteFile(source+"/file", []byte("there"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, propagation := range []string{"", "host-to-task"} {
		spec := shell(t, "sleep 1000")
		spec.Mounts = []Mount{{HostPath: source, TaskPath: target, Propagation: propagation}}
		w := start(t, spec)
		if out, errs, _ := runIn(t, w, ExecSpec{Command: []string{"cat", target + "/file"}}); out != "there" {
			t.Errorf("%q: output = %q, %q", propagation, out, errs)
		}
		if err := w.Close(soon(t)); err != nil {
			t.Fatal(err)
		}
	}
}
